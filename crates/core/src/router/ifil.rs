//! IFIL (inter-flow FIFO, intra-flow LIFO-W) keeps updates fresh in a queue: first in, first out
//! across flows, and only the newest packet within a flow.
//!
//! Tseng, Han, Wierman, "In-Network Freshness Control: Trading Throughput for Freshness", sections
//! III and VI. At most one packet of each flow is queued. A newer one takes its place in the queue,
//! and the old one is dropped: an outdated status has no use.
//!
//! # Cost
//!
//! Packets are queued in a ring in the order in which their flows joined it, and are numbered in
//! that order. A table of buckets holds the number of the newest packet in each; every packet holds
//! the number of the next older one in its bucket. Packets leave oldest first, so that a departing
//! packet is the last of its bucket: nothing has to be unlinked, and a number below those of queued
//! packets is the end of a chain. A departure costs the same as in a plain ring, an arrival one
//! hash and at most one and a half comparisons on average, for any traffic ([`FlowHash`]): there
//! are at least two buckets for each flow. All memory is allocated when the queue is created.
//!
//! # At the limit
//!
//! A packet of a flow without a queued packet is dropped on arrival; flows with a place go on
//! replacing their packets. If the queue evicted a flow instead, a flood of invented flows, which
//! are all new, would flush out the others. So every flow that has a place leaves within `limit`
//! departures, with or without a flood. A flow without a place competes with the flood for free
//! places: no table can distinguish it from an invented one.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use core::mem;

use rand::Rng;

use super::flow_hash::{FlowHash, FlowWords};
use super::{
    Backlog, Dequeued, Drop, DropReason, Drops, HoldParams, Limit, Packet, Qdisc, QdiscError,
};
use crate::unit::{Bytes, Packets, Time};

/// Settings of [`Ifil`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Params {
    /// The maximum number of flows with a queued packet, from 1 to 262144. The memory for all of
    /// them, at most 192 bytes each and the packets, is allocated from the start. 2000: if the
    /// kernel holds the packets it finds each one by walking its queue. The paper has 10⁴ to 10⁵
    /// (section VI).
    pub limit: Packets,
    /// The unit that takes turns; hosts if unset.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub isolate: Option<Isolation>,
    /// Holds an update if waiting for its successor lowers the age ([`Hold`](super::Hold)); if
    /// unset, an update leaves as soon as it may. Not in the kernel's program.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub hold: Option<HoldParams>,
}

impl Default for Params {
    fn default() -> Self {
        Self { limit: Packets::new(2000), isolate: None, hold: None }
    }
}

/// The unit that takes turns among updates. With one flow per host both are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Isolation {
    /// Source hosts, and the flows of a host within its turn
    /// ([`IfilHosts`](super::IfilHosts)): a host gains nothing by many 5-tuples.
    #[default]
    Host,
    /// Flows in the order in which they joined, as in the paper ([`Ifil`]): a host with n flows has
    /// n places.
    Flow,
}

impl Params {
    const MAX_LIMIT: Packets = Packets::new(1 << 18);

    pub(super) fn checked(self) -> Result<Self, QdiscError> {
        Limit::Packets(self.limit).checked()?;
        if self.limit > Self::MAX_LIMIT {
            return Err(QdiscError::TooManyFlows { limit: self.limit, most: Self::MAX_LIMIT });
        }
        Ok(self)
    }
}

/// The queue that keeps the newest packet of each flow.
#[derive(Debug)]
pub struct Ifil<P> {
    limit: usize,
    hash: FlowHash,
    /// From the oldest place in the queue to the newest.
    waiting: VecDeque<Waiting<P>>,
    /// The number of the oldest queued packet; the others count on from it, modulo 2³².
    first: u32,
    /// The number of the newest packet in each bucket; the length is a power of two.
    newest: Box<[u32]>,
    bytes: Bytes,
}

/// In cache lines of its own: an arrival touches an entry anywhere in the queue.
#[derive(Debug)]
#[repr(align(64))]
struct Waiting<P> {
    packet: P,
    arrived: Time,
    /// The number of the next older packet in the bucket.
    older: u32,
}

impl<P: Packet> Ifil<P> {
    /// An empty queue, [isolated](Params::isolate) by flow. The secret of its hash comes from
    /// `rng`.
    ///
    /// # Errors
    /// [`QdiscError::ZeroLimit`] and [`QdiscError::TooManyFlows`].
    pub fn new(params: Params, rng: &mut impl Rng) -> Result<Self, QdiscError> {
        let limit = params.checked()?.limit.get() as usize;
        Ok(Self {
            limit,
            hash: FlowHash::draw(rng),
            waiting: VecDeque::with_capacity(limit),
            first: 1,
            newest: vec![0; 2 * limit.next_power_of_two()].into_boxed_slice(),
            bytes: Bytes::ZERO,
        })
    }

    #[inline]
    fn bucket(&self, flow: FlowWords) -> usize {
        self.hash.hash(flow) as usize & (self.newest.len() - 1)
    }

    /// The position of the packet of `flow`, counted from the oldest.
    #[inline]
    fn position(&self, bucket: usize, flow: FlowWords) -> Option<usize> {
        let mut number = self.newest[bucket];
        let mut newer = self.waiting.len();
        loop {
            let position = number.wrapping_sub(self.first) as usize;
            // Not older: a number of a packet that has left. A bucket that is idle for 2³² packets
            // may lead into another's chain; that is harmless, since it also gets only older.
            if position >= newer {
                return None;
            }
            let candidate = &self.waiting[position];
            if flow_of(&candidate.packet).is(flow) {
                return Some(position);
            }
            (newer, number) = (position, candidate.older);
        }
    }
}

fn flow_of(packet: &impl Packet) -> FlowWords {
    packet.header().flow.into()
}

impl<P: Packet> Qdisc<P> for Ifil<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        let flow = flow_of(&packet);
        let bucket = self.bucket(flow);
        let size = packet.size();
        if let Some(position) = self.position(bucket, flow) {
            let waiting = &mut self.waiting[position];
            waiting.arrived = now;
            let old = mem::replace(&mut waiting.packet, packet);
            self.bytes = self.bytes - old.size() + size;
            drops(Drop { packet: old, reason: DropReason::Replaced });
        } else if self.waiting.len() < self.limit {
            let number = self.first.wrapping_add(self.waiting.len() as u32);
            let older = mem::replace(&mut self.newest[bucket], number);
            self.waiting.push_back(Waiting { packet, arrived: now, older });
            self.bytes += size;
        } else {
            drops(Drop { packet, reason: DropReason::QueueFull });
        }
    }

    fn dequeue(&mut self, now: Time, _: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        let Waiting { packet, arrived, .. } = self.waiting.pop_front()?;
        self.first = self.first.wrapping_add(1);
        self.bytes = self.bytes - packet.size();
        Some(Dequeued { packet, sojourn: now.since(arrived) })
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: Packets::new(self.waiting.len() as u64), bytes: self.bytes }
    }

    fn each_queued(&self, see: &mut dyn FnMut(&P)) {
        self.waiting.iter().for_each(|waiting| see(&waiting.packet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::{FlowKey, Header};
    use crate::unit::Span;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Update {
        flow: u16,
        seq: u64,
    }

    impl Packet for Update {
        fn size(&self) -> Bytes {
            Bytes::new(100 + self.seq)
        }

        fn header(&self) -> Header {
            let flow = FlowKey { source_port: self.flow, ..FlowKey::default() };
            Header { flow, ..Header::default() }
        }
    }

    fn ifil(limit: u64) -> Ifil<Update> {
        let params = Params { limit: Packets::new(limit), ..Params::default() };
        Ifil::new(params, &mut Pcg64::seed_from_u64(7)).unwrap()
    }

    fn offer(queue: &mut Ifil<Update>, ms: u64, flow: u16, seq: u64) -> Option<Drop<Update>> {
        let mut dropped = None;
        let now = Time::ZERO + Span::from_millis(ms);
        queue.enqueue(now, Update { flow, seq }, &mut |drop| {
            assert_eq!(dropped.replace(drop), None);
        });
        dropped
    }

    fn serve(queue: &mut Ifil<Update>, ms: u64) -> Option<(u16, u64, Span)> {
        let now = Time::ZERO + Span::from_millis(ms);
        let next = queue.dequeue(now, &mut |drop| panic!("{drop:?}"))?;
        Some((next.packet.flow, next.packet.seq, next.sojourn))
    }

    #[test]
    fn the_newest_takes_the_place_of_the_one_that_waits_and_its_wait_is_its_own() {
        let mut queue = ifil(10);
        assert_eq!(offer(&mut queue, 0, 1, 1), None);
        assert_eq!(offer(&mut queue, 1, 2, 1), None);
        let replaced = Drop { packet: Update { flow: 1, seq: 1 }, reason: DropReason::Replaced };
        assert_eq!(offer(&mut queue, 8, 1, 2), Some(replaced));
        let backlog = Backlog { packets: Packets::new(2), bytes: Bytes::new(102 + 101) };
        assert_eq!(queue.backlog(), backlog);
        assert_eq!(serve(&mut queue, 10), Some((1, 2, Span::from_millis(2))));
        assert_eq!(serve(&mut queue, 10), Some((2, 1, Span::from_millis(9))));
        assert_eq!(serve(&mut queue, 10), None);
        assert_eq!(queue.backlog(), Backlog::default());
    }

    #[test]
    fn at_the_limit_a_new_flow_is_turned_away_and_the_others_go_on() {
        let mut queue = ifil(2);
        offer(&mut queue, 0, 1, 1);
        offer(&mut queue, 0, 2, 1);
        let refused = Drop { packet: Update { flow: 3, seq: 1 }, reason: DropReason::QueueFull };
        assert_eq!(offer(&mut queue, 0, 3, 1), Some(refused));
        assert_eq!(offer(&mut queue, 0, 2, 2).unwrap().reason, DropReason::Replaced);
        assert_eq!(serve(&mut queue, 0).map(|(flow, seq, _)| (flow, seq)), Some((1, 1)));
        assert_eq!(offer(&mut queue, 0, 3, 2), None);
    }

    #[test]
    fn packets_are_found_when_their_numbers_wrap_and_when_buckets_have_rested_that_long() {
        let mut queue = ifil(64);
        queue.first = u32::MAX - 20;
        // As if every bucket had last been used almost 2³² packets ago.
        for (bucket, number) in queue.newest.iter_mut().enumerate() {
            *number = (u32::MAX - 20).wrapping_add(bucket as u32);
        }
        for seq in 0..100 {
            for flow in 0..64 {
                let replaced = offer(&mut queue, 0, flow, seq).map(|drop| drop.reason);
                assert_eq!(replaced, (seq > 0).then_some(DropReason::Replaced));
            }
            let (flow, _, _) = serve(&mut queue, 0).unwrap();
            assert_eq!(u64::from(flow), seq % 64);
            assert_eq!(offer(&mut queue, 0, flow, seq), None);
        }
    }

    #[test]
    fn a_flood_of_flows_allocates_nothing() {
        let mut queue = ifil(100);
        let memory = (queue.waiting.capacity(), queue.newest.len());
        let mut refused = 0;
        for flow in 0..10_000 {
            refused += u32::from(offer(&mut queue, 0, flow, 0).is_some());
            if flow % 10 == 0 {
                serve(&mut queue, 0);
            }
        }
        assert_eq!((queue.waiting.capacity(), queue.newest.len()), memory);
        assert_eq!(queue.backlog().packets, Packets::new(100));
        assert!(refused > 8_000);
    }
}
