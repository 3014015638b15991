//! Freshest: chooses the path with the earliest expected delivery of an update, and sends a copy by
//! a second path if that is worth it.
//!
//! For each path with room, the expected time until the far end's state is as fresh as this update:
//!
//! ```text
//! D = max(W + d, unanswered − srtt/2)          s; d: forward delay, as reported by the far end, or (srtt − Ŵ)/2
//! E = D + p/(1 − p)·T                          s; a lost update is made up by the next, T later
//! ```
//!
//! W is the delay in the device queue, Ŵ its mean over the round trips in srtt, p the loss rate, T
//! the time between updates. An update without an ack for a long time shows that a path stalls, a
//! round trip before srtt does; or that the update was lost, with odds of p to 1/32. By that
//! probability the increase of D is uncertain.
//!
//! The update takes the path with the minimum E. It is copied to the second path if that makes the
//! expected time shorter by [`FreshestParams::worth`]: by the mean of the earlier of two normal
//! times (Clark, The Greatest of a Finite Set of Random Variables, Operations Research 9(2), 1961),
//! and by the losses on one path only. Copies are limited: of a hundred updates at most
//! [`FreshestParams::copies`] are copied. A path without acks for [`FreshestParams::forget`] gets a
//! copy too: it may have become the better one.
//!
//! Our own law; the thesis (Shreedhar, PhD thesis, IIIT-Delhi) names age control over several paths
//! as future work (chapter 6).

use super::{Choice, MAX_PATHS, PathId, PathSet, PathState, Scheduler, SendState, candidates};
use crate::unit::{Span, Time};

/// Settings of [`Freshest`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct FreshestParams {
    /// The mean number of copies per hundred updates, 0 to 100. 25: including headers, traffic
    /// stays below 1.3 times that of one path.
    pub copies: f64,
    /// The fraction by which a copy must shorten the expected time, 0 to 1. 0.1.
    pub worth: f64,
    /// A path that was not used for this long gets a copy, above zero. 500 ms: older measurements
    /// of a wireless path are worth little.
    pub forget: Span,
    /// The weight of the old mean in Ŵ with each update, 0 to below 1. 0.8, as in QAware.
    pub alpha: f64,
}

impl Default for FreshestParams {
    fn default() -> Self {
        Self { copies: 25.0, worth: 0.1, forget: Span::from_millis(500), alpha: 0.8 }
    }
}

/// The maximum number of copies that may be saved for later.
const MAX_CREDIT: f64 = 10.0;

/// When an update has no answer, the odds that it was lost, against a stall of the path, are the
/// path's loss rate to this.
const STANDSTILL: f64 = 1.0 / 32.0;

/// The estimates of one path.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// Ŵ, in s.
    wait: f64,
    used_at: Option<Time>,
}

/// The expected delay of an update, in s.
#[derive(Debug, Clone, Copy)]
struct Expected {
    mean: f64,
    deviation: f64,
    loss: f64,
}

/// Sends each update by the path on which it is expected first.
#[derive(Debug, Clone)]
pub struct Freshest {
    params: FreshestParams,
    known: [Known; MAX_PATHS],
    /// The number of copies that may be sent now.
    credit: f64,
}

impl Freshest {
    pub(super) fn new(params: FreshestParams) -> Self {
        Self { params, known: [Known::default(); MAX_PATHS], credit: 1.0 }
    }

    fn expect(&mut self, path: &PathState) -> Expected {
        let known = &mut self.known[usize::from(path.id.0) % MAX_PATHS];
        let round_trip = path.round_trip().as_secs_f64();
        let queue = path.queue.map_or(Some(Span::ZERO), |queue| queue.wait());
        // A blocked queue counts with its mean delay, or a round trip if that is longer.
        let wait = queue.map_or(known.wait.max(round_trip), Span::as_secs_f64);
        known.wait = self.params.alpha * known.wait + (1.0 - self.params.alpha) * wait;
        let forward =
            path.one_way.map_or((round_trip - known.wait).max(0.0) / 2.0, Span::as_secs_f64);
        let stalled = path.unanswered.map_or(0.0, |span| span.as_secs_f64() - round_trip / 2.0);
        let loss = path.loss.clamp(0.0, 0.99);
        let doubt = (stalled - (wait + forward)).max(0.0) * loss / (loss + STANDSTILL);
        Expected {
            mean: (wait + forward).max(stalled),
            // rttvar is a mean deviation of both directions; this is the standard deviation of one:
            // ·√(π/2)/√2.
            deviation: libm::hypot(path.rttvar.as_secs_f64() * 0.886, doubt),
            loss,
        }
    }

    fn note(&mut self, now: Time, path: &PathState) {
        self.known[usize::from(path.id.0) % MAX_PATHS].used_at = Some(now);
    }

    fn is_forgotten(&self, now: Time, path: &PathState) -> bool {
        let used_at = self.known[usize::from(path.id.0) % MAX_PATHS].used_at;
        used_at.is_none_or(|at| now.since(at) >= self.params.forget)
    }
}

/// The expected time until the far end is as fresh, including losses.
fn age(expected: Expected, interval: f64) -> f64 {
    expected.mean + expected.loss / (1.0 - expected.loss) * interval
}

/// The same with a copy of each over both paths.
fn age_of_both(a: Expected, b: Expected, interval: f64) -> f64 {
    let spread = libm::hypot(a.deviation, b.deviation);
    let earlier = if spread > 0.0 {
        let x = (b.mean - a.mean) / spread;
        let below = 0.5 * libm::erfc(-x * core::f64::consts::FRAC_1_SQRT_2);
        let density = libm::exp(-x * x / 2.0) / libm::sqrt(2.0 * core::f64::consts::PI);
        a.mean * below + b.mean * (1.0 - below) - spread * density
    } else {
        a.mean.min(b.mean)
    };
    // If one is lost, the other one's time counts.
    let [p, q] = [a.loss, b.loss];
    let both = (1.0 - p) * (1.0 - q);
    let one = p * (1.0 - q) * b.mean + q * (1.0 - p) * a.mean;
    let lost = p * q;
    (both * earlier + one) / (1.0 - lost) + lost / (1.0 - lost) * interval
}

impl Scheduler for Freshest {
    fn name(&self) -> &'static str {
        "freshest"
    }

    fn choose(&mut self, now: Time, flow: &SendState, paths: &[PathState]) -> Choice {
        let interval = flow.interval.as_secs_f64();
        // The two paths with the minimum expectation, the better one first.
        let mut best: [Option<(f64, Expected, &PathState)>; 2] = [None; 2];
        let mut forgotten = None;
        for path in candidates(paths).filter(|path| path.has_room()) {
            let expected = self.expect(path);
            let found = Some((age(expected, interval), expected, path));
            let is_before = |other: &Option<(f64, Expected, &PathState)>| {
                other.is_none_or(|(age_of_other, ..)| age(expected, interval) < age_of_other)
            };
            if is_before(&best[0]) {
                best = [found, best[0]];
            } else if is_before(&best[1]) {
                best[1] = found;
            }
            if self.is_forgotten(now, path) {
                forgotten = Some(path);
            }
        }
        let Some((first_age, first, path)) = best[0] else { return Choice::Wait };
        self.note(now, path);
        self.credit = (self.credit + self.params.copies / 100.0).min(MAX_CREDIT);
        let pays = best[1].filter(|(_, second, _)| {
            first_age - age_of_both(first, *second, interval) > self.params.worth * first_age
        });
        let copy = pays.map(|(_, _, second)| second).or(forgotten);
        match copy.filter(|copy| copy.id != path.id && self.credit >= 1.0) {
            Some(copy) => {
                self.credit -= 1.0;
                self.note(now, copy);
                Choice::Copies(path.id, PathSet::EMPTY.with(copy.id))
            }
            None => Choice::Send(path.id),
        }
    }

    fn forget(&mut self, path: PathId) {
        self.known[usize::from(path.0) % MAX_PATHS] = Known::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::DeviceQueue;
    use crate::path::tests::{PLENTY, path};

    const UPDATES: SendState = SendState { interval: Span::from_millis(20), ..PLENTY };

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// A scheduler that has used both paths and has no copies left.
    fn settled(paths: &[PathState]) -> Freshest {
        let mut freshest =
            Freshest::new(FreshestParams { copies: 0.0, ..FreshestParams::default() });
        for path in paths {
            freshest.note(at(0), path);
        }
        freshest.credit = 0.0;
        freshest
    }

    #[test]
    fn queues_stalls_and_losses_count_before_round_trips_tell() {
        let [zero, one] = [0, 1].map(|id| Choice::Send(PathId(id)));
        let [fast, slow] = [path(0, 20, 10, 0), path(1, 40, 10, 0)];
        let choose = |paths: &[PathState]| settled(paths).choose(at(1), &UPDATES, paths);
        assert_eq!(choose(&[fast, slow]), zero);
        let queue = Some(DeviceQueue { packets: 30, rate: 1_000.0 });
        assert_eq!(choose(&[PathState { queue, ..fast }, slow]), one);
        let unanswered = Some(Span::from_millis(60));
        assert_eq!(choose(&[PathState { unanswered, ..fast }, slow]), one);
        // Half of them are lost: another 20 ms.
        assert_eq!(choose(&[PathState { loss: 0.5, ..fast }, slow]), one);
        // The far end's measurement replaces half a round trip.
        let one_way = Some(Span::from_millis(2));
        assert_eq!(choose(&[fast, PathState { one_way, ..slow }]), one);
    }

    #[test]
    fn copies_are_sent_where_they_pay_and_are_bounded() {
        // Two equal paths with much jitter: the earlier of both is a good deal earlier.
        let jittery = |id| PathState { rttvar: Span::from_millis(10), ..path(id, 40, 10, 0) };
        let mut freshest = Freshest::new(FreshestParams::default());
        let mut copies = 0;
        for update in 0..1_000 {
            let choice = freshest.choose(at(20 * update), &UPDATES, &[jittery(0), jittery(1)]);
            copies += usize::from(matches!(choice, Choice::Copies(..)));
        }
        assert!((240..=260).contains(&copies), "{copies} of 1000");
        // Paths without jitter: copies only refresh the estimate of the other one, twice a second.
        let mut freshest = Freshest::new(FreshestParams::default());
        let mut copies = 0;
        for update in 0..1_000 {
            let paths = [path(0, 40, 10, 0), path(1, 60, 10, 0)];
            let choice = freshest.choose(at(20 * update), &UPDATES, &paths);
            copies += usize::from(matches!(choice, Choice::Copies(..)));
        }
        assert!((38..=42).contains(&copies), "{copies} in 20 s");
    }

    #[test]
    fn the_earlier_of_two_is_as_clark_has_it() {
        let normal = |mean, deviation| Expected { mean, deviation, loss: 0.0 };
        // Two of N(0, 1): −1/√π.
        let earlier = age_of_both(normal(0.0, 1.0), normal(0.0, 1.0), 0.0);
        assert!((earlier + 1.0 / libm::sqrt(core::f64::consts::PI)).abs() < 1e-12, "{earlier}");
        let earlier = age_of_both(normal(1.0, 0.0), normal(3.0, 0.0), 0.0);
        assert_eq!(earlier, 1.0);
        // One of two is lost: the other takes 3; both are lost: another interval, and again.
        let [a, b] =
            [(1.0, 0.5), (3.0, 0.0)].map(|(mean, loss)| Expected { mean, deviation: 0.0, loss });
        assert_eq!(age_of_both(a, b, 10.0), 2.0);
    }
}
