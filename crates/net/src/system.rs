//! What the operating system refused.

use std::io;

/// The operating system refused something that an endpoint needs.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {error}")]
pub struct SystemError {
    /// What was tried.
    pub what: &'static str,
    /// What the system said.
    pub error: io::Error,
}

/// Says what was tried.
pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> SystemError {
    move |error| SystemError { what, error }
}
