//! QAware: the path on which what waits in front of it on this host, and this packet, is served first.
//!
//! For each path k with room, with n packets in its device queue:
//!
//! ```text
//! W = n / dequeue rate, or 0 where n = 0            Ŵ ← α·Ŵ + (1 − α)·W
//! Ŝ = srtt − Ŵ                                      Algorithm 1, for (2.2)
//! the path with the least (n + 1)·Ŝ                 (2.3)
//! ```
//!
//! A path is a queue and a server, which is all that comes after the host, and the packet goes where
//! its expected time in both is least (2.1); srtt is that time a round trip ago. By (2.2) each ack
//! smooths Ŝ with the packet's round trip less its own wait; Algorithm 1, which stands here, has
//! means of both in place of that. Shreedhar, PhD thesis, section 2.4.
//!
//! # Where the paper is silent
//!
//! - **Ŝ at or below zero.** srtt lags behind Ŵ when a queue grows fast, and their difference can
//!   be anything; the longer queue would then look like the better one. A packet's service is no
//!   shorter than the shortest round trip of late, or, where that is not known, a sixteenth of srtt.
//! - **The best path has no room.** Algorithm 1 goes through "available subflows": it takes the next
//!   best. [`Earliest`](super::Earliest) waits where that is better.
//! - **No view of the queue** counts as an empty one: then the rule is that of the shortest round
//!   trip.
//! - **A queue that stands still** (packets, and none leaves) has no W; Ŵ stays, and n tells
//!   enough.
//! - **How often Ŵ is smoothed.** At each choice, as Algorithm 1 has it.

use super::{Choice, Flow, MOST_PATHS, PathId, PathState, Scheduler, candidates};
use crate::unit::{Span, Time};

/// Settings of [`QAware`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct QAwareParams {
    /// α: how much of the old mean of waits stays, 0 to below 1. 0.8.
    pub alpha: f64,
}

impl Default for QAwareParams {
    fn default() -> Self {
        Self { alpha: 0.8 }
    }
}

/// Looks at the queue in front of its own feet.
#[derive(Debug, Clone)]
pub struct QAware {
    params: QAwareParams,
    /// Ŵ of each path, in s.
    waits: [f64; MOST_PATHS],
}

impl QAware {
    pub(super) fn new(params: QAwareParams) -> Self {
        Self { params, waits: [0.0; MOST_PATHS] }
    }

    /// (n + 1)·Ŝ, in s.
    fn service(&mut self, path: &PathState) -> f64 {
        let Some(wait) = self.waits.get_mut(usize::from(path.id.0)) else { return f64::MAX };
        if let Some(now) = path.queue.map_or(Some(Span::ZERO), |queue| queue.wait()) {
            *wait = self.params.alpha * *wait + (1.0 - self.params.alpha) * now.as_secs_f64();
        }
        let packets = path.queue.map_or(0.0, |queue| queue.packets as f64);
        (packets + 1.0) * path.beyond_device(*wait)
    }
}

impl Scheduler for QAware {
    fn name(&self) -> &'static str {
        "qaware"
    }

    fn choose(&mut self, _now: Time, _flow: &Flow, paths: &[PathState]) -> Choice {
        let mut best = None;
        for path in candidates(paths).filter(|path| path.has_room()) {
            let service = self.service(path);
            if best.is_none_or(|(least, _)| service < least) {
                best = Some((service, path.id));
            }
        }
        best.map_or(Choice::Wait, |(_, id)| Choice::Send(id))
    }

    fn forget(&mut self, path: PathId) {
        if let Some(wait) = self.waits.get_mut(usize::from(path.0)) {
            *wait = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::tests::{PLENTY, path, queued};

    fn choose(qaware: &mut QAware, paths: &[PathState]) -> Choice {
        qaware.choose(Time::ZERO, &PLENTY, paths)
    }

    #[test]
    fn a_queue_counts_before_any_ack_tells_of_it() {
        let mut qaware = QAware::new(QAwareParams::default());
        let [zero, one] = [0, 1].map(|id| Choice::Send(PathId(id)));
        assert_eq!(choose(&mut qaware, &[queued(0, 20, 0, 0.0), queued(1, 30, 0, 0.0)]), zero);
        // (1 + 1)·20 ms > 30 ms.
        assert_eq!(choose(&mut qaware, &[queued(0, 20, 1, 1e3), queued(1, 30, 0, 0.0)]), one);
    }

    #[test]
    fn the_time_in_the_queue_is_no_service() {
        // Algorithm 1 by hand: 8 packets at 1000 a second wait 8 ms; Ŵ = 0.2·8 ms = 1.6 ms, so that
        // (8 + 1)·(20 − 1.6) ms = 165.6 ms.
        let mut qaware = QAware::new(QAwareParams::default());
        assert!((qaware.service(&queued(0, 20, 8, 1e3)) - 0.1656).abs() < 1e-12);
        // Ŵ = 0.8·1.6 + 0.2·8 = 2.88 ms.
        assert!((qaware.service(&queued(0, 20, 8, 1e3)) - 9.0 * 0.01712).abs() < 1e-12);
    }

    #[test]
    fn equal_paths_are_loaded_equally_also_while_round_trips_lag_behind() {
        let mut qaware = QAware::new(QAwareParams::default());
        let mut waiting = [0u64; 2];
        for _ in 0..100 {
            let min_rtt = Some(Span::from_millis(20));
            let paths = [0, 1].map(|id| {
                let queue = waiting[usize::from(id)];
                PathState { min_rtt, ..queued(id, 20, queue, 1e3) }
            });
            match choose(&mut qaware, &paths) {
                Choice::Send(id) => waiting[usize::from(id.0)] += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(waiting, [50, 50]);
    }

    #[test]
    fn without_a_view_of_queues_the_shortest_round_trip_wins() {
        let mut qaware = QAware::new(QAwareParams::default());
        let paths = [path(0, 30, 10, 5), path(1, 20, 10, 5)];
        assert_eq!(choose(&mut qaware, &paths), Choice::Send(PathId(1)));
    }

    #[test]
    fn service_is_never_none_however_long_the_queue_was() {
        let mut qaware = QAware::new(QAwareParams::default());
        let min_rtt = Some(Span::from_millis(16));
        for _ in 0..100 {
            // Ŵ goes to 10 s, srtt lags behind.
            let path = PathState { min_rtt, ..queued(0, 20, 999, 100.0) };
            assert!((qaware.service(&path) - 16.0).abs() < 1.0);
        }
        assert!(qaware.service(&queued(0, 20, 5, 0.0)) > 0.0);
    }
}
