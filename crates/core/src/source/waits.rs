//! How long updates wait on their way, as acks tell it.
//!
//! ```text
//! forward = received_at − sent_at        both clocks, of which only differences count
//! wait    = min(forward − least forward, rtt − least rtt)      over the last window
//! ```
//!
//! What queues on the way back lengthens the round trip alone; a monitor's clock that is fast, or
//! is set, lengthens the forward delay alone. The smaller excess is the queue ahead. A clock that is
//! slow, or is set back, makes the forward delay fall, which the least follows at once.
//!
//! The least of a window is kept by three samples (K. Nichols' filter; Linux `lib/win_minmax.c`): the
//! least, the least since, and the least since that.

use super::Ack;
use crate::unit::{Span, Time};

/// Which delay tells that updates wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum DelaySource {
    /// The way there, by the monitor's times of receipt, within what the round trip allows.
    #[default]
    Forward,
    /// The round trip: for monitors whose times of receipt mean nothing.
    RoundTrip,
}

#[derive(Debug, Clone)]
pub(super) struct Waits {
    source: DelaySource,
    window: Span,
    forward: WindowedLeast,
    round_trip: WindowedLeast,
    /// Mean and variance of waits, s and s².
    mean: f64,
    variance: f64,
    samples: u32,
    /// When a wait was next to none for the last time.
    at_base: Time,
    /// By how much the last sample was below the least before it, s.
    fallen: f64,
    /// What the last ack waited for on its way back, s.
    back: f64,
}

/// Samples over which mean and variance of waits are smoothed. 64: the spread is then known within
/// a tenth.
const SMOOTHED_OVER: u32 = 64;

impl Waits {
    pub(super) fn new(source: DelaySource, window: Span) -> Self {
        Self {
            source,
            window,
            forward: WindowedLeast::default(),
            round_trip: WindowedLeast::default(),
            mean: 0.0,
            variance: 0.0,
            samples: 0,
            at_base: Time::ZERO,
            fallen: 0.0,
            back: 0.0,
        }
    }

    /// A fresh ack with its round trip: how long its update waited, in s.
    pub(super) fn on_ack(&mut self, now: Time, ack: &Ack, rtt: Span) -> f64 {
        let rtt = i64::try_from(rtt.as_nanos()).unwrap_or(i64::MAX);
        let (excess, mut fallen) = self.round_trip.excess(now, rtt, self.window);
        let wait = match self.source {
            DelaySource::RoundTrip => excess,
            DelaySource::Forward => {
                let forward = ack.received_at.as_nanos().wrapping_sub(ack.sent_at.as_nanos());
                let ahead = self.forward.excess(now, forward.cast_signed(), self.window);
                // What one of them has fallen by alone is a clock's, or the way back.
                fallen = fallen.min(ahead.1);
                ahead.0.min(excess)
            }
        };
        self.back = (excess - wait) as f64 / 1e9;
        let wait = wait as f64 / 1e9;
        self.fallen = fallen as f64 / 1e9;
        self.samples = (self.samples + 1).min(SMOOTHED_OVER);
        let weight = 1.0 / f64::from(self.samples);
        let off = wait - self.mean;
        self.mean += weight * off;
        self.variance += weight * ((1.0 - weight) * off * off - self.variance);
        if wait <= 0.1 * self.mean {
            self.at_base = now;
        }
        wait
    }

    /// What the last ack waited for on its way back, s; zero where the ways are not told apart.
    pub(super) fn back(&self) -> f64 {
        self.back
    }

    /// By how much the least of the window fell with the last ack, s.
    pub(super) fn fallen(&self) -> f64 {
        self.fallen
    }

    /// Begins a new window: what was least is not any more.
    pub(super) fn forget(&mut self) {
        (self.forward.best, self.round_trip.best) = (None, None);
        (self.mean, self.variance, self.samples) = (0.0, 0.0, 0);
    }

    /// Standard deviation of waits, s.
    pub(super) fn spread(&self) -> f64 {
        libm::sqrt(self.variance.max(0.0))
    }

    /// The least round trip of the window, s; zero before any.
    pub(super) fn least_rtt(&self) -> f64 {
        self.round_trip.best.map_or(0.0, |best| best[0].value as f64 / 1e9)
    }

    /// Since when no update went through without waiting.
    pub(super) fn at_base(&self) -> Time {
        self.at_base
    }
}

/// The least of the samples of a window.
#[derive(Debug, Clone, Copy, Default)]
struct WindowedLeast {
    /// Rising in value and time.
    best: Option<[Sample; 3]>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Time,
    value: i64,
}

impl WindowedLeast {
    /// Takes in a sample; gives by how much it is above the least, and by how much that fell.
    fn excess(&mut self, now: Time, value: i64, window: Span) -> (u64, u64) {
        let before = self.best.map_or(value, |best| best[0].value);
        let least = self.add(Sample { at: now, value }, window).min(value);
        (value.abs_diff(least), if least < before { before.abs_diff(least) } else { 0 })
    }

    fn add(&mut self, sample: Sample, window: Span) -> i64 {
        let fresh = [sample; 3];
        let Some(best) = &mut self.best else {
            self.best = Some(fresh);
            return sample.value;
        };
        if sample.value <= best[0].value || sample.at.since(best[2].at) > window {
            *best = fresh;
            return sample.value;
        }
        if sample.value <= best[1].value {
            (best[1], best[2]) = (sample, sample);
        } else if sample.value <= best[2].value {
            best[2] = sample;
        }
        let age = sample.at.since(best[0].at);
        if age > window {
            *best = [best[1], best[2], sample];
            if sample.at.since(best[0].at) > window {
                *best = [best[1], best[2], sample];
            }
        } else if best[1].at == best[0].at && age > window / 4 {
            (best[1], best[2]) = (sample, sample);
        } else if best[2].at == best[1].at && age > window / 2 {
            best[2] = sample;
        }
        best[0].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    const WINDOW: Span = Span::from_secs(5);

    /// The waits, in ms, of updates sent every 100 ms with these round trips, half of which is the
    /// way there; the monitor's clock is ahead by `ahead` of the number of the update.
    fn waits(source: DelaySource, rtts: &[u64], ahead: impl Fn(u64) -> u64) -> Vec<f64> {
        let mut waits = Waits::new(source, WINDOW);
        let wait = |(seq, rtt): (u64, &u64)| {
            let sent_at = ms(1_000 + seq * 100);
            let received_at = sent_at + Span::from_millis(rtt / 2 + ahead(seq));
            let hold = Span::ZERO;
            let ack = Ack { seq, generated_at: sent_at, sent_at, hold, received_at, fresh: 0 };
            let rtt = Span::from_millis(*rtt);
            1e3 * waits.on_ack(sent_at + rtt, &ack, rtt)
        };
        (0..).zip(rtts).map(wait).collect()
    }

    #[test]
    fn waits_are_what_the_way_there_has_above_its_least() {
        let rtts = [20, 60, 20, 40];
        assert_eq!(waits(DelaySource::Forward, &rtts, |_| 7_000), [0.0, 20.0, 0.0, 10.0]);
        assert_eq!(waits(DelaySource::RoundTrip, &rtts, |_| 0), [0.0, 40.0, 0.0, 20.0]);
    }

    #[test]
    fn a_clock_that_is_set_or_runs_fast_is_no_queue() {
        let set = waits(DelaySource::Forward, &[20; 20], |seq| if seq < 10 { 50 } else { 900 });
        assert!(set.iter().all(|wait| *wait == 0.0), "{set:?}");
        let back = waits(DelaySource::Forward, &[20; 20], |seq| if seq < 10 { 900 } else { 50 });
        assert!(back.iter().all(|wait| *wait == 0.0), "{back:?}");
        let fast = waits(DelaySource::Forward, &[20; 200], |seq| seq);
        assert!(fast.iter().all(|wait| *wait == 0.0), "{fast:?}");
    }

    #[test]
    fn a_longer_route_is_known_after_a_window() {
        let rtts: Vec<_> = (0..200).map(|seq| if seq < 50 { 20 } else { 60 }).collect();
        let waits = waits(DelaySource::Forward, &rtts, |_| 0);
        assert_eq!((waits[49], waits[50]), (0.0, 20.0));
        let after = waits[50..].iter().position(|wait| *wait == 0.0).unwrap();
        assert!(after <= 52, "after {after} updates of 100 ms");
    }

    #[test]
    fn the_least_of_a_window_is_within_a_quarter_of_it() {
        let mut least = WindowedLeast::default();
        let values: Vec<i64> = (0..500).map(|n: i64| (n * 7_919) % 1_000).collect();
        for (index, value) in values.iter().enumerate() {
            let at = ms(index as u64 * 100);
            let found = least.add(Sample { at, value: *value }, WINDOW);
            let window = &values[index.saturating_sub(50)..=index];
            let quarter = &values[index.saturating_sub(12)..=index];
            assert!(found >= *window.iter().min().unwrap(), "at {index}");
            assert!(found <= *quarter.iter().min().unwrap(), "at {index}");
        }
    }

    #[test]
    fn no_times_of_receipt_break_it() {
        for received in [0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX] {
            let mut waits = Waits::new(DelaySource::Forward, WINDOW);
            for (seq, at) in [(0, received), (1, received.wrapping_add(u64::MAX / 2 + 1)), (2, 0)] {
                let (hold, sent_at, received_at) = (Span::ZERO, ms(seq), Time::from_nanos(at));
                let ack = Ack { seq, generated_at: sent_at, sent_at, hold, received_at, fresh: 0 };
                let wait = waits.on_ack(ms(seq + 10), &ack, Span::from_millis(10));
                assert!((0.0..=0.01).contains(&wait) && waits.spread().is_finite());
            }
        }
    }
}
