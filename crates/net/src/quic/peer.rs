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
    /// The address from which its handshake came.
    pub(super) from: SocketAddr,
    pub(super) network: Network,
    /// The party that is charged for its place when a session opens on it.
    pub(super) origin: Origin,
    /// Identifies the certificate that it has presented, if any.
    pub(super) identity: Option<NonZeroU64>,
    /// The names in this certificate.
    pub(super) names: Box<[Box<str>]>,
    /// The code point of the pending datagram.
    pub(super) mark: Dscp,
    /// Its entry in `timers`.
    pub(super) wake_at: Option<Instant>,
    /// Whether it is listed in `sendable` and in `readable`.
    pub(super) sendable: bool,
    pub(super) readable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Handshake {
        give_up_at: Instant,
    },
    /// Without a session: it is displaced by newcomers, and has a time limit before the first
    /// session.
    Stranger {
        close_at: Option<Instant>,
    },
    /// With a session. It becomes a stranger again if nothing of a session arrives until then.
    Kept {
        until: Instant,
    },
    /// Reported as lost; stays until QUIC has sent its final packets.
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

    /// The event that reports this loss, if there is one.
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
