//! Datagrams between a source and a monitor.

use std::collections::VecDeque;

use freshline_core::path::PathId;
use freshline_core::unit::Time;

/// Datagrams on their way: when they come, and by which path.
pub(crate) type Way = VecDeque<(Time, PathId, Vec<u8>)>;

/// The next one that has come by now.
pub(crate) fn arrived(way: &mut Way, now: Time) -> Option<(Time, PathId, Vec<u8>)> {
    let is_there = way.front().is_some_and(|next| next.0 <= now);
    if is_there { way.pop_front() } else { None }
}
