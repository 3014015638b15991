//! All statistics of the age that a report needs, from one stream of updates.

use super::{AgeHistogram, AgeProcess, Freshness, Integral, Ramp, TimeOver};
use crate::unit::{Span, Time};

/// Measures the age at a receiver: mean, quantiles, peaks, and the time over a limit.
///
/// Takes 59 KiB. If many are needed without quantiles, use [`AgeProcess`].
#[derive(Debug, Clone, Default)]
pub struct AgeMeter {
    process: AgeProcess,
    /// Where the measurement begins, and the counts of updates then.
    from: Integral,
    counted: [u64; 2],
    /// The ages up to the last reset, like `peaks` and `over`.
    ages: AgeHistogram,
    peaks: PeakSum,
    over: Option<TimeOver>,
}

/// The ages just before each reset.
#[derive(Debug, Clone, Copy, Default)]
struct PeakSum {
    count: u64,
    sum: u128,
    max: Span,
}

/// The measurements of an [`AgeMeter`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AgeSummary {
    /// Time average, exact and then rounded down to a ns.
    pub mean: Span,
    /// Median over time, within 1 %, as are the other quantiles.
    pub p50: Span,
    /// The age not exceeded during 95 % of the time.
    pub p95: Span,
    /// The age not exceeded during 99 % of the time.
    pub p99: Span,
    /// The maximum age: a peak or the current age.
    pub max: Span,
    /// Mean of the ages just before each reset; `None` without a reset.
    pub peak_mean: Option<Span>,
    /// Largest of the ages just before each reset; `None` without a reset.
    pub peak_max: Option<Span>,
    /// Exact fraction of the time, from 0 to 1, over the limit; `None` where none was set.
    pub fraction_over: Option<f64>,
    /// From the first update, or the start of the measurement if that was later, to the time of the
    /// summary; never zero.
    pub duration: Span,
    /// Updates that were fresher than all before them, the first included.
    pub fresh: u64,
    /// All other updates: overtaken ones and duplicates.
    pub stale: u64,
}

impl AgeMeter {
    /// A meter without updates.
    pub fn new() -> Self {
        Self::default()
    }

    /// A meter that also measures the time during which the age is over `limit`.
    pub fn with_limit(limit: Span) -> Self {
        Self { over: Some(TimeOver::new(limit)), ..Self::default() }
    }

    /// A meter of a source whose age is known from `start` on: see [`AgeProcess::starting_at`].
    pub fn starting_at(start: Time) -> Self {
        Self { process: AgeProcess::starting_at(start), counted: [1, 0], ..Self::default() }
    }

    /// Measures from `now` on: forgets all measurements, while the age itself goes on.
    pub fn measure_from(&mut self, now: Time) {
        let counted = [self.process.fresh(), self.process.stale()];
        let over = self.over.map(|over| TimeOver::new(over.limit()));
        let (process, from) = (self.process.clone(), self.process.mark(now));
        *self = Self { process, from, counted, over, ..Self::default() };
    }

    /// An update has arrived; see [`AgeProcess::on_update`].
    pub fn on_update(&mut self, now: Time, generated_at: Time) -> Freshness {
        let ramp = self.ramp(now);
        let freshness = self.process.on_update(now, generated_at);
        if let (Freshness::Fresh, Some(ramp)) = (freshness, ramp) {
            self.ages.record(ramp);
            self.peaks.count += 1;
            self.peaks.sum += u128::from(ramp.to().as_nanos());
            self.peaks.max = self.peaks.max.max(ramp.to());
            if let Some(over) = &mut self.over {
                over.record(ramp);
            }
        }
        freshness
    }

    /// The age process of the meter: the current age, means over an epoch. It ignores
    /// [`AgeMeter::measure_from`].
    pub const fn process(&self) -> &AgeProcess {
        &self.process
    }

    /// The age not exceeded during the fraction `q` of the time until `now`, equal to that of
    /// [`summary`](Self::summary), and much faster.
    pub fn quantile(&self, now: Time, q: f64) -> Option<Span> {
        let open = self.ramp(now)?;
        let max = self.peaks.max.max(open.to());
        self.ages.quantile_with(open, q).map(|age| age.min(max))
    }

    /// The measurements until `now`, including the current tooth. `None` before the first update
    /// and as long as no time has passed. Copies the histogram: for reports.
    pub fn summary(&self, now: Time) -> Option<AgeSummary> {
        let open = self.ramp(now)?;
        let mut ages = self.ages.clone();
        ages.record(open);
        let over = self.over.map(|mut over| {
            over.record(open);
            over.time()
        });
        let max = self.peaks.max.max(open.to());
        // The middle of the last bucket may be above the maximum age.
        let quantile = |q| ages.quantile(q).map(|age| age.min(max));
        let duration = ages.duration();
        let PeakSum { count, sum, max: peak_max } = self.peaks;
        let has_peaks = count > 0;
        Some(AgeSummary {
            mean: self.process.mean_since(self.from, now)?,
            p50: quantile(0.50)?,
            p95: quantile(0.95)?,
            p99: quantile(0.99)?,
            max,
            // The mean of 64-bit numbers fits into 64 bits.
            peak_mean: has_peaks.then(|| Span::from_nanos((sum / u128::from(count)) as u64)),
            peak_max: has_peaks.then_some(peak_max),
            fraction_over: over.map(|over| over.as_nanos() as f64 / duration.as_nanos() as f64),
            duration,
            fresh: self.process.fresh() - self.counted[0],
            stale: self.process.stale() - self.counted[1],
        })
    }

    /// The growth of age since its last reset, from the start of the measurement on.
    fn ramp(&self, now: Time) -> Option<Ramp> {
        Some(self.process.ramp(now)?.last(now.since(self.from.at())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_periodic_source_has_the_ages_that_one_expects() {
        let ms = Span::from_millis;
        let mut meter = AgeMeter::with_limit(ms(45));
        assert_eq!(meter.summary(Time::ZERO), None);
        // Every 20 ms an update with a delay of 30 ms: ages from 30 to 50 ms.
        let mut now = Time::ZERO + ms(1000);
        for _ in 0..=500 {
            meter.on_update(now, now - ms(30));
            meter.on_update(now, now - ms(40));
            now += ms(20);
        }
        let summary = meter.summary(now).unwrap();
        assert_eq!(summary.mean, ms(40));
        assert_eq!(
            (summary.max, summary.peak_mean, summary.peak_max),
            (ms(50), Some(ms(50)), Some(ms(50)))
        );
        assert_eq!(summary.fraction_over, Some(0.25));
        assert_eq!((summary.duration, summary.fresh, summary.stale), (ms(10_020), 501, 501));
        for (found, millis) in [(summary.p50, 40.0), (summary.p95, 49.0), (summary.p99, 49.8)] {
            assert!((found.as_millis_f64() / millis - 1.0).abs() < 0.01, "{found}");
        }
    }

    #[test]
    fn a_silent_source_shows_in_the_summary_at_once() {
        let mut meter = AgeMeter::new();
        meter.on_update(Time::ZERO, Time::ZERO);
        let summary = meter.summary(Time::ZERO + Span::from_secs(10)).unwrap();
        assert_eq!((summary.mean, summary.max), (Span::from_secs(5), Span::from_secs(10)));
        assert_eq!((summary.peak_mean, summary.fraction_over), (None, None));
    }

    #[test]
    fn a_measurement_from_a_mark_keeps_the_age_of_a_source_that_is_silent() {
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        let mut meter = AgeMeter::with_limit(Span::from_secs(45));
        meter.on_update(at(5), at(5));
        meter.measure_from(at(10));
        meter.on_update(at(50), at(50));
        // From 10 to 50 s the age grew from 5 to 45 s, from 50 to 60 s from 0 to 10 s.
        let summary = meter.summary(at(60)).unwrap();
        assert_eq!(summary.mean, Span::from_secs(21));
        assert_eq!((summary.max, summary.peak_mean), (Span::from_secs(45), Some(summary.max)));
        assert_eq!((summary.duration, summary.fresh, summary.stale), (Span::from_secs(50), 1, 0));
        // Ages of 5 to 10 s were met twice, all others once: 25 of 50 s were up to 20 s.
        assert!((summary.p50.as_secs_f64() / 20.0 - 1.0).abs() < 0.01, "{}", summary.p50);
        assert_eq!(summary.fraction_over, Some(0.0));
    }

    #[test]
    fn a_source_that_never_delivers_ages_from_its_start() {
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        let mut meter = AgeMeter::starting_at(at(5));
        meter.measure_from(at(2));
        let summary = meter.summary(at(15)).unwrap();
        assert_eq!((summary.mean, summary.max), (Span::from_secs(5), Span::from_secs(10)));
        assert_eq!((summary.peak_mean, summary.fresh), (None, 0));
        assert_eq!(summary.duration, Span::from_secs(10));
    }

    proptest! {
        #[test]
        fn a_summary_is_ordered_and_counts_all_time_once(
            events in prop::collection::vec(any::<(u64, u64, u64)>(), 0..20),
            limit: u64,
        ) {
            let mut meter = AgeMeter::with_limit(Span::from_nanos(limit));
            for (now, generated_at, asked) in events {
                meter.on_update(Time::from_nanos(now), Time::from_nanos(generated_at));
                let asked = Time::from_nanos(asked);
                let Some(summary) = meter.summary(asked) else { continue };
                prop_assert!(summary.p50 <= summary.p95 && summary.p95 <= summary.p99);
                for (q, found) in [(0.5, summary.p50), (0.95, summary.p95), (0.99, summary.p99)] {
                    prop_assert_eq!(meter.quantile(asked, q), Some(found));
                }
                prop_assert!(summary.p99 <= summary.max && summary.mean <= summary.max);
                prop_assert!((0.0..=1.0).contains(&summary.fraction_over.unwrap()));
                let open = meter.process.ramp(asked).unwrap().duration();
                prop_assert_eq!(meter.ages.duration() + open, summary.duration);
            }
        }
    }
}
