//! The limits on the content of an update that is due.

use super::super::types::Cut;
use crate::unit::{Span, Time};

/// The limits of the datagram that is due.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Slot {
    pub(in super::super) now: Time,
    /// The number of the update.
    pub(in super::super) seq: u64,
    /// The longest state that fits whole, with its topic's name.
    pub(in super::super) max_whole: usize,
    pub(in super::super) cut: Cut,
    /// Bytes of frames in it.
    pub(in super::super) room: usize,
    /// Whether limits allow a state to begin; parts of a state that has begun continue in any case.
    pub(in super::super) may_begin: bool,
    /// Whether the update is sent ahead of the law's pace, and carries urgent states only.
    pub(in super::super) is_ahead: bool,
    /// Whether records may be sent if no state is.
    pub(in super::super) are_records_due: bool,
    /// Whether the path, or a limit, restricts bytes; otherwise it restricts datagrams.
    pub(in super::super) are_bytes_scarce: bool,
    /// Whether the law has found its rate by the path, and no limit is below that rate.
    pub(in super::super) is_rate_found: bool,
    /// The ages of states from before this time have an unbounded error.
    pub(in super::super) bounded_from: Time,
    /// The period of the law's rate, and the smoothed round trip.
    pub(in super::super) period: Span,
    pub(in super::super) srtt: Span,
}

impl Slot {
    /// Whether the path is free for at least half of the time, although the law has found its rate
    /// by the path: on average, less than half an update is in transit.
    pub(super) fn is_path_free(&self) -> bool {
        self.is_rate_found && self.srtt * 2 <= self.period
    }
}
