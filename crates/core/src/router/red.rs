//! RED: drops or marks at random, ever more as the average queue grows (Floyd and Jacobson,
//! "Random Early Detection Gateways for Congestion Avoidance", 1993; RFC 2309).
//!
//! ```text
//! average ← average + w·(queue − average)       at each arrival
//! average ← (1 − w)^m · average                 at an arrival to an empty queue,
//!                                               m = idle time · rate / average_packet
//!
//! p = 0                                                     average < min
//!     max_p · (average − min) / (max − min)                 min ≤ average < max
//!     1                                                     max ≤ average
//!
//! gently, in place of the last:
//!     max_p + (1 − max_p) · (average − max) / max           max ≤ average < 2·max
//!     1                                                     2·max ≤ average
//! ```
//!
//! A packet is not dropped with probability p on its own, which would make drops cluster: after
//! one, the next is the n-th packet with n·p above a uniform draw, so n is uniform in 1 … 1/p
//! (section 7 of the paper).
//!
//! The weight w comes from the burst that is to pass untouched: the largest w = 2⁻ᵏ for which a
//! burst of `burst` packets into an empty queue leaves the average below min (section 6 of the
//! paper):
//!
//! ```text
//! burst + 1 + ((1 − w)^burst − 1)/w ≤ min / average_packet
//! ```
//!
//! The rate of the link is `bandwidth`, or the queue's measurement:
//!
//! ```text
//! bytes ← (1 − a)·bytes + size        at each departure from a queue that was left not empty:
//! time  ← (1 − a)·time  + gap         the packet before took `gap`, from its departure to this one
//! rate  = bytes / time                a = 1/64; 10 Mbit/s before the first such departure
//! ```
//!
//! Decisions: the average is of bytes, as in Linux; the probability is the same for packets of all
//! sizes (RFC 7141 section 2.2). A full queue drops all arrivals, before RED decides.

use rand::{Rng, RngExt};

use super::{Backlog, Dequeued, Drop, DropReason, Drops, Fifo, Limit, Packet, Qdisc, QdiscError};
use crate::unit::{BitRate, Bytes, Packets, Time};

/// Settings of [`Red`]. In a file, missing settings follow from the others as in
/// [`Params::with_limit`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "Written"))]
pub struct Params {
    /// The queue's capacity, above zero.
    pub limit: Bytes,
    /// The average below which no packet is dropped or marked, above zero.
    pub min: Bytes,
    /// The average at which `max_probability` is reached, above `min` and at most `limit`.
    pub max: Bytes,
    /// The probability max_p at `max`, above 0 and at most 1. 0.02, as in Linux.
    pub max_probability: f64,
    /// The burst of packets that passes untouched, more than `min / average_packet`: sets the
    /// weight.
    pub burst: Packets,
    /// The mean size of packets, above zero. 1000 bytes, as in Linux.
    pub average_packet: Bytes,
    /// The rate at which the link drains the queue, above zero, for the decay of the average while
    /// the queue is empty. `None`, the default: the queue measures it. (Linux takes 10 Mbit/s.)
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub bandwidth: Option<BitRate>,
    /// Whether the probability rises steadily between `max` and twice that, instead of the jump to
    /// 1 (Floyd 2000). Off, as in Linux.
    pub gentle: bool,
    /// Whether to mark packets whose senders support ECN. Off, as in Linux.
    pub ecn: bool,
    /// Whether packets that would be marked are dropped where p = 1 (RFC 3168 section 7). Off, as
    /// in Linux: DCTCP (RFC 8257) needs marks of all packets above a threshold.
    pub hard_drop: bool,
}

impl Params {
    /// The settings that `tc red` derives from a limit (Floyd's recommendations): `max` a quarter
    /// of it, `min` a third of that, and the burst that the two allow.
    pub fn with_limit(limit: Bytes) -> Self {
        let max = Bytes::new(limit.get() / 4);
        let min = Bytes::new(max.get() / 3);
        let average_packet = Bytes::new(1000);
        Self {
            limit,
            min,
            max,
            max_probability: 0.02,
            burst: allowed_burst(min, max, average_packet),
            average_packet,
            bandwidth: None,
            gentle: false,
            ecn: false,
            hard_drop: false,
        }
    }

    fn checked(self) -> Result<Self, QdiscError> {
        let Self { limit, min, max, max_probability, burst, average_packet, .. } = self;
        Limit::Bytes(limit).checked()?;
        for (field, is_zero, example) in [
            ("min", min == Bytes::ZERO, "33kB"),
            ("average_packet", average_packet == Bytes::ZERO, "1000B"),
            ("bandwidth", self.bandwidth == Some(BitRate::from_bps(0)), "10mbit"),
        ] {
            if is_zero {
                return Err(QdiscError::Zero { field, example });
            }
        }
        if min >= max || max > limit {
            return Err(QdiscError::Thresholds { min, max, limit });
        }
        if !(max_probability > 0.0 && max_probability <= 1.0) {
            return Err(QdiscError::MaxProbability(max_probability));
        }
        // Otherwise no weight would do, and the average would not outlast a packet.
        let least = Packets::new(min.get().div_ceil(average_packet.get()));
        if burst < least {
            return Err(QdiscError::BurstTooSmall { burst, least });
        }
        Ok(self)
    }

    /// The weight w of the newest sample.
    fn weight(&self) -> f64 {
        let burst = self.burst.get() as f64;
        let excess = burst + 1.0 - self.min.get() as f64 / self.average_packet.get() as f64;
        let passes = |weight: &f64| (1.0 - libm::pow(1.0 - weight, burst)) / weight >= excess;
        let mut weights = (1..32).map(|k| libm::exp2(-f64::from(k)));
        weights.find(passes).unwrap_or(libm::exp2(-32.0))
    }
}

impl Default for Params {
    /// A limit of 400 kB, from which 33 kB, 100 kB and a burst of 55 packets follow: the example
    /// of `tc red`'s manual.
    fn default() -> Self {
        Self::with_limit(Bytes::new(400_000))
    }
}

/// (2·min + max) / (3·average_packet).
fn allowed_burst(min: Bytes, max: Bytes, average_packet: Bytes) -> Packets {
    let bytes = (min + min + max).get();
    Packets::new(bytes.checked_div(average_packet.get().saturating_mul(3)).unwrap_or(0))
}

/// The settings in a file: a part of them.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    limit: Option<Bytes>,
    min: Option<Bytes>,
    max: Option<Bytes>,
    max_probability: Option<f64>,
    burst: Option<Packets>,
    average_packet: Option<Bytes>,
    bandwidth: Option<BitRate>,
    #[serde(default)]
    gentle: bool,
    #[serde(default)]
    ecn: bool,
    #[serde(default)]
    hard_drop: bool,
}

#[cfg(feature = "serde")]
impl From<Written> for Params {
    fn from(written: Written) -> Self {
        let derived = written.limit.map_or_else(Self::default, Self::with_limit);
        let max = written.max.unwrap_or(derived.max);
        let min = written.min.unwrap_or(Bytes::new(max.get() / 3));
        let average_packet = written.average_packet.unwrap_or(derived.average_packet);
        Self {
            limit: derived.limit,
            min,
            max,
            max_probability: written.max_probability.unwrap_or(derived.max_probability),
            burst: written.burst.unwrap_or(allowed_burst(min, max, average_packet)),
            average_packet,
            bandwidth: written.bandwidth,
            gentle: written.gentle,
            ecn: written.ecn,
            hard_drop: written.hard_drop,
        }
    }
}

/// A RED queue with the random stream `R`.
#[derive(Debug)]
pub struct Red<P, R> {
    params: Params,
    weight: f64,
    queue: Fifo<P>,
    /// In bytes.
    average: f64,
    /// While the queue is empty: up to when the average has decayed.
    decayed: Time,
    drain: Drain,
    spacing: Option<Spacing>,
    rng: R,
    marked: Packets,
}

/// The rate at which the link drains the queue, as departures show it.
#[derive(Debug, Default)]
struct Drain {
    /// The last departure, if it left packets behind: when, and its size in bytes.
    last: Option<(Time, f64)>,
    bytes: f64,
    seconds: f64,
}

impl Drain {
    /// The weight of the newest departure: 64 packets are a burst, and a change of the rate is
    /// found within some bursts.
    const WEIGHT: f64 = 1.0 / 64.0;
    /// Before anything was measured: 10 Mbit/s, which `tc red` assumes.
    const UNKNOWN: f64 = 10e6 / 8.0;

    fn on_departure(&mut self, now: Time, size: Bytes, is_empty: bool) {
        if let Some((before, bytes)) = self.last {
            self.bytes = (1.0 - Self::WEIGHT) * self.bytes + bytes;
            self.seconds = (1.0 - Self::WEIGHT) * self.seconds + now.since(before).as_secs_f64();
        }
        self.last = (!is_empty).then_some((now, size.get() as f64));
    }

    /// In bytes per second, above zero.
    fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes / self.seconds } else { Self::UNKNOWN }
    }
}

/// The state while the average is where packets are dropped or marked at random.
#[derive(Debug)]
struct Spacing {
    /// Packets since the last one dropped or marked.
    spared: u64,
    /// Uniform in 0 … 1: the next one is dropped or marked once `spared`·p reaches it.
    draw: f64,
}

impl<P: Packet, R: Rng> Red<P, R> {
    /// An empty queue.
    pub fn new(params: Params, rng: R) -> Result<Self, QdiscError> {
        let params = params.checked()?;
        Ok(Self {
            weight: params.weight(),
            queue: Fifo::new(Limit::Bytes(params.limit)),
            params,
            average: 0.0,
            decayed: Time::ZERO,
            drain: Drain::default(),
            spacing: None,
            rng,
            marked: Packets::ZERO,
        })
    }

    fn update_average(&mut self, now: Time) {
        let backlog = self.queue.backlog();
        if backlog.packets == Packets::ZERO {
            let given = self.params.bandwidth.map(|rate| rate.as_bps() as f64 / 8.0);
            let rate = given.unwrap_or_else(|| self.drain.rate());
            let packet = self.params.average_packet.get() as f64 / rate;
            let missed = now.since(self.decayed).as_secs_f64() / packet;
            self.average *= libm::pow(1.0 - self.weight, missed);
            self.decayed = now;
        } else {
            self.average += self.weight * (backlog.bytes.get() as f64 - self.average);
        }
    }

    /// The probability p at the current average, from 0 to 1.
    fn probability(&self) -> f64 {
        let Params { max_probability, gentle, .. } = self.params;
        let (min, max) = (self.params.min.get() as f64, self.params.max.get() as f64);
        let average = self.average;
        if average < min {
            0.0
        } else if average < max {
            max_probability * (average - min) / (max - min)
        } else if gentle && average < 2.0 * max {
            max_probability + (1.0 - max_probability) * (average - max) / max
        } else {
            1.0
        }
    }

    /// Whether the arriving packet is dropped or marked, with probability `probability` on its own.
    fn strikes(&mut self, probability: f64) -> bool {
        if probability == 0.0 || probability == 1.0 {
            self.spacing = None;
            return probability == 1.0;
        }
        if let Some(spacing) = &mut self.spacing {
            spacing.spared += 1;
            if (spacing.spared as f64) * probability < spacing.draw {
                return false;
            }
        }
        let was_spacing = self.spacing.is_some();
        self.spacing = Some(Spacing { spared: 0, draw: self.rng.random() });
        was_spacing
    }
}

impl<P: Packet, R: Rng> Qdisc<P> for Red<P, R> {
    fn enqueue(&mut self, now: Time, mut packet: P, drops: &mut Drops<'_, P>) {
        self.update_average(now);
        let probability = self.probability();
        let struck = self.strikes(probability);
        let fits = Limit::Bytes(self.params.limit).admits(self.queue.backlog(), packet.size());
        if struck && fits {
            let may_mark = self.params.ecn && !(self.params.hard_drop && probability == 1.0);
            if !(may_mark && packet.mark()) {
                drops(Drop { packet, reason: DropReason::Congestion });
                return;
            }
            self.marked += Packets::new(1);
        }
        self.queue.enqueue(now, packet, drops);
    }

    fn dequeue(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        let next = self.queue.dequeue(now, drops)?;
        let is_empty = self.queue.backlog().packets == Packets::ZERO;
        self.drain.on_departure(now, next.packet.size(), is_empty);
        if is_empty {
            self.decayed = now;
        }
        Some(next)
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
    use crate::unit::Span;
    use alloc::vec::Vec;
    use rand_pcg::Pcg64;

    /// A packet of 1000 bytes; whether it is marked, if its sender supports ECN.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Kilobyte {
        marked: Option<bool>,
    }

    const DEAF: Kilobyte = Kilobyte { marked: None };
    const CAPABLE: Kilobyte = Kilobyte { marked: Some(false) };

    impl Packet for Kilobyte {
        fn size(&self) -> Bytes {
            Bytes::new(1000)
        }

        fn mark(&mut self) -> bool {
            self.marked = self.marked.map(|_| true);
            self.marked.is_some()
        }
    }

    fn red(params: Params) -> Red<Kilobyte, Pcg64> {
        Red::new(params, Pcg64::new(7, 7)).unwrap()
    }

    /// Why packets were dropped, if `packets` come at once.
    fn offer(red: &mut Red<Kilobyte, Pcg64>, packets: u64, packet: Kilobyte) -> Vec<DropReason> {
        let mut reasons = Vec::new();
        for _ in 0..packets {
            red.enqueue(Time::ZERO, packet, &mut |drop| reasons.push(drop.reason));
        }
        reasons
    }

    #[test]
    fn the_defaults_are_those_of_the_manual_of_tc() {
        let params = Params::default();
        let Params { min, max, burst, .. } = params;
        assert_eq!((min.get(), max.get(), burst.get()), (33_333, 100_000, 55));
        assert_eq!(params.weight(), 1.0 / 32.0);
    }

    #[test]
    fn the_burst_that_was_asked_for_passes_untouched() {
        for (min, burst) in [(30_000, 55), (5_000, 8), (10_000, 10), (30_000, 300)] {
            let params = Params {
                limit: Bytes::new(1_000_000),
                min: Bytes::new(min),
                max: Bytes::new(min + 1),
                burst: Packets::new(burst),
                ..Params::default()
            };
            let mut red = red(params);
            assert_eq!(offer(&mut red, burst, DEAF), []);
            assert!(red.average < min as f64, "{}", red.average);
        }
    }

    #[test]
    fn the_probability_rises_from_min_over_max_and_gently_to_one() {
        let at = |params: Params, average: f64| {
            let mut red = red(params);
            red.average = average;
            red.probability()
        };
        let params = Params {
            min: Bytes::new(30_000),
            max: Bytes::new(90_000),
            max_probability: 0.1,
            ..Params::default()
        };
        for (average, probability) in
            [(0.0, 0.0), (29_999.0, 0.0), (30_000.0, 0.0), (60_000.0, 0.05), (90_000.0, 1.0)]
        {
            assert_eq!(at(params, average), probability, "at {average}");
        }
        let gentle = Params { gentle: true, ..params };
        for (average, probability) in
            [(60_000.0, 0.05), (90_000.0, 0.1), (135_000.0, 0.55), (180_000.0, 1.0), (1e9, 1.0)]
        {
            assert_eq!(at(gentle, average), probability, "gentle at {average}");
        }
    }

    #[test]
    fn strikes_come_uniformly_spaced() {
        let mut red = red(Params::default());
        let mut seen = [0_u64; 50];
        let (mut gap, mut strikes) = (0, 0);
        assert!(!red.strikes(0.02), "the first packet above `min` only starts the count");
        while strikes < 10_000 {
            gap += 1;
            if red.strikes(0.02) {
                seen[gap - 1] += 1;
                (gap, strikes) = (0, strikes + 1);
            }
        }
        // 200 ± 14 each if n is uniform in 1..=50.
        assert!(seen.iter().all(|count| (140..260).contains(count)), "{seen:?}");
    }

    #[test]
    fn nothing_is_struck_below_min() {
        let mut red = red(Params::default());
        for step in 0..10_000 {
            let now = Time::ZERO + Span::from_micros(100) * step;
            let never = &mut |drop: Drop<Kilobyte>| panic!("{drop:?}");
            red.enqueue(now, DEAF, never);
            if red.backlog().packets > Packets::new(30) {
                assert!(red.dequeue(now, never).is_some());
            }
        }
        assert!(red.average > 29_000.0, "{}", red.average);
    }

    #[test]
    fn the_average_decays_by_as_many_packets_as_the_link_could_have_sent() {
        let bandwidth = Some(BitRate::from_mbps(10));
        let mut red = red(Params { bandwidth, ..Params::default() });
        offer(&mut red, 40, DEAF);
        let drained = Time::ZERO + Span::from_secs(1);
        while red.dequeue(drained, &mut |_| ()).is_some() {}
        let before = red.average;
        // 1000 bytes at 10 Mbit/s take 800 µs.
        red.enqueue(drained + Span::from_millis(8), DEAF, &mut |_| ());
        let expected = before * libm::pow(31.0 / 32.0, 10.0);
        assert!((red.average - expected).abs() < 1e-6, "{} of {before}", red.average);
    }

    #[test]
    fn without_a_bandwidth_the_average_decays_at_the_rate_of_the_link() {
        for mbps in [1, 10, 100, 1000] {
            let mut red = red(Params::default());
            offer(&mut red, 40, DEAF);
            let slot = BitRate::from_mbps(mbps).time_to_send(Bytes::new(1000));
            let mut now = Time::ZERO;
            while red.dequeue(now, &mut |_| ()).is_some() {
                now += slot;
            }
            // The last packet left a slot earlier; the link could have sent 10 since.
            let before = red.average;
            red.enqueue(now + slot * 9, DEAF, &mut |_| ());
            let expected = before * libm::pow(31.0 / 32.0, 10.0);
            assert!((red.average / expected - 1.0).abs() < 1e-3, "{mbps} Mbit/s: {}", red.average);
        }
    }

    #[test]
    fn above_max_all_are_dropped_or_marked() {
        let params = Params::default();
        let overloaded = |params: Params| {
            let mut red = red(params);
            offer(&mut red, 90, DEAF);
            red.average = 150_000.0;
            red
        };
        assert_eq!(offer(&mut overloaded(params), 3, CAPABLE), [DropReason::Congestion; 3]);

        let ecn = Params { ecn: true, ..params };
        let mut red = overloaded(ecn);
        assert_eq!(offer(&mut red, 3, CAPABLE), []);
        assert_eq!(red.marked(), Packets::new(3));
        assert_eq!(offer(&mut red, 3, DEAF), [DropReason::Congestion; 3]);

        let hard = Params { hard_drop: true, ..ecn };
        assert_eq!(offer(&mut overloaded(hard), 3, CAPABLE), [DropReason::Congestion; 3]);
    }

    #[test]
    fn a_full_queue_drops_what_it_would_have_marked() {
        let params = Params { ecn: true, ..Params::with_limit(Bytes::new(100_000)) };
        let mut red = red(params);
        let reasons = offer(&mut red, 150, CAPABLE);
        assert_eq!(reasons, [DropReason::QueueFull; 50]);
        assert!(red.marked() > Packets::ZERO);
        assert_eq!(red.backlog().bytes, params.limit);
    }
}
