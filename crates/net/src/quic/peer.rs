//! One connection of a [`Server`](super::Server).

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Instant;

use freshline_core::dscp::Dscp;
use freshline_core::session::Origin;
use noq_proto::{Connection, PathId};

use super::{ConnKey, LostReason, ServerEvent};
use crate::network::Network;

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) key: ConnKey,
    pub(super) connection: Connection,
    pub(super) phase: Phase,
    /// Where its handshake came from.
    pub(super) from: SocketAddr,
    pub(super) network: Network,
    /// By what its place counts once a session comes by it.
    pub(super) origin: Origin,
    /// Stands for the certificate that it has shown, if any.
    pub(super) identity: Option<NonZeroU64>,
    /// The names in this certificate.
    pub(super) names: Box<[Box<str>]>,
    /// Of the datagram that waits.
    pub(super) mark: Dscp,
    /// Its entry in `timers`.
    pub(super) wake_at: Option<Instant>,
    /// Whether it stands in `sendable` and in `readable`.
    pub(super) sendable: bool,
    pub(super) readable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Handshake {
        give_up_at: Instant,
    },
    /// By which no session comes: it gives way to newcomers. Before the first one it has so much time.
    Stranger {
        close_at: Option<Instant>,
    },
    /// By which a session comes. It is a stranger again if nothing of one came until then.
    Kept {
        until: Instant,
    },
    /// Reported as lost; stays until QUIC has said its last word.
    Lost,
}

impl Peer {
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let give_up_at = match self.phase {
            Phase::Handshake { give_up_at } => Some(give_up_at),
            Phase::Stranger { close_at } => close_at,
            Phase::Kept { until } => Some(until),
            Phase::Lost => None,
        };
        [self.connection.poll_timeout(), give_up_at].into_iter().flatten().min()
    }

    /// The event that tells of this loss, if it is one.
    pub(super) fn lose(&mut self, reason: LostReason) -> Option<ServerEvent> {
        match std::mem::replace(&mut self.phase, Phase::Lost) {
            Phase::Handshake { .. } => {
                let from = self.connection.network_path(PathId::ZERO).ok()?.remote();
                Some(ServerEvent::Refused { from, reason })
            }
            Phase::Stranger { .. } | Phase::Kept { .. } => {
                Some(ServerEvent::Lost { key: self.key, reason })
            }
            Phase::Lost => None,
        }
    }
}

impl Phase {
    pub(super) fn is_handshake(self) -> bool {
        matches!(self, Self::Handshake { .. })
    }

    pub(super) fn is_established(self) -> bool {
        matches!(self, Self::Stranger { .. } | Self::Kept { .. })
    }
}
