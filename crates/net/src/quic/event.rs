//! Events of a server's connections.

use std::net::SocketAddr;
use std::num::NonZeroU64;

use super::LostReason;

/// Names one connection of a [`Server`](super::Server); never used again for another.
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

    /// A number of the connection's own.
    pub(crate) fn serial(self) -> NonZeroU64 {
        NonZeroU64::MIN.saturating_add(self.serial)
    }
}

/// What happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A handshake failed; there never was a connection.
    Refused {
        /// Who tried.
        from: SocketAddr,
        /// What was wrong.
        reason: LostReason,
    },
    /// An established connection is gone, and its key with it.
    Lost {
        /// Which one.
        key: ConnKey,
        /// Why.
        reason: LostReason,
    },
}
