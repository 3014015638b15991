//! What an update that is due may carry.

use super::super::types::Cut;
use crate::unit::{Span, Time};

/// What the datagram that is due allows.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Slot {
    pub(in super::super) now: Time,
    /// The number of the update.
    pub(in super::super) seq: u64,
    /// The longest state that it carries whole, with its topic's name.
    pub(in super::super) max_whole: usize,
    pub(in super::super) cut: Cut,
    /// Bytes of frames in it.
    pub(in super::super) room: usize,
    /// Whether limits allow a state to begin; parts of one go on all the same.
    pub(in super::super) may_begin: bool,
    /// Whether the update leaves ahead of the law's pace, and carries urgent states alone.
    pub(in super::super) is_ahead: bool,
    /// Whether records may leave where no state does.
    pub(in super::super) are_records_due: bool,
    /// Whether it is bytes that the path, or a limit, lets no more of leave; otherwise it is datagrams.
    pub(in super::super) are_bytes_scarce: bool,
    /// Whether the law has found its rate by the path, and no limit holds it below that.
    pub(in super::super) is_rate_found: bool,
    /// The ages of states from before this time have an error that is not bounded.
    pub(in super::super) bounded_from: Time,
    /// The period of the law's rate, and the smoothed round trip.
    pub(in super::super) period: Span,
    pub(in super::super) srtt: Span,
}

impl Slot {
    /// Whether the path is free for at least half of the time, although the law has found its rate by the path: less
    /// than half an update is in transit in the mean.
    pub(super) fn is_path_free(&self) -> bool {
        self.is_rate_found && self.srtt * 2 <= self.period
    }
}
