//! The packets of a queue, and the part of them that a block acknowledgement covers.

use alloc::collections::VecDeque;

use super::frame::{Framing, Received};
use crate::unit::{Bytes, Time};

/// A packet. All other fields describe its MPDU and are valid in the first packet of the MPDU.
#[derive(Debug)]
pub(super) struct Msdu<P> {
    pub(super) packet: P,
    /// Of the MPDU.
    pub(super) size: Bytes,
    /// When the newest packet of the MPDU was queued.
    pub(super) since: Time,
    pub(super) tries: u8,
    /// The number of packets in the MPDU; 0 in all but the first packet.
    pub(super) packets: u8,
    pub(super) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Not transmitted yet.
    Queued,
    /// Transmitted without success; to be sent again.
    Waiting,
    OnAir,
    /// Received: in which frame, and when the MPDU ended.
    Received(Received, Time),
}

impl State {
    #[inline]
    pub(super) fn is_to_send(self) -> bool {
        matches!(self, Self::Queued | Self::Waiting)
    }
}

/// An iterator over the MPDUs that a block acknowledgement covers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    mpdus: usize,
    /// The index at which the next MPDU begins.
    next: usize,
}

impl Window {
    /// The index at which the next MPDU begins, if the window contains one.
    pub(super) fn next<P>(&mut self, msdus: &VecDeque<Msdu<P>>) -> Option<usize> {
        // Skip the other packets of the last MPDU, which follow its first.
        while msdus.get(self.next)?.packets == 0 {
            self.next += 1;
        }
        if self.mpdus == Framing::BLOCK {
            return None;
        }
        let index = self.next;
        (self.mpdus, self.next) = (self.mpdus + 1, index + 1);
        Some(index)
    }

    /// The window after the last returned MPDU, at `index`, was removed.
    pub(super) fn without(self, index: usize) -> Self {
        Self { mpdus: self.mpdus - 1, next: index }
    }
}
