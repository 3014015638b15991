//! A round: the updates sent at one rate, and the measurements from their acks.
//!
//! ```text
//!   standing = max(min − ¾ · (mean − min), 0)          s; min and mean of the queueing delays
//! ```

use super::counts::Counted;
use crate::unit::Time;

/// The queueing delay common to all updates of a round is a standing queue, less this fraction of
/// the variation: of 8 exponential delays the minimum is an eighth of the mean.
const VARIES: f64 = 0.75;

#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) began_at: Time,
    pub(super) ends_at: Time,
    pub(super) sent: u32,
    /// Acknowledged updates.
    pub(super) count: u32,
    /// Counts after the first acknowledged update.
    pub(super) since: Counted,
    wait_sum: f64,
    min_wait: f64,
}

impl Round {
    pub(super) fn new(began_at: Time, ends_at: Time) -> Self {
        let (since, min_wait) = (Counted::default(), f64::INFINITY);
        Self { began_at, ends_at, sent: 0, count: 0, since, wait_sum: 0.0, min_wait }
    }

    /// Takes in an update with its queueing delay in s, and the updates sent and lost since the
    /// last one.
    pub(super) fn count_in(&mut self, since: Counted, wait: f64) {
        if self.count > 0 {
            self.since.add(since);
        }
        self.count += 1;
        self.wait_sum += wait;
        self.min_wait = self.min_wait.min(wait);
    }

    /// Lengthens the queueing delays, as the base delay is shorter by this, s, than was known.
    pub(super) fn rebase(&mut self, by: f64) {
        if by > 0.0 && by.is_finite() {
            self.wait_sum += by * f64::from(self.count);
            self.min_wait += by;
        }
    }

    /// The mean queueing delay, s; of a round with an acknowledged update.
    pub(super) fn mean_wait(&self) -> f64 {
        self.wait_sum / f64::from(self.count)
    }

    /// The standing queue's part of the mean queueing delay, s.
    pub(super) fn standing_wait(&self) -> f64 {
        let varies = self.mean_wait() - self.min_wait;
        (self.min_wait - VARIES * varies).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(waits: &[f64]) -> Round {
        let mut round = Round::new(Time::ZERO, Time::ZERO);
        waits.iter().for_each(|wait| round.count_in(Counted { sent: 2.0, lost: 1.0 }, *wait));
        round
    }

    #[test]
    fn what_all_updates_waited_for_stands_and_jitter_does_not() {
        assert_eq!(of(&[4.0; 8]).standing_wait(), 4.0);
        assert_eq!(of(&[0.0, 2.0, 4.0, 6.0]).standing_wait(), 0.0);
        assert_eq!(of(&[3.0, 5.0]).standing_wait(), 2.25);
    }

    #[test]
    fn losses_count_from_the_first_ack_on() {
        assert_eq!(of(&[0.0]).since, Counted::default());
        assert_eq!(of(&[0.0; 3]).since, Counted { sent: 4.0, lost: 2.0 });
    }

    #[test]
    fn what_was_waited_before_the_way_proved_shorter_counts_in_full() {
        let mut round = of(&[0.0, 1.0]);
        round.rebase(3.0);
        round.count_in(Counted::default(), 1.0);
        assert_eq!(round.mean_wait(), (3.0 + 4.0 + 1.0) / 3.0);
        round.rebase(f64::NAN);
        assert_eq!(round.mean_wait(), (3.0 + 4.0 + 1.0) / 3.0);
    }
}
