//! The packets of a queue, and the part of them that a block acknowledgement covers.

use alloc::collections::VecDeque;

use super::frame::{Framing, Received};
use crate::unit::{Bytes, Time};

/// A packet. If it is the first of its MPDU, everything but the packet is that one's.
#[derive(Debug)]
pub(super) struct Msdu<P> {
    pub(super) packet: P,
    /// Of the MPDU.
    pub(super) size: Bytes,
    /// When the newest of its packets came.
    pub(super) since: Time,
    pub(super) tries: u8,
    /// How many packets it has; 0 for those behind the first.
    pub(super) packets: u8,
    pub(super) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It was never on the air.
    Queued,
    /// It was, and goes there again.
    Waiting,
    OnAir,
    /// With its frame, and when the MPDU ended.
    Received(Received, Time),
}

impl State {
    #[inline]
    pub(super) fn is_to_send(self) -> bool {
        matches!(self, Self::Queued | Self::Waiting)
    }
}

/// Goes over the MPDUs that a block acknowledgement covers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    mpdus: usize,
    /// Where the next one begins.
    next: usize,
}

impl Window {
    /// Where the next MPDU begins, if there is one in the window.
    pub(super) fn next<P>(&mut self, msdus: &VecDeque<Msdu<P>>) -> Option<usize> {
        // What joined the last one is behind it.
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

    /// The same after the MPDU at `index`, the last, was taken out.
    pub(super) fn without(self, index: usize) -> Self {
        Self { mpdus: self.mpdus - 1, next: index }
    }
}
