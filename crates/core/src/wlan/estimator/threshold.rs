//! A packet is the first of a frame if the gap before it is long enough: the baseline of section
//! 4.4.1, the logistic with m = 1 and without deviation.

use super::{FrameEstimator, Gaps, ThresholdWeights, WeightsError, micros};
use crate::unit::Time;

/// Compares each gap with one threshold.
#[derive(Debug, Clone)]
pub struct Threshold {
    /// In µs.
    gap: f64,
    gaps: Gaps,
}

impl ThresholdWeights {
    pub(super) fn build(&self) -> Result<Threshold, WeightsError> {
        WeightsError::check_finite("threshold.gap", [self.gap])?;
        Ok(Threshold { gap: self.gap, gaps: Gaps::default() })
    }
}

impl FrameEstimator for Threshold {
    fn on_packet(&mut self, stamp: Time) -> Option<bool> {
        Some(micros(self.gaps.next(stamp)?) >= self.gap)
    }
}
