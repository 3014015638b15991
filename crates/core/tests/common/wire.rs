//! Datagrams between a source and a monitor.

use std::collections::VecDeque;

use freshline_core::path::PathId;
use freshline_core::unit::Time;

/// Datagrams on their wire: when they come, and by which path.
pub(crate) type Wire = VecDeque<(Time, PathId, Vec<u8>)>;

/// The next one that has come by now.
pub(crate) fn arrived(wire: &mut Wire, now: Time) -> Option<(Time, PathId, Vec<u8>)> {
    let is_there = wire.front().is_some_and(|next| next.0 <= now);
    if is_there { wire.pop_front() } else { None }
}
