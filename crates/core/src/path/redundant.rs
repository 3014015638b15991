//! Sends every packet by every path that has room: as fast as the fastest path, at the cost of all.
//!
//! Frömmgen et al.: ReMP TCP: Low Latency Multipath TCP, ICC 2016. The scheduler `redundant` of
//! Linux's out-of-tree MPTCP queues every segment for every path, also where a window is full; here
//! a path whose window is full gets no copy.

use super::{Choice, PathSet, PathState, Scheduler, SendState, candidates, fastest_with_room};
use crate::unit::Time;

/// Copies to all paths with room, the fastest first.
#[derive(Debug, Clone, Default)]
pub struct Redundant {}

impl Redundant {
    /// It has no state.
    pub fn new() -> Self {
        Self {}
    }
}

impl Scheduler for Redundant {
    fn name(&self) -> &'static str {
        "redundant"
    }

    fn choose(&mut self, _now: Time, _flow: &SendState, paths: &[PathState]) -> Choice {
        let Some(first) = fastest_with_room(paths) else { return Choice::Wait };
        let others = candidates(paths).filter(|path| path.has_room() && path.id != first.id);
        let copies = others.fold(PathSet::EMPTY, |copies, path| copies.with(path.id));
        if copies.is_empty() { Choice::Send(first.id) } else { Choice::Copies(first.id, copies) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathId;
    use crate::path::tests::{PLENTY, path};

    #[test]
    fn all_with_room_get_a_copy_and_the_fastest_is_named_first() {
        let mut scheduler = Redundant::new();
        let paths = [path(0, 30, 10, 0), path(1, 20, 10, 0), path(2, 10, 10, 10)];
        let choice = scheduler.choose(Time::ZERO, &PLENTY, &paths);
        assert_eq!(choice, Choice::Copies(PathId(1), PathSet::EMPTY.with(PathId(0))));
        let choice = scheduler.choose(Time::ZERO, &PLENTY, &paths[1..]);
        assert_eq!(choice, Choice::Send(PathId(1)));
    }
}
