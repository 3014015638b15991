//! FQ-CoDel (RFC 8290) shares a link fairly and keeps each flow's queue short: it has a CoDel queue
//! for each flow, and serves the queues in turns by bytes.
//!
//! ```text
//!              hash(flow)    ┌► queue 0 ──┐   new list: queues that just became active, served first
//! packet ─────────────────►  ├► queue 1 ──┤
//!                            └► …         ┘   old list: the others, in turns
//!
//! a queue at the front:  credit ≤ 0      → credit ← credit + quantum, to the end of old     (bytes)
//!                        empty           → from new to the end of old, from old to no list
//!                        CoDel's choice  → credit ← credit − size, sent
//! ```
//!
//! A flow that sends less than a quantum a turn finds its queue empty each time and goes first (RFC
//! 8290 section 4.2). At the limit of packets or of memory, packets are dropped from the head of
//! the queue with the most bytes (section 4.1): up to half of its bytes and 64 packets at once,
//! because the search visits every queue.
//!
//! Everything else takes constant time for any number of packets and flows, as long as packets are
//! not much larger than the quantum. Flows are distinguished by a hash with a secret key
//! (SipHash-1-3): two may share a queue by chance, but no sender can cause it.
//!
//! Where the RFC is silent: CoDel drops nothing while at most one packet is queued *in its own
//! queue*, as in RFC 8289; Linux looks at all queues together, and so may drop the only packet of a
//! flow. The limit of memory counts the bytes of packets, without their metadata.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use rand::{Rng, RngExt};
use siphasher::sip::SipHasher13;

use super::codel::{Control, Law};
use super::flow_hash::check_turns;
use super::packet_lists::{PacketList, PacketLists};
use super::{
    Backlog, Dequeued, Drop, DropReason, Drops, FlowKey, Limit, Packet, Qdisc, QdiscError,
};
use crate::unit::{Bytes, Packets, Span, Time};

/// Settings of [`FqCodel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Params {
    /// The maximum packets of all queues together, above zero. 10240 (RFC 8290 section 5.2.3).
    pub limit: Packets,
    /// The maximum bytes of all queues together, above zero. 32 MiB, as in Linux.
    pub memory: Bytes,
    /// The number of queues, from 1 to 65536. 1024 (RFC 8290 section 5.2.5).
    pub queues: u32,
    /// The bytes that a queue sends per turn, at least 256, so that even the largest packet takes
    /// few turns. 1514, an Ethernet frame (RFC 8290 section 5.2.4).
    pub quantum: Bytes,
    /// As in [`CodelParams::target`](super::CodelParams::target): 5 ms (RFC 8290 section 5.2.2).
    pub target: Span,
    /// As in [`CodelParams::interval`](super::CodelParams::interval): 100 ms (section 5.2.1).
    pub interval: Span,
    /// As in [`CodelParams::max_packet`](super::CodelParams::max_packet), of each queue: 1514
    /// bytes.
    pub max_packet: Bytes,
    /// Whether to mark packets whose senders support ECN. On (RFC 8290 section 5.2.6).
    pub ecn: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            limit: Packets::new(10_240),
            memory: Bytes::new(32 << 20),
            queues: 1024,
            quantum: Bytes::new(1514),
            target: Span::from_millis(5),
            interval: Span::from_millis(100),
            max_packet: Bytes::new(1514),
            ecn: true,
        }
    }
}

impl Params {
    fn checked(self) -> Result<Self, QdiscError> {
        Limit::Packets(self.limit).checked()?;
        if self.memory == Bytes::ZERO {
            return Err(QdiscError::Zero { field: "memory", example: "32MiB" });
        }
        check_turns(self.queues, self.quantum)?;
        Ok(self)
    }
}

/// CoDel queues for flows.
#[derive(Debug)]
pub struct FqCodel<P> {
    params: Params,
    control: Control,
    /// Keyed with the secret; cloned for each packet.
    hasher: SipHasher13,
    packets: PacketLists<P>,
    bytes: Bytes,
    queues: Vec<Queue>,
    /// Queues that became active since the others had their turns.
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    marked: Packets,
}

#[derive(Debug, Clone, Default)]
struct Queue {
    packets: PacketList,
    law: Law,
    /// Bytes that it may still send this turn; negative after a packet larger than that.
    credit: i64,
    /// Whether it is in one of the two lists.
    is_listed: bool,
}

impl Queue {
    /// Resets it as it leaves the lists, empty.
    fn retire(&mut self) {
        self.is_listed = false;
        self.law.on_empty();
    }
}

impl<P: Packet> FqCodel<P> {
    /// Empty queues, with a secret from `rng`.
    pub fn new<R: Rng + ?Sized>(params: Params, rng: &mut R) -> Result<Self, QdiscError> {
        let params = params.checked()?;
        let Params { target, interval, max_packet, .. } = params;
        let queues = params.queues as usize;
        Ok(Self {
            params,
            control: Control { target, interval, max_packet }.checked()?,
            hasher: SipHasher13::new_with_key(&rng.random()),
            packets: PacketLists::new(),
            bytes: Bytes::ZERO,
            queues: alloc::vec![Queue::default(); queues],
            new: VecDeque::with_capacity(queues),
            old: VecDeque::with_capacity(queues),
            marked: Packets::ZERO,
        })
    }

    fn queue_of(&self, flow: &FlowKey) -> usize {
        let mut hasher = self.hasher;
        flow.hash(&mut hasher);
        (hasher.finish() % self.queues.len() as u64) as usize
    }

    fn is_over_limit(&self) -> bool {
        self.packets.len() > self.params.limit || self.bytes > self.params.memory
    }

    /// Removes all queues, which are empty, from the lists: an empty qdisc gets no requests for a
    /// packet, which would remove them.
    fn retire_all(&mut self) {
        for index in self.new.drain(..).chain(self.old.drain(..)) {
            self.queues[index].retire();
        }
    }

    fn drop_from_longest(&mut self, now: Time, drops: &mut Drops<'_, P>) {
        let lists = self.queues.iter_mut().map(|queue| &mut queue.packets);
        let Some((_, dropped)) = self.packets.halve_longest(lists, now, drops) else { return };
        self.bytes = self.bytes - dropped;
    }

    /// The next packet that the CoDel of a queue lets through, or `None` if the queue is empty.
    fn next_of(
        &mut self,
        index: usize,
        now: Time,
        drops: &mut Drops<'_, P>,
    ) -> Option<Dequeued<P>> {
        let Queue { packets, law, .. } = &mut self.queues[index];
        loop {
            let mut head = self.packets.pop(packets, now)?;
            self.bytes = self.bytes - head.packet.size();
            if !law.strikes(&self.control, now, head.sojourn, packets.backlog().bytes) {
                return Some(head);
            }
            if self.params.ecn && head.packet.mark() {
                self.marked += Packets::new(1);
                return Some(head);
            }
            drops(Drop { packet: head.packet, reason: DropReason::Congestion });
        }
    }
}

impl<P: Packet> Qdisc<P> for FqCodel<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        let index = self.queue_of(&packet.header().flow);
        let queue = &mut self.queues[index];
        self.bytes += packet.size();
        self.packets.push(&mut queue.packets, now, packet);
        if !queue.is_listed {
            queue.is_listed = true;
            queue.credit = signed(self.params.quantum);
            self.new.push_back(index);
        }
        while self.is_over_limit() {
            self.drop_from_longest(now, drops);
        }
    }

    fn dequeue(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = list.pop_front()?;
            if self.queues[index].credit <= 0 {
                let credit = &mut self.queues[index].credit;
                *credit = credit.saturating_add(signed(self.params.quantum));
                self.old.push_back(index);
            } else if let Some(next) = self.next_of(index, now, drops) {
                let credit = &mut self.queues[index].credit;
                *credit = credit.saturating_sub(signed(next.packet.size()));
                let list = if is_new { &mut self.new } else { &mut self.old };
                list.push_front(index);
                if self.packets.len() == Packets::ZERO {
                    self.retire_all();
                }
                return Some(next);
            } else if is_new && !self.old.is_empty() {
                // Once through the old queues; otherwise a flow that pauses briefly would always be
                // new.
                self.old.push_back(index);
            } else {
                self.queues[index].retire();
            }
        }
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets.len(), bytes: self.bytes }
    }

    fn each_queued(&self, see: &mut dyn FnMut(&P)) {
        self.queues.iter().for_each(|queue| self.packets.each(&queue.packets, see));
    }

    fn marked(&self) -> Packets {
        self.marked
    }
}

/// A size among credits.
fn signed(size: Bytes) -> i64 {
    i64::try_from(size.get()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::BitRate;
    use rand_pcg::Pcg64;

    /// A packet of the flow from port `flow`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Piece {
        flow: u16,
        size: u64,
        is_marked: bool,
    }

    fn piece(flow: u16, size: u64) -> Piece {
        Piece { flow, size, is_marked: false }
    }

    impl Packet for Piece {
        fn size(&self) -> Bytes {
            Bytes::new(self.size)
        }

        fn header(&self) -> crate::router::Header {
            let flow = FlowKey { source_port: self.flow, ..FlowKey::default() };
            crate::router::Header { flow, ..<_>::default() }
        }

        fn mark(&mut self) -> bool {
            self.is_marked = true;
            true
        }
    }

    fn fq_codel(params: Params) -> FqCodel<Piece> {
        let qdisc = FqCodel::new(params, &mut Pcg64::new(7, 7)).unwrap();
        let [a, b, c] = [1, 2, 3].map(|flow| qdisc.queue_of(&piece(flow, 1).header().flow));
        assert!(a != b && b != c && a != c, "the tests' flows must not share queues");
        qdisc
    }

    fn fill(qdisc: &mut FqCodel<Piece>, flow: u16, size: u64, packets: u64) {
        for _ in 0..packets {
            qdisc.enqueue(Time::ZERO, piece(flow, size), &mut no_drop);
        }
    }

    fn next(qdisc: &mut FqCodel<Piece>) -> u16 {
        qdisc.dequeue(Time::ZERO, &mut no_drop).unwrap().packet.flow
    }

    fn no_drop(drop: Drop<Piece>) {
        panic!("{drop:?}");
    }

    #[test]
    fn a_flow_that_wakes_goes_before_those_that_stand() {
        let mut qdisc = fq_codel(Params::default());
        fill(&mut qdisc, 1, 1514, 20);
        fill(&mut qdisc, 2, 1514, 20);
        for expected in [1, 2, 1, 2] {
            assert_eq!(next(&mut qdisc), expected);
        }
        fill(&mut qdisc, 3, 100, 1);
        assert_eq!(next(&mut qdisc), 3);
        assert_eq!(next(&mut qdisc), 1);
    }

    #[test]
    fn a_flow_that_pauses_briefly_is_not_new_again() {
        let mut qdisc = fq_codel(Params::default());
        fill(&mut qdisc, 1, 1514, 20);
        assert_eq!(next(&mut qdisc), 1);
        fill(&mut qdisc, 2, 100, 1);
        assert_eq!(next(&mut qdisc), 2);
        // Its queue is found empty, and has its place behind flow 1's until that was served.
        assert_eq!(next(&mut qdisc), 1);
        fill(&mut qdisc, 2, 100, 1);
        fill(&mut qdisc, 3, 100, 1);
        assert_eq!([next(&mut qdisc), next(&mut qdisc)], [3, 2]);
    }

    #[test]
    fn after_all_is_sent_every_flow_is_new_again() {
        let mut qdisc = fq_codel(Params::default());
        fill(&mut qdisc, 1, 3000, 1);
        assert_eq!(next(&mut qdisc), 1);
        fill(&mut qdisc, 1, 1000, 1);
        fill(&mut qdisc, 2, 1000, 1);
        assert_eq!([next(&mut qdisc), next(&mut qdisc)], [1, 2]);
    }

    #[test]
    fn flows_share_by_bytes_whatever_the_size_of_their_packets() {
        let mut qdisc = fq_codel(Params::default());
        for (flow, size) in [(1, 1514), (2, 200), (3, 9000)] {
            fill(&mut qdisc, flow, size, 1_000_000 / size);
        }
        let mut sent = [0; 3];
        for _ in 0..1_000 {
            let packet = qdisc.dequeue(Time::ZERO, &mut no_drop).unwrap().packet;
            sent[usize::from(packet.flow) - 1] += packet.size;
        }
        let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
        assert!(most - least <= 9000 + 1514, "{sent:?}");
    }

    #[test]
    fn at_the_limit_the_largest_queue_loses_its_oldest() {
        let mut qdisc = fq_codel(Params { limit: Packets::new(100), ..Params::default() });
        fill(&mut qdisc, 1, 1000, 30);
        fill(&mut qdisc, 2, 100, 70);
        let mut dropped = 0;
        qdisc.enqueue(Time::ZERO, piece(2, 100), &mut |drop| {
            assert_eq!((drop.packet.flow, drop.reason), (1, DropReason::QueueFull));
            dropped += 1;
        });
        assert_eq!(dropped, 15, "half of its bytes at once");
        assert_eq!(qdisc.backlog().packets, Packets::new(86));
    }

    #[test]
    fn memory_is_limited_too_and_large_queues_are_cut_in_batches() {
        let mut qdisc = fq_codel(Params { memory: Bytes::new(1_000_000), ..Params::default() });
        fill(&mut qdisc, 1, 1000, 999);
        fill(&mut qdisc, 2, 1000, 1);
        let mut dropped = 0;
        qdisc.enqueue(Time::ZERO, piece(2, 1), &mut |drop| dropped += u64::from(drop.packet.flow));
        assert_eq!(dropped, 64);
        // A single packet above the limit drops no packet of other flows.
        qdisc.enqueue(Time::ZERO, piece(3, 1_000_001), &mut |drop| {
            assert_eq!(drop.packet.flow, 3);
        });
        assert_eq!(
            qdisc.backlog(),
            Backlog { packets: Packets::new(937), bytes: Bytes::new(936_001) }
        );
    }

    /// Marks, drops and the maximum sojourn time of the sparse flow 2 in 5 s of a link of 10
    /// Mbit/s, offered twice that by flow 1.
    fn overload(ecn: bool) -> (u64, u64, Span) {
        let mut qdisc = fq_codel(Params { ecn, ..Params::default() });
        let (mut marks, mut drops, mut longest) = (0, 0, Span::ZERO);
        let slot = BitRate::from_mbps(10).time_to_send(Bytes::new(1500));
        for n in 0..4_000 {
            let now = Time::ZERO + slot * n;
            let mut count = |drop: Drop<Piece>| {
                assert_eq!((drop.packet.flow, drop.reason), (1, DropReason::Congestion));
                drops += 1;
            };
            qdisc.enqueue(now, piece(1, 1500), &mut count);
            qdisc.enqueue(now, piece(1, 1500), &mut count);
            if n % 10 == 0 {
                qdisc.enqueue(now, piece(2, 100), &mut count);
            }
            let sent = qdisc.dequeue(now, &mut count).expect("a busy link");
            match sent.packet.flow {
                2 => longest = longest.max(sent.sojourn),
                _ => marks += u64::from(sent.packet.is_marked),
            }
        }
        assert_eq!(qdisc.marked(), Packets::new(marks));
        (marks, drops, longest)
    }

    #[test]
    fn each_flow_answers_for_its_own_queue() {
        let (marks, drops, longest) = overload(true);
        assert!(marks > 100 && drops == 0, "{marks} marks, {drops} drops");
        assert!(longest <= Span::from_millis(3), "{longest}");
        let (marks, drops, longest) = overload(false);
        assert!(marks == 0 && drops > 100, "{marks} marks, {drops} drops");
        assert!(longest <= Span::from_millis(3), "{longest}");
    }

    #[test]
    fn which_flows_share_a_queue_depends_on_the_secret() {
        let places = |seed| {
            let qdisc = FqCodel::<Piece>::new(Params::default(), &mut Pcg64::new(seed, 1)).unwrap();
            [1, 2, 3, 4].map(|flow| qdisc.queue_of(&piece(flow, 1).header().flow))
        };
        assert_eq!(places(1), places(1));
        assert_ne!(places(1), places(2));
    }
}
