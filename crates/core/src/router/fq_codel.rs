//! FQ-CoDel (RFC 8290): a CoDel queue for each flow, served in turns by bytes.
//!
//! ```text
//!              hash(flow)    ┌► queue 0 ──┐   new list: queues that just woke, served first
//! packet ─────────────────►  ├► queue 1 ──┤
//!                            └► …         ┘   old list: the others, in turns
//!
//! a queue at the front:  credit ≤ 0      → credit ← credit + quantum, to the end of old
//!                        empty           → from new to the end of old, from old to nowhere
//!                        CoDel's choice  → credit ← credit − size, sent
//! ```
//!
//! A flow that sends less than a quantum a turn finds its queue empty each time and goes first
//! (RFC 8290 section 4.2). At the limit of packets or of memory, packets are dropped from the
//! head of the queue that holds most bytes (section 4.1): up to half of its bytes and 64 packets
//! at once, because finding it takes a look at every queue.
//!
//! Everything else takes the same time however many packets and flows there are, as long as
//! packets are not much larger than the quantum. Flows are told apart by a hash with a secret key
//! (SipHash-1-3): two may share a queue by chance, but nobody can arrange it.
//!
//! Where the RFC is silent: CoDel drops nothing while no more than a packet waits *in its own
//! queue*, as RFC 8289 has it; Linux looks at all queues together, and so may drop the only
//! packet of a flow. The limit of memory counts the bytes of packets, not of what describes them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use rand::{Rng, RngExt};
use siphasher::sip::SipHasher13;

use super::codel::{Control, Law};
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
    /// How many packets all queues hold together, above zero. 10240 (RFC 8290 section 5.2.3).
    pub limit: Packets,
    /// How many bytes all queues hold together, above zero. 32 MiB, as in Linux.
    pub memory: Bytes,
    /// How many queues there are, from 1 to 65536. 1024 (RFC 8290 section 5.2.4).
    pub queues: u32,
    /// How many bytes a queue sends a turn, at least 256, so that even the largest packet waits
    /// for few turns. 1514, an Ethernet frame (RFC 8290 section 5.2.5).
    pub quantum: Bytes,
    /// As in [`CodelParams::target`](super::CodelParams::target): 5 ms (RFC 8290 section 5.2.2).
    pub target: Span,
    /// As in [`CodelParams::interval`](super::CodelParams::interval): 100 ms (section 5.2.1).
    pub interval: Span,
    /// As in [`CodelParams::max_packet`](super::CodelParams::max_packet), of each queue: 1514
    /// bytes.
    pub max_packet: Bytes,
    /// Whether to mark packets whose senders take part in ECN. On (RFC 8290 section 5.2.6).
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
    const MIN_QUANTUM: Bytes = Bytes::new(256);
    const MAX_QUEUES: u32 = 65_536;

    fn checked(self) -> Result<Self, QdiscError> {
        Limit::Packets(self.limit).checked()?;
        if self.memory == Bytes::ZERO {
            return Err(QdiscError::Zero { field: "memory", example: "32MiB" });
        }
        if !(1..=Self::MAX_QUEUES).contains(&self.queues) {
            return Err(QdiscError::Queues { queues: self.queues, most: Self::MAX_QUEUES });
        }
        if self.quantum < Self::MIN_QUANTUM {
            return Err(QdiscError::Quantum { quantum: self.quantum, least: Self::MIN_QUANTUM });
        }
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
    /// Queues that woke since the others had their turns.
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
    /// As it leaves the lists, empty.
    fn retire(&mut self) {
        self.is_listed = false;
        self.law.on_empty();
    }
}

impl<P: Packet> FqCodel<P> {
    /// How many packets are dropped at most before the largest queue is sought again, as in Linux.
    const DROP_BATCH: usize = 64;

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

    /// Takes all queues, which are empty, from the lists: nobody asks an empty qdisc for a packet,
    /// in whose search they would be taken from there.
    fn retire_all(&mut self) {
        for index in self.new.drain(..).chain(self.old.drain(..)) {
            self.queues[index].retire();
        }
    }

    fn drop_from_largest(&mut self, now: Time, drops: &mut Drops<'_, P>) {
        let Some(queue) = self.queues.iter_mut().max_by_key(|queue| queue.packets.bytes()) else {
            return;
        };
        let enough = queue.packets.bytes().get() / 2;
        for _ in 0..Self::DROP_BATCH {
            let Some(head) = self.packets.pop(&mut queue.packets, now) else { return };
            self.bytes = self.bytes - head.packet.size();
            drops(Drop { packet: head.packet, reason: DropReason::QueueFull });
            if queue.packets.bytes().get() <= enough {
                return;
            }
        }
    }

    /// What the CoDel of a queue lets through, or `None` if it is empty.
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
            if !law.strikes(&self.control, now, head.sojourn, packets.bytes()) {
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
            self.drop_from_largest(now, drops);
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
                // Through the old queues once, or a flow that pauses briefly would always be new.
                self.old.push_back(index);
            } else {
                self.queues[index].retire();
            }
        }
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets.len(), bytes: self.bytes }
    }

    fn marked(&self) -> Packets {
        self.marked
    }
}

/// A size among credits.
fn signed(size: Bytes) -> i64 {
    i64::try_from(size.get()).unwrap_or(i64::MAX)
}
