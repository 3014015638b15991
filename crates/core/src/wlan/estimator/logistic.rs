//! Finds the first packet of each frame from the last m gaps by logistic regression.
//!
//! ```text
//! X = [t₍ᵢ₋ₘ₊₁₎ … tᵢ σᵢ]             gaps in µs, the newest last, and their deviation     (4.3)
//! P(first) = 1/(1 + e^−(θ₀ + θᵀX))                                                        (4.4)
//! ```
//!
//! A packet is taken for the first of its frame if this probability is one half or more. Gaps are
//! whole nanoseconds, so their running sums are exact.

use alloc::boxed::Box;

use super::{FrameEstimator, Gaps, LogisticWeights, WeightsError};
use crate::unit::{Span, Time};

/// The classifier and its last gaps. It allocates memory only at construction.
#[derive(Debug, Clone)]
pub struct Logistic {
    /// θ of the gaps, the oldest first.
    weights: Box<[f64]>,
    deviation: f64,
    intercept: f64,
    gaps: Gaps,
    /// The last m gaps in µs, stored twice in a row, so that the m gaps from any index on are in
    /// order.
    window: Box<[f64]>,
    /// The same in ns, once.
    nanos: Box<[u64]>,
    /// The index of the next gap.
    next: usize,
    seen: usize,
    /// The sums of the gaps in ns, and of their squares.
    sum: u64,
    squares: u64,
    score: Option<f64>,
}

impl LogisticWeights {
    pub(super) fn build(&self) -> Result<Logistic, WeightsError> {
        let count = self.gaps.len();
        WeightsError::check_count("logistic.gaps", count, 64)?;
        WeightsError::check_finite("logistic.gaps", self.gaps.iter().copied())?;
        WeightsError::check_finite("logistic.deviation", [self.deviation])?;
        WeightsError::check_finite("logistic.intercept", [self.intercept])?;
        Ok(Logistic {
            weights: self.gaps.clone().into_boxed_slice(),
            deviation: self.deviation,
            intercept: self.intercept,
            gaps: Gaps::default(),
            window: alloc::vec![0.0; 2 * count].into_boxed_slice(),
            nanos: alloc::vec![0; count].into_boxed_slice(),
            next: 0,
            seen: 0,
            sum: 0,
            squares: 0,
            score: None,
        })
    }
}

impl Logistic {
    /// The probability that the last packet was the first of a frame, 0 to 1; `None` until m gaps
    /// were seen.
    pub fn probability(&self) -> Option<f64> {
        self.score.map(|score| 1.0 / (1.0 + libm::exp(-score)))
    }

    fn push(&mut self, gap: Span) {
        let nanos = gap.as_nanos();
        let count = self.weights.len();
        let before = core::mem::replace(&mut self.nanos[self.next], nanos);
        // Of at most 64 gaps of at most 400 µs: neither overflows.
        self.sum = self.sum + nanos - before;
        self.squares = self.squares + nanos * nanos - before * before;
        let micros = super::micros(gap);
        self.window[self.next] = micros;
        self.window[self.next + count] = micros;
        self.next = if self.next + 1 == count { 0 } else { self.next + 1 };
        self.seen = (self.seen + 1).min(count);
    }

    fn score(&self) -> Option<f64> {
        let count = self.weights.len();
        if self.seen < count {
            return None;
        }
        // The oldest gap is at the index of the next one.
        let window = &self.window[self.next..self.next + count];
        let weighed: f64 = self.weights.iter().zip(window).map(|(w, gap)| w * gap).sum();
        let count = count as u64;
        let variance = count * self.squares - self.sum * self.sum;
        let deviation = libm::sqrt(variance as f64) / count as f64 / 1e3;
        Some(self.intercept + weighed + self.deviation * deviation)
    }
}

impl FrameEstimator for Logistic {
    fn on_packet(&mut self, stamp: Time) -> Option<bool> {
        let gap = self.gaps.next(stamp)?;
        self.push(gap);
        self.score = self.score();
        self.score.map(|score| score >= 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAX_GAP;
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn logistic(gaps: &[f64], deviation: f64, intercept: f64) -> Logistic {
        let training = super::super::weights::no_training();
        let gaps = gaps.to_vec();
        LogisticWeights { gaps, deviation, intercept, training }.build().unwrap()
    }

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    #[test]
    fn gaps_are_weighed_the_newest_last() {
        let mut logistic = logistic(&[1.0, 10.0, 100.0], 1e6, -5.0);
        for micros in [0, 1, 3] {
            assert_eq!(logistic.on_packet(at(micros)), None);
            assert_eq!(logistic.probability(), None);
        }
        logistic.on_packet(at(6));
        // Gaps 1 2 3: σ² = 2/3.
        let score = logistic.score.unwrap();
        assert!((score - (321.0 - 5.0 + 1e6 * libm::sqrt(2.0 / 3.0))).abs() < 1e-6, "{score}");
        logistic.on_packet(at(6));
        let score = logistic.score.unwrap();
        assert!((score - (32.0 - 5.0 + 1e6 * libm::sqrt(14.0 / 9.0))).abs() < 1e-6, "{score}");
    }

    #[test]
    fn one_half_is_the_border() {
        let mut logistic = logistic(&[1.0], 0.0, -10.0);
        logistic.on_packet(at(0));
        assert_eq!(logistic.on_packet(at(9)), Some(false));
        assert_eq!(logistic.on_packet(at(19)), Some(true));
        assert_eq!(logistic.probability(), Some(0.5));
    }

    proptest! {
        #[test]
        fn whatever_the_stamps_sums_are_those_of_the_window(
            stamps in prop::collection::vec(prop_oneof![0..1_000_000u64, any::<u64>()], 0..200),
        ) {
            let mut logistic = logistic(&[0.5; 7], -0.1, 3.0);
            let mut last: Option<u64> = None;
            let mut gaps: Vec<u64> = Vec::new();
            for stamp in stamps {
                logistic.on_packet(Time::from_nanos(stamp));
                gaps.extend(last.map(|last| stamp.saturating_sub(last).min(MAX_GAP.as_nanos())));
                last = Some(stamp);
                let Some(score) = logistic.score else { continue };
                let window = &gaps[gaps.len() - 7..];
                let micros = || window.iter().map(|gap| *gap as f64 / 1e3);
                let mean = micros().sum::<f64>() / 7.0;
                let variance = micros().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / 7.0;
                let expected = 3.0 + 0.5 * micros().sum::<f64>() - 0.1 * libm::sqrt(variance);
                prop_assert!((score - expected).abs() < 1e-6, "{score} {expected}");
            }
        }
    }
}
