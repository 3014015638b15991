//! The packets of one queue, in the order of arrival.

use alloc::collections::VecDeque;

use super::{Backlog, Dequeued, Packet};
use crate::unit::{Bytes, Packets, Time};

/// Packets from the oldest to the newest, with the times at which they came.
#[derive(Debug)]
pub(super) struct Waiting<P> {
    packets: VecDeque<(Time, P)>,
    bytes: Bytes,
}

impl<P: Packet> Waiting<P> {
    pub(super) fn new() -> Self {
        Self { packets: VecDeque::new(), bytes: Bytes::ZERO }
    }

    /// Adds the newest.
    pub(super) fn push(&mut self, now: Time, packet: P) {
        self.bytes += packet.size();
        self.packets.push_back((now, packet));
    }

    pub(super) fn pop_oldest(&mut self, now: Time) -> Option<Dequeued<P>> {
        let oldest = self.packets.pop_front();
        self.left(now, oldest)
    }

    pub(super) fn pop_newest(&mut self, now: Time) -> Option<Dequeued<P>> {
        let newest = self.packets.pop_back();
        self.left(now, newest)
    }

    fn left(&mut self, now: Time, packet: Option<(Time, P)>) -> Option<Dequeued<P>> {
        let (arrived, packet) = packet?;
        self.bytes = self.bytes - packet.size();
        Some(Dequeued { packet, sojourn: now.since(arrived) })
    }

    /// Calls `see` with each packet, the oldest first.
    pub(super) fn each(&self, see: &mut dyn FnMut(&P)) {
        self.packets.iter().for_each(|(_, packet)| see(packet));
    }

    pub(super) fn backlog(&self) -> Backlog {
        Backlog { packets: Packets::new(self.packets.len() as u64), bytes: self.bytes }
    }
}
