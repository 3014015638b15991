//! Propagation: delay and jitter, and the packets in flight.

use alloc::collections::VecDeque;

use rand::{Rng, RngExt};

use super::{LinkParams, Traffic};
use crate::router::Packet;
use crate::unit::{Bytes, Span, Time};

/// Whether jitter may let a packet overtake another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Order {
    /// A packet arrives no earlier than packets sent before it: a small delay drawn after a large
    /// one is extended, as in a queue. If packets are sent at shorter intervals than the jitter,
    /// the mean delay becomes larger than the configured one.
    #[default]
    Kept,
    /// Each packet arrives after the delay drawn for it, and may overtake others.
    Free,
}

/// The packets in flight, in the order of their arrival.
#[derive(Debug)]
pub(super) struct Line<P> {
    in_flight: VecDeque<(Time, P)>,
    /// Their number and size.
    traffic: Traffic,
    /// The latest arrival so far.
    horizon: Time,
}

impl<P: Packet> Line<P> {
    pub(super) const PACKETS: usize = 1 << 16;
    pub(super) const BYTES: Bytes = Bytes::new(64 << 20);

    pub(super) fn new() -> Self {
        Self { in_flight: VecDeque::new(), traffic: Traffic::default(), horizon: Time::ZERO }
    }

    /// Takes a packet whose transmission ended at `sent`, or returns it if the line is full.
    // Inlined: a packet passed in memory would be read right after it is written, which takes
    // longer than the rest of this function.
    #[inline(always)]
    pub(super) fn send(
        &mut self,
        sent: Time,
        packet: P,
        link: &LinkParams,
        rng: &mut impl Rng,
    ) -> Result<(), P> {
        let traced = link.trace.as_ref().map_or(Span::ZERO, |trace| trace.delay_at(sent));
        let arrival = sent + drawn_delay(link, rng) + traced;
        let Traffic { packets, bytes } = self.traffic;
        if packets.get() >= Self::PACKETS as u64 || bytes + packet.size() > Self::BYTES {
            return Err(packet);
        }
        self.traffic.count_all(&packet);
        let arrival = match link.order {
            Order::Kept => arrival.max(self.horizon),
            Order::Free => arrival,
        };
        if arrival >= self.horizon {
            self.horizon = arrival;
            self.in_flight.push_back((arrival, packet));
        } else {
            // Equal arrivals keep the order of sending.
            let place = self.in_flight.partition_point(|(earlier, _)| *earlier <= arrival);
            self.in_flight.insert(place, (arrival, packet));
        }
        Ok(())
    }

    /// The next packet, if it has arrived by `now`, and its arrival time.
    pub(super) fn arrived(&mut self, now: Time) -> Option<(Time, P)> {
        self.next_arrival().filter(|arrival| *arrival <= now)?;
        let (arrival, packet) = self.in_flight.pop_front()?;
        self.traffic.packets = self.traffic.packets - packet.packets();
        self.traffic.bytes = self.traffic.bytes - packet.size();
        Some((arrival, packet))
    }

    pub(super) fn next_arrival(&self) -> Option<Time> {
        self.in_flight.front().map(|(arrival, _)| *arrival)
    }

    /// The packets with the times of their arrival.
    pub(super) fn packets(&self) -> impl Iterator<Item = (Time, &P)> {
        self.in_flight.iter().map(|(arrival, packet)| (*arrival, packet))
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }
}

fn drawn_delay(link: &LinkParams, rng: &mut impl Rng) -> Span {
    if link.jitter.is_zero() {
        return link.delay;
    }
    let jitter = rng.random_range(0..=link.jitter.as_nanos().saturating_mul(2));
    (link.delay + Span::from_nanos(jitter)) - link.jitter
}
