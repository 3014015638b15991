//! The distribution of time spans: mean, maximum and quantiles, in [buckets](crate::buckets).

use crate::buckets::{Bucket, Buckets};
use crate::unit::Span;

/// Spans counted in buckets whose width grows with the span.
///
/// Mean and maximum are exact. Quantiles are within 0.8 % (half of a bucket), and exact below
/// 128 ns. Takes 512 B on the heap for each octave (a doubling) in which spans were counted, at most
/// 30 kB.
#[derive(Debug, Clone)]
pub struct SpanHistogram {
    counts: Buckets<u64>,
    count: u64,
    sum_nanos: u128,
    max: Span,
}

impl SpanHistogram {
    /// An empty histogram, without memory on the heap.
    pub const fn new() -> Self {
        Self { counts: Buckets::new(), count: 0, sum_nanos: 0, max: Span::ZERO }
    }

    /// Counts `span`.
    pub fn record(&mut self, span: Span) {
        self.record_times(1, span);
    }

    /// Counts `span` `times` times, to merge another histogram.
    pub fn record_times(&mut self, times: u64, span: Span) {
        if times == 0 {
            return;
        }
        *self.counts.at(Bucket::of(span)) += times;
        self.count += times;
        self.sum_nanos += u128::from(span.as_nanos()) * u128::from(times);
        self.max = self.max.max(span);
    }

    /// How many spans were counted.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The mean, rounded down to a ns; zero if nothing was counted.
    pub fn mean(&self) -> Span {
        let mean = self.sum_nanos.checked_div(u128::from(self.count)).unwrap_or(0);
        // A mean of `u64` values fits into a `u64`.
        Span::from_nanos(mean as u64)
    }

    /// The largest; zero if nothing was counted.
    pub fn max(&self) -> Span {
        self.max
    }

    /// The smallest span that at least the fraction `q` (from 0 to 1) of all does not exceed;
    /// zero if nothing was counted.
    pub fn quantile(&self, q: f64) -> Span {
        let rank = (libm::ceil(self.count as f64 * q) as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let found = self.counts.iter(None).find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        found.map_or(Span::ZERO, |(bucket, _)| bucket.middle().min(self.max))
    }
}

impl Default for SpanHistogram {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_histogram_is_zero_throughout() {
        let empty = SpanHistogram::new();
        assert_eq!((empty.mean(), empty.max(), empty.quantile(0.99)), Default::default());
    }

    #[test]
    fn the_ends_of_the_range_have_buckets() {
        for nanos in [0, 1, 63, 64, 127, 128, 129, u64::MAX] {
            let mut histogram = SpanHistogram::new();
            histogram.record(Span::from_nanos(nanos));
            let read = histogram.quantile(1.0).as_nanos();
            assert!(read.abs_diff(nanos) <= nanos / 128, "{nanos} read as {read}");
        }
    }

    proptest! {
        #[test]
        fn quantiles_are_within_a_hundredth(
            mut nanos in prop::collection::vec(0u64..10_000_000_000, 1..300),
            q in 0.0f64..=1.0,
        ) {
            let mut histogram = SpanHistogram::new();
            for nanos in &nanos {
                histogram.record(Span::from_nanos(*nanos));
            }
            nanos.sort_unstable();
            let rank = (libm::ceil(nanos.len() as f64 * q) as usize).clamp(1, nanos.len());
            let exact = nanos[rank - 1];
            let read = histogram.quantile(q).as_nanos();
            prop_assert!(read.abs_diff(exact) as f64 <= exact as f64 * 0.008, "{read} for {exact}");
            let sum: u64 = nanos.iter().sum::<u64>();
            prop_assert_eq!(histogram.mean().as_nanos(), sum / nanos.len() as u64);
            prop_assert_eq!(Some(&histogram.max().as_nanos()), nanos.last());
        }
    }
}
