//! First in, first out; an arrival that does not fit is dropped ("drop-tail").

use super::waiting::Waiting;
use super::{Backlog, Dequeued, Drop, DropReason, Drops, Limit, Packet, Qdisc};
use crate::unit::Time;

/// The drop-tail queue.
#[derive(Debug)]
pub struct Fifo<P> {
    limit: Limit,
    waiting: Waiting<P>,
}

impl<P: Packet> Fifo<P> {
    /// An empty queue that holds at most `limit`.
    pub fn new(limit: Limit) -> Self {
        Self { limit, waiting: Waiting::new() }
    }
}

impl<P: Packet> Qdisc<P> for Fifo<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        if self.limit.admits(self.backlog(), packet.size()) {
            self.waiting.push(now, packet);
        } else {
            drops(Drop { packet, reason: DropReason::QueueFull });
        }
    }

    fn dequeue(&mut self, now: Time, _: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        self.waiting.pop_oldest(now)
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
    use crate::unit::{Bytes, Packets, Span};
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// A packet that has only a size.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Sized(u64);

    impl Packet for Sized {
        fn size(&self) -> Bytes {
            Bytes::new(self.0)
        }
    }

    fn offered(limit: &str, sizes: &[u64]) -> (Vec<Sized>, Vec<Drop<Sized>>) {
        let mut fifo = Fifo::new(limit.parse().unwrap());
        let mut dropped = Vec::new();
        for size in sizes {
            fifo.enqueue(Time::ZERO, Sized(*size), &mut |drop| dropped.push(drop));
        }
        let mut served = Vec::new();
        while let Some(next) = fifo.dequeue(Time::ZERO, &mut |drop| dropped.push(drop)) {
            served.push(next.packet);
        }
        assert_eq!(fifo.backlog(), Backlog::default());
        (served, dropped)
    }

    #[test]
    fn packets_leave_in_order_and_know_how_long_they_waited() {
        let mut fifo = Fifo::new(Limit::default());
        let never = &mut |drop: Drop<Sized>| panic!("{drop:?}");
        fifo.enqueue(Time::from_nanos(10), Sized(1), never);
        fifo.enqueue(Time::from_nanos(20), Sized(2), never);
        for (size, sojourn) in [(1, 90), (2, 80)] {
            let expected = Dequeued { packet: Sized(size), sojourn: Span::from_nanos(sojourn) };
            assert_eq!(fifo.dequeue(Time::from_nanos(100), never), Some(expected));
        }
        assert_eq!(fifo.dequeue(Time::from_nanos(100), never), None);
    }

    #[test]
    fn what_does_not_fit_comes_back_with_the_reason() {
        let full = |size| Drop { packet: Sized(size), reason: DropReason::QueueFull };
        let (served, dropped) = offered("2p", &[1, 2, 3]);
        assert_eq!((served, dropped), ([1, 2].map(Sized).into(), [full(3)].into()));
        // A smaller packet may still fit where a larger one did not.
        let (served, dropped) = offered("100B", &[60, 60, 40]);
        assert_eq!((served, dropped), ([60, 40].map(Sized).into(), [full(60)].into()));
    }

    proptest! {
        #[test]
        fn nothing_vanishes_and_the_limit_holds(
            sizes in prop::collection::vec(1u64..3_000, 0..200),
            limit in prop_oneof![
                (1u64..50).prop_map(|n| Limit::Packets(Packets::new(n))),
                (1u64..50_000).prop_map(|n| Limit::Bytes(Bytes::new(n))),
            ],
        ) {
            let mut fifo = Fifo::new(limit);
            let mut dropped = 0;
            for size in &sizes {
                fifo.enqueue(Time::ZERO, Sized(*size), &mut |_| dropped += 1);
                let backlog = fifo.backlog();
                match limit {
                    Limit::Packets(limit) => prop_assert!(backlog.packets <= limit),
                    Limit::Bytes(limit) => prop_assert!(backlog.bytes <= limit),
                }
            }
            prop_assert_eq!(fifo.backlog().packets.get() + dropped, sizes.len() as u64);
        }
    }
}
