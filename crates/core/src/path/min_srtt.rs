//! Chooses the path with the shortest round trip: the default of Linux's out-of-tree MPTCP, and the
//! baseline of the other schedulers. Mainline's default is [`Linger`](super::Linger).
//!
//! Paasch, Ferlin, Alay, Bonaventure: Experimental Evaluation of Multipath TCP Schedulers, CSWS
//! 2014, section 3.2 (LowRTT).

use super::{Choice, PathState, Scheduler, SendState, fastest_with_room, send_or_wait};
use crate::unit::Time;

/// Of the paths with room, the one with the shortest smoothed round trip.
#[derive(Debug, Clone, Default)]
pub struct MinSrtt {}

impl MinSrtt {
    /// It has no state.
    pub fn new() -> Self {
        Self {}
    }
}

impl Scheduler for MinSrtt {
    fn name(&self) -> &'static str {
        "min_srtt"
    }

    fn choose(&mut self, _now: Time, _flow: &SendState, paths: &[PathState]) -> Choice {
        send_or_wait(fastest_with_room(paths))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::tests::{PLENTY, path};
    use crate::path::{PathId, PathState};

    #[test]
    fn the_shortest_round_trip_with_room_wins() {
        let mut scheduler = MinSrtt::new();
        let mut choose = |paths: &[PathState]| scheduler.choose(Time::ZERO, &PLENTY, paths);
        assert_eq!(choose(&[path(0, 30, 10, 9), path(1, 20, 10, 0)]), Choice::Send(PathId(1)));
        assert_eq!(choose(&[path(0, 30, 10, 9), path(1, 20, 10, 10)]), Choice::Send(PathId(0)));
        assert_eq!(choose(&[path(0, 30, 10, 10), path(1, 20, 10, 10)]), Choice::Wait);
        assert_eq!(choose(&[]), Choice::Wait);
    }

    #[test]
    fn a_new_path_is_tried_at_once() {
        let new = PathState { srtt: None, ..path(1, 0, 10, 0) };
        let choice = MinSrtt::new().choose(Time::ZERO, &PLENTY, &[path(0, 5, 10, 0), new]);
        assert_eq!(choice, Choice::Send(PathId(1)));
    }
}
