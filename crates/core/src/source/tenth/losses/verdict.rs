//! Decides whether the losses of a test are random, by the arrivals of single updates and of the
//! followers in trains.
//!
//! With `ratio` = fraction of followers that arrive / fraction of single updates that arrive:
//!
//! | outcome | condition |
//! |---|---|
//! | random | `ratio` ≥ 0.9 with 36 followers (0.825 after 36 trains), or with fewer at odds of e^−5 of a full queue |
//! | full queue | `ratio` ≤ 0.75 with 36 followers, or all 36 trains without a verdict, or 6 trains and three quarters of all lost their first update |
//! | go on | in between |
//!
//! Losses known to be random are tested more seldom: a `ratio` of 0.825 confirms them and one of
//! 0.7 shows a full queue, both with 72 followers, or with 36 after all trains.

use super::{Losses, MAX_TRAINS};
use crate::unit::{Span, Time};

/// The number of followers that decides: their loss rate is then known within 8 %.
const ENOUGH: f64 = 36.0;

/// Losses are random if at least this fraction of followers arrives, compared with single updates.
/// At a queue with a load of 1.3 it is about 0.65.
const AS_MANY: f64 = 0.9;

/// They are not random at this fraction or less; in between more trains decide.
const FEWER: f64 = 0.75;

/// Once losses are known to be random, a full queue takes less than that, of twice as many
/// followers or of all trains.
const FEWER_KNOWN: f64 = 0.7;

/// A full queue lets through this fraction of followers, compared with single updates.
const THROUGH: f64 = 0.7;

/// At odds of e^−5 of a full queue fewer followers are enough.
const CLEARLY_RANDOM: f64 = -5.0;

/// A queue is the cause if this number of trains, and three quarters of all, arrive without their
/// first update but with another.
pub(super) const HEADLESS: u32 = 6;

/// A loss rate below this needs no explanation.
const FEW: f64 = 0.03;

impl Losses {
    pub(super) fn judge(&mut self, now: Time) {
        let (alone, behind) = (self.alone.part(), self.behind.part());
        let as_many = (1.0 - behind) / (1.0 - alone).max(f64::MIN_POSITIVE);
        let is_known = !self.is_open;
        // A queue that keeps only the freshest update has replaced the earlier ones.
        let replaces =
            !is_known && self.headless >= HEADLESS && 4 * self.headless >= 3 * self.trains;
        let is_last = self.trains >= MAX_TRAINS;
        let enough = if is_known && !is_last { 2.0 * ENOUGH } else { ENOUGH };
        let is_enough = self.behind.sent >= enough;
        let is_clear = !is_known && as_many >= AS_MANY && self.odds_of_queue() <= CLEARLY_RANDOM;
        let least = if is_last || is_known { (AS_MANY + FEWER) / 2.0 } else { AS_MANY };
        let fewer = if is_known { FEWER_KNOWN } else { FEWER };
        if is_clear || is_enough && as_many >= least {
            // Losses that only trains cause do not call for another test.
            self.is_tested = alone >= FEW;
            self.random = if self.is_tested { self.lost_in_test() } else { 0.0 };
            self.rest = Span::ZERO;
        } else if replaces || is_enough && as_many <= fewer || is_last && !is_known {
            (self.is_tested, self.random) = (false, 0.0);
            self.rest(now);
        } else if is_last && !is_enough {
            // Too many first updates were lost for a verdict.
            self.is_open = true;
            return self.begin_test();
        } else if !is_last {
            return;
        }
        self.is_open = false;
        self.begin_test();
    }

    /// The loss rate of all updates of the test plus its standard deviation, 0 to 1.
    fn lost_in_test(&self) -> f64 {
        let mut all = self.alone;
        all.add(self.behind);
        let part = all.part();
        (part + libm::sqrt(part * (1.0 - part) / all.sent.max(1.0))).min(1.0)
    }

    /// The log-likelihood ratio of a full queue to random losses, each with its maximum-likelihood
    /// estimate of the fraction of single updates that arrive; for a queue that is the root of the
    /// likelihood's derivative.
    fn odds_of_queue(&self) -> f64 {
        let (alone, behind) = (self.alone, self.behind);
        let (sent, arrived) = (alone.sent + behind.sent, alone.arrived() + behind.arrived());
        if sent <= 0.0 {
            return 0.0;
        }
        let lost = alone.sent - alone.arrived() + THROUGH * (behind.sent - behind.arrived());
        let sum = (1.0 + THROUGH) * arrived + lost;
        let root = libm::sqrt((sum * sum - 4.0 * THROUGH * sent * arrived).max(0.0));
        let at_queue = ((sum - root) / (2.0 * THROUGH * sent)).clamp(0.0, 1.0);
        let at_random = arrived / sent;
        alone.log_likelihood(at_queue) + behind.log_likelihood(THROUGH * at_queue)
            - alone.log_likelihood(at_random)
            - behind.log_likelihood(at_random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tenth::counts::Counted;

    #[test]
    fn a_queue_is_likelier_where_fewer_of_those_behind_arrive() {
        let odds = |alone: [f64; 2], behind: [f64; 2]| {
            let of = |[sent, lost]: [f64; 2]| Counted { sent, lost };
            let (alone, behind) = (of(alone), of(behind));
            Losses { alone, behind, ..Losses::default() }.odds_of_queue()
        };
        assert!((odds([0.0, 0.0], [0.0, 0.0])).abs() < 1e-9);
        assert!((odds([60.0, 1.0], [36.0, 9.0]) - 6.4).abs() < 0.1);
        assert!((odds([10.0, 1.0], [6.0, 0.0]) + 2.1).abs() < 0.1);
        // Without losses the likelihood at a queue is THROUGH to the power of their number.
        assert!((odds([10.0, 0.0], [15.0, 0.0]) - 15.0 * libm::log(THROUGH)).abs() < 1e-9);
    }

    #[test]
    fn known_losses_are_tested_openly_when_too_few_trains_arrive_whole() {
        let mut losses = Losses { random: 0.1, is_tested: true, ..Losses::default() };
        losses.trains = MAX_TRAINS;
        losses.judge(Time::ZERO);
        assert!(losses.is_open() && losses.trains == 0);
    }
}
