//! Last in, first out: the packet that arrived last leaves first.
//!
//! A queue for the age of information without flows (Tseng, Han, Wierman, "In-Network Freshness
//! Control", Figures 4 and 15): the newest packet is the freshest, so it goes first. The others
//! wait until no newer packet arrives, which harms flows that need all packets, in order; [`Lifo`]
//! shows that effect.
//!
//! Where the paper is silent: at the limit the oldest packet is dropped, and the newest is always
//! admitted. The oldest would be among the last to leave anyway, and out of date by then; dropping
//! the newcomer instead would keep stale packets at the cost of fresh ones.

use super::waiting::Waiting;
use super::{Backlog, Dequeued, Drop, DropReason, Drops, Limit, Packet, Qdisc};
use crate::unit::{Bytes, Time};

/// The stack.
#[derive(Debug)]
pub struct Lifo<P> {
    limit: Limit,
    waiting: Waiting<P>,
}

impl<P: Packet> Lifo<P> {
    /// An empty stack that holds at most `limit`.
    pub fn new(limit: Limit) -> Self {
        Self { limit, waiting: Waiting::new() }
    }

    /// Drops the oldest packets until one of `size` fits; returns whether it does.
    fn make_room(&mut self, now: Time, size: Bytes, drops: &mut Drops<'_, P>) -> bool {
        // A packet above the limit must not empty this queue.
        if !self.limit.admits(Backlog::default(), size) {
            return false;
        }
        while !self.limit.admits(self.backlog(), size) {
            let Some(oldest) = self.waiting.pop_oldest(now) else { return false };
            drops(Drop { packet: oldest.packet, reason: DropReason::QueueFull });
        }
        true
    }
}

impl<P: Packet> Qdisc<P> for Lifo<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        if self.make_room(now, packet.size(), drops) {
            self.waiting.push(now, packet);
        } else {
            drops(Drop { packet, reason: DropReason::QueueFull });
        }
    }

    fn dequeue(&mut self, now: Time, _: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        self.waiting.pop_newest(now)
    }

    fn backlog(&self) -> Backlog {
        self.waiting.backlog()
    }

    fn each_queued(&self, see: &mut dyn FnMut(&P)) {
        self.waiting.each(see);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Span;
    use alloc::vec::Vec;

    /// A packet that has only a size.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Sized(u64);

    impl Packet for Sized {
        fn size(&self) -> Bytes {
            Bytes::new(self.0)
        }
    }

    fn offered(limit: &str, sizes: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let mut lifo = Lifo::new(limit.parse().unwrap());
        let (mut served, mut dropped) = (Vec::new(), Vec::new());
        for size in sizes {
            lifo.enqueue(Time::ZERO, Sized(*size), &mut |drop| dropped.push(drop.packet.0));
        }
        while let Some(next) = lifo.dequeue(Time::ZERO, &mut |_| ()) {
            served.push(next.packet.0);
        }
        assert_eq!(lifo.backlog(), Backlog::default());
        (served, dropped)
    }

    #[test]
    fn the_newest_leaves_first_and_the_oldest_has_waited_longest() {
        let mut lifo = Lifo::new(Limit::default());
        let never = &mut |drop: Drop<Sized>| panic!("{drop:?}");
        lifo.enqueue(Time::from_nanos(10), Sized(1), never);
        lifo.enqueue(Time::from_nanos(20), Sized(2), never);
        for (size, sojourn) in [(2, 80), (1, 90)] {
            let expected = Dequeued { packet: Sized(size), sojourn: Span::from_nanos(sojourn) };
            assert_eq!(lifo.dequeue(Time::from_nanos(100), never), Some(expected));
        }
    }

    #[test]
    fn at_the_limit_the_oldest_makes_room() {
        assert_eq!(offered("2p", &[1, 2, 3, 4]), ([4, 3].into(), [1, 2].into()));
        assert_eq!(offered("100B", &[30, 40, 60]), ([60, 40].into(), [30].into()));
    }

    #[test]
    fn what_can_never_fit_drops_nobody_else() {
        assert_eq!(offered("100B", &[30, 101]), ([30].into(), [101].into()));
    }
}
