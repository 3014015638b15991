//! A device's ring: packets that have left the queueing discipline, queued for the link.
//!
//! ```text
//! ─► discipline ─► ring, first in first out ─► link
//!       bands           no bands
//! ```
//!
//! A driver takes packets from the discipline as long as its ring has room. Unless the ring is
//! limited to a few packets (byte queue limits, BQL), the standing queue is in the ring, and the
//! discipline's order comes too late: 256 packets of 1500 bytes, as on the phone of Im, PhD thesis,
//! Table 2.1, are 148 ms at 20.7 Mbit/s.

use alloc::collections::VecDeque;

use super::{Backlog, Dequeued, Drops, Packet, Qdisc};
use crate::unit::{Bytes, Packets, Span, Time};

/// A discipline above a ring.
#[derive(Debug)]
pub struct Ring<P, Q> {
    above: Q,
    /// The ring's capacity in packets; 0 disables it.
    limit: Packets,
    /// With the time at which each entered the ring.
    waiting: VecDeque<(Time, Dequeued<P>)>,
    bytes: Bytes,
}

impl<P: Packet, Q: Qdisc<P>> Ring<P, Q> {
    /// An empty ring of `limit` packets below `above`; with 0 packets, `above` alone.
    pub const fn new(above: Q, limit: Packets) -> Self {
        Self { above, limit, waiting: VecDeque::new(), bytes: Bytes::ZERO }
    }

    fn fill(&mut self, now: Time, drops: &mut Drops<'_, P>) {
        while (self.waiting.len() as u64) < self.limit.get() {
            let Some(next) = self.above.dequeue(now, drops) else { return };
            self.bytes += next.packet.size();
            self.waiting.push_back((now, next));
        }
    }
}

impl<P: Packet, Q: Qdisc<P>> Qdisc<P> for Ring<P, Q> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        self.above.enqueue(now, packet, drops);
        self.fill(now, drops);
    }

    fn dequeue(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        if self.limit == Packets::ZERO {
            return self.above.dequeue(now, drops);
        }
        let (since, first) = self.waiting.pop_front()?;
        self.bytes = self.bytes - first.packet.size();
        self.fill(now, drops);
        let sojourn: Span = first.sojourn + now.since(since);
        Some(Dequeued { sojourn, ..first })
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.above.poll_timeout()
    }

    fn backlog(&self) -> Backlog {
        let above = self.above.backlog();
        let packets = above.packets + Packets::new(self.waiting.len() as u64);
        Backlog { packets, bytes: above.bytes + self.bytes }
    }

    fn each_queued(&self, see: &mut dyn FnMut(&P)) {
        self.waiting.iter().for_each(|(_, next)| see(&next.packet));
        self.above.each_queued(see);
    }

    fn marked(&self) -> Packets {
        self.above.marked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Band;
    use crate::router::{Drop, Dual, Fifo, Header};
    use alloc::vec::Vec;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Datagram(Band, u16);

    impl Packet for Datagram {
        fn size(&self) -> Bytes {
            Bytes::new(1500)
        }

        fn header(&self) -> Header {
            Header { band: self.0, ..Header::default() }
        }
    }

    fn never(drop: Drop<Datagram>) {
        panic!("{drop:?}");
    }

    /// The order in which packets leave that came at 0 ms, one each ms from 10 ms on.
    fn order(ring: u64) -> Vec<(u16, Span)> {
        let fifo = || Fifo::<Datagram>::new("100p".parse().unwrap());
        let mut host = Ring::new(Dual::new(fifo(), fifo()), Packets::new(ring));
        for number in 0..4 {
            host.enqueue(Time::ZERO, Datagram(Band::Bulk, number), &mut never);
        }
        host.enqueue(Time::ZERO, Datagram(Band::Urgent, 9), &mut never);
        assert_eq!(host.backlog(), Backlog { packets: Packets::new(5), bytes: Bytes::new(7500) });
        let mut now = Time::ZERO + Span::from_millis(10);
        let mut left = Vec::new();
        while let Some(next) = host.dequeue(now, &mut never) {
            left.push((next.packet.1, next.sojourn));
            now += Span::from_millis(1);
        }
        assert_eq!(host.backlog(), Backlog::default());
        left
    }

    #[test]
    fn urgent_packets_wait_behind_all_that_is_in_the_ring() {
        let numbers = |ring| order(ring).iter().map(|(number, _)| *number).collect::<Vec<_>>();
        assert_eq!(numbers(0), [9, 0, 1, 2, 3]);
        assert_eq!(numbers(2), [0, 1, 9, 2, 3]);
        assert_eq!(numbers(256), [0, 1, 2, 3, 9]);
    }

    #[test]
    fn a_packet_knows_its_wait_in_both_queues() {
        let waits: Vec<_> = order(2).iter().map(|(_, sojourn)| sojourn.as_millis_f64()).collect();
        assert_eq!(waits, [10.0, 11.0, 12.0, 13.0, 14.0]);
    }
}
