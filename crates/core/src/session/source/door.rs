//! The opening of a session by one path.

use crate::wire::Cookie;

/// How a path stands with the monitor while a session is opened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Door {
    /// The last challenge's by this path: a cookie is good for one address.
    pub(super) cookie: Cookie,
    /// Openings that left by it since its last ack, and have no answer; a few count as a few.
    pub(super) openings: u8,
}

/// The most [`Door::openings`] that count: a monitor that has forgotten us by a path on which
/// openings were lost is believed after so many challenges.
pub(super) const MOST_OPENINGS: u8 = 3;
