//! Liveness of the monitor: since when an answer is overdue, and how many updates it has reported
//! as stale that should have been fresh.

use crate::unit::{Span, Time};

/// The number of updates that a monitor reports as stale, without a fresh one in between, after
/// which the session is given up: more than reordering and lost acks can cause.
const OVERTAKEN: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct Liveness {
    /// The time of the last answer, or of the first unanswered update after it.
    unanswered_since: Option<Time>,
    /// Updates newer than all acknowledged ones that the monitor has reported as stale, since the
    /// last fresh ack.
    overtaken: u32,
    /// Since when no update has been fresh, noted at the first of these.
    overtaken_since: Option<Time>,
}

impl Liveness {
    /// An update has left.
    pub(super) fn on_sent(&mut self, now: Time) {
        self.unanswered_since = self.unanswered_since.or(Some(now));
    }

    /// An ack newer than all before has arrived; `answers_all` if it is of the newest update.
    pub(super) fn on_ack(&mut self, now: Time, was_fresh: bool, answers_all: bool) {
        if was_fresh {
            (self.overtaken, self.overtaken_since) = (0, None);
        } else {
            // It opens the session, but a session without a fresh update must still end.
            self.overtaken = self.overtaken.saturating_add(1);
            self.overtaken_since.get_or_insert(now);
        }
        self.unanswered_since = (!answers_all).then_some(now);
    }

    /// The monitor reports an update as stale that is newer than all fresh ones. Returns whether
    /// the session is lost: then the monitor holds a number that was never sent, from a corrupted
    /// update, and no update of this session would ever be fresh again.
    pub(super) fn on_overtaken(&mut self, now: Time, several_paths: bool, silence: Span) -> bool {
        self.overtaken = self.overtaken.saturating_add(1);
        let since = *self.overtaken_since.get_or_insert(self.unanswered_since.unwrap_or(now));
        if several_paths {
            // The ack of a fresher update may be lost on another path: the monitor is alive. But
            // its state is unknown, so the newest one is still to be repeated.
            self.unanswered_since = Some(now);
        }
        let is_lost = self.overtaken >= OVERTAKEN && now.since(since) >= silence;
        if is_lost {
            (self.overtaken, self.overtaken_since) = (0, None);
        }
        is_lost
    }

    /// The session is reopened.
    pub(super) fn on_reopening(&mut self) {
        self.unanswered_since = None;
    }

    /// Since when an answer is overdue.
    pub(super) fn unanswered_since(&self) -> Option<Time> {
        self.unanswered_since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn an_answer_is_missing_from_the_first_update_without_one() {
        let mut liveness = Liveness::default();
        assert_eq!(liveness.unanswered_since(), None);
        liveness.on_sent(at(10));
        liveness.on_sent(at(20));
        assert_eq!(liveness.unanswered_since(), Some(at(10)));
        liveness.on_ack(at(30), true, false);
        assert_eq!(liveness.unanswered_since(), Some(at(30)), "a sign of life, and one is missing");
        liveness.on_ack(at(40), true, true);
        assert_eq!(liveness.unanswered_since(), None);
    }

    #[test]
    fn a_session_is_lost_after_eight_stale_updates_and_the_time_of_silence() {
        let silence = Span::from_secs(1);
        let stale = |each: u64| {
            let mut liveness = Liveness::default();
            liveness.on_sent(at(0));
            (1..).find(|number| liveness.on_overtaken(at(number * each), false, silence))
        };
        assert_eq!(stale(500), Some(8));
        assert_eq!(stale(10), Some(100), "eight are not enough within the time of silence");
    }
}
