//! Deficit round robin (DRR) shares a link fairly by bytes: it has a drop-tail queue for each flow,
//! and serves the queues in turns.
//!
//! ```text
//!              hash(flow)    ┌► queue 0 ──┐
//! packet ─────────────────►  ├► queue 1 ──┤  turns: queues that are not empty
//!                            └► …         ┘
//!
//! the queue whose turn it is:  head ≤ deficit → deficit ← deficit − head, sent; empty: no turns
//!                              else           → deficit ← deficit + quantum, to the end        (bytes)
//! ```
//!
//! Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit Round Robin", IEEE/ACM
//! Transactions on Networking 4(3), 1996: over any time in which two flows have queued packets,
//! their sent bytes differ by less than a quantum and two of the largest packets.
//!
//! It models a base station with a queue for each user, and an access point with a queue for each
//! station (Im, PhD thesis, sections 2.5.1 and 2.5.3). A flow that fills its queue has the delay
//! and the drops alone, and there is no AQM: the ends of a flow control their own queue. FQ-CoDel
//! differs in both, and serves flows first that have just become active. Only if all queues
//! together reach the limit of memory or of packets, the longest drops its oldest packets.
//!
//! Flows are distinguished by a keyed hash: two may share a queue by chance, but no sender can
//! cause it. Below that limit a packet takes constant time for any queue length, as long as packets
//! are not much larger than the quantum.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use rand::Rng;

use super::flow_hash::{FlowHash, check_turns};
use super::packet_lists::{PacketList, PacketLists};
use super::{
    Backlog, Dequeued, Drop, DropReason, Drops, FlowKey, Limit, Packet, Qdisc, QdiscError,
};
use crate::unit::{Bytes, Packets, Time};

/// Settings of [`Drr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Params {
    /// The capacity of each flow's queue, above zero. 1000 packets.
    pub limit: Limit,
    /// The maximum bytes of all queues together, above zero: of packets, without their metadata. 32
    /// MiB, as FQ-CoDel in Linux.
    pub memory: Bytes,
    /// The maximum packets of all queues together, above zero. Not limited by default.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub packets: Option<Packets>,
    /// The number of queues, from 1 to 65536. 1024: of 10 flows, two share one with a probability
    /// of 4 %.
    pub queues: u32,
    /// The bytes that a queue sends per turn, at least 256, so that even the largest packet takes
    /// few turns. 1514, an Ethernet frame.
    pub quantum: Bytes,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            limit: Limit::default(),
            memory: Bytes::new(32 << 20),
            packets: None,
            queues: 1024,
            quantum: Bytes::new(1514),
        }
    }
}

/// A queue for each flow.
#[derive(Debug)]
pub struct Drr<P> {
    params: Params,
    hash: FlowHash,
    packets: PacketLists<P>,
    bytes: Bytes,
    queues: Vec<Queue>,
    /// The queues with packets.
    turns: VecDeque<usize>,
}

#[derive(Debug, Clone, Default)]
struct Queue {
    packets: PacketList,
    /// The bytes that it may still send this turn.
    deficit: Bytes,
}

impl<P: Packet> Drr<P> {
    /// Empty queues, with the keys of the hash from `rng`.
    pub fn new<R: Rng>(params: Params, rng: &mut R) -> Result<Self, QdiscError> {
        params.limit.checked()?;
        if params.memory == Bytes::ZERO {
            return Err(QdiscError::Zero { field: "memory", example: "32MiB" });
        }
        if let Some(packets) = params.packets {
            Limit::Packets(packets).checked()?;
        }
        check_turns(params.queues, params.quantum)?;
        let queues = params.queues as usize;
        Ok(Self {
            params,
            hash: FlowHash::draw(rng),
            packets: PacketLists::new(),
            bytes: Bytes::ZERO,
            queues: alloc::vec![Queue::default(); queues],
            turns: VecDeque::with_capacity(queues),
        })
    }

    fn queue_of(&self, flow: FlowKey) -> usize {
        self.hash.hash(flow.into()) as usize % self.queues.len()
    }

    fn is_over_limit(&self) -> bool {
        self.bytes > self.params.memory
            || self.params.packets.is_some_and(|limit| self.packets.len() > limit)
    }

    fn drop_from_longest(&mut self, now: Time, drops: &mut Drops<'_, P>) {
        let lists = self.queues.iter_mut().map(|queue| &mut queue.packets);
        let Some((index, dropped)) = self.packets.halve_longest(lists, now, drops) else { return };
        self.bytes = self.bytes - dropped;
        if self.queues[index].packets.backlog() == Backlog::default() {
            self.turns.retain(|turn| *turn != index);
        }
    }
}

impl<P: Packet> Qdisc<P> for Drr<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        let index = self.queue_of(packet.header().flow);
        let queue = &mut self.queues[index];
        let waiting = queue.packets.backlog();
        if !self.params.limit.admits(waiting, packet.size()) {
            drops(Drop { packet, reason: DropReason::QueueFull });
            return;
        }
        if waiting == Backlog::default() {
            queue.deficit = self.params.quantum;
            self.turns.push_back(index);
        }
        self.bytes += packet.size();
        self.packets.push(&mut queue.packets, now, packet);
        while self.is_over_limit() {
            self.drop_from_longest(now, drops);
        }
    }

    fn dequeue(&mut self, now: Time, _: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        loop {
            let queue = &mut self.queues[*self.turns.front()?];
            let size = self.packets.first(&queue.packets)?.size();
            if size > queue.deficit {
                queue.deficit += self.params.quantum;
                self.turns.rotate_left(1);
                continue;
            }
            let next = self.packets.pop(&mut queue.packets, now);
            queue.deficit = queue.deficit - size;
            self.bytes = self.bytes - size;
            if queue.packets.backlog() == Backlog::default() {
                self.turns.pop_front();
            }
            return next;
        }
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets.len(), bytes: self.bytes }
    }

    fn each_queued(&self, see: &mut dyn FnMut(&P)) {
        self.queues.iter().for_each(|queue| self.packets.each(&queue.packets, see));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use rand_pcg::Pcg64;

    /// A packet of the flow from port `flow`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Piece {
        flow: u16,
        size: u64,
    }

    impl Packet for Piece {
        fn size(&self) -> Bytes {
            Bytes::new(self.size)
        }

        fn header(&self) -> crate::router::Header {
            let flow = FlowKey { source_port: self.flow, ..FlowKey::default() };
            crate::router::Header { flow, ..<_>::default() }
        }
    }

    fn drr(params: Params) -> Drr<Piece> {
        let drr = Drr::new(params, &mut Pcg64::new(7, 7)).unwrap();
        let [a, b, c] = [1, 2, 3].map(|flow| drr.queue_of(Piece { flow, size: 1 }.header().flow));
        assert!(a != b && b != c && a != c, "the tests' flows must not share queues");
        drr
    }

    fn fill(drr: &mut Drr<Piece>, flow: u16, size: u64, packets: u64) -> Vec<Drop<Piece>> {
        let mut dropped = Vec::new();
        for _ in 0..packets {
            drr.enqueue(Time::ZERO, Piece { flow, size }, &mut |drop| dropped.push(drop));
        }
        dropped
    }

    fn next(drr: &mut Drr<Piece>) -> Piece {
        let never = &mut |drop: Drop<Piece>| panic!("{drop:?}");
        drr.dequeue(Time::ZERO, never).expect("packets wait").packet
    }

    #[test]
    fn flows_share_by_bytes_whatever_the_size_of_their_packets() {
        let mut drr = drr(Params { limit: "10000p".parse().unwrap(), ..Params::default() });
        for (flow, size) in [(1, 1514), (2, 200), (3, 9000)] {
            fill(&mut drr, flow, size, 1_000_000 / size);
        }
        let mut sent = [0; 3];
        for _ in 0..1_000 {
            let packet = next(&mut drr);
            sent[usize::from(packet.flow) - 1] += packet.size;
            let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
            assert!(most - least <= 1514 + 2 * 9000, "{sent:?}");
        }
    }

    #[test]
    fn who_sends_one_large_packet_at_a_time_gains_nothing_by_it() {
        let mut drr = drr(Params::default());
        fill(&mut drr, 1, 1500, 900);
        fill(&mut drr, 2, 9000, 1);
        let mut sent = [0; 2];
        for _ in 0..500 {
            let packet = next(&mut drr);
            sent[usize::from(packet.flow) - 1] += packet.size;
            if packet.flow == 2 {
                fill(&mut drr, 2, 9000, 1);
            }
        }
        assert!(sent[1] <= sent[0] + 9000, "{sent:?}");
    }

    #[test]
    fn a_full_queue_drops_what_comes_to_it_and_nothing_else() {
        let mut drr = drr(Params { limit: "10p".parse().unwrap(), ..Params::default() });
        let dropped = fill(&mut drr, 1, 1500, 12);
        let full = Drop { packet: Piece { flow: 1, size: 1500 }, reason: DropReason::QueueFull };
        assert_eq!(dropped, [full, full]);
        assert_eq!(fill(&mut drr, 2, 1500, 10), []);
        assert_eq!(drr.backlog().packets, Packets::new(20));
    }

    #[test]
    fn at_the_limit_of_memory_the_longest_queue_gives() {
        let memory = Bytes::new(20 * 1500);
        let mut drr = drr(Params { memory, ..Params::default() });
        assert_eq!(fill(&mut drr, 1, 1500, 15), []);
        let dropped = fill(&mut drr, 2, 1500, 6);
        assert!(!dropped.is_empty() && dropped.iter().all(|drop| drop.packet.flow == 1));
        assert!(dropped.iter().all(|drop| drop.reason == DropReason::QueueFull));
        assert!(drr.backlog().bytes <= memory);
        for flows in [1, 2, 1, 2] {
            assert_eq!(next(&mut drr).flow, flows);
        }
    }

    #[test]
    fn a_packet_beyond_all_memory_leaves_nothing_behind() {
        let mut drr = drr(Params { memory: Bytes::new(1000), ..Params::default() });
        assert_eq!(fill(&mut drr, 1, 1500, 2).len(), 2);
        assert_eq!(drr.backlog(), Backlog::default());
        assert_eq!(fill(&mut drr, 1, 500, 1), []);
        assert_eq!(next(&mut drr).size, 500);
        let none = Params { memory: Bytes::ZERO, ..Params::default() };
        assert!(Drr::<Piece>::new(none, &mut Pcg64::new(7, 7)).is_err());
    }

    #[test]
    fn a_flow_with_little_to_send_waits_for_one_turn_of_the_others() {
        let mut drr = drr(Params::default());
        fill(&mut drr, 1, 1500, 500);
        fill(&mut drr, 2, 1500, 500);
        fill(&mut drr, 3, 100, 1);
        let served = [0; 3].map(|_| next(&mut drr).flow);
        assert_eq!(served, [1, 2, 3]);
    }
}
