//! The default scheduler of mainline Linux (`net/mptcp/protocol.c`, `mptcp_subflow_get_send`, since
//! Linux 5.7): the path whose queued bytes are sent out first.
//!
//! ```text
//! linger_i = queued_i / pace_i           queued: bytes assigned to path i and not acknowledged
//! burst    = min(65428 bytes, receive window left)
//! pace_i  ← (pace_i·queued_i + pacing rate_i·burst) / (queued_i + burst)
//! ```
//!
//! The path of the smallest `linger` takes a whole burst, then the choice is made again. It ignores
//! windows: a packet for a path whose congestion window is full is queued on that path, until its
//! send buffer is full; then all packets wait for it. Backups are used if there is no other path.
//!
//! # Where the source leaves a choice open
//!
//! - A path whose congestion law does not pace has the rate that Linux computes for it: 2·cwnd/RTT
//!   while cwnd < ssthresh/2, 1.2·cwnd/RTT otherwise (`tcp_pacing_ss_ratio`,
//!   `tcp_pacing_ca_ratio`). Without a round trip sample it is infinite.
//! - Linux sizes send buffers to two windows (`tcp_sndbuf_expand`); so is a path's here, without
//!   the overhead of packet buffers.
//! - Of equal times Linux takes the first of its list; here the path with the shorter round trip.
//! - A burst of updates, which replace one another, is one update.
//! - Packets queued on a path are counted ([`backlog`](super::backlog)) and not held.

use super::backlog::Backlog;
use super::{Choice, MAX_PATHS, PathId, PathState, Scheduler, SendState, candidates};
use crate::unit::Time;

/// Settings of [`Linger`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct LingerParams {
    /// The bytes that a path takes before the next choice, at least 1. 65428 (an IPv6 packet of the
    /// largest size without its headers).
    pub burst: u64,
    /// The pacing rate in slow start and after it, in windows per round trip, above 0 to 100. 2 and
    /// 1.2.
    pub pacing: [f64; 2],
    /// A path's send buffer, in windows, 1 to 100. 2.
    pub buffer: f64,
}

impl LingerParams {
    /// The constants of Linux.
    pub const MAINLINE: Self = Self { burst: 65_428, pacing: [2.0, 1.2], buffer: 2.0 };
}

impl Default for LingerParams {
    fn default() -> Self {
        Self::MAINLINE
    }
}

/// The path whose queued bytes are sent out first.
#[derive(Debug, Clone)]
pub struct Linger {
    params: LingerParams,
    /// The averaged pacing rate of each path, in bytes per second.
    pace: [Option<f64>; MAX_PATHS],
    /// The path that has the burst, and the bytes left of it.
    burst: Option<(PathId, u64)>,
    backlog: Backlog,
}

impl Linger {
    pub(super) fn new(params: LingerParams) -> Self {
        Self { params, pace: [None; MAX_PATHS], burst: None, backlog: Backlog::new() }
    }

    /// The pacing rate of `path`, in bytes per second.
    fn pacing_rate(&self, path: &PathState) -> f64 {
        if let Some(rate) = path.pacing_rate {
            return rate.get() as f64;
        }
        let cwnd = path.cwnd.max(path.inflight);
        let is_early = path.ssthresh.is_none_or(|ssthresh| path.cwnd.get() < ssthresh.get() / 2);
        let [slow_start, avoidance] = self.params.pacing;
        let windows = if is_early { slow_start } else { avoidance };
        windows * cwnd.get() as f64 / path.round_trip().as_secs_f64()
    }

    /// Bytes assigned to `path` and not acknowledged.
    fn queued(&self, path: &PathState) -> f64 {
        let assigned = self.backlog.of(path.id) as f64 * path.segment.get() as f64;
        path.inflight.get() as f64 + assigned
    }

    /// When the queued bytes of `path` have been sent, in s from now.
    fn linger(&self, path: &PathState) -> f64 {
        let queued = self.queued(path);
        let average = self.pace.get(usize::from(path.id.0)).copied().flatten();
        let pace = average.unwrap_or_else(|| self.pacing_rate(path));
        // Without a queue it is zero, also where the rate is zero or unknown.
        if queued > 0.0 { queued / pace } else { 0.0 }
    }

    /// Whether the send buffer of `path` takes another packet.
    fn takes(&self, path: &PathState) -> bool {
        path.has_room() || self.queued(path) < self.params.buffer * path.cwnd.get() as f64
    }

    /// Gives the next burst to the path of the smallest linger time.
    fn start_burst<'a>(
        &mut self,
        flow: &SendState,
        paths: &'a [PathState],
    ) -> Option<&'a PathState> {
        let sooner = |a: &&PathState, b: &&PathState| {
            let times = self.linger(a).total_cmp(&self.linger(b));
            times.then(a.round_trip().cmp(&b.round_trip()))
        };
        let path = candidates(paths).min_by(sooner).filter(|path| self.takes(path))?;
        // Each update is a choice of its own.
        let burst = if flow.interval.is_zero() { self.params.burst } else { path.segment.get() };
        let burst = burst.min(flow.window_left.get());
        let (queued, rate, weight) = (self.queued(path), self.pacing_rate(path), burst as f64);
        if let Some(pace) = self.pace.get_mut(usize::from(path.id.0)).filter(|_| weight > 0.0) {
            let average = (pace.unwrap_or(rate) * queued + rate * weight) / (queued + weight);
            // An infinite rate counts as unknown.
            *pace = (average.is_finite() && average > 0.0).then_some(average);
        }
        self.burst = Some((path.id, burst));
        Some(path)
    }
}

impl Scheduler for Linger {
    fn name(&self) -> &'static str {
        "linger"
    }

    fn choose(&mut self, _now: Time, flow: &SendState, paths: &[PathState]) -> Choice {
        if let Some(choice) = self.backlog.resume(flow, paths) {
            return choice;
        }
        loop {
            let going = self.burst.filter(|(_, left)| *left > 0).and_then(|(id, _)| {
                candidates(paths).find(|path| path.id == id && self.takes(path))
            });
            let Some(path) = going.or_else(|| self.start_burst(flow, paths)) else {
                return Choice::Wait;
            };
            let room = self.backlog.room(flow, path.segment);
            if self.backlog.has_all(flow, path.segment) || !path.has_room() && room == 0 {
                return Choice::Wait;
            }
            if let Some((_, left)) = &mut self.burst {
                *left = left.saturating_sub(path.segment.get());
            }
            if path.has_room() {
                return Choice::Send(path.id);
            }
            self.backlog.add(path.id, 1);
        }
    }

    fn forget(&mut self, path: PathId) {
        self.backlog.forget(path);
        self.burst = self.burst.filter(|(id, _)| *id != path);
        if let Some(pace) = self.pace.get_mut(usize::from(path.0)) {
            *pace = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::tests::{PLENTY, SEGMENT, path};
    use crate::unit::{Bytes, Span};

    /// A scheduler that chooses for each packet.
    fn by_packet() -> Linger {
        Linger::new(LingerParams { burst: 1, ..LingerParams::MAINLINE })
    }

    fn paced(path: PathState, rate: u64) -> PathState {
        PathState { pacing_rate: Some(Bytes::new(rate)), ..path }
    }

    #[test]
    fn the_path_whose_queue_is_sent_first_is_taken() {
        // 5 packets at 1 MB/s: 5 ms; 12 packets at 4 MB/s: 3 ms, whatever the round trips are.
        let paths = [paced(path(0, 10, 100, 5), 1_000_000), paced(path(1, 90, 100, 12), 4_000_000)];
        assert_eq!(by_packet().choose(Time::ZERO, &PLENTY, &paths), Choice::Send(PathId(1)));
        let paths = [paths[0], PathState { inflight: SEGMENT * 21, ..paths[1] }];
        assert_eq!(by_packet().choose(Time::ZERO, &PLENTY, &paths), Choice::Send(PathId(0)));
    }

    #[test]
    fn a_path_keeps_its_burst() {
        let mut linger = Linger::new(LingerParams::MAINLINE);
        let mut paths =
            [paced(path(0, 10, 100, 0), 1_000_000), paced(path(1, 90, 100, 0), 1_000_000)];
        let mut taken = [0; 2];
        for _ in 0..66 {
            let Choice::Send(id) = linger.choose(Time::ZERO, &PLENTY, &paths) else { panic!() };
            taken[usize::from(id.0)] += 1;
            paths[usize::from(id.0)].inflight += SEGMENT;
        }
        // 65428 bytes are 66 packets of 1000.
        assert_eq!(taken, [66, 0]);
        assert_eq!(linger.choose(Time::ZERO, &PLENTY, &paths), Choice::Send(PathId(1)));
        // No longer than the receive window.
        let mut linger = Linger::new(LingerParams::MAINLINE);
        let little = SendState { window_left: SEGMENT, ..PLENTY };
        let start = [path(0, 10, 100, 0), path(1, 90, 100, 0)];
        assert_eq!(linger.choose(Time::ZERO, &little, &start), Choice::Send(PathId(0)));
        assert_eq!(linger.choose(Time::ZERO, &little, &paths), Choice::Send(PathId(1)));
    }

    #[test]
    fn each_update_is_a_burst() {
        let mut linger = Linger::new(LingerParams::MAINLINE);
        let updates = SendState { interval: Span::from_millis(20), ..PLENTY };
        let mut paths = [path(0, 10, 100, 0), path(1, 10, 100, 0)];
        for _ in 0..10 {
            let Choice::Send(id) = linger.choose(Time::ZERO, &updates, &paths) else { panic!() };
            paths[usize::from(id.0)].inflight += SEGMENT;
        }
        assert_eq!(paths.map(|path| path.inflight), [SEGMENT * 5; 2]);
    }

    #[test]
    fn a_path_that_is_not_paced_has_the_rate_of_its_window() {
        let linger = by_packet();
        let rate = |path: &PathState| linger.pacing_rate(path);
        // 10 packets each 100 ms: 100 kB/s, 1.2 times that, or twice that in slow start.
        let plain = path(0, 100, 10, 0);
        assert!((rate(&plain) - 120e3).abs() < 1e-6, "{}", rate(&plain));
        let early = PathState { ssthresh: None, ..plain };
        assert!((rate(&early) - 200e3).abs() < 1e-6);
        let early = PathState { ssthresh: Some(SEGMENT * 21), ..plain };
        assert!((rate(&early) - 200e3).abs() < 1e-6);
        let late = PathState { ssthresh: Some(SEGMENT * 20), ..plain };
        assert!((rate(&late) - 120e3).abs() < 1e-6);
        assert_eq!(rate(&PathState { srtt: None, ..plain }), f64::INFINITY);
    }

    #[test]
    fn the_rate_is_averaged_over_queue_and_burst() {
        let mut linger = Linger::new(LingerParams { burst: 10_000, ..LingerParams::MAINLINE });
        let slow = paced(path(0, 10, 100, 30), 1_000_000);
        linger.choose(Time::ZERO, &PLENTY, &[slow]);
        linger.burst = None;
        linger.choose(Time::ZERO, &PLENTY, &[paced(slow, 5_000_000)]);
        // (1·30 + 5·10) / 40.
        assert!((linger.pace[0].unwrap() - 2e6).abs() < 1e-6, "{:?}", linger.pace[0]);
        linger.forget(PathId(0));
        assert_eq!(linger.pace[0], None);
    }

    #[test]
    fn packets_queue_on_the_path_of_the_smallest_time_up_to_two_windows() {
        // The fast one is full: 10 packets at 1.2 MB/s are 8.3 ms; the slow one's 9 are 75 ms.
        let paths = [path(0, 10, 10, 10), path(1, 100, 10, 9)];
        let mut linger = by_packet();
        assert_eq!(linger.choose(Time::ZERO, &PLENTY, &paths), Choice::Wait);
        assert_eq!(linger.backlog.of(PathId(0)), 10);
        // With data for 4 packets, all 4 are queued.
        let four = SendState { unsent: SEGMENT * 4, ..PLENTY };
        let mut linger = by_packet();
        assert_eq!(linger.choose(Time::ZERO, &four, &paths), Choice::Wait);
        assert_eq!(linger.backlog.of(PathId(0)), 4);
        // And leave when there is room.
        let free = [path(0, 10, 10, 0), paths[1]];
        for left in (1..=4).rev() {
            let flow = SendState { unsent: SEGMENT * left, ..PLENTY };
            assert_eq!(linger.choose(Time::ZERO, &flow, &free), Choice::Send(PathId(0)));
        }
        assert_eq!(linger.backlog.of(PathId(0)), 0);
    }
}
