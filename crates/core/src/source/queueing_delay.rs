//! Estimates the queueing delay of updates on the forward path from acks.
//!
//! ```text
//! forward = received_at − sent_at                      s; both clocks, of which only differences count
//! ahead   = min(forward − min forward, excess)         s; excess = rtt − min rtt
//! back    = excess − ahead                             s; queueing delay of the ack
//! ```
//!
//! The minima are those of updates of the same length (`base_delay`).
//!
//! A queue on the reverse path lengthens the round trip alone; a monitor's clock that is fast, or
//! is set, lengthens the forward delay alone. So the smaller excess is the queueing delay of the
//! forward path. A clock that is slow, or is set back, makes the forward delay fall, and the
//! minimum follows at once.
//!
//! A minimum never expires: otherwise a standing queue would count as part of the route. It is
//! raised only when a law has detected another route ([`QueueingDelays::raise`]).

use super::Ack;
use super::base_delay::BaseDelay;
use crate::unit::Span;

/// Lengths are rounded up to multiples of this number of bytes, so that a header that varies by a
/// byte makes no new length.
const STEP: u32 = 32;

/// The delay that shows queued updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum DelaySource {
    /// The forward delay, by the monitor's times of receipt, bounded by the excess of the round
    /// trip.
    #[default]
    Forward,
    /// The round trip: for monitors whose times of receipt are unusable.
    RoundTrip,
}

/// Queueing delays that an ack shows, in s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct QueueingDelay {
    /// Of the update, on the forward path; of both directions with [`DelaySource::RoundTrip`].
    pub(super) ahead: f64,
    /// Of the ack, on the reverse path.
    pub(super) back: f64,
    /// The minimum round trip before and after the ack if the ack has lowered it; zeros otherwise.
    pub(super) least: [f64; 2],
}

#[derive(Debug, Clone)]
pub(super) struct QueueingDelays {
    source: DelaySource,
    forward: BaseDelay,
    round_trip: BaseDelay,
}

impl QueueingDelays {
    pub(super) fn new(source: DelaySource) -> Self {
        Self { source, forward: BaseDelay::default(), round_trip: BaseDelay::default() }
    }

    /// Takes in a fresh ack with its round trip, and the time of a byte at the bottleneck in s, if
    /// known.
    pub(super) fn on_ack(&mut self, ack: &Ack, rtt: Span, byte_time: Option<f64>) -> QueueingDelay {
        let byte_time = byte_time.map(|time| time * 1e9);
        let rtt = i64::try_from(rtt.as_nanos()).unwrap_or(i64::MAX);
        let len = ack.len.checked_next_multiple_of(STEP).unwrap_or(u32::MAX);
        let both = self.round_trip.on_sample(len, rtt, byte_time);
        let ahead = match self.source {
            DelaySource::RoundTrip => both.excess,
            DelaySource::Forward => {
                let forward = ack.received_at.as_nanos().wrapping_sub(ack.sent_at.as_nanos());
                self.forward
                    .on_sample(len, forward.cast_signed(), byte_time)
                    .excess
                    .min(both.excess)
            }
        };
        let [ahead, back] = [ahead, both.excess - ahead].map(|ns| ns as f64 / 1e9);
        let least = both.lowered.map_or([0.0; 2], |before| [before, rtt].map(|ns| ns as f64 / 1e9));
        QueueingDelay { ahead, back, least }
    }

    /// Raises the base delays, in s, of the forward path and of both directions: the path has
    /// become longer.
    pub(super) fn raise(&mut self, ahead: f64, both: f64) {
        // `as` saturates.
        self.forward.raise((ahead * 1e9) as i64);
        self.round_trip.raise((both * 1e9) as i64);
    }

    /// The minimum round trip of any length, s; zero before any.
    pub(super) fn min_rtt(&self) -> f64 {
        self.round_trip.least().map_or(0.0, |least| least as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Time;
    use alloc::vec::Vec;

    fn ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// The ack of the update that left at `seq` · 100 ms and a second, from a monitor whose clock
    /// is ahead by `ahead`; half of the round trip is the forward delay.
    fn ack(seq: u64, rtt: Span, ahead: u64) -> Ack {
        let sent_at = ms(1_000 + seq * 100);
        Ack::of(seq, sent_at, sent_at + rtt / 2 + Span::from_millis(ahead))
    }

    /// The forward queueing delays, in ms, of updates with these round trips.
    fn ahead(source: DelaySource, rtts: &[u64], clock: impl Fn(u64) -> u64) -> Vec<f64> {
        let mut delays = QueueingDelays::new(source);
        let wait = |(seq, rtt): (u64, &u64)| {
            let rtt = Span::from_millis(*rtt);
            let ack = ack(seq, rtt, clock(seq));
            1e3 * delays.on_ack(&ack, rtt, None).ahead
        };
        (0..).zip(rtts).map(wait).collect()
    }

    #[test]
    fn waits_are_what_the_way_there_has_above_its_least() {
        let rtts = [20, 60, 20, 40];
        assert_eq!(ahead(DelaySource::Forward, &rtts, |_| 7_000), [0.0, 20.0, 0.0, 10.0]);
        assert_eq!(ahead(DelaySource::RoundTrip, &rtts, |_| 0), [0.0, 40.0, 0.0, 20.0]);
    }

    #[test]
    fn what_the_round_trip_has_besides_is_the_acks_wait() {
        let mut delays = QueueingDelays::new(DelaySource::Forward);
        for (seq, rtt, back) in [(0, 20, 0.0), (1, 50, 0.015), (2, 20, 0.0)] {
            let rtt = Span::from_millis(rtt);
            let ack = ack(seq, rtt, 0);
            let wait = delays.on_ack(&ack, rtt, None);
            assert_eq!((wait.ahead, wait.back), (back, back));
        }
    }

    #[test]
    fn a_clock_that_is_set_or_runs_fast_is_no_queue() {
        let set = ahead(DelaySource::Forward, &[20; 20], |seq| if seq < 10 { 50 } else { 900 });
        assert!(set.iter().all(|wait| *wait == 0.0), "{set:?}");
        let back = ahead(DelaySource::Forward, &[20; 20], |seq| if seq < 10 { 900 } else { 50 });
        assert!(back.iter().all(|wait| *wait == 0.0), "{back:?}");
        let fast = ahead(DelaySource::Forward, &[20; 200], |seq| seq);
        assert!(fast.iter().all(|wait| *wait == 0.0), "{fast:?}");
    }

    #[test]
    fn a_longer_route_is_waiting_until_it_is_said_to_be_one() {
        let mut delays = QueueingDelays::new(DelaySource::RoundTrip);
        let mut wait = |seq, rtt, raise| {
            let rtt = Span::from_millis(rtt);
            let ack = ack(seq, rtt, 0);
            let wait = delays.on_ack(&ack, rtt, None).ahead;
            delays.raise(raise, raise);
            wait
        };
        let waited =
            [wait(0, 20, 0.0), wait(100, 60, 0.0), wait(1_000, 60, 0.04), wait(1_001, 60, 0.0)];
        assert_eq!(waited, [0.0, 0.04, 0.04, 0.0]);
        assert_eq!(wait(1_002, 20, 0.0), 0.0, "a shorter one is known at once");
        assert_eq!(wait(1_003, 60, 0.0), 0.04);
    }

    #[test]
    fn no_times_of_receipt_break_it() {
        for received in [0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX] {
            let mut delays = QueueingDelays::new(DelaySource::Forward);
            for (seq, at) in [(0, received), (1, received.wrapping_add(u64::MAX / 2 + 1)), (2, 0)] {
                let ack = Ack::of(seq, ms(seq), Time::from_nanos(at));
                let wait = delays.on_ack(&ack, Span::from_millis(10), None);
                assert!((0.0..=0.01).contains(&wait.ahead) && (0.0..=0.01).contains(&wait.back));
                delays.raise(f64::MAX, f64::MAX);
            }
        }
    }
}
