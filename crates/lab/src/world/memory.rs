//! The memory of a time series: its autocovariance, computed online.
//!
//! ```text
//! γ(k) = E[(Nₜ − μ)(Nₜ₊ₖ − μ)]         time constant: where γ falls to γ(2)/e, less 2
//! ```
//!
//! Levels of frames are integers, and a packet that misses one frame is in the next. This noise and
//! its inverse affect γ(0) and γ(1) only, so the decay is measured from γ(2) on.

/// The number of lags.
const LAGS: usize = 66;
/// The first lag that is free of the noise of single packets.
const FROM: usize = 2;

/// Sums of a series and of its products with itself. Its size is fixed.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    /// The last numbers, as a ring, minus the first number of all, which keeps sums small.
    recent: [f64; LAGS + 1],
    origin: f64,
    count: usize,
    sum: f64,
    /// Sums of products, by lag.
    products: [f64; LAGS + 1],
}

impl Default for Memory {
    fn default() -> Self {
        let zeroes = [0.0; LAGS + 1];
        Self { recent: zeroes, origin: 0.0, count: 0, sum: 0.0, products: zeroes }
    }
}

impl Memory {
    /// The next number.
    pub(super) fn push(&mut self, number: f64) {
        if self.count == 0 {
            self.origin = number;
        }
        let number = number - self.origin;
        let size = self.recent.len();
        let place = self.count % size;
        self.recent[place] = number;
        self.count += 1;
        self.sum += number;
        let known = self.count.min(size);
        // The newest first, backwards around the ring.
        let back = self.recent[..=place].iter().rev().chain(self.recent[place + 1..].iter().rev());
        for (product, earlier) in self.products.iter_mut().zip(back).take(known) {
            *product += number * earlier;
        }
    }

    /// γ(lag).
    fn covariance(&self, lag: usize) -> f64 {
        let mean = self.sum / self.count as f64;
        self.products[lag] / (self.count - lag) as f64 - mean * mean
    }

    /// The number of values in which a deviation falls to 1/e; `None` with fewer than a thousand
    /// values, if it takes more than 64 values, and if γ(2) is below four times the value that
    /// noise would cause.
    pub(super) fn frames_to_1_e(&self) -> Option<f64> {
        const FEWEST: usize = 1_000;
        if self.count < FEWEST {
            return None;
        }
        let start = self.covariance(FROM);
        let chance = self.covariance(0) / (self.count as f64).sqrt();
        let (mut before, end) = (start, start / std::f64::consts::E);
        if start < 4.0 * chance {
            return None;
        }
        for lag in FROM + 1..=LAGS {
            let covariance = self.covariance(lag);
            if covariance <= end {
                // Between two lags, interpolate exponentially; below zero, linearly.
                let part = if covariance > 0.0 {
                    (before / end).ln() / (before / covariance).ln()
                } else {
                    (before - end) / (before - covariance)
                };
                return Some((lag - 1 - FROM) as f64 + part);
            }
            before = covariance;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    /// An AR(1) process; with `whole`, in integers, the remainder being carried over to the next
    /// one.
    fn constant_of(part: f64, whole: bool) -> Option<f64> {
        let mut rng = Pcg64::seed_from_u64(1);
        let (mut memory, mut deviation, mut left) = (Memory::default(), 0.0, 0.0);
        for _ in 0..200_000 {
            deviation = part * deviation + 2.0 * rng.random::<f64>() - 1.0;
            let came: f64 = 30.0 + deviation + left;
            let number = if whole { came.floor() } else { came };
            left = came - number;
            memory.push(number);
        }
        memory.frames_to_1_e()
    }

    #[test]
    fn the_time_constant_of_a_recursion_is_found() {
        for part in [0.6f64, 0.9, 0.95] {
            let expected = -1.0 / part.ln();
            for whole in [false, true] {
                let seen = constant_of(part, whole).unwrap();
                assert!((seen / expected - 1.0).abs() < 0.08, "{part}: {seen} for {expected}");
            }
        }
    }

    #[test]
    fn what_is_no_memory_or_too_long_a_one_is_none() {
        assert_eq!(constant_of(0.0, false), None);
        assert_eq!(constant_of(0.999, false), None);
        assert_eq!(Memory::default().frames_to_1_e(), None);
    }
}
