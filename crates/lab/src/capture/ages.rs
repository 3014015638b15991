//! The age over complete teeth of its sawtooth: from the first fresh update to the last.
//!
//! A capture ends at an arbitrary time, and a flow that has stopped sending has no defined age.
//! Therefore the growth after the last update is left out.

use freshline_core::age::{AgeMeter, Freshness};
use freshline_core::unit::{Span, Time};
use serde::Serialize;

/// Measures the age, from the first update on.
#[derive(Debug, Default)]
pub(super) struct Sawtooth {
    teeth: Option<(AgeMeter, Time)>,
}

/// The distribution of the age.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ages {
    /// Time average in ms.
    pub mean_ms: f64,
    /// Median over time in ms, within 1 %, as are the other quantiles.
    pub p50_ms: f64,
    /// The age in ms not exceeded during 95 % of the time.
    pub p95_ms: f64,
    /// The age in ms not exceeded during 99 % of the time.
    pub p99_ms: f64,
    /// The maximum age in ms.
    pub max_ms: f64,
    /// Mean of the ages just before each reset, in ms.
    pub peak_mean_ms: f64,
    /// Mean interval in ms between fresh updates.
    pub inter_delivery_mean_ms: f64,
    /// Updates that reset the age, at least 2.
    pub fresh: u64,
    /// The time from the first of them to the last, in s.
    pub duration_s: f64,
}

impl Sawtooth {
    /// A sign that an update generated at `generated_at` has arrived.
    pub(super) fn on_update(&mut self, now: Time, generated_at: Time) {
        let (meter, reset_at) = self.teeth.get_or_insert_with(|| (AgeMeter::new(), now));
        if meter.on_update(now, generated_at) == Freshness::Fresh {
            *reset_at = now.max(*reset_at);
        }
    }

    /// The ages; `None` before the second fresh update.
    pub(super) fn ages(&self) -> Option<Ages> {
        let (meter, reset_at) = self.teeth.as_ref()?;
        let summary = meter.summary(*reset_at)?;
        let ms = Span::as_millis_f64;
        Some(Ages {
            mean_ms: ms(summary.mean),
            p50_ms: ms(summary.p50),
            p95_ms: ms(summary.p95),
            p99_ms: ms(summary.p99),
            max_ms: ms(summary.max),
            peak_mean_ms: ms(summary.peak_mean?),
            inter_delivery_mean_ms: ms(summary.duration) / (summary.fresh - 1) as f64,
            fresh: summary.fresh,
            duration_s: summary.duration.as_secs_f64(),
        })
    }
}
