//! Datagrams between a source and a monitor.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::VecDeque;

use freshline_core::path::PathId;
use freshline_core::session::Source;
use freshline_core::unit::Time;

/// Datagrams on their wire: when they come, and by which path.
pub(crate) type Wire = VecDeque<(Time, PathId, Vec<u8>)>;

/// The source's next timeout or the arrival of the first datagram, whichever is earlier.
pub(crate) fn next_at(source: &Source, wires: [&Wire; 2]) -> Option<Time> {
    let arrivals = wires.map(|wire| wire.front().map(|next| next.0));
    Time::earliest([source.poll_timeout(), arrivals[0], arrivals[1]])
}

/// Advances time to the next event, or to `end`; returns whether there is an event before it.
pub(crate) fn advance(now: &mut Time, end: Time, source: &Source, wires: [&Wire; 2]) -> bool {
    let next = next_at(source, wires).map_or(end, |at| at.max(*now));
    *now = next.min(end);
    next < end
}

/// Advances time to the source's next timeout or to `first`, at most to `end`; returns whether one
/// of them comes at `end` or before it.
pub(crate) fn advance_to_first(
    now: &mut Time,
    end: Time,
    source: &Source,
    first: Option<Time>,
) -> bool {
    let next = Time::earliest([source.poll_timeout(), first]);
    let next = next.expect("a source always wants something").max(*now);
    *now = next.min(end);
    next <= end
}

/// The next one that has come by now.
pub(crate) fn arrived(wire: &mut Wire, now: Time) -> Option<(Time, PathId, Vec<u8>)> {
    let is_there = wire.front().is_some_and(|next| next.0 <= now);
    if is_there { wire.pop_front() } else { None }
}
