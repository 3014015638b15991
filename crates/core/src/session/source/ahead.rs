//! A bound on how far updates of urgent topics are sent ahead of the law's pace.
//!
//! Time by which updates are sent early is a debt, of at most [`BURST`] periods of the law's rate.
//! While there is a debt, updates that are not urgent are sent half a period late, so that over a
//! longer time the law's rate holds.

use crate::unit::{Span, Time};

/// The number of updates that may be sent at once.
pub(super) const BURST: u64 = 4;

/// The total time by which updates were sent early.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    debt: Span,
}

impl Ahead {
    /// From when on an update may be sent ahead of its time `due`; `period` is that of the law's
    /// rate.
    pub(super) fn at(&self, due: Time, period: Span) -> Time {
        due + self.debt(period) - period * BURST
    }

    /// The delay of an update that is not urgent.
    pub(super) fn delay(&self, period: Span) -> Span {
        self.debt(period).min(period / 2)
    }

    /// An update was sent now instead of at `due`, for an urgent state.
    pub(super) fn on_early(&mut self, now: Time, due: Time, period: Span) {
        self.debt = (self.debt(period) + due.since(now)).min(period * BURST);
    }

    /// An update was sent now that was due earlier.
    pub(super) fn on_late(&mut self, now: Time, due: Time, period: Span) {
        self.debt = self.debt(period) - now.since(due);
    }

    /// The debt, at the present rate.
    pub(super) fn debt(&self, period: Span) -> Span {
        self.debt.min(period * BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_leaves_at_once_and_over_a_longer_time_the_rate_holds() {
        let period = Span::from_millis(100);
        let at = |millis: u64| Time::ZERO + Span::from_secs(10) + Span::from_millis(millis);
        let (mut ahead, mut due, mut left, mut at_once) = (Ahead::default(), at(100), 0, 0);
        // There is always an urgent state.
        for now in (0..60_000).map(at) {
            if now >= due + ahead.delay(period) {
                ahead.on_late(now, due, period);
            } else if now >= ahead.at(due, period) {
                ahead.on_early(now, due, period);
            } else {
                continue;
            }
            due = now + period;
            left += 1;
            at_once += u64::from(now < at(100));
        }
        assert_eq!(at_once, BURST);
        assert!((600..=600 + BURST).contains(&left), "{left} in 60 s at 10/s");
    }

    #[test]
    fn a_pause_repays() {
        let (period, now) = (Span::from_millis(100), Time::ZERO + Span::from_secs(10));
        let mut ahead = Ahead::default();
        ahead.on_early(now, now + period, period);
        assert_eq!(ahead.delay(period), period / 2);
        ahead.on_late(now + Span::from_secs(5), now + period, period);
        assert_eq!(ahead.delay(period), Span::ZERO);
    }

    #[test]
    fn a_debt_of_a_slow_rate_does_not_burden_a_fast_one() {
        let (slow, fast) = (Span::from_secs(2), Span::from_millis(20));
        let now = Time::ZERO + Span::from_secs(10);
        let mut ahead = Ahead::default();
        (0..4).for_each(|_| ahead.on_early(now, now + slow, slow));
        for number in 1..=8 {
            ahead.on_late(now + fast * number, now + fast * number - fast / 2, fast);
        }
        assert_eq!(ahead.delay(fast), Span::ZERO, "80 ms of debt, each 10 ms later");
    }
}
