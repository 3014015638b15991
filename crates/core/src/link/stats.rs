//! What went through a hop, what did not, and how long it waited.

use super::SpanHistogram;
use crate::router::{DropReason, Packet};
use crate::unit::{Bytes, Packets, Span};

/// An amount of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// How many packets.
    pub packets: Packets,
    /// Their sizes together.
    pub bytes: Bytes,
}

impl Traffic {
    /// Counts one packet of `size`.
    #[inline]
    pub fn count(&mut self, size: Bytes) {
        self.packets += Packets::new(1);
        self.bytes += size;
    }

    /// Counts a packet or super-packet.
    pub(super) fn count_all(&mut self, packet: &impl Packet) {
        self.packets += packet.packets();
        self.bytes += packet.size();
    }
}

/// Dropped packets, counted by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DropCounts([u64; DropReason::ALL.len()]);

impl DropCounts {
    /// How many packets were dropped for `reason`.
    pub fn of(&self, reason: DropReason) -> Packets {
        Packets::new(self.0[reason as usize])
    }

    /// How many packets were dropped in all.
    pub fn total(&self) -> Packets {
        Packets::new(self.0.iter().sum())
    }

    /// Every reason with its count, zeros included.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, Packets)> + '_ {
        DropReason::ALL.into_iter().map(|reason| (reason, self.of(reason)))
    }

    /// Counts one packet dropped for `reason`.
    #[inline]
    pub fn count(&mut self, reason: DropReason) {
        self.count_all(reason, Packets::new(1));
    }

    /// Counts the packets of a super-packet dropped for `reason`.
    pub(super) fn count_all(&mut self, reason: DropReason, packets: Packets) {
        self.0[reason as usize] += packets.get();
    }
}

/// The statistics of one hop since its start.
#[derive(Debug, Clone, Default)]
pub struct HopStats {
    /// What was handed to the hop.
    pub arrived: Traffic,
    /// What came out at its end.
    pub delivered: Traffic,
    /// What was lost on the way.
    pub drops: DropCounts,
    /// How long packets waited in the queue before their transmission.
    pub sojourn: SpanHistogram,
    /// For how long the link transmitted, without the transmission going on now.
    pub busy: Span,
}
