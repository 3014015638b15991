//! Rules for opening sessions, if a list of tokens is not enough.

use crate::wire::{CloseReason, Opening};

/// The rules of a monitor, or of the server of a downlink, for one connection or address. The
/// session layer checks every opening, also on further paths.
pub trait Access {
    /// The credential of the opening: equal numbers for equal credentials, different numbers for
    /// different ones. A session and its name belong to the credential that opened it.
    ///
    /// # Errors
    /// Why the opening is refused. [`CloseReason::NotPermitted`] is for peers whose credential is
    /// known; others get [`CloseReason::BadToken`], which reveals nothing of the rules.
    fn check(&self, opening: &Opening<'_>) -> Result<u64, CloseReason>;
}
