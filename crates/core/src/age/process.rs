//! The age process of a receiver.
//!
//! ```text
//! age ▲      peak
//!     │      ╱│      ╱│        u: generation time of the freshest update so far
//!     │    ╱  │    ╱  │  ╱     Δ(t)  = t − u                     between updates
//!     │  ╱    │  ╱    │╱       u    ← min(generated_at, now)     if that is later than u
//!     │╱      │╱               mean  = ∫Δ dt / time, from the first update on
//!     └────────────────────▶ t
//! ```
//!
//! Shreedhar, PhD thesis, IIIT-Delhi, section 3.5 and Figure 3.6; peaks: Costa, Codreanu,
//! Ephremides, "Age of Information With Packet Management", ISIT 2014.
//!
//! The area is kept as a whole number of ns²/2. It cannot overflow: age never exceeds the reading
//! of the clock, so that twice the area stays below the square of that reading, hence below 2^128.

use super::{Integral, Ramp};
use crate::unit::{Span, Time};

/// The effect of an update on the age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// It was fresher than all before it and reset the age.
    Fresh,
    /// An update at least as fresh had arrived before; the age went on growing.
    Stale,
}

/// The peaks of the sawtooth: the ages just before each reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peaks {
    /// How many there were, at least 1.
    pub count: u64,
    /// Their arithmetic mean, rounded down to a ns.
    pub mean: Span,
    /// The largest.
    pub max: Span,
}

/// The age at a receiver: its value, its exact time average, and its peaks.
///
/// Before the first update the age is undefined, unless the process is
/// [`starting_at`](Self::starting_at) a known time; measurement begins with that update. All times
/// given to one process must be of the same clock: correct the offset beforehand if there are two.
#[derive(Debug, Clone, Default)]
pub struct AgeProcess {
    /// When the first update arrived; meaningless while `fresh` is zero, like all the times here.
    started_at: Time,
    /// When the age was last reset.
    reset_at: Time,
    /// Generation time of the freshest update.
    freshest: Time,
    /// Twice the area under the age up to `reset_at`, in ns².
    twice_area: u128,
    peak_sum: u128,
    peak_max: Span,
    fresh: u64,
    stale: u64,
}

impl AgeProcess {
    /// A process without updates.
    pub fn new() -> Self {
        Self::default()
    }

    /// A process whose receiver knows the state of `start` from the beginning, as if an update
    /// generated then had arrived at once: a source that never delivers ages from its start. The
    /// start counts as the first fresh update.
    pub fn starting_at(start: Time) -> Self {
        let mut process = Self::new();
        process.on_update(start, start);
        process
    }

    /// An update that was generated at `generated_at` has arrived.
    ///
    /// A generation time in the future counts as `now`: the age resets to zero, and a source with
    /// a broken clock cannot make every later update look stale.
    pub fn on_update(&mut self, now: Time, generated_at: Time) -> Freshness {
        let now = now.max(self.reset_at);
        let generated_at = generated_at.min(now);
        match self.ramp(now) {
            None => self.started_at = now,
            Some(_) if generated_at <= self.freshest => {
                self.stale += 1;
                return Freshness::Stale;
            }
            Some(ramp) => {
                self.twice_area += ramp.twice_area();
                self.peak_sum += u128::from(ramp.to().as_nanos());
                self.peak_max = self.peak_max.max(ramp.to());
            }
        }
        self.reset_at = now;
        self.freshest = generated_at;
        self.fresh += 1;
        Freshness::Fresh
    }

    /// The receiver holds the state that was generated at `generated_at` from now on, whether it is
    /// fresher than the one before or not: with an older one the age grows at once. Such an update
    /// counts as stale.
    ///
    /// For receivers that hold the state that was sent last, of sources whose generation times can
    /// go back. Otherwise as [`AgeProcess::on_update`].
    pub fn on_replaced(&mut self, now: Time, generated_at: Time) -> Freshness {
        let freshness = self.on_update(now, generated_at);
        let now = now.max(self.reset_at);
        if let (Freshness::Stale, Some(ramp)) = (freshness, self.ramp(now)) {
            self.twice_area += ramp.twice_area();
            (self.reset_at, self.freshest) = (now, generated_at.min(self.freshest));
        }
        freshness
    }

    /// The age at `now`, or `None` before the first update.
    pub fn age(&self, now: Time) -> Option<Span> {
        self.ramp(now).map(Ramp::to)
    }

    /// The growth of age since it was last reset, or `None` before the first update.
    pub fn ramp(&self, now: Time) -> Option<Ramp> {
        let age_at = |time: Time| time.since(self.freshest);
        (self.fresh > 0).then(|| Ramp::new(age_at(self.reset_at), age_at(now.max(self.reset_at))))
    }

    /// The integral of the age up to `now`, for [`AgeProcess::mean_since`].
    pub fn mark(&self, now: Time) -> Integral {
        let open = self.ramp(now).unwrap_or_default();
        Integral::new(now.max(self.reset_at), self.twice_area + open.twice_area())
    }

    /// The time average of the age from `mark` until `now`, exact and then rounded down to a ns.
    ///
    /// A mark taken before the first update stands for the moment of that update. `None` before
    /// the first update and as long as no time has passed.
    pub fn mean_since(&self, mark: Integral, now: Time) -> Option<Span> {
        self.mean_between(mark, self.mark(now))
    }

    /// The time average of the age from one mark to a later one, as [`AgeProcess::mean_since`].
    pub fn mean_between(&self, from: Integral, to: Integral) -> Option<Span> {
        if self.fresh == 0 {
            return None;
        }
        let (twice_area, time) = to.gained_since(from.not_before(self.started_at))?;
        let mean = twice_area / (2 * u128::from(time.as_nanos()));
        Some(Span::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// The time average of the age from the first update until `now`, as
    /// [`AgeProcess::mean_since`].
    pub fn mean(&self, now: Time) -> Option<Span> {
        self.mean_since(Integral::default(), now)
    }

    /// The maximum age until `now`; `None` before the first update.
    pub fn max(&self, now: Time) -> Option<Span> {
        self.age(now).map(|age| age.max(self.peak_max))
    }

    /// The peaks so far; `None` before the first reset, by the second fresh update.
    pub fn peaks(&self) -> Option<Peaks> {
        let count = self.fresh.checked_sub(1).filter(|count| *count > 0)?;
        let mean = self.peak_sum / u128::from(count);
        // The mean of 64-bit numbers fits into 64 bits.
        Some(Peaks { count, mean: Span::from_nanos(mean as u64), max: self.peak_max })
    }

    /// How long the age has been measured: from the first update until `now`.
    pub fn duration(&self, now: Time) -> Span {
        if self.fresh == 0 { Span::ZERO } else { now.max(self.reset_at).since(self.started_at) }
    }

    /// How many updates were fresh, the first included.
    pub const fn fresh(&self) -> u64 {
        self.fresh
    }

    /// How many updates were stale, duplicates included.
    pub const fn stale(&self) -> u64 {
        self.stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn before_the_first_update_there_is_no_age() {
        let age = AgeProcess::new();
        assert_eq!(age.age(at(5)), None);
        assert_eq!(age.mean(at(5)), None);
        assert_eq!(age.max(at(5)), None);
        assert_eq!(age.peaks(), None);
        assert_eq!(age.duration(at(5)), Span::ZERO);
    }

    #[test]
    fn a_source_that_never_delivers_ages_from_its_start() {
        let mut age = AgeProcess::starting_at(at(10));
        assert_eq!(age.age(at(30)), Some(Span::from_millis(20)));
        assert_eq!(age.mean(at(30)), Some(Span::from_millis(10)));
        // Generated at the start: the age goes on, without a peak.
        age.on_update(at(30), at(10));
        assert_eq!((age.age(at(40)), age.peaks()), (Some(Span::from_millis(30)), None));
    }

    #[test]
    fn an_overtaken_update_and_a_duplicate_leave_the_age_as_it_is() {
        let mut age = AgeProcess::new();
        age.on_update(at(10), at(5));
        for generated_at in [at(4), at(5)] {
            assert_eq!(age.on_update(at(12), generated_at), Freshness::Stale);
        }
        assert_eq!(age.age(at(12)), Some(Span::from_millis(7)));
        assert_eq!((age.fresh(), age.stale(), age.peaks()), (1, 2, None));
    }

    #[test]
    fn a_state_that_is_replaced_by_an_older_one_has_the_age_of_that_one() {
        let mut age = AgeProcess::new();
        age.on_update(at(10), at(8));
        assert_eq!(age.on_replaced(at(14), at(4)), Freshness::Stale);
        assert_eq!(age.age(at(14)), Some(Span::from_millis(10)));
        // From 2 to 6 ms during 4 ms, then from 10 to 14 ms during 4 ms.
        assert_eq!(age.mean(at(18)), Some(Span::from_millis(8)));
        // The same once more changes nothing.
        assert_eq!(age.on_replaced(at(18), at(4)), Freshness::Stale);
        assert_eq!(age.mean(at(18)), Some(Span::from_millis(8)));
        // A fresher one resets it.
        assert_eq!(age.on_replaced(at(18), at(17)), Freshness::Fresh);
        assert_eq!((age.age(at(18)), age.peaks().map(|peaks| peaks.max)), {
            (Some(Span::from_millis(1)), Some(Span::from_millis(14)))
        });
        assert_eq!((age.fresh(), age.stale()), (2, 2));
    }

    #[test]
    fn peaks_are_the_ages_just_before_each_reset() {
        let mut age = AgeProcess::new();
        for (now, generated_at) in [(10, 8), (20, 15), (26, 26)] {
            age.on_update(at(now), at(generated_at));
        }
        let mean = Span::from_micros(11_500);
        let max = Span::from_millis(12);
        assert_eq!(age.peaks(), Some(Peaks { count: 2, mean, max }));
        // The age that is still growing is no peak, but it may be the largest.
        assert_eq!(age.max(at(46)), Some(Span::from_millis(20)));
    }

    #[test]
    fn an_update_from_the_future_has_age_zero_and_does_not_shut_out_the_next() {
        let mut age = AgeProcess::new();
        age.on_update(at(10), Time::MAX);
        assert_eq!(age.age(at(10)), Some(Span::ZERO));
        assert_eq!(age.on_update(at(20), at(15)), Freshness::Fresh);
        assert_eq!(age.age(at(20)), Some(Span::from_millis(5)));
    }

    #[test]
    fn a_mark_from_before_the_first_update_counts_from_that_update() {
        let mut age = AgeProcess::new();
        let mark = age.mark(at(0));
        assert_eq!(age.mean_since(mark, at(5)), None);
        age.on_update(at(10), at(10));
        assert_eq!(age.mean_since(mark, at(10)), None);
        assert_eq!(age.mean_since(mark, at(14)), Some(Span::from_millis(2)));
    }

    #[test]
    fn three_centuries_of_nanoseconds_are_added_without_drift() {
        let mut age = AgeProcess::new();
        let second = 1_000_000_000;
        // One update at the start of the clock, one after 2^63 ns: about 292 years of silence.
        age.on_update(Time::ZERO, Time::ZERO);
        let late = Time::from_nanos(1 << 63);
        age.on_update(late, late);
        assert_eq!(age.mean(late), Some(Span::from_nanos(1 << 62)));
        // The next epochs are still exact to the ns.
        let mark = age.mark(late);
        let end = Time::from_nanos((1 << 63) + second);
        assert_eq!(age.mean_since(mark, end), Some(Span::from_nanos(second / 2)));
        assert_eq!(AgeProcess::new().on_update(Time::MAX, Time::MAX), Freshness::Fresh);
    }

    #[test]
    fn it_fits_into_a_small_record_per_source() {
        assert!(size_of::<AgeProcess>() <= 96);
    }

    /// The age at `time` by its definition: against the freshest of all that came until then.
    fn age_by_definition(events: &[(u64, u64)], time: u64) -> u64 {
        let came = events.iter().filter(|(now, _)| *now <= time);
        time - came.map(|(now, generated_at)| generated_at.min(now)).max().unwrap()
    }

    proptest! {
        #[test]
        fn the_mean_equals_a_sum_over_every_nanosecond(
            steps in prop::collection::vec((0u64..40, 0u64..60, 0u64..20), 1..30),
            rest in 0u64..50,
            epoch in 0.0f64..1.0,
        ) {
            // Steps forward, zero included; generation times from well before to after `now`.
            let mut now = 100;
            let events: Vec<(u64, u64)> = steps
                .iter()
                .map(|(step, delay, lead)| {
                    now += step;
                    (now, now - delay + lead)
                })
                .collect();
            let (start, end) = (events[0].0, now + rest);
            let mark_at = start + (epoch * (end - start) as f64) as u64;

            let mut age = AgeProcess::new();
            let mut mark = age.mark(Time::ZERO);
            let mut marked = false;
            for (now, generated_at) in &events {
                if !marked && *now > mark_at {
                    mark = age.mark(Time::from_nanos(mark_at));
                    marked = true;
                }
                age.on_update(Time::from_nanos(*now), Time::from_nanos(*generated_at));
            }
            if !marked {
                mark = age.mark(Time::from_nanos(mark_at));
            }

            let mean_from = |from: u64| {
                let twice: u64 =
                    (from..end).map(|time| 2 * age_by_definition(&events, time) + 1).sum();
                (end > from).then(|| Span::from_nanos(twice / (2 * (end - from))))
            };
            let end = Time::from_nanos(end);
            prop_assert_eq!(age.mean(end), mean_from(start));
            prop_assert_eq!(age.mean_since(mark, end), mean_from(mark_at));
            let last = age_by_definition(&events, end.as_nanos());
            prop_assert_eq!(age.age(end), Some(Span::from_nanos(last)));
            prop_assert_eq!(age.fresh() + age.stale(), events.len() as u64);
        }

        #[test]
        fn no_sequence_of_times_breaks_it(
            events in prop::collection::vec(any::<(u64, u64, u64)>(), 0..40),
        ) {
            let mut age = AgeProcess::new();
            let mut mark = age.mark(Time::ZERO);
            for (now, generated_at, asked) in events {
                age.on_update(Time::from_nanos(now), Time::from_nanos(generated_at));
                let asked = Time::from_nanos(asked);
                let largest = age.max(asked).unwrap();
                prop_assert!(age.age(asked).unwrap() <= largest);
                prop_assert!(age.mean(asked).is_none_or(|mean| mean <= largest));
                prop_assert!(age.peaks().is_none_or(|peaks| peaks.mean <= peaks.max));
                let _ = age.mean_since(mark, asked);
                mark = age.mark(asked);
            }
        }
    }
}
