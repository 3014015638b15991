//! Lowers the default floor of the rate when losses persist.
//!
//! A source at the floor of one update in 2 s can still be one of too many. For each block of
//! updates, with the loss rate p:
//!
//! ```text
//!   target  = 1 + 8·(p − 0.05)                                at least 1, at most 3
//!   stretch ← stretch + ¼·(target − stretch)                  at most 1¼ of what it was
//!   floor   = 0.5/s / stretch
//! ```
//!
//! All sources of a crowd see about the same loss rate, so their floors converge, whatever they
//! were before. n sources with a floor of f over a path of c updates/s have a load of
//! n·f/(c·stretch), and lose 1 − 1/load of their updates: a load of 2 without a stretch becomes
//! 1.16, one of 4 becomes 1.40, and one of 6 becomes 2.
//!
//! Behind a full standing queue all updates have the same delay, so delays do not tell a crowd from
//! a path that loses at random, and a source at the floor is too slow for the test of losses. So a
//! source with few states on such a path slows down, too.
//!
//! A block has 24 updates or more and lasts for 30 s or longer. So a flood of half a minute makes
//! the period at the floor at most 1.25² = 1.56 times as long, and the source finds the end of the
//! flood that much later. Sessions that are re-opened keep the stretch. A floor that the user has
//! raised is kept.

use super::counts::Counted;
use crate::unit::{Span, Time};

/// The minimum number of updates in a block.
const BLOCK: f64 = 24.0;

/// The minimum length of a block.
const LENGTH: Span = Span::from_secs(30);

/// The loss rate that is allowed.
const ALLOWED: f64 = 0.05;

/// The gain of the loss rate above that.
const GAIN: f64 = 8.0;

/// The weight of a block. With a half, crowds with a load of 2 without a stretch would swing
/// between too much and too little.
const WEIGHT: f64 = 0.25;

/// The maximum growth of the factor in a block.
const GROWTH: f64 = 1.25;

/// The maximum of the factor.
const MAX: f64 = 3.0;

/// The factor by which losses lengthen the period at the floor, 1 to 3.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    factor: f64,
    /// The current block, and its first ack.
    block: Counted,
    began_at: Option<Time>,
}

impl Default for Stretch {
    fn default() -> Self {
        Self { factor: 1.0, block: Counted::default(), began_at: None }
    }
}

impl Stretch {
    pub(super) fn factor(self) -> f64 {
        self.factor
    }

    /// Counts the updates that an ack reports as sent, and those lost that are not known to be lost
    /// at random.
    pub(super) fn on_ack(&mut self, now: Time, since: Counted) {
        let began_at = *self.began_at.get_or_insert(now);
        self.block.add(since);
        if self.block.sent < BLOCK || now.since(began_at) < LENGTH {
            return;
        }
        let excess = (self.block.part() - ALLOWED).max(0.0);
        let target = (1.0 + GAIN * excess).min(MAX);
        let factor = self.factor + WEIGHT * (target - self.factor);
        let factor = factor.min(GROWTH * self.factor);
        *self = Self { factor, block: Counted::default(), began_at: Some(now) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Span = Span::from_secs(60);

    /// The load of a crowd with this load at the stated floor, after this number of blocks.
    fn load_after(blocks: u32, at_floor: f64) -> f64 {
        let mut stretch = Stretch::default();
        let load = |stretch: Stretch| at_floor / stretch.factor();
        for block in 0..=blocks {
            let lost = BLOCK * (1.0 - 1.0 / load(stretch)).max(0.0);
            stretch.on_ack(Time::ZERO + MINUTE * u64::from(block), Counted { sent: BLOCK, lost });
        }
        load(stretch)
    }

    #[test]
    fn a_crowd_at_the_floor_yields_as_the_module_says() {
        for (at_floor, expected) in [(1.0, 1.0), (2.0, 1.16), (4.0, 1.40), (6.0, 2.0)] {
            let load = load_after(20, at_floor);
            assert!((load - expected).abs() < 0.01, "{at_floor}: {load}");
        }
    }

    #[test]
    fn the_floor_is_the_same_whatever_it_was_before() {
        let lossy = Counted { sent: BLOCK, lost: 0.2 * BLOCK };
        let [mut low, mut high] = [1.0, MAX].map(|factor| Stretch { factor, ..Stretch::default() });
        for block in 0..20 {
            let now = Time::ZERO + MINUTE * block;
            low.on_ack(now, lossy);
            high.on_ack(now, lossy);
        }
        assert!((low.factor() - high.factor()).abs() < 0.02);
    }

    #[test]
    fn a_flood_of_half_a_minute_lengthens_the_period_by_little() {
        for starts_at in (0..60_000).step_by(1000) {
            let mut stretch = Stretch::default();
            let mut max: f64 = 1.0;
            for millis in (0..120_000).step_by(500) {
                let is_flood = (starts_at..starts_at + 30_000).contains(&millis);
                let since = Counted { sent: 1.0, lost: f64::from(u8::from(is_flood)) };
                stretch.on_ack(Time::ZERO + Span::from_millis(millis), since);
                max = max.max(stretch.factor());
            }
            assert!((1.2..1.57).contains(&max), "{starts_at}: {max}");
        }
    }
}
