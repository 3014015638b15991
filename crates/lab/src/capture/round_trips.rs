//! Round-trip times, one per sample.

use freshline_core::unit::Span;
use serde::Serialize;

/// The running statistics of round-trip times.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RoundTrips {
    samples: u64,
    sum: u128,
    min: Span,
    max: Span,
}

/// The distribution of round-trip times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RoundTripTimes {
    /// The number of samples, at least 1.
    pub samples: u64,
    /// Arithmetic mean in ms.
    pub mean_ms: f64,
    /// The minimum in ms.
    pub min_ms: f64,
    /// The maximum in ms.
    pub max_ms: f64,
}

impl RoundTrips {
    pub(super) fn record(&mut self, rtt: Span) {
        self.min = if self.samples == 0 { rtt } else { self.min.min(rtt) };
        self.max = self.max.max(rtt);
        self.sum += u128::from(rtt.as_nanos());
        self.samples += 1;
    }

    pub(super) fn times(&self) -> Option<RoundTripTimes> {
        let samples = self.samples;
        (samples > 0).then(|| RoundTripTimes {
            samples,
            mean_ms: self.sum as f64 / samples as f64 / 1e6,
            min_ms: self.min.as_millis_f64(),
            max_ms: self.max.as_millis_f64(),
        })
    }
}
