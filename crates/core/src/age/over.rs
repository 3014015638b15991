//! The time that the age spends over a limit.

use super::Ramp;
use crate::unit::Span;

/// How long the age was over a limit that was fixed beforehand; exact to the ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOver {
    limit: Span,
    time: Span,
}

impl TimeOver {
    /// Nothing counted yet.
    pub const fn new(limit: Span) -> Self {
        Self { limit, time: Span::ZERO }
    }

    /// Adds the part of `ramp` that lies over the limit.
    pub fn record(&mut self, ramp: Ramp) {
        self.time += ramp.to() - ramp.from().max(self.limit);
    }

    /// The limit.
    pub const fn limit(&self) -> Span {
        self.limit
    }

    /// The time over it so far, at most [`Span::MAX`].
    pub const fn time(&self) -> Span {
        self.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_over_the_limit_counts() {
        let ms = Span::from_millis;
        let mut over = TimeOver::new(ms(10));
        for (from, to, sum) in [(2, 10, 0), (2, 11, 1), (12, 15, 4), (10, 11, 5), (3, 4, 5)] {
            over.record(Ramp::new(ms(from), ms(to)));
            assert_eq!(over.time(), ms(sum), "after {from} to {to} ms");
        }
    }
}
