//! Events of a server's connections.

use std::net::SocketAddr;
use std::num::NonZeroU64;

use super::LostReason;

/// Identifies one connection of a [`Server`](super::Server); never reused for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnKey {
    pub(super) serial: u64,
    pub(super) slot: usize,
}

impl ConnKey {
    #[cfg(test)]
    pub(crate) fn numbered(serial: u64) -> Self {
        Self { serial, slot: 0 }
    }

    /// The connection's unique number.
    pub(crate) fn serial(self) -> NonZeroU64 {
        NonZeroU64::MIN.saturating_add(self.serial)
    }
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A handshake failed; there never was a connection.
    Refused {
        /// The peer's address.
        from: SocketAddr,
        /// The reason.
        reason: LostReason,
    },
    /// An established connection is lost, and its key is invalid.
    Lost {
        /// The connection.
        key: ConnKey,
        /// The reason.
        reason: LostReason,
    },
}
