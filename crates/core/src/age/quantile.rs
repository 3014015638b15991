//! Time-weighted quantiles of the age, in [buckets](crate::buckets).
//!
//! A [`Ramp`] may run through thousands of buckets, yet costs constant time. It spends the full
//! width of each bucket that it crosses, so a difference array of crossings suffices: +1 at the
//! bucket of its start, −1 at the bucket of its end. A second array holds the corrections for the
//! partial crossings of the first and the last bucket:
//!
//! ```text
//! time in bucket i = width(i) · Σ crossings[0..=i] + rest[i]
//! ```
//!
//! The sums are computed only for a quantile. Single entries may be negative and are kept modulo
//! 2^64; the sums are times between zero and the total, hence exact.

use super::Ramp;
use crate::buckets::{Bucket, Buckets};
use crate::unit::Span;

/// The distribution of the age over time, for quantiles.
///
/// Covers every age from zero to [`Span::MAX`] with a relative error below 1 % (and at most 1 ns
/// below 64 ns). Takes 1 KiB on the heap for each octave (a doubling) in which ages began or ended, at most 59 KiB.
#[derive(Debug, Clone)]
pub struct AgeHistogram {
    buckets: Buckets<Times>,
    total: Span,
}

/// The contribution of a bucket to the sums.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    crossings: u64,
    rest: u64,
}

impl Times {
    /// Adds a ramp that begins `before` ns above the bucket's lower edge.
    fn begin(&mut self, before: u64) {
        self.crossings = self.crossings.wrapping_add(1);
        self.rest = self.rest.wrapping_sub(before);
    }

    /// Adds a ramp that ends `within` ns above the bucket's lower edge.
    fn end(&mut self, within: u64) {
        self.crossings = self.crossings.wrapping_sub(1);
        self.rest = self.rest.wrapping_add(within);
    }
}

impl AgeHistogram {
    /// An empty histogram, without memory on the heap.
    pub const fn new() -> Self {
        Self { buckets: Buckets::new(), total: Span::ZERO }
    }

    /// Adds the time and the ages of `ramp`. A ramp that would bring the total beyond
    /// [`Span::MAX`] (584 years) is left out.
    pub fn record(&mut self, ramp: Ramp) {
        let Some(total) = self.total.checked_add(ramp.duration()) else { return };
        self.total = total;
        let (first, last) = (Bucket::of(ramp.from()), Bucket::of(ramp.to()));
        let before = ramp.from().as_nanos() - first.lower_edge();
        let within = ramp.to().as_nanos() - last.lower_edge();
        self.buckets.at(first).begin(before);
        self.buckets.at(last).end(within);
    }

    /// The age that is not exceeded during the fraction `q` of the time: 0.5 gives the median.
    ///
    /// `q` is clamped between 0 and 1 (NaN counts as 0). `None` as long as no time was recorded.
    /// Takes time in proportion to the number of buckets between the lowest age and the quantile,
    /// 64 for each doubling.
    pub fn quantile(&self, q: f64) -> Option<Span> {
        self.quantile_with(Ramp::new(Span::ZERO, Span::ZERO), q)
    }

    /// The same as if `open` had been recorded.
    pub fn quantile_with(&self, open: Ramp, q: f64) -> Option<Span> {
        // A ramp that would be left out is left out here.
        let sum = self.total.checked_add(open.duration());
        let open = if sum.is_some() { open } else { Ramp::new(Span::ZERO, Span::ZERO) };
        let total = sum.unwrap_or(self.total).as_nanos();
        if total == 0 {
            return None;
        }
        let (first, last) = (Bucket::of(open.from()), Bucket::of(open.to()));
        let before = open.from().as_nanos() - first.lower_edge();
        let within = open.to().as_nanos() - last.lower_edge();
        let wanted = (libm::ceil(q.clamp(0.0, 1.0) * total as f64) as u64).clamp(1, total);
        let (mut crossing, mut time) = (0u64, 0u64);
        let is_open = !open.duration().is_zero();
        self.buckets
            .iter(is_open.then_some(first))
            .find(|(bucket, held)| {
                let mut held = *held;
                if is_open && *bucket == first {
                    held.begin(before);
                }
                if is_open && *bucket == last {
                    held.end(within);
                }
                crossing = crossing.wrapping_add(held.crossings);
                let spent = crossing.wrapping_mul(bucket.width());
                time = time.wrapping_add(spent.wrapping_add(held.rest));
                time >= wanted
            })
            .map(|(bucket, _)| bucket.middle())
    }

    /// How much time was recorded.
    pub const fn duration(&self) -> Span {
        self.total
    }
}

impl Default for AgeHistogram {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn ramp(from: Span, to: Span) -> Ramp {
        Ramp::new(from, to)
    }

    /// The smallest age x such that the ramps spend `wanted` ns at ages up to x, by bisection.
    fn exact_quantile(ramps: &[Ramp], q: f64) -> u64 {
        let time_up_to = |age: u64| -> u64 {
            let up_to = |r: &Ramp| (r.to().min(Span::from_nanos(age)) - r.from()).as_nanos();
            ramps.iter().map(up_to).sum()
        };
        let total = time_up_to(u64::MAX);
        let wanted = (libm::ceil(q * total as f64) as u64).clamp(1, total);
        let (mut low, mut high) = (0, u64::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            if time_up_to(middle) >= wanted { high = middle } else { low = middle + 1 }
        }
        low
    }

    #[test]
    fn a_single_ramp_has_the_quantiles_of_a_uniform_distribution() {
        let mut ages = AgeHistogram::new();
        assert_eq!(ages.quantile(0.5), None);
        ages.record(ramp(Span::from_millis(100), Span::from_millis(200)));
        for (q, millis) in [(0.0, 100.0), (0.5, 150.0), (0.95, 195.0), (0.99, 199.0), (1.0, 200.0)]
        {
            let found = ages.quantile(q).unwrap().as_millis_f64();
            assert!((found / millis - 1.0).abs() < 0.01, "q = {q}: {found} ms");
        }
    }

    #[test]
    fn time_counts_and_not_the_number_of_updates() {
        let mut ages = AgeHistogram::new();
        // A thousand short teeth at 1 ms, then one second of silence.
        for _ in 0..1000 {
            ages.record(ramp(Span::from_millis(1), Span::from_micros(1010)));
        }
        ages.record(ramp(Span::from_millis(1), Span::from_millis(1001)));
        let median = ages.quantile(0.5).unwrap().as_millis_f64();
        assert!((median / 496.0 - 1.0).abs() < 0.01, "{median} ms");
    }

    #[test]
    fn the_ends_of_the_range_are_counted_and_more_is_left_out() {
        let mut ages = AgeHistogram::new();
        ages.record(ramp(Span::ZERO, Span::MAX));
        assert_eq!(ages.duration(), Span::MAX);
        ages.record(ramp(Span::ZERO, Span::from_secs(1)));
        assert_eq!(ages.duration(), Span::MAX);
        assert!(ages.quantile(1.0).unwrap() > Span::from_nanos(u64::MAX / 128 * 126));
        assert!(ages.quantile(f64::NAN).unwrap() <= Span::from_nanos(1));
    }

    proptest! {
        #[test]
        fn quantiles_are_within_one_percent_of_the_exact_ones(
            teeth in prop::collection::vec((0.0f64..14.0, 0.0f64..14.0), 1..40),
            q in 0.0f64..=1.0,
        ) {
            // From 1 ns to 10^5 s, evenly over the orders of magnitude.
            let nanos = |exponent: f64| Span::from_nanos(libm::pow(10.0, exponent) as u64);
            let ramps: Vec<Ramp> =
                teeth.iter().map(|(a, b)| ramp(nanos(a.min(*b)), nanos(a.max(*b)))).collect();
            let mut ages = AgeHistogram::new();
            ramps.iter().for_each(|ramp| ages.record(*ramp));
            prop_assume!(!ages.duration().is_zero());
            for q in [q, 0.5, 0.95, 0.99, 1.0] {
                let exact = exact_quantile(&ramps, q);
                let found = ages.quantile(q).unwrap().as_nanos();
                prop_assert!(
                    found.abs_diff(exact) <= exact / 100 + 1,
                    "q = {}: {} ns instead of {} ns", q, found, exact
                );
            }
        }
    }
}
