//! The counters of a hop: packets delivered and dropped, and queueing delays.

use super::SpanHistogram;
use crate::router::{DropReason, Packet};
use crate::unit::{Bytes, Packets, Span};

/// An amount of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// The number of packets.
    pub packets: Packets,
    /// The sum of their sizes.
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
    /// The number of packets dropped for `reason`.
    pub fn of(&self, reason: DropReason) -> Packets {
        Packets::new(self.0[reason as usize])
    }

    /// The total number of dropped packets.
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
    /// Packets handed to the hop.
    pub arrived: Traffic,
    /// Packets delivered at its end.
    pub delivered: Traffic,
    /// Packets dropped or lost in it.
    pub drops: DropCounts,
    /// The sojourn time of packets in the queue before their transmission.
    pub sojourn: SpanHistogram,
    /// The total transmission time of the link, without the present transmission.
    pub busy: Span,
}
