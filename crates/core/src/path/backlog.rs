//! Packets that a scheduler has assigned to paths whose windows are full.
//!
//! In the kernel such a packet enters the subflow's send queue and leaves when an ack makes room.
//! Drivers of this module have no queues per path: the count of those packets is kept here instead,
//! and a path that has room again first sends as many as it was assigned. Which bytes those are
//! differs from the kernel, how many packets each path carries does not.

use super::{Choice, MAX_PATHS, PathId, PathState, SendState, candidates};
use crate::unit::Bytes;

/// How many packets are assigned to each path beyond its window.
#[derive(Debug, Clone)]
pub(super) struct Backlog([u64; MAX_PATHS]);

impl Backlog {
    pub(super) const fn new() -> Self {
        Self([0; MAX_PATHS])
    }

    /// Packets assigned to `path`.
    pub(super) fn of(&self, path: PathId) -> u64 {
        self.0.get(usize::from(path.0)).copied().unwrap_or(0)
    }

    /// The step before a path is chosen for the next packet: wait while no path has room, then send
    /// the packets that are assigned already. `None` if a path is to be chosen.
    pub(super) fn resume(&mut self, flow: &SendState, paths: &[PathState]) -> Option<Choice> {
        if !candidates(paths).any(PathState::has_room) {
            return Some(Choice::Wait);
        }
        self.trim(flow, paths);
        self.next(candidates(paths)).map(Choice::Send)
    }

    /// Drops the packets of paths that are not among `paths`, and those for which `flow` has no
    /// data any more.
    fn trim(&mut self, flow: &SendState, paths: &[PathState]) {
        let segment = paths.iter().map(|path| path.segment).max().unwrap_or(Bytes::new(1));
        let mut left = packets(flow, segment);
        for (id, count) in (0..).map(PathId).zip(&mut self.0) {
            let is_there = paths.iter().any(|path| path.id == id);
            *count = if is_there { (*count).min(left) } else { 0 };
            left -= *count;
        }
    }

    /// How many more packets of `segment` can be assigned: no more than there are, and no more than
    /// the receive window takes.
    pub(super) fn room(&self, flow: &SendState, segment: Bytes) -> u64 {
        let assigned = self.0.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        packets(flow, segment).saturating_sub(assigned)
    }

    /// Whether all data is assigned, and nothing is left to choose a path for.
    pub(super) fn has_all(&self, flow: &SendState, segment: Bytes) -> bool {
        self.room(flow, segment) == 0 && self.0.iter().any(|count| *count > 0)
    }

    /// Assigns `count` packets to `path`.
    pub(super) fn add(&mut self, path: PathId, count: u64) {
        if let Some(assigned) = self.0.get_mut(usize::from(path.0)) {
            *assigned = assigned.saturating_add(count);
        }
    }

    /// The first of `paths` that has room and an assigned packet; the packet is its driver's now.
    fn next<'a>(&mut self, mut paths: impl Iterator<Item = &'a PathState>) -> Option<PathId> {
        let path = paths.find(|path| path.has_room() && self.of(path.id) > 0)?;
        self.0[usize::from(path.id.0)] -= 1;
        Some(path.id)
    }

    pub(super) fn forget(&mut self, path: PathId) {
        if let Some(assigned) = self.0.get_mut(usize::from(path.0)) {
            *assigned = 0;
        }
    }
}

/// How many packets of `segment` can be sent: those of the unsent data, within the receive window.
fn packets(flow: &SendState, segment: Bytes) -> u64 {
    flow.unsent.min(flow.window_left).get() / segment.get().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::tests::{PLENTY, SEGMENT, path};

    #[test]
    fn assigned_packets_are_bounded_by_data_and_window_and_leave_when_there_is_room() {
        let mut backlog = Backlog::new();
        let flow = SendState { unsent: SEGMENT * 5, ..PLENTY };
        backlog.add(PathId(1), 3);
        assert_eq!(backlog.room(&flow, SEGMENT), 2);
        assert_eq!(backlog.room(&SendState { window_left: SEGMENT * 4, ..flow }, SEGMENT), 1);
        assert!(!backlog.has_all(&flow, SEGMENT));
        assert!(backlog.has_all(&SendState { unsent: SEGMENT * 3, ..flow }, SEGMENT));
        let none = SendState { unsent: Bytes::ZERO, ..flow };
        assert!(!Backlog::new().has_all(&none, SEGMENT), "a short packet is left");
        let full = [path(0, 10, 10, 0), path(1, 10, 10, 10)];
        assert_eq!(backlog.next(full.iter()), None);
        let free = [path(0, 10, 10, 0), path(1, 10, 10, 9)];
        assert_eq!(backlog.next(free.iter()), Some(PathId(1)));
        assert_eq!(backlog.of(PathId(1)), 2);
        backlog.trim(&SendState { unsent: SEGMENT, ..flow }, &free);
        assert_eq!(backlog.of(PathId(1)), 1, "the rest of the data is gone");
        backlog.trim(&flow, &free[..1]);
        assert_eq!(backlog.of(PathId(1)), 0, "the path is gone");
        // A path number out of range is no path.
        backlog.add(PathId(200), 1);
        assert_eq!(backlog.of(PathId(200)), 0);
    }
}
