//! The distribution of J: the number of losses before n symbols have arrived.
//!
//! ```text
//!   independent:  P(J = j) = C(n + j − 1, j) · qⁿ · pʲ                        negative binomial
//!   in bursts:    P(J = j) = C(n + j − 1, j) · B(a + j, b + n) / B(a, b)      beta negative binomial
//!                 a = p·c,  b = q·c,  c = 1/ρ − 1
//!
//!   P(Binomial(n + k, q) ≥ n) = P(J ≤ k)
//! ```
//!
//! One pass over j gives P_k for all k at the same time. The pass has bounded work for every n: it
//! starts 8 standard deviations below the mean, the first [`FINE`] values are exact by recursion,
//! and from then on the width of a block grows by 1/64 of the distance, each block with the
//! probability at its middle. Up to n = 65,536 that is at most 600 blocks.

use libm::{exp, lgamma, sqrt};

/// Values of j that are taken one by one.
pub(super) const FINE: f64 = 64.0;

/// A part of the distribution of J.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Block {
    /// The smallest j of the block.
    pub(super) first: f64,
    /// The largest one.
    pub(super) last: f64,
    /// P(J is in the block).
    pub(super) mass: f64,
    /// The middle of the block.
    pub(super) middle: f64,
}

/// The blocks of the distribution of J, in ascending order.
#[derive(Debug, Clone)]
pub(super) struct Shortfall {
    n: f64,
    a: f64,
    b: f64,
    /// Where the pass starts.
    from: f64,
    /// The first j of the next block.
    next: f64,
    /// P(J = next − 1), while blocks have one value.
    previous: Option<f64>,
}

impl Shortfall {
    /// J of `n` symbols that are lost with probability `p`, above 0 and below 1, and correlation
    /// `rho`.
    pub(super) fn new(n: f64, p: f64, rho: f64) -> Self {
        let c = 1.0 / rho - 1.0;
        let (a, b) = (p * c, (1.0 - p) * c);
        // Standard deviation of the losses among the mean n/q symbols sent.
        let sent = n / (1.0 - p);
        let variance = sent * p * (1.0 - p) * (1.0 + (sent - 1.0) * rho) / ((1.0 - p) * (1.0 - p));
        let from = libm::floor((n * p / (1.0 - p) - 8.0 * sqrt(variance)).max(0.0));
        Self { n, a, b, from, next: from, previous: None }
    }

    /// ln P(J = j).
    fn ln_probability(&self, j: f64) -> f64 {
        let Self { n, a, b, .. } = *self;
        let arrangements = if j > 0.0 { lgamma(n + j) - lgamma(n) - lgamma(j + 1.0) } else { 0.0 };
        // ln B(a + j, b + n) − ln B(a, b), the large arguments in pairs.
        let lost = if j > 0.0 { lgamma(a + j) - lgamma(a) } else { 0.0 };
        arrangements + lost + (lgamma(b + n) - lgamma(b)) - (lgamma(a + b + n + j) - lgamma(a + b))
    }

    /// P(J = j) / P(J = j − 1).
    fn ratio(&self, j: f64) -> f64 {
        let Self { n, a, b, .. } = *self;
        (n + j - 1.0) / j * (a + j - 1.0) / (a + b + n + j - 1.0)
    }
}

impl Iterator for Shortfall {
    type Item = Block;

    /// There is always a further block; the caller ends the pass.
    fn next(&mut self) -> Option<Block> {
        let first = self.next;
        let width = libm::floor((first - self.from) / FINE).max(1.0);
        let last = first + width - 1.0;
        let middle = first + (width - 1.0) / 2.0;
        let probability = match self.previous {
            Some(previous) if width == 1.0 => previous * self.ratio(middle),
            _ => exp(self.ln_probability(middle)),
        };
        self.previous = (width == 1.0).then_some(probability);
        self.next = last + 1.0;
        Some(Block { first, last, mass: probability * width, middle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P(J ≤ k) by blocks, at the ends of blocks, and the exact sum, up to k.
    fn max_error(n: f64, p: f64, rho: f64, k: f64) -> f64 {
        let whole = Shortfall::new(n, p, rho);
        let (mut exact, mut next) = (0.0, 0.0);
        let (mut sum, mut error) = (0.0, 0.0);
        for block in whole.clone().take_while(|block| block.last <= k) {
            sum += block.mass;
            while next <= block.last {
                exact += exp(whole.ln_probability(next));
                next += 1.0;
            }
            error = f64::max(error, (sum - exact).abs());
        }
        error
    }

    /// P(Binomial(trials, 1 − p) ≥ n), term by term.
    fn binomial(trials: u32, p: f64, n: u32) -> f64 {
        let (trials, ln_p, ln_q) = (f64::from(trials), libm::log(p), libm::log(1.0 - p));
        let term = |losses: f64| {
            let arrangements =
                lgamma(trials + 1.0) - lgamma(losses + 1.0) - lgamma(trials - losses + 1.0);
            exp(arrangements + losses * ln_p + (trials - losses) * ln_q)
        };
        (0..=trials as u32 - n).map(|losses| term(f64::from(losses))).sum()
    }

    #[test]
    fn the_blocks_agree_with_the_exact_sum() {
        for (n, p) in
            [(1.0, 0.2), (30.0, 0.05), (1_000.0, 0.05), (65_536.0, 0.2), (65_536.0, 0.001)]
        {
            for rho in [1e-7, 1e-3, 0.1, 0.6] {
                let error = max_error(n, p, rho, f64::min(2.0 * n, 40_000.0));
                assert!(error < 2e-3, "{n} {p} {rho}: {error}");
            }
        }
    }

    #[test]
    fn without_correlation_it_is_the_binomial_tail() {
        for (n, p, k) in
            [(1, 0.2, 0), (10, 0.05, 1), (100, 0.05, 9), (100, 0.2, 30), (5_000, 0.01, 60)]
        {
            let blocks = Shortfall::new(f64::from(n), p, 1e-7);
            let sum: f64 =
                blocks.take_while(|block| block.last <= f64::from(k)).map(|block| block.mass).sum();
            let exact = binomial(n + k, p, n);
            assert!((sum - exact).abs() < 1e-3, "{n} {p} {k}: {sum} {exact}");
        }
    }

    #[test]
    fn the_longest_pass_has_600_blocks() {
        for (p, rho) in [(0.2, 1e-7), (0.2, 0.1), (0.95, 0.99), (1e-9, 1e-7), (0.9, 1e-7)] {
            let blocks = Shortfall::new(65_536.0, p, rho);
            let count = blocks.take_while(|block| block.last < 65_536.0).count();
            assert!(count <= 600, "{p} {rho}: {count}");
        }
    }
}
