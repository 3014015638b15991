//! Acks of updates with parts of states or records: which of them have arrived, and which are lost.

use crate::unit::{Span, Time};
use crate::wire::PartsAck;

/// An update counts as lost once one has arrived that was sent this number of updates later, or
/// more.
const REORDERING: u64 = 3;

/// An ack with its context.
#[derive(Debug, Clone, Copy)]
pub(super) struct AckedParts {
    /// The acknowledged update, and when it was sent.
    pub(super) seq: u64,
    pub(super) sent_at: Time,
    pub(super) parts: PartsAck,
    /// The smoothed round trip.
    pub(super) srtt: Span,
    pub(super) several_paths: bool,
    /// Whether the number of the newest state in `parts` is that of this topic.
    pub(super) is_of_topic: bool,
}

impl AckedParts {
    /// How long after its sending an update counts as lost if it has not arrived.
    pub(super) fn patience(&self) -> Span {
        self.srtt + self.srtt / 8
    }

    /// Whether an update sent at this time has arrived (`true`) or is lost (`false`); `None` while
    /// unknown.
    pub(super) fn verdict(&self, seq: u64, sent_at: Time) -> Option<bool> {
        match self.parts.names(self.seq, seq) {
            true => Some(true),
            false if seq > self.seq => None,
            // An update for which there was no room counts as lost.
            false if seq == self.seq => Some(false),
            false => self.loses(seq, sent_at).then_some(false),
        }
    }

    /// Whether an update with this number and time, not later than the acknowledged one, which has
    /// not arrived, is lost.
    pub(super) fn loses(&self, seq: u64, sent_at: Time) -> bool {
        let is_late = sent_at + self.patience() <= self.sent_at;
        is_late || (!self.several_paths && self.seq - seq >= REORDERING)
    }
}
