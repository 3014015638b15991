//! Whether the monitor is still there: since when an answer is missing, and how many updates it has
//! called stale that should have been fresh.

use crate::unit::{Span, Time};

/// Updates in a row that a monitor calls stale, though none was fresh in between, before their
/// session is given up: more than reordering and lost acks bring about.
const OVERTAKEN: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct Liveness {
    /// The last sign of life, or the first update after it that has no answer yet.
    unanswered_since: Option<Time>,
    /// Updates newer than all acknowledged ones that the monitor has called stale, since the last
    /// fresh ack.
    overtaken: u32,
    /// Since when nothing has been fresh, at the first of these.
    overtaken_since: Option<Time>,
}

impl Liveness {
    /// An update has left.
    pub(super) fn on_sent(&mut self, now: Time) {
        self.unanswered_since = self.unanswered_since.or(Some(now));
    }

    /// An ack has come that is newer than all before; whether it is of the newest update.
    pub(super) fn on_ack(&mut self, now: Time, was_fresh: bool, answers_all: bool) {
        if was_fresh {
            (self.overtaken, self.overtaken_since) = (0, None);
        } else {
            // It opens, but a session in which nothing is fresh must still come to an end.
            self.overtaken = self.overtaken.saturating_add(1);
            self.overtaken_since.get_or_insert(now);
        }
        self.unanswered_since = (!answers_all).then_some(now);
    }

    /// The monitor calls an update stale that is newer than all that were fresh; whether the session
    /// is lost: the monitor holds a number that was never sent, of a damaged update, and nothing of
    /// this session would ever be fresh again.
    pub(super) fn on_overtaken(&mut self, now: Time, several_paths: bool, silence: Span) -> bool {
        self.overtaken = self.overtaken.saturating_add(1);
        let since = *self.overtaken_since.get_or_insert(self.unanswered_since.unwrap_or(now));
        if several_paths {
            // The ack of the fresher one may be lost on another path: the monitor is there all the
            // same. But its state is not known, so the newest one is still to be repeated.
            self.unanswered_since = Some(now);
        }
        let is_lost = self.overtaken >= OVERTAKEN && now.since(since) >= silence;
        if is_lost {
            (self.overtaken, self.overtaken_since) = (0, None);
        }
        is_lost
    }

    /// The session is opened again.
    pub(super) fn on_reopening(&mut self) {
        self.unanswered_since = None;
    }

    /// Since when an answer is missing.
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
