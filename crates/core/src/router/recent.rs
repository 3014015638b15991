//! The rate at which bytes left a router in the last seconds, from two counts.
//!
//! ```text
//!        before          now
//!  ├─────────────────┼───────────┤
//!                  began         t         rate = (now + before (1 - (t - began) / W)) / W
//! ```
//!
//! It is exact where the rate does not change; a packet is forgotten within two windows W.

use crate::unit::{Bytes, Span, Time};

/// The bytes sent in the current window and in the window before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecentRate {
    began: Time,
    now: Bytes,
    before: Bytes,
}

impl RecentRate {
    /// The length of a window, W.
    pub const WINDOW: Span = Span::from_secs(2);
    /// The shortest time over which a flow is ranked by its rate: a flow of one packet has no high
    /// rate.
    pub const RANK_TIME: Span = Span::from_millis(250);

    /// From counts that were kept elsewhere, as in the kernel: the start of the current window, the
    /// bytes sent in it, and those sent in the window before it.
    pub const fn from_counts(began: Time, now: Bytes, before: Bytes) -> Self {
        Self { began, now, before }
    }

    /// These counts.
    pub const fn counts(self) -> (Time, Bytes, Bytes) {
        (self.began, self.now, self.before)
    }

    /// Counts a packet that left.
    pub fn count(&mut self, at: Time, size: Bytes) {
        let passed = at.since(self.began).as_nanos() / Self::WINDOW.as_nanos();
        match passed {
            0 => {}
            1 => (self.began, self.before) = (self.began + Self::WINDOW, self.now),
            _ => (self.began, self.before) = (at, Bytes::ZERO),
        }
        if passed > 0 {
            self.now = Bytes::ZERO;
        }
        self.now += size;
    }

    /// The rate over the last window, in bit/s. If counting began at `start`, less than a window
    /// ago, it is the rate since then, over at least `min`, which must not be zero.
    pub fn rate_bps(&self, min: Span, start: Time, at: Time) -> u64 {
        let window = Self::WINDOW.as_nanos();
        let since = at.since(self.began).as_nanos();
        let (new, old) = match since / window {
            0 => (self.now.get(), self.before.get()),
            1 => (0, self.now.get()),
            _ => return 0,
        };
        let left = window - since % window;
        let bytes = new + (u128::from(old) * u128::from(left) / u128::from(window)) as u64;
        let over = at.since(start).as_nanos().clamp(min.as_nanos(), window);
        (u128::from(bytes) * 8 * 1_000_000_000 / u128::from(over)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_exact_and_a_silent_flow_has_none_after_two_windows() {
        let (mut recent, min) = (RecentRate::default(), Span::from_millis(1));
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        // 1 Mbit/s, from 10 s on.
        for ms in (10_000..17_000).step_by(10) {
            recent.count(at(ms), Bytes::new(1250));
        }
        let rate = |ms| recent.rate_bps(min, at(10_000), at(ms));
        assert!((995_000..=1_005_000).contains(&rate(17_000)), "{}", rate(17_000));
        assert!(rate(19_000) < rate(18_000) && rate(18_000) < 600_000);
        assert_eq!(rate(21_000), 0);
        let (began, now, before) = recent.counts();
        assert_eq!(RecentRate::from_counts(began, now, before), recent);
    }

    #[test]
    fn a_flow_that_has_just_begun_is_measured_over_its_life() {
        let mut recent = RecentRate::default();
        let start = Time::ZERO + Span::from_secs(100);
        recent.count(start, Bytes::new(1000));
        let at = start + Span::from_millis(100);
        assert_eq!(recent.rate_bps(Span::from_millis(1), start, at), 80_000);
        assert_eq!(recent.rate_bps(RecentRate::RANK_TIME, start, at), 32_000);
        assert_eq!(recent.rate_bps(Span::from_millis(1), start, start), 8_000_000);
    }
}
