//! States of urgent topics: when they leave ahead of the law's pace, and again.

use super::Topic;
use crate::unit::{Span, Time, UpdateRate};

/// An urgent state without an ack leaves again after one and a half round trips, but within these bounds.
const MIN_REPEAT: Span = Span::from_millis(10);
const MAX_REPEAT: Span = Span::from_secs(1);

impl Topic {
    /// Which topics go before others: urgent ones, then those that are below their lowest rate.
    pub(in super::super) fn rank(&self, now: Time) -> u8 {
        let is_over =
            |rate: UpdateRate| self.last_sent.is_none_or(|last| last + rate.period() <= now);
        match self.is_pending && self.params.min_rate.is_some_and(is_over) {
            _ if self.params.is_urgent => 2,
            true => 1,
            false => 0,
        }
    }

    /// From when on it has a state that is to leave ahead of the law's pace.
    pub(in super::super) fn hurried_at(&self, max_whole: usize) -> Option<Time> {
        self.is_hurried(max_whole).then(|| self.not_before())
    }

    /// Whether it has a state that is to leave ahead of the law's pace.
    pub(super) fn is_hurried(&self, max_whole: usize) -> bool {
        self.params.is_urgent && self.is_pending && self.newest.len() <= max_whole
    }

    /// When an urgent state that is in flight leaves once more: an ack is overdue.
    pub(super) fn repeat_at(&self) -> Option<Time> {
        let is_unanswered = self.params.is_urgent && !self.is_pending && !self.is_delivered();
        let sent_at = self.last_sent.filter(|_| is_unanswered && self.sent_times > 0)?;
        // Twice as long each time, as for all that is sent again without an answer (RFC 8085 section 3.1.1).
        let wait = (self.srtt * 3 / 2).max(MIN_REPEAT) * (1 << (self.sent_times - 1).min(16));
        Some(sent_at + wait.min(MAX_REPEAT))
    }
}
