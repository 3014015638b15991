//! States of urgent topics: when they are sent ahead of the law's pace, and repeated.

use super::super::again;
use super::Topic;
use crate::unit::{Time, UpdateRate};

impl Topic {
    /// The precedence of the topic: urgent topics first, then topics below their minimum rate.
    pub(in super::super) fn rank(&self, now: Time) -> u8 {
        let is_over =
            |rate: UpdateRate| self.last_sent.is_none_or(|last| last + rate.period() <= now);
        match self.is_pending && self.params.min_rate.is_some_and(is_over) {
            _ if self.params.is_urgent => 2,
            true => 1,
            false => 0,
        }
    }

    /// From when on it has a state to send ahead of the law's pace.
    pub(in super::super) fn hurried_at(&self, max_whole: usize) -> Option<Time> {
        self.is_hurried(max_whole).then(|| self.not_before())
    }

    /// Whether it has a state to send ahead of the law's pace.
    pub(super) fn is_hurried(&self, max_whole: usize) -> bool {
        self.params.is_urgent && self.is_pending && self.newest.len() <= max_whole
    }

    /// When an urgent state in flight is repeated: its ack is overdue.
    pub(super) fn repeat_at(&self) -> Option<Time> {
        let is_unanswered = self.params.is_urgent && !self.is_pending && !self.is_delivered();
        let sent_at = self.last_sent.filter(|_| is_unanswered && self.sent_times > 0)?;
        Some(sent_at + again::patience(self.srtt, self.sent_times))
    }
}
