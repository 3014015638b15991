//! Earliest completion first: uses a slower path only if that completes the data sooner.
//!
//! With f the fastest path, without room, s the fastest with room, k unsent packets, and
//! δ = max(σ_f, σ_s):
//!
//! ```text
//! wait for f  if  (1 + k/cwnd_f)·RTT_f < (1 + β·waiting)·(RTT_s + δ)
//!            and  k/cwnd_s·RTT_s ≥ 2·RTT_f + δ
//! ```
//!
//! `waiting` is 1 from the first wait on until the first condition fails. Lim, Nahum, Towsley,
//! Gibbens: ECF: An MPTCP Path Scheduler to Manage Heterogeneous Paths, CoNEXT 2017, section 4.
//!
//! # Where the paper is silent
//!
//! k/cwnd is at least 1, one round trip for the rest, as in the authors' code for Linux. σ, a
//! standard deviation in the paper, is the mean deviation of RFC 6298, which TCP has. The code for
//! Linux (version 0.95) takes twice `rttvar_us`, which Linux keeps at a quarter of the minimum
//! timeout, 200 ms, or more: δ is at least 100 ms there ([`EcfParams::min_delta`]). With round
//! trips below that, the second condition then hardly ever holds for a few packets, and the first
//! holds for more of them.

use super::{Choice, PathState, Scheduler, SendState, fastest, fastest_with_room, send_or_wait};
use crate::unit::{Bytes, Span, Time};

/// Settings of [`Ecf`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct EcfParams {
    /// β: by how much more the first condition must fail before waiting ends, 0 to 10. 0.25.
    pub beta: f64,
    /// The minimum of δ: 0 ms by default, as in the paper; 100 ms in the code for Linux.
    pub min_delta: Span,
}

impl Default for EcfParams {
    fn default() -> Self {
        Self { beta: 0.25, min_delta: Span::ZERO }
    }
}

/// Waits for the fastest path if that completes the data sooner.
#[derive(Debug, Clone)]
pub struct Ecf {
    params: EcfParams,
    is_waiting: bool,
}

impl Ecf {
    /// A scheduler that has not waited yet.
    pub(super) fn new(params: EcfParams) -> Self {
        Self { params, is_waiting: false }
    }
}

/// `bytes` in windows of `path`.
pub(super) fn rounds(bytes: Bytes, path: &PathState) -> f64 {
    bytes.get() as f64 / path.cwnd.get().max(1) as f64
}

/// The same, at least one.
fn windows(unsent: Bytes, path: &PathState) -> f64 {
    rounds(unsent, path).max(1.0)
}

impl Scheduler for Ecf {
    fn name(&self) -> &'static str {
        "ecf"
    }

    fn choose(&mut self, _now: Time, flow: &SendState, paths: &[PathState]) -> Choice {
        let with_room = fastest_with_room(paths);
        let (Some(fast), Some(slow)) = (fastest(paths), with_room) else { return Choice::Wait };
        if fast.id == slow.id || fast.has_room() {
            return send_or_wait(with_room);
        }
        let [rtt_f, rtt_s] = [fast, slow].map(|path| path.round_trip().as_secs_f64());
        let delta = fast.rttvar.max(slow.rttvar).max(self.params.min_delta).as_secs_f64();
        let margin = if self.is_waiting { 1.0 + self.params.beta } else { 1.0 };
        if (1.0 + windows(flow.unsent, fast)) * rtt_f >= margin * (rtt_s + delta) {
            self.is_waiting = false;
        } else if windows(flow.unsent, slow) * rtt_s >= 2.0 * rtt_f + delta {
            self.is_waiting = true;
            return Choice::Wait;
        }
        Choice::Send(slow.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathId;
    use crate::path::tests::{PLENTY, SEGMENT, path};

    fn flow(packets: u64) -> SendState {
        SendState { unsent: SEGMENT * packets, ..PLENTY }
    }

    #[test]
    fn the_last_packets_wait_for_the_fast_path_and_many_do_not() {
        // 10 packets each 10 ms; 100 ms.
        let paths = [path(0, 10, 10, 10), path(1, 100, 10, 0)];
        let mut ecf = Ecf::new(EcfParams::default());
        // (1 + 5)·10 ms < 100 ms, and 50/10·100 ms ≥ 20 ms.
        assert_eq!(ecf.choose(Time::ZERO, &flow(50), &paths), Choice::Wait);
        // (1 + 10)·10 ms ≥ 100 ms, but not 125 ms: it has waited before.
        assert_eq!(ecf.choose(Time::ZERO, &flow(100), &paths), Choice::Wait);
        assert_eq!(ecf.choose(Time::ZERO, &flow(130), &paths), Choice::Send(PathId(1)));
        assert_eq!(ecf.choose(Time::ZERO, &flow(100), &paths), Choice::Send(PathId(1)));
    }

    #[test]
    fn a_fast_path_with_room_is_used_whatever_else_there_is() {
        let paths = [path(0, 10, 10, 9), path(1, 100, 10, 0)];
        let mut ecf = Ecf::new(EcfParams::default());
        assert_eq!(ecf.choose(Time::ZERO, &flow(1), &paths), Choice::Send(PathId(0)));
    }

    #[test]
    fn deviations_below_the_minimum_count_as_the_minimum() {
        let flow = flow(10);
        // (1 + 1)·10 ms < 30 ms and 30 ms ≥ 20 ms, so it waits; with δ = 100 ms, 30 ms < 120 ms.
        let paths = [path(0, 10, 10, 10), path(1, 30, 10, 0)];
        let mut paper = Ecf::new(EcfParams::default());
        assert_eq!(paper.choose(Time::ZERO, &flow, &paths), Choice::Wait);
        let min_delta = Span::from_millis(100);
        let mut linux = Ecf::new(EcfParams { min_delta, ..EcfParams::default() });
        assert_eq!(linux.choose(Time::ZERO, &flow, &paths), Choice::Send(PathId(1)));
        // (1 + 10)·10 ms ≥ 100 ms, so it sends; with δ, 110 ms < 200 ms, and 1 s ≥ 120 ms.
        let paths = [path(0, 10, 10, 10), path(1, 100, 10, 0)];
        let flow = self::flow(100);
        assert_eq!(paper.choose(Time::ZERO, &self::flow(200), &paths), Choice::Send(PathId(1)));
        assert_eq!(paper.choose(Time::ZERO, &flow, &paths), Choice::Send(PathId(1)));
        assert_eq!(linux.choose(Time::ZERO, &flow, &paths), Choice::Wait);
    }

    #[test]
    fn a_slow_path_that_is_done_before_the_fast_one_comes_round_is_used() {
        // 100 ms for the slow one: less than two round trips of 90 ms.
        let paths = [path(0, 90, 10, 10), path(1, 100, 10, 0)];
        let mut ecf = Ecf::new(EcfParams::default());
        assert_eq!(ecf.choose(Time::ZERO, &flow(5), &paths), Choice::Send(PathId(1)));
    }
}
