//! The opening of a session by one path.

use crate::wire::Cookie;

/// How a path stands with the monitor while a session is opened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Door {
    /// The last challenge's by this path: a cookie is good for one address.
    pub(super) cookie: Cookie,
    /// Openings that left by it since its last ack, and have no answer; a few count as a few.
    pub(super) openings: u8,
    /// Whether the session is open by another path and not yet by this one. Its updates carry the
    /// opening then, as the monitor may take a session only from connections that have opened it.
    pub(super) is_unproven: bool,
    /// Whether a challenge has brought an opening forward since the last one that was due by itself.
    /// It can do so once: a monitor that sends a new cookie with each challenge must not set the pace.
    pub(super) is_prompted: bool,
}

/// The most [`Door::openings`] that count: a monitor that has forgotten us by a path on which
/// openings were lost is believed after so many challenges.
pub(super) const MOST_OPENINGS: u8 = 3;
