//! Chooses paths in turn: one packet each, except paths without room.
//!
//! Paasch, Ferlin, Alay, Bonaventure: Experimental Evaluation of Multipath TCP Schedulers, CSWS
//! 2014, section 3.1, with a quantum of one packet.

use super::{Choice, PathId, PathState, Scheduler, SendState, candidates, send_or_wait};
use crate::unit::Time;

/// The next path with room after the last one.
#[derive(Debug, Clone, Default)]
pub struct RoundRobin {
    last: Option<PathId>,
}

impl RoundRobin {
    /// The first packet takes the first path.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Scheduler for RoundRobin {
    fn name(&self) -> &'static str {
        "round_robin"
    }

    fn choose(&mut self, _now: Time, _flow: &SendState, paths: &[PathState]) -> Choice {
        let with_room = || candidates(paths).filter(|path| path.has_room());
        let later = with_room().filter(|path| Some(path.id) > self.last);
        let next = later.min_by_key(|path| path.id).or(with_room().min_by_key(|path| path.id));
        self.last = next.map_or(self.last, |path| Some(path.id));
        send_or_wait(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::tests::{PLENTY, path};
    use alloc::vec::Vec;

    #[test]
    fn each_path_has_its_turn_and_who_has_no_room_misses_it() {
        let mut scheduler = RoundRobin::new();
        let mut turns = |paths: &[PathState]| -> Vec<_> {
            (0..4).map(|_| scheduler.choose(Time::ZERO, &PLENTY, paths)).collect()
        };
        let [zero, one, two] = [0, 1, 2].map(|id| Choice::Send(PathId(id)));
        let open = |id| path(id, 20, 10, 0);
        assert_eq!(turns(&[open(0), open(1), open(2)]), [zero, one, two, zero]);
        assert_eq!(turns(&[open(0), path(1, 20, 10, 10), open(2)]), [two, zero, two, zero]);
        assert_eq!(turns(&[path(0, 20, 10, 10)]), [Choice::Wait; 4]);
    }
}
