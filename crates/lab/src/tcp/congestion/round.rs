//! Counts round trips: a round ends when the last segment sent before its start is acknowledged.

use super::Ack;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Round {
    end: u64,
}

impl Round {
    /// Whether `ack` starts a new round trip.
    pub(super) fn starts_with(&mut self, ack: &Ack) -> bool {
        let starts = ack.acked_to > self.end;
        if starts {
            self.end = ack.sent_to;
        }
        starts
    }
}
