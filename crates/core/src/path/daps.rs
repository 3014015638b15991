//! Delay-aware scheduling: paths in the order in which packets sent over them arrive, planned a
//! round ahead.
//!
//! D_i is the forward delay of path i. A round is the least common multiple of all D_i. At each
//! multiple of D_i within it path i carries cwnd_i packets; packets take the paths in the order of
//! these times, so that they arrive as they were numbered:
//!
//! ```text
//! for t in 1 ..= lcm(D_1, D_2, …):  for each i with t mod D_i = 0:  cwnd_i packets over path i
//! ```
//!
//! A plan does not test windows. A packet for a path whose window is full is queued on that path,
//! and the next packets go on to others, until data or receive window are used up. Kuhn, Lochin,
//! Mifdaoui, Sarwar, Mehani, Boreli: DAPS: Intelligent Delay-Aware Packet Scheduling for Multipath
//! Transport, ICC 2014, section III.
//!
//! # Where the paper is silent
//!
//! These are as in the authors' code for Linux (version 0.89):
//!
//! - D_i is half the smoothed round trip, rounded to multiples of 4 ms so that rounds stay short,
//!   at least 1 ms. Paths of equal times come in the order of their round trips.
//! - A path without a round trip sample has no turn unless no path has one. A path that is gone
//!   loses its turns, and packets queued on it are sent over others.
//! - A new round is planned when the last one is over and not when paths change, which makes DAPS
//!   slow to follow. That code smooths cwnd_i; this one takes it as it is when the round begins.
//!
//! A round is cut at 10 s, or at the largest D_i, if that is longer: the least common multiple of
//! many delays has no bound. Packets queued on a path are counted ([`backlog`](super::backlog)) and
//! not held.

use alloc::vec::Vec;

use super::backlog::Backlog;
use super::{Choice, PathId, PathState, Scheduler, SendState, candidates};
use crate::unit::Time;

/// The longest round, in ms.
const MAX_ROUND: u64 = 10_000;

/// Forward delays are rounded to multiples of this, in ms.
const DELAY_STEP: u64 = 4;

/// A path's part of the plan.
#[derive(Debug, Clone, Copy)]
struct Turns {
    path: PathId,
    /// D_i, in ms.
    delay: u64,
    /// Packets of each turn.
    cwnd: u64,
    /// When its next turn is, in ms from the round's start.
    at: u64,
    /// Packets left of that turn.
    left: u64,
}

/// Sends packets by a plan.
#[derive(Debug, Clone)]
pub struct Daps {
    /// In the order of their round trips.
    plan: Vec<Turns>,
    /// When the round ends, in ms from its start.
    end: u64,
    backlog: Backlog,
}

impl Daps {
    /// A scheduler without a plan.
    pub fn new() -> Self {
        Self { plan: Vec::new(), end: 0, backlog: Backlog::new() }
    }

    fn make_plan(&mut self, paths: &[PathState]) {
        self.plan.clear();
        let has_samples = candidates(paths).any(|path| path.srtt.is_some());
        let mut planned: Vec<_> =
            candidates(paths).filter(|path| path.srtt.is_some() == has_samples).collect();
        planned.sort_by_key(|path| path.round_trip());
        self.plan.extend(planned.into_iter().map(|path| {
            let (delay, cwnd) = (forward_delay(path), path.packets());
            Turns { path: path.id, delay, cwnd, at: delay, left: cwnd }
        }));
        let delays = self.plan.iter().map(|turns| turns.delay);
        let longest = delays.clone().max().unwrap_or(0).max(MAX_ROUND);
        self.end = delays.fold(1, least_common_multiple).min(longest);
    }

    /// The turn whose packets come next, if the round is not over.
    fn turn(&mut self) -> Option<&mut Turns> {
        let end = self.end;
        for turns in self.plan.iter_mut().filter(|turns| turns.left == 0) {
            turns.at += turns.delay;
            turns.left = turns.cwnd;
        }
        // Of equal times, the first.
        self.plan.iter_mut().filter(|turns| turns.at <= end).min_by_key(|turns| turns.at)
    }
}

impl Default for Daps {
    fn default() -> Self {
        Self::new()
    }
}

/// D_i, in ms.
fn forward_delay(path: &PathState) -> u64 {
    let half = path.round_trip().as_micros() / 1_000 / 2;
    (half.saturating_add(DELAY_STEP / 2) / DELAY_STEP * DELAY_STEP).max(1)
}

/// The least common multiple of two numbers above zero.
fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut gcd, mut rest) = (a, b);
    while rest > 0 {
        (gcd, rest) = (rest, gcd % rest);
    }
    (a / gcd.max(1)).saturating_mul(b)
}

impl Scheduler for Daps {
    fn name(&self) -> &'static str {
        "daps"
    }

    fn choose(&mut self, _now: Time, flow: &SendState, paths: &[PathState]) -> Choice {
        if let Some(choice) = self.backlog.resume(flow, paths) {
            return choice;
        }
        loop {
            if self.turn().is_none() {
                self.make_plan(paths);
            }
            let Some(turns) = self.turn() else { return Choice::Wait };
            let left = turns.left;
            let Some(path) = candidates(paths).find(|path| path.id == turns.path) else {
                turns.left = 0;
                continue;
            };
            let room = self.backlog.room(flow, path.segment);
            if self.backlog.has_all(flow, path.segment) || !path.has_room() && room == 0 {
                return Choice::Wait;
            }
            let count = if path.has_room() { 1 } else { left.min(room) };
            if let Some(turns) = self.turn() {
                turns.left -= count;
            }
            if path.has_room() {
                return Choice::Send(path.id);
            }
            self.backlog.add(path.id, count);
        }
    }

    fn forget(&mut self, path: PathId) {
        self.plan.clear();
        self.backlog.forget(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::tests::{PLENTY, SEGMENT, path};

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
        // Path 0 delivers two packets at 8, 16, 24 ms; path 1 one at 24 ms.
        let paths = [path(0, 16, 2, 0), path(1, 48, 1, 0)];
        let mut daps = Daps::new();
        assert_eq!(turns(&mut daps, &paths, 7), [0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(turns(&mut daps, &paths, 7), [0, 0, 0, 0, 0, 0, 1], "and so on");
    }

    #[test]
    fn a_round_is_the_least_common_multiple_of_the_delays() {
        // Delays of 8 and 12 ms: 8, 12, 16, 24 and 24.
        let paths = [path(0, 16, 1, 0), path(1, 24, 1, 0)];
        let mut daps = Daps::new();
        assert_eq!(turns(&mut daps, &paths, 10), [0, 1, 0, 0, 1, 0, 1, 0, 0, 1]);
        assert_eq!(least_common_multiple(12, 8), 24);
        assert_eq!(least_common_multiple(u64::MAX, u64::MAX - 1), u64::MAX);
    }

    #[test]
    fn delays_are_rounded_to_four_milliseconds() {
        for (rtt, delay) in [(0, 1), (3, 1), (4, 4), (10, 4), (12, 8), (19, 8), (20, 12)] {
            assert_eq!(forward_delay(&path(0, rtt, 1, 0)), delay, "{rtt} ms");
        }
    }

    #[test]
    fn a_round_is_finished_as_it_was_planned() {
        let mut daps = Daps::new();
        let before = [path(0, 16, 2, 0), path(1, 16, 2, 0)];
        assert_eq!(turns(&mut daps, &before, 1), [0]);
        // The first path has become three times as slow; the plan has not.
        let after = [path(0, 48, 2, 0), path(1, 16, 2, 0)];
        assert_eq!(turns(&mut daps, &after, 3), [0, 1, 1]);
        assert_eq!(turns(&mut daps, &after, 8), [1, 1, 1, 1, 1, 1, 0, 0]);
    }

    #[test]
    fn packets_for_a_full_path_are_queued_on_it_and_the_others_go_on() {
        let mut daps = Daps::new();
        let full = [path(0, 16, 2, 2), path(1, 16, 2, 0)];
        // Ten packets: each second pair is path 0's.
        let flow = |packets| SendState { unsent: SEGMENT * packets, ..PLENTY };
        for left in (7..=10).rev() {
            let choice = daps.choose(Time::ZERO, &flow(left), &full);
            assert_eq!(choice, Choice::Send(PathId(1)), "{left} left");
        }
        // Six are left: four are queued on path 0, and so will be the last two.
        assert_eq!(daps.choose(Time::ZERO, &flow(6), &full), Choice::Wait);
        let free = [path(0, 16, 2, 0), path(1, 16, 2, 2)];
        for left in (1..=6).rev() {
            let choice = daps.choose(Time::ZERO, &flow(left), &free);
            assert_eq!(choice, Choice::Send(PathId(0)), "{left} left");
        }
    }

    #[test]
    fn a_path_that_is_gone_loses_its_turns() {
        let mut daps = Daps::new();
        let paths = [path(0, 16, 2, 2), path(1, 16, 2, 0)];
        assert_eq!(turns(&mut daps, &paths, 1), [1]);
        assert_eq!(turns(&mut daps, &paths[1..], 3), [1, 1, 1]);
    }
}
