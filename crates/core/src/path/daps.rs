//! Delay-aware scheduling: paths in the order in which packets sent over them arrive, planned a
//! round ahead.
//!
//! Over a round, the longest round trip of all paths, path i carries cwnd_i every RTT_i. Its j-th
//! packet (from 0) arrives at
//!
//! ```text
//! RTT_i/2 + ⌊j / cwnd_i⌋·RTT_i
//! ```
//!
//! and the round's packets take the paths in this order, so that they arrive as they were numbered.
//! Kuhn, Lochin, Mifdaoui, Sarwar, Mehani, Boreli: DAPS: Intelligent Delay-Aware Packet Scheduling
//! for Multipath Transport, ICC 2014, section III.
//!
//! # Where the paper is silent
//!
//! The paper's round is the least common multiple of the round trips, which measured ones do not
//! have; the longest one is the shortest round in which each path has its turn. A round is not
//! planned anew when paths change, but when it is over, which is what makes DAPS slow to follow. A
//! path whose turn comes and that has no room is waited for; one that is gone loses its turn. A round
//! of more than 1000 packets is cut there: it would be planned for many round trips.

use alloc::vec::Vec;

use super::{Choice, Flow, PathId, PathState, Scheduler, candidates};
use crate::unit::{Span, Time};

const LONGEST_ROUND: usize = 1_000;

/// Follows a plan.
#[derive(Debug, Clone)]
pub struct Daps {
    /// The paths of the packets of this round, the last packet's first.
    plan: Vec<PathId>,
}

impl Daps {
    /// Has no plan yet.
    pub fn new() -> Self {
        Self { plan: Vec::with_capacity(LONGEST_ROUND) }
    }

    fn make_plan(&mut self, paths: &[PathState]) {
        let round = candidates(paths).map(PathState::round_trip).max().unwrap_or(Span::ZERO);
        // How many packets of each path the plan has so far.
        let mut planned = [0u64; super::MOST_PATHS];
        while self.plan.len() < LONGEST_ROUND {
            let next = candidates(paths).filter_map(|path| {
                let count = *planned.get(usize::from(path.id.0))?;
                let trips = count / path.packets();
                let leaves = path.round_trip() * trips;
                let is_over = trips > 0 && leaves >= round;
                (!is_over).then(|| (leaves + path.round_trip() / 2, path.id))
            });
            let Some((_, id)) = next.min() else { break };
            planned[usize::from(id.0)] += 1;
            self.plan.push(id);
        }
        self.plan.reverse();
    }
}

impl Default for Daps {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheduler for Daps {
    fn name(&self) -> &'static str {
        "daps"
    }

    fn choose(&mut self, _now: Time, _flow: &Flow, paths: &[PathState]) -> Choice {
        let find = |id: PathId| candidates(paths).find(|path| path.id == id);
        while self.plan.last().is_some_and(|id| find(*id).is_none()) {
            self.plan.pop();
        }
        if self.plan.is_empty() {
            self.make_plan(paths);
        }
        match self.plan.last().and_then(|id| find(*id)).filter(|path| path.has_room()) {
            Some(path) => {
                self.plan.pop();
                Choice::Send(path.id)
            }
            None => Choice::Wait,
        }
    }

    fn forget(&mut self, _path: PathId) {
        self.plan.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::tests::{PLENTY, path};

    fn turns(daps: &mut Daps, paths: &[PathState], count: usize) -> Vec<u8> {
        let choices = (0..count).map(|_| daps.choose(Time::ZERO, &PLENTY, paths));
        choices
            .map(|choice| match choice {
                Choice::Send(id) => id.0,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn packets_take_paths_in_the_order_of_their_arrival() {
        // Path 0 delivers two packets at 10, 30, 50 ms; path 1 one at 30 ms.
        let paths = [path(0, 20, 2, 0), path(1, 60, 1, 0)];
        let mut daps = Daps::new();
        assert_eq!(turns(&mut daps, &paths, 7), [0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(turns(&mut daps, &paths, 7), [0, 0, 0, 0, 1, 0, 0], "and so on");
    }

    #[test]
    fn a_round_is_finished_as_it_was_planned() {
        let mut daps = Daps::new();
        let before = [path(0, 20, 2, 0), path(1, 20, 2, 0)];
        assert_eq!(turns(&mut daps, &before, 1), [0]);
        // The first path has become three times as slow; the plan has not.
        let after = [path(0, 60, 2, 0), path(1, 20, 2, 0)];
        assert_eq!(turns(&mut daps, &after, 3), [0, 1, 1]);
        assert_eq!(turns(&mut daps, &after, 4), [1, 1, 0, 0]);
    }

    #[test]
    fn who_has_no_room_is_waited_for_and_who_is_gone_is_not() {
        let mut daps = Daps::new();
        let full = [path(0, 20, 2, 2), path(1, 20, 2, 0)];
        assert_eq!(daps.choose(Time::ZERO, &PLENTY, &full), Choice::Wait);
        assert_eq!(turns(&mut daps, &full[1..], 1), [1]);
    }
}
