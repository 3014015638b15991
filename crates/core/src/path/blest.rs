//! Blocking estimation: uses a slower path only if that leaves the fastest path enough of the
//! receive window.
//!
//! While a packet lingers on the slow path s, the fast one f sends
//!
//! ```text
//! X = λ·segment·(cwnd_f + (r − 1)/2)·r        r = linger / RTT_f
//! wait for f  if  X > window − in flight on s − segment
//! ```
//!
//! `window` is the whole window of the connection. Packets in flight on f do not count: they are
//! acknowledged while the packet lingers on s. λ rises when the connection was blocked since its
//! last change, and falls otherwise, once per round trip of s. Ferlin, Alay, Mehani, Boreli: BLEST:
//! Blocking Estimation-based MPTCP Scheduler for Heterogeneous Networks, IFIP Networking 2016,
//! section III.
//!
//! # Where the paper is silent
//!
//! These are as in the authors' code for Linux (version 0.95):
//!
//! - The steps and bounds of λ, and that r is rounded up.
//! - In the first slow start, before any loss, X = λ·segment·cwnd_f·(2^r − 1) with r at most 16. In
//!   a later slow start cwnd_f is taken as ssthresh + 1, as if it were over.
//! - The connection is blocked when the receive window, or a full send buffer, stops a path that
//!   has room.
//!
//! A packet lingers on s for its smoothed round trip, as in the paper. With
//! [`BlestParams::extremes`], as in that code, it lingers for at least min + (max − min) · (in
//! flight on s + segment)/cwnd_s, and RTT_f is (min + max)/2, of the smoothed round trips seen so
//! far.

use super::{
    Choice, MAX_PATHS, PathId, PathState, Scheduler, SendState, fastest, fastest_with_room,
    send_or_wait,
};
use crate::unit::{Span, Time};

/// Settings of [`Blest`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct BlestParams {
    /// λ at the start, within the bounds. 1.2.
    pub lambda: f64,
    /// The minimum and the maximum of λ, above 0. 1 and 1.3.
    pub bounds: [f64; 2],
    /// How much λ falls per round trip of the slow path without blocking, and rises per round trip
    /// with it, from 0 on. 0.01 and 0.04.
    pub steps: [f64; 2],
    /// Whether to use the smallest and the largest smoothed round trip seen, as the code for Linux
    /// does. `false`.
    pub extremes: bool,
}

impl Default for BlestParams {
    fn default() -> Self {
        Self { lambda: 1.2, bounds: [1.0, 1.3], steps: [0.01, 0.04], extremes: false }
    }
}

/// The maximum of r in slow start: windows of more rounds would be meaningless.
const MAX_ROUNDS: f64 = 16.0;

/// No round trip yet.
const UNSEEN: [f64; 2] = [f64::MAX, 0.0];

/// Waits for the fastest path rather than block it.
#[derive(Debug, Clone)]
pub struct Blest {
    params: BlestParams,
    lambda: f64,
    has_blocked: bool,
    changed_at: Option<Time>,
    /// The minimum and the maximum smoothed round trip of each path, in s.
    seen: [[f64; 2]; MAX_PATHS],
}

impl Blest {
    pub(super) fn new(params: BlestParams) -> Self {
        Self {
            params,
            lambda: params.lambda,
            has_blocked: false,
            changed_at: None,
            seen: [UNSEEN; MAX_PATHS],
        }
    }

    fn adapt(&mut self, now: Time, round_trip: Span) {
        if self.changed_at.is_some_and(|at| now.since(at) < round_trip) {
            return;
        }
        let [fall, rise] = self.params.steps;
        let [least, most] = self.params.bounds;
        let step = if self.has_blocked { rise } else { -fall };
        self.lambda = (self.lambda + step).max(least).min(most);
        self.has_blocked = false;
        self.changed_at = Some(now);
    }

    fn see(&mut self, paths: &[PathState]) {
        for path in paths {
            if let (Some(srtt), Some([min, max])) =
                (path.srtt, self.seen.get_mut(usize::from(path.id.0)))
            {
                let srtt = srtt.as_secs_f64();
                (*min, *max) = (min.min(srtt), max.max(srtt));
            }
        }
    }

    /// How long a packet lingers on `slow`, and the round trip of `fast`, in s.
    fn times(&self, fast: &PathState, slow: &PathState) -> [f64; 2] {
        let [linger, round_trip] = [slow, fast].map(|path| path.round_trip().as_secs_f64());
        let [slow_at, fast_at] = [slow, fast].map(|path| usize::from(path.id.0));
        let (true, Some([min, max]), Some([least, most])) =
            (self.params.extremes, self.seen.get(slow_at), self.seen.get(fast_at))
        else {
            return [linger, round_trip];
        };
        let filled = (slow.inflight + slow.segment).get() as f64 / slow.cwnd.get().max(1) as f64;
        let estimate = min + (max - min) * filled.min(1.0);
        [linger.max(estimate), (least + most) / 2.0]
    }

    /// The bytes that the fast path sends meanwhile.
    fn sent_meanwhile(&self, fast: &PathState, [linger, round_trip]: [f64; 2]) -> f64 {
        let rounds = if round_trip > 0.0 { libm::floor(linger / round_trip) + 1.0 } else { 1.0 };
        let window = fast.packets();
        let packets = match fast.ssthresh {
            None => window as f64 * (libm::exp2(rounds.min(MAX_ROUNDS)) - 1.0),
            Some(ssthresh) => {
                let threshold = ssthresh.get() / fast.segment.get().max(1);
                let window = window.max(threshold.saturating_add(1)) as f64;
                (window + (rounds - 1.0) / 2.0) * rounds
            }
        };
        self.lambda * packets * fast.segment.get() as f64
    }
}

impl Scheduler for Blest {
    fn name(&self) -> &'static str {
        "blest"
    }

    fn choose(&mut self, now: Time, flow: &SendState, paths: &[PathState]) -> Choice {
        if self.params.extremes {
            self.see(paths);
        }
        let with_room = fastest_with_room(paths);
        let (Some(fast), Some(slow)) = (fastest(paths), with_room) else { return Choice::Wait };
        if fast.id == slow.id || fast.has_room() {
            return send_or_wait(with_room);
        }
        self.adapt(now, slow.round_trip());
        let lingering = slow.inflight.get() as f64 + slow.segment.get() as f64;
        let left = flow.window.get() as f64 - lingering;
        if self.sent_meanwhile(fast, self.times(fast, slow)) > left {
            return Choice::Wait;
        }
        Choice::Send(slow.id)
    }

    fn on_blocked(&mut self, _now: Time, _path: PathId) {
        self.has_blocked = true;
    }

    fn forget(&mut self, path: PathId) {
        if let Some(seen) = self.seen.get_mut(usize::from(path.0)) {
            *seen = UNSEEN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::tests::{PLENTY, SEGMENT, path};
    use crate::unit::Bytes;

    fn flow(window: u64) -> SendState {
        SendState { window: SEGMENT * window, ..PLENTY }
    }

    #[test]
    fn a_slow_path_must_leave_the_fast_one_its_share_of_the_window() {
        let mut blest = Blest::new(BlestParams { lambda: 1.0, ..BlestParams::default() });
        let past = PathState { ssthresh: Some(SEGMENT * 9), ..path(0, 10, 10, 10) };
        let paths = [past, path(1, 95, 10, 0)];
        // Ten round trips: (10 + 4.5)·10 = 145 packets, and one for the slow path.
        assert_eq!(blest.choose(Time::ZERO, &flow(146), &paths), Choice::Send(PathId(1)));
        assert_eq!(blest.choose(Time::ZERO, &flow(145), &paths), Choice::Wait);
        let starting = [PathState { ssthresh: None, ..paths[0] }, paths[1]];
        // 10·(2¹⁰ − 1).
        assert_eq!(blest.choose(Time::ZERO, &flow(10_231), &starting), Choice::Send(PathId(1)));
        assert_eq!(blest.choose(Time::ZERO, &flow(10_230), &starting), Choice::Wait);
    }

    #[test]
    fn packets_in_flight_on_the_slow_path_use_the_window_and_those_on_the_fast_one_do_not() {
        let mut blest = Blest::new(BlestParams { lambda: 1.0, ..BlestParams::default() });
        let fast = PathState { ssthresh: Some(SEGMENT * 9), ..path(0, 10, 10, 10) };
        let paths = [fast, path(1, 95, 10, 7)];
        assert_eq!(blest.choose(Time::ZERO, &flow(153), &paths), Choice::Send(PathId(1)));
        assert_eq!(blest.choose(Time::ZERO, &flow(152), &paths), Choice::Wait);
        // How much of the window is left now does not matter: it is the fast path's again soon.
        let little = SendState { window_left: SEGMENT, ..flow(153) };
        assert_eq!(blest.choose(Time::ZERO, &little, &paths), Choice::Send(PathId(1)));
    }

    #[test]
    fn with_extremes_a_packet_lingers_the_longer_the_fuller_the_slow_path_is() {
        let params = BlestParams { lambda: 1.0, extremes: true, ..BlestParams::default() };
        let mut blest = Blest::new(params);
        let paths = |fast_ms, slow_ms, inflight| {
            let fast = PathState { ssthresh: Some(SEGMENT * 9), ..path(0, fast_ms, 10, 10) };
            [fast, path(1, slow_ms, 10, inflight)]
        };
        blest.choose(Time::ZERO, &flow(0), &paths(10, 200, 0));
        blest.choose(Time::ZERO, &flow(0), &paths(30, 100, 0));
        // RTT_f = 20 ms. One packet of ten: 110 ms, six round trips of (10 + 2.5) packets.
        assert_eq!(
            blest.choose(Time::ZERO, &flow(76), &paths(10, 100, 0)),
            Choice::Send(PathId(1))
        );
        assert_eq!(blest.choose(Time::ZERO, &flow(75), &paths(10, 100, 0)), Choice::Wait);
        // Ten of ten: 200 ms, eleven round trips of 15 packets, and ten for the slow path.
        assert_eq!(
            blest.choose(Time::ZERO, &flow(175), &paths(10, 100, 9)),
            Choice::Send(PathId(1))
        );
        assert_eq!(blest.choose(Time::ZERO, &flow(174), &paths(10, 100, 9)), Choice::Wait);
        // Measurements of a path do not apply to the next path with its number.
        blest.forget(PathId(0));
        blest.forget(PathId(1));
        assert_eq!(
            blest.choose(Time::ZERO, &flow(146), &paths(10, 95, 0)),
            Choice::Send(PathId(1))
        );
        assert_eq!(blest.choose(Time::ZERO, &flow(145), &paths(10, 95, 0)), Choice::Wait);
    }

    #[test]
    fn a_later_slow_start_is_taken_as_over() {
        let mut blest = Blest::new(BlestParams { lambda: 1.0, ..BlestParams::default() });
        // A window of 1 after a timeout, and a threshold of 9: (10 + 4.5)·10 packets again.
        let fast = PathState { ssthresh: Some(SEGMENT * 9), ..path(0, 10, 1, 1) };
        let paths = [fast, path(1, 95, 10, 0)];
        assert_eq!(blest.choose(Time::ZERO, &flow(146), &paths), Choice::Send(PathId(1)));
        assert_eq!(blest.choose(Time::ZERO, &flow(145), &paths), Choice::Wait);
    }

    #[test]
    fn lambda_rises_when_the_window_blocks_and_falls_when_it_does_not() {
        let mut blest = Blest::new(BlestParams::default());
        let paths = [path(0, 10, 10, 10), path(1, 100, 10, 0)];
        let mut now = Time::ZERO;
        for _ in 0..10 {
            blest.on_blocked(now, PathId(0));
            blest.choose(now, &flow(1_000), &paths);
            now += Span::from_millis(100);
        }
        assert!((blest.lambda - 1.3).abs() < 1e-12, "{}", blest.lambda);
        for _ in 0..10 {
            blest.choose(now, &flow(1_000), &paths);
            now += Span::from_millis(50);
        }
        assert!((blest.lambda - 1.25).abs() < 1e-12, "once a round trip: {}", blest.lambda);
    }

    #[test]
    fn without_a_window_it_waits_for_the_fast_path() {
        let mut blest = Blest::new(BlestParams::default());
        let paths = [path(0, 10, 10, 10), path(1, 100, 10, 0)];
        let none = SendState { window: Bytes::ZERO, window_left: Bytes::ZERO, ..PLENTY };
        assert_eq!(blest.choose(Time::ZERO, &none, &paths), Choice::Wait);
    }
}
