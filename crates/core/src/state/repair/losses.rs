//! Measures symbol losses: the loss probability, and the burstiness of losses.
//!
//! ```text
//!   p    = (lost + p₀·m₀) / (seen + m₀)              lost, seen: decaying sums over `memory` symbols
//!   D(w) = E[(losses of w symbols − w·p)²] / (w·p·q)    q = 1 − p;  w = 1, 2, 4 … 1024
//!   ρ(w) = (D(w) − 1)/(w − 1) + Var(p)/(p·q)         Var(p) = D·p·q / (seen + m₀)
//! ```
//!
//! D(w) is the index of dispersion: 1 if losses are independent, and about twice the mean burst if
//! w is long compared with bursts. It is measured with blocks of w symbols in a row, for each w, so
//! that it needs no model of the channel. Where few blocks of a length have been seen, the measured
//! value is mixed with one that continues the two shorter lengths. ρ is the correlation of two
//! losses of one window: that of a beta-binomial distribution with the measured variance, plus the
//! error of p itself.

/// Block lengths: 1, 2, 4 … 1024 symbols.
const SCALES: usize = 11;

/// An expected value of D counts as much as this number of measured blocks.
const PRIOR_BLOCKS: f64 = 8.0;

/// The bounds of ρ. Below the lower one losses count as independent.
const CORRELATION: (f64, f64) = (1e-7, 0.99);

/// Settings of [`Losses`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prior {
    /// p₀.
    pub(super) loss: f64,
    /// m₀, symbols.
    pub(super) weight: f64,
    /// Symbols.
    pub(super) memory: f64,
}

/// The losses of symbols, in the order in which their outcomes become known.
#[derive(Debug, Clone)]
pub(super) struct Losses {
    prior: Prior,
    seen: f64,
    lost: f64,
    scales: [Scale; SCALES],
}

/// Blocks of one length.
#[derive(Debug, Clone, Copy, Default)]
struct Scale {
    /// Losses of the first one of two blocks, once it is complete.
    first: Option<u32>,
    /// Decaying sums: blocks, their losses, and the squares of these.
    blocks: f64,
    sum: f64,
    squares: f64,
}

impl Losses {
    pub(super) fn new(prior: Prior) -> Self {
        Self { prior, seen: 0.0, lost: 0.0, scales: [Scale::default(); SCALES] }
    }

    /// The next symbol has arrived, or was lost.
    pub(super) fn on_outcome(&mut self, is_lost: bool) {
        let keep = 1.0 - 1.0 / self.prior.memory;
        self.seen = self.seen * keep + 1.0;
        self.lost = self.lost * keep + f64::from(u8::from(is_lost));
        let mut losses = u32::from(is_lost);
        let mut length = 1.0;
        for scale in &mut self.scales {
            let keep = (1.0 - length / self.prior.memory).max(0.0);
            scale.add(f64::from(losses), keep);
            let Some(first) = scale.first.take() else {
                scale.first = Some(losses);
                break;
            };
            losses += first;
            length *= 2.0;
        }
    }

    /// p, above 0 and below 1.
    pub(super) fn probability(&self) -> f64 {
        let Prior { loss, weight, .. } = self.prior;
        ((self.lost + loss * weight) / (self.seen + weight)).clamp(1e-9, 0.95)
    }

    /// ρ of `window` symbols.
    pub(super) fn correlation(&self, window: f64) -> f64 {
        let (low, high) = CORRELATION;
        let bursts = (self.dispersion(window) - 1.0) / (window - 1.0).max(1.0);
        let error = self.dispersion(self.prior.memory) / (self.seen + self.prior.weight);
        (bursts + error).clamp(low, high)
    }

    /// D of `window` symbols, at least 1.
    pub(super) fn dispersion(&self, window: f64) -> f64 {
        let p = self.probability();
        let (mut before, mut here, mut length) = (1.0, 1.0, 1.0);
        for scale in &self.scales[1..] {
            if length >= window {
                break;
            }
            let expected = here + (here - before) / 2.0;
            let length_before = length;
            length *= 2.0;
            let variance = scale.variance(length, p);
            let measured = variance / (length * p * (1.0 - p));
            let mixed =
                (measured * scale.blocks + expected * PRIOR_BLOCKS) / (scale.blocks + PRIOR_BLOCKS);
            let next = mixed.clamp(1.0, length);
            if length > window {
                let part = (window - length_before) / (length - length_before);
                return here + (next - here) * part;
            }
            (before, here) = (here, next);
        }
        here
    }
}

impl Scale {
    fn add(&mut self, losses: f64, keep: f64) {
        self.blocks = self.blocks * keep + 1.0;
        self.sum = self.sum * keep + losses;
        self.squares = self.squares * keep + losses * losses;
    }

    /// E[(losses − w·p)²] of blocks of w = `length` symbols.
    fn variance(&self, length: f64, p: f64) -> f64 {
        let mean = length * p;
        let total = self.squares - 2.0 * mean * self.sum + mean * mean * self.blocks;
        if self.blocks > 0.0 { (total / self.blocks).max(0.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIOR: Prior = Prior { loss: 0.01, weight: 20.0, memory: 4_096.0 };

    /// A multiplicative generator: the same outcomes on every machine.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 =
                self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// After many symbols over a Gilbert channel.
    fn after(loss: f64, burst: f64) -> Losses {
        let (mut random, mut losses) = (Random(7), Losses::new(PRIOR));
        let to_good = 1.0 / burst;
        let to_bad = to_good * loss / (1.0 - loss);
        let mut is_bad = false;
        for _ in 0..40_000 {
            losses.on_outcome(is_bad);
            is_bad = if is_bad { random.next() >= to_good } else { random.next() < to_bad };
        }
        losses
    }

    /// D(w) of a Gilbert channel, whose losses at distance j have correlation ρʲ.
    fn gilbert(loss: f64, burst: f64, window: f64) -> f64 {
        let rho = 1.0 - 1.0 / burst - loss / (1.0 - loss) / burst;
        let terms = (1..window as u32).map(f64::from);
        1.0 + 2.0 * terms.map(|j| (1.0 - j / window) * libm::pow(rho, j)).sum::<f64>()
    }

    #[test]
    fn bursts_are_measured_at_every_length() {
        for (loss, burst) in [(0.05, 5.0), (0.2, 5.0), (0.2, 20.0)] {
            let losses = after(loss, burst);
            let p = losses.probability();
            assert!((p / loss - 1.0).abs() < 0.4, "{loss} {burst}: {p}");
            for window in [2.0, 8.0, 24.0, 64.0] {
                let ratio = losses.dispersion(window) / gilbert(loss, burst, window);
                assert!((0.6..1.6).contains(&ratio), "{loss} {burst} {window}: {ratio}");
            }
        }
    }

    #[test]
    fn independent_losses_have_a_dispersion_of_one() {
        // The mean burst of independent losses of 5 % is 1/0.95.
        let losses = after(0.05, 1.0 / 0.95);
        for window in [2.0, 16.0, 100.0] {
            let dispersion = losses.dispersion(window);
            assert!(dispersion < 1.35, "{window}: {dispersion}");
        }
        assert!(losses.correlation(100.0) < 0.01);
    }

    #[test]
    fn a_change_of_the_loss_is_seen_within_two_memories() {
        let mut losses = after(0.2, 5.0);
        for _ in 0..8_192 {
            losses.on_outcome(false);
        }
        let p = losses.probability();
        assert!(p < 0.2 * 0.15, "{p}");
    }

    #[test]
    fn few_outcomes_leave_the_estimate_open() {
        let mut losses = Losses::new(PRIOR);
        assert_eq!(losses.probability(), PRIOR.loss);
        let before = losses.correlation(100.0);
        for _ in 0..4_096 {
            losses.on_outcome(false);
        }
        let after = losses.correlation(100.0);
        assert!(before > 0.015 && after < 0.001, "{before} {after}");
    }
}
