//! QAware: sends each packet by the path on which it has the shortest expected system time, which
//! is the time in the path's device queue plus the time from the device to the ack.
//!
//! Each path k is a queue (its device queue, with n packets) and a server (all that follows the
//! device). With each ack of a packet i that was sent once:
//!
//! ```text
//! X_i = RTT_i − W_i                                 service time; W_i: its time in the device queue
//! Ŝ ← α·Ŝ + (1 − α)·X_i                             (2.2), α = 0.8
//! ```
//!
//! For each packet to send, among the paths with room:
//!
//! ```text
//! the path with the minimum of (n + 1)·Ŝ            (2.3)
//! ```
//!
//! Shreedhar, PhD thesis, section 2.4. W_i is the queueing delay of the packet itself: the time
//! from its assignment to the path until it leaves the device, or n / dequeue rate at its
//! assignment if that time is unknown.
//!
//! [`Estimator::Algorithm1`] is the approximation of the thesis's kernel code, which has no W_i. It
//! runs once per choice:
//!
//! ```text
//! W = n / dequeue rate, or 0 where n = 0            Ŵ ← α·Ŵ + (1 − α)·W
//! Ŝ = srtt − Ŵ
//! ```
//!
//! Its srtt is one round trip old and its Ŵ is new, so Ŝ is wrong while a queue grows or drains: in
//! `qaware/cbr-unequal` it costs 15 % of the goodput.
//!
//! # Where the paper is silent
//!
//! - **Before the first ack** Ŝ is srtt, or zero without one, so that a new path is tried at once.
//! - **A service time of zero or less.** An estimated W_i can exceed RTT_i. X_i is at least a
//!   sixteenth of RTT_i. Under Algorithm 1, Ŝ is at least the minimum of recent round trips, or,
//!   where that is unknown, a sixteenth of srtt.
//! - **The best path has no room.** Algorithm 1 goes through "available subflows": QAware takes the
//!   next best. [`Earliest`](super::Earliest) waits if that is better.
//! - **A queue that cannot be seen** counts as an empty one: n = 0 and W_i = 0. The rule is then
//!   that of the shortest round trip.
//! - **A queue that is blocked** (n > 0, and no packet has left yet) has no W: the ack of such a
//!   packet changes nothing, unless its departure was observed.
//! - **Packets that were sent again** give no X_i, as it is unknown which copy the ack answers
//!   (Karn).

use super::{Acked, Choice, MAX_PATHS, PathId, PathState, Scheduler, SendState, candidates};
use crate::unit::{Span, Time};

/// Settings of [`QAware`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct QAwareParams {
    /// α: the weight of the old mean in each update, 0 to below 1. 0.8.
    pub alpha: f64,
    /// How Ŝ is estimated.
    pub estimator: Estimator,
}

/// How [`QAware`] estimates the service time Ŝ of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Estimator {
    /// Equation (2.2): each packet's own queueing delay subtracted from its own round trip.
    #[default]
    PerPacket,
    /// Algorithm 1: the current mean queueing delay subtracted from the smoothed round trip.
    #[cfg_attr(feature = "serde", serde(rename = "algorithm-1"))]
    Algorithm1,
}

impl Default for QAwareParams {
    fn default() -> Self {
        Self { alpha: 0.8, estimator: Estimator::PerPacket }
    }
}

/// The estimates of one path.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// Ŵ, in s, of Algorithm 1.
    wait: f64,
    /// Ŝ, in s: of (2.2), `None` before the first ack; of Algorithm 1, `None` before the first
    /// choice.
    service: Option<f64>,
}

/// Schedules by device queues and service times.
#[derive(Debug, Clone)]
pub struct QAware {
    params: QAwareParams,
    known: [Known; MAX_PATHS],
}

impl QAware {
    pub(super) fn new(params: QAwareParams) -> Self {
        Self { params, known: [Known::default(); MAX_PATHS] }
    }

    /// α·old + (1 − α)·new.
    fn toward(&self, old: f64, new: f64) -> f64 {
        self.params.alpha * old + (1.0 - self.params.alpha) * new
    }

    /// (n + 1)·Ŝ, in s.
    fn system_time(&mut self, path: &PathState) -> f64 {
        let at = usize::from(path.id.0);
        let Some(mut known) = self.known.get(at).copied() else { return f64::MAX };
        let service = match self.params.estimator {
            Estimator::PerPacket => {
                known.service.unwrap_or_else(|| path.round_trip().as_secs_f64())
            }
            Estimator::Algorithm1 => {
                if let Some(now) = path.queue.map_or(Some(Span::ZERO), |queue| queue.wait()) {
                    known.wait = self.toward(known.wait, now.as_secs_f64());
                }
                *known.service.insert(path.beyond_device(known.wait))
            }
        };
        self.known[at] = known;
        let packets = path.queue.map_or(0.0, |queue| queue.packets as f64);
        (packets + 1.0) * service
    }
}

impl Scheduler for QAware {
    fn name(&self) -> &'static str {
        "qaware"
    }

    fn choose(&mut self, _now: Time, _flow: &SendState, paths: &[PathState]) -> Choice {
        let mut best = None;
        for path in candidates(paths).filter(|path| path.has_room()) {
            let system_time = self.system_time(path);
            if best.is_none_or(|(min, _)| system_time < min) {
                best = Some((system_time, path.id));
            }
        }
        best.map_or(Choice::Wait, |(_, id)| Choice::Send(id))
    }

    fn on_ack(&mut self, path: PathId, acked: &Acked) {
        if !self.wants_acks() {
            return;
        }
        let at = usize::from(path.0);
        let Some(service) = self.known.get(at).map(|known| known.service) else { return };
        let new = acked.service().as_secs_f64();
        self.known[at].service = Some(service.map_or(new, |old| self.toward(old, new)));
    }

    fn wants_acks(&self) -> bool {
        self.params.estimator == Estimator::PerPacket
    }

    fn service(&self, path: PathId) -> Option<Span> {
        self.known.get(usize::from(path.0))?.service.map(Span::from_secs_f64)
    }

    fn forget(&mut self, path: PathId) {
        if let Some(known) = self.known.get_mut(usize::from(path.0)) {
            *known = Known::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::tests::{PLENTY, path, queued};

    fn of(estimator: Estimator) -> QAware {
        QAware::new(QAwareParams { estimator, ..QAwareParams::default() })
    }

    fn choose(qaware: &mut QAware, paths: &[PathState]) -> Choice {
        qaware.choose(Time::ZERO, &PLENTY, paths)
    }

    fn ack(qaware: &mut QAware, path: u8, round_trip_ms: u64, wait_ms: u64) {
        let [round_trip, wait] = [round_trip_ms, wait_ms].map(Span::from_millis);
        qaware.on_ack(PathId(path), &Acked { round_trip, wait });
    }

    #[test]
    fn a_queue_counts_before_any_ack_has_passed_it() {
        for estimator in [Estimator::PerPacket, Estimator::Algorithm1] {
            let mut qaware = of(estimator);
            let [zero, one] = [0, 1].map(|id| Choice::Send(PathId(id)));
            assert_eq!(choose(&mut qaware, &[queued(0, 20, 0, 0.0), queued(1, 30, 0, 0.0)]), zero);
            // (1 + 1)·20 ms > 30 ms.
            assert_eq!(choose(&mut qaware, &[queued(0, 20, 1, 1e3), queued(1, 30, 0, 0.0)]), one);
        }
    }

    #[test]
    fn each_packets_own_wait_is_subtracted_from_its_own_round_trip() {
        let mut qaware = of(Estimator::PerPacket);
        ack(&mut qaware, 0, 20, 8);
        // Calculated: X = 12 ms; (8 + 1)·12 ms, whatever srtt is by now.
        let path = queued(0, 70, 8, 1e3);
        assert!((qaware.system_time(&path) - 0.108).abs() < 1e-9);
        // (2.2): 0.8·12 + 0.2·22 = 14 ms.
        ack(&mut qaware, 0, 60, 38);
        assert!((qaware.system_time(&path) - 9.0 * 0.014).abs() < 1e-9);
        // A choice is no ack: it changes nothing.
        assert!((qaware.system_time(&path) - 9.0 * 0.014).abs() < 1e-9);
        assert_eq!(qaware.service(PathId(0)), Some(Span::from_millis(14)));
        assert_eq!(qaware.service(PathId(1)), None, "no ack yet");
    }

    #[test]
    fn algorithm_1_takes_no_acks_and_tells_its_estimate() {
        let mut qaware = of(Estimator::Algorithm1);
        assert!(!qaware.wants_acks() && of(Estimator::PerPacket).wants_acks());
        assert_eq!(qaware.service(PathId(0)), None);
        ack(&mut qaware, 0, 20, 8);
        assert_eq!(qaware.service(PathId(0)), None);
        // Calculated: Ŵ = 0.2·10 = 2 ms.
        qaware.system_time(&queued(0, 70, 10, 1e3));
        assert_eq!(qaware.service(PathId(0)), Some(Span::from_millis(68)));
    }

    #[test]
    fn a_queue_that_grows_leaves_the_service_time_as_it_is() {
        // The queue grows by one packet per ms; the ack of a packet that found n packets arrives
        // (10 + n) ms after it was sent. Algorithm 1 subtracts the current queueing delay from an
        // older round trip.
        let [mut per_packet, mut algorithm_1] =
            [Estimator::PerPacket, Estimator::Algorithm1].map(of);
        for n in 0..100 {
            ack(&mut per_packet, 0, 10 + n, n);
            algorithm_1.system_time(&queued(0, 10 + n / 2, n, 1e3));
        }
        let path = queued(0, 60, 99, 1e3);
        assert!((per_packet.system_time(&path) - 100.0 * 0.010).abs() < 1e-9);
        let wrong = algorithm_1.system_time(&path) / 100.0;
        assert!(wrong < 0.006, "{wrong}: srtt/16 is all that is left of 10 ms");
    }

    #[test]
    fn algorithm_1_subtracts_the_mean_wait_from_the_smoothed_round_trip() {
        // Calculated: 8 packets at 1000 per second are queued for 8 ms; Ŵ = 0.2·8 ms = 1.6 ms, so
        // that (8 + 1)·(20 − 1.6) ms = 165.6 ms.
        let mut qaware = of(Estimator::Algorithm1);
        assert!((qaware.system_time(&queued(0, 20, 8, 1e3)) - 0.1656).abs() < 1e-12);
        // Ŵ = 0.8·1.6 + 0.2·8 = 2.88 ms; acks have no part in it.
        ack(&mut qaware, 0, 500, 0);
        assert!((qaware.system_time(&queued(0, 20, 8, 1e3)) - 9.0 * 0.01712).abs() < 1e-12);
    }

    /// Two devices of 1000 packets per second, each behind 20 ms; 60 % of 2000 packets per second
    /// arrive in bursts of 40. Round trips, and so srtt, lag behind the queues.
    #[test]
    fn equal_paths_are_loaded_equally_while_round_trips_lag_behind_queues() {
        let mut qaware = of(Estimator::PerPacket);
        let mut queues: [u64; 2] = [0; 2];
        let mut sent: [u64; 2] = [0; 2];
        let mut srtt = [20.0f64; 2];
        // (arrival of the ack, path, round trip, queueing delay), in ms.
        let mut acks: alloc::vec::Vec<(u64, u8, u64, u64)> = alloc::vec::Vec::new();
        for ms in 0..4_000u64 {
            for (_, path, round_trip, wait) in acks.extract_if(.., |(at, ..)| *at <= ms) {
                ack(&mut qaware, path, round_trip, wait);
                let srtt = &mut srtt[usize::from(path)];
                *srtt += (round_trip as f64 - *srtt) / 8.0;
            }
            queues.iter_mut().for_each(|queue| *queue = queue.saturating_sub(1));
            for _ in 0..if ms % 33 == 0 { 40 } else { 0 } {
                let paths = [0, 1].map(|id| {
                    queued(id, srtt[usize::from(id)] as u64, queues[usize::from(id)], 1e3)
                });
                let Choice::Send(id) = choose(&mut qaware, &paths) else { panic!("room for all") };
                let at = usize::from(id.0);
                let wait = queues[at];
                acks.push((ms + wait + 20, id.0, wait + 20, wait));
                (queues[at], sent[at]) = (queues[at] + 1, sent[at] + 1);
                assert!(queues[at] <= 21, "at {ms} ms: {queues:?}");
            }
        }
        let share = sent[0] as f64 / (sent[0] + sent[1]) as f64;
        assert!((0.49..0.51).contains(&share), "{sent:?}");
    }

    #[test]
    fn without_a_view_of_queues_the_shortest_round_trip_wins() {
        let mut qaware = QAware::new(QAwareParams::default());
        let paths = [path(0, 30, 10, 5), path(1, 20, 10, 5)];
        assert_eq!(choose(&mut qaware, &paths), Choice::Send(PathId(1)));
        ack(&mut qaware, 0, 10, 0);
        assert_eq!(choose(&mut qaware, &paths), Choice::Send(PathId(0)));
    }

    #[test]
    fn service_is_above_zero_however_long_the_queue_was() {
        let mut qaware = of(Estimator::Algorithm1);
        let min_rtt = Some(Span::from_millis(16));
        for _ in 0..100 {
            // Ŵ goes to 10 s, srtt lags behind.
            let path = PathState { min_rtt, ..queued(0, 20, 999, 100.0) };
            assert!((qaware.system_time(&path) - 16.0).abs() < 1.0);
        }
        assert!(qaware.system_time(&queued(0, 20, 5, 0.0)) > 0.0);
        let mut qaware = of(Estimator::PerPacket);
        (0..100).for_each(|_| ack(&mut qaware, 0, 32, 900));
        assert!((qaware.system_time(&queued(0, 20, 0, 0.0)) - 0.002).abs() < 1e-6);
    }
}
