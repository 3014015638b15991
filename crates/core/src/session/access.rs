//! Decides which sessions may be opened, where a list of tokens is not enough.

use crate::wire::{CloseReason, Opening};

/// The rules of a monitor, or of the server of a downlink, for one connection or address. The session
/// layer asks at every opening, also at those of further paths.
pub trait Access {
    /// The credential that the opening shows: the same number for the same credential, and another one
    /// for each other credential. A session and its name belong to the credential that opened it.
    ///
    /// # Errors
    /// Why the opening is refused. [`CloseReason::NotPermitted`] is for peers whose credential is known;
    /// others get [`CloseReason::BadToken`], which reveals nothing of the rules.
    fn check(&self, opening: &Opening<'_>) -> Result<u64, CloseReason>;
}
