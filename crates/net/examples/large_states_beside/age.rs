//! The age at the receiver, measured in the same way for all contenders.

use freshline_core::age::AgeSummary;

/// True ages over the measured time, in s; infinite where no state has arrived.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Age {
    pub(crate) mean: f64,
    /// The age that is not exceeded for 99 % of the time.
    pub(crate) p99: f64,
}

impl Age {
    pub(crate) fn of(summary: Option<AgeSummary>) -> Self {
        let seconds = |age: fn(&AgeSummary) -> freshline_core::unit::Span| {
            summary.as_ref().map_or(f64::INFINITY, |summary| age(summary).as_secs_f64())
        };
        Self { mean: seconds(|summary| summary.mean), p99: seconds(|summary| summary.p99) }
    }

    /// The one with the lower mean.
    pub(crate) fn min(self, other: Self) -> Self {
        if other.mean < self.mean { other } else { self }
    }
}
