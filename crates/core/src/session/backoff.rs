//! Exponential backoff with a random spread, so that sources that lost the same monitor do not all
//! return at once.

use crate::unit::Span;

/// The progress of an opening or a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Not due.
    Idle,
    /// The driver is asked to renew transports first.
    Announced,
    /// It may be sent.
    Ready,
}

/// The waits between openings: `first`, doubled each time up to `longest`, each extended by up to a
/// quarter. The spread depends only on the seed: the same session waits the same times.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    first: Span,
    longest: Span,
    seed: u64,
    attempts: u32,
}

impl Backoff {
    pub(super) fn new(first: Span, longest: Span, seed: u64) -> Self {
        Self { first, longest, seed, attempts: 0 }
    }

    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Continues as after `attempts` attempts.
    pub(super) fn reset(&mut self, attempts: u32) {
        self.attempts = attempts;
    }

    /// The wait after the attempt that is made now.
    pub(super) fn next(&mut self) -> Span {
        let wait = (self.first * (1 << self.attempts.min(30))).min(self.longest);
        self.attempts = self.attempts.saturating_add(1);
        wait + (wait / 4).mul_f64(self.fraction())
    }

    /// A pseudo-random number in [0, 1).
    fn fraction(&self) -> f64 {
        (mix(self.seed.wrapping_add(self.attempts.into())) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// One step of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a pseudo-random number, different for
/// each seed.
pub(super) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn waits_double_up_to_the_longest_with_a_quarter_of_spread() {
        let mut backoff = Backoff::new(Span::from_millis(200), Span::from_secs(2), 7);
        for base in [200, 400, 800, 1600, 2000, 2000] {
            let wait = backoff.next();
            assert!(wait >= Span::from_millis(base) && wait <= Span::from_millis(base * 5 / 4));
        }
        let first_waits: Vec<_> = (0..20)
            .map(|seed| Backoff::new(Span::from_secs(1), Span::from_secs(2), seed).next())
            .collect();
        assert!(first_waits.windows(2).any(|pair| pair[0] != pair[1]), "seeds differ");
    }
}
