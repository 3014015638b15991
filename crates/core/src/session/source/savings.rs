//! What a source sends in bytes, and which states it may leave out.

use super::{Reach, Source};
use crate::unit::{Bytes, Time};

impl Source {
    /// These bytes have been sent to the monitor, with all headers: those of datagrams that were written
    /// here, and those of the transport's own packets. Limits on the bandwidth count them.
    pub fn on_bytes(&mut self, now: Time, bytes: Bytes) {
        self.counters.wire_bytes = self.counters.wire_bytes.saturating_add(bytes.get());
        self.law.on_bytes(now, bytes);
    }

    /// Whether a state may be left out now if it has not changed since update `first`: the monitor
    /// has acknowledged it, and nothing asks for a repetition. Otherwise it is sent at the law's rate.
    /// Never without [`SourceParams::on_change`](super::SourceParams::on_change).
    pub fn may_leave_out(&self, now: Time, first: u64) -> bool {
        let is_acked = self.newest_acked.is_some_and(|newest| newest >= first);
        let repeat_at = self.repeat_at().into_iter().chain(self.keep_alive_at()).min();
        self.params.on_change
            && self.reach == Reach::Open
            && is_acked
            && repeat_at.is_none_or(|at| at > now)
    }

    /// An update was due, and its unchanged state was left out.
    pub fn on_unchanged(&mut self, now: Time) {
        self.counters.unchanged += 1;
        self.law.on_unchanged(now);
    }
}
