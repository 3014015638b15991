//! CoDel (RFC 8289) controls the sojourn time of packets: it drops by how long packets were queued,
//! not by how many are.
//!
//! A queue that stays above `target` for an `interval` is a standing one: packets are dropped at
//! its head, further ones ever closer (`interval / √n`), until the sojourn time is below the
//! target. Bursts that drain within an interval pass untouched. With ECN, packets whose senders
//! support it are marked instead of dropped.
//!
//! See `law.rs` for the state machine, which FQ-CoDel shares.
//!
//! Where the RFC is silent: it marks nothing; here, as in Linux, a mark counts as a drop. A packet
//! of a sender that does not support ECN is dropped although others are marked.

mod law;

pub(crate) use law::{Control, Law};

use super::{Backlog, Dequeued, Drop, DropReason, Drops, Fifo, Limit, Packet, Qdisc, QdiscError};
use crate::unit::{Bytes, Packets, Span, Time};

/// Settings of [`Codel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Params {
    /// The queue's capacity, above zero. 1000 packets, as in Linux.
    pub limit: Limit,
    /// The sojourn time that is acceptable in the long run, above zero. 5 ms: 5 % of the interval,
    /// which keeps a link busy at little delay (RFC 8289 sections 3.2 and 5.3). A link that takes
    /// longer than this for a packet needs more (RFC 8290 section 5.2.2).
    pub target: Span,
    /// How long the target may be exceeded, at least `target`: a round trip of most connections,
    /// the time in which a sender can answer. 100 ms (RFC 8289 section 5.3).
    pub interval: Span,
    /// With at most this many bytes queued, nothing is dropped: the largest packet of the link, so
    /// that it never runs empty. 1514 bytes, an Ethernet frame.
    pub max_packet: Bytes,
    /// Whether to mark packets whose senders support ECN. Off, as in Linux.
    pub ecn: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            limit: Limit::default(),
            target: Span::from_millis(5),
            interval: Span::from_millis(100),
            max_packet: Bytes::new(1514),
            ecn: false,
        }
    }
}

impl Control {
    /// Rejects a law that would drop all or nothing.
    pub(super) fn checked(self) -> Result<Self, QdiscError> {
        if self.target.is_zero() {
            return Err(QdiscError::Zero { field: "target", example: "5ms" });
        }
        if self.interval < self.target {
            let Self { target, interval, .. } = self;
            return Err(QdiscError::TargetAboveInterval { target, interval });
        }
        Ok(self)
    }
}

/// One CoDel queue.
#[derive(Debug)]
pub struct Codel<P> {
    control: Control,
    ecn: bool,
    queue: Fifo<P>,
    law: Law,
    marked: Packets,
}

impl<P: Packet> Codel<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Result<Self, QdiscError> {
        let Params { limit, target, interval, max_packet, ecn } = params;
        Ok(Self {
            control: Control { target, interval, max_packet }.checked()?,
            ecn,
            queue: Fifo::new(limit.checked()?),
            law: Law::default(),
            marked: Packets::ZERO,
        })
    }
}

impl<P: Packet> Qdisc<P> for Codel<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        self.queue.enqueue(now, packet, drops);
    }

    fn dequeue(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        loop {
            let mut head = self.queue.dequeue(now, drops)?;
            let waiting = self.queue.backlog().bytes;
            if !self.law.strikes(&self.control, now, head.sojourn, waiting) {
                return Some(head);
            }
            if self.ecn && head.packet.mark() {
                self.marked += Packets::new(1);
                return Some(head);
            }
            drops(Drop { packet: head.packet, reason: DropReason::Congestion });
        }
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn each_queued(&self, see: &mut dyn FnMut(&P)) {
        self.queue.each_queued(see);
    }

    fn marked(&self) -> Packets {
        self.marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full-sized packet; whether it is marked, if its sender supports ECN.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Full {
        marked: Option<bool>,
    }

    impl Packet for Full {
        fn size(&self) -> Bytes {
            Bytes::new(1500)
        }

        fn mark(&mut self) -> bool {
            self.marked = self.marked.map(|_| true);
            self.marked.is_some()
        }
    }

    /// Sent and dropped packets of a link of one packet per ms, offered two per ms, in 2 s.
    fn overload(ecn: bool, marked: Option<bool>) -> (Codel<Full>, u64, u64) {
        let mut codel = Codel::new(Params { ecn, ..Params::default() }).unwrap();
        let (mut sent, mut dropped) = (0, 0);
        for ms in 0..2_000 {
            let now = Time::ZERO + Span::from_millis(ms);
            let mut count = |drop: Drop<Full>| {
                assert_ne!(drop.packet.marked, Some(true), "marked and dropped");
                dropped += u64::from(drop.reason == DropReason::Congestion);
            };
            codel.enqueue(now, Full { marked }, &mut count);
            codel.enqueue(now, Full { marked }, &mut count);
            sent += u64::from(codel.dequeue(now, &mut count).is_some());
        }
        (codel, sent, dropped)
    }

    #[test]
    fn the_link_stays_busy_while_an_overload_is_dropped_ever_faster() {
        let (codel, sent, dropped) = overload(false, Some(false));
        assert_eq!(sent, 2_000);
        assert_eq!(codel.marked(), Packets::ZERO);
        // interval / √n apart from the first interval on: n ≈ (1900 ms / 2 / 100 ms)².
        assert!((85..=115).contains(&dropped), "{dropped}");
    }

    #[test]
    fn with_ecn_packets_are_marked_in_place_of_dropped() {
        let (codel, sent, dropped) = overload(true, Some(false));
        assert_eq!((sent, dropped), (2_000, 0));
        assert!((85..=115).contains(&codel.marked().get()), "{}", codel.marked());
        let (codel, _, dropped) = overload(true, None);
        assert_eq!(codel.marked(), Packets::ZERO);
        assert!(dropped > 0, "a sender without ECN");
    }

    #[test]
    fn a_burst_that_drains_within_an_interval_passes() {
        let mut codel = Codel::new(Params::default()).unwrap();
        let never = &mut |drop: Drop<Full>| panic!("{drop:?}");
        for _ in 0..100 {
            codel.enqueue(Time::ZERO, Full { marked: None }, never);
        }
        for ms in 0..100 {
            assert!(codel.dequeue(Time::ZERO + Span::from_millis(ms), never).is_some());
        }
    }
}
