//! The operating system's refusals.

use std::io;

/// The operating system refused something that an endpoint needs.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {error}")]
pub struct SystemError {
    /// The failed action.
    pub what: &'static str,
    /// The system's error.
    pub error: io::Error,
}

/// Names the failed action.
pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> SystemError {
    move |error| SystemError { what, error }
}
