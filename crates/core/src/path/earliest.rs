//! Earliest delivery: QAware's queue and server, but with the queue's own rate. It waits for a full
//! path if that delivers all data that may be sent sooner.
//!
//! With n packets in the device queue of a path:
//!
//! ```text
//! W = n / dequeue rate                              Ŵ: its mean, with each new srtt, by 1/8
//! X = max(srtt − Ŵ, minimum round trip)             delay behind the device
//! D = W + X                                         until this packet is acknowledged
//!
//! f: the path with minimum D         s: that among paths with room        k = min(unsent, window)
//! wait for f  if  (1 + k/cwnd_f)·D_f < (1 + β·waiting)·D_s
//! ```
//!
//! [`QAware`](super::QAware) counts each packet in the queue as the time that a packet takes behind
//! the device, (n + 1)·X: a device of half the rate gets as many packets as a fast one, and they
//! arrive out of order. While the window that all paths share keeps all devices busy, this costs no
//! goodput. Here packets arrive in the order in which they were sent, also where the window is
//! short. Waiting is that of [`Ecf`](super::Ecf) (Lim et al., CoNEXT 2017, section 4), with two
//! differences: times are predicted from the queues, and the end of the window counts as well as
//! that of the data. `waiting` is 1 from a wait on until the condition fails.
//!
//! Our own law, from Shreedhar, PhD thesis, section 2.4, whose (2.2) smooths X once an ack, as it
//! is done here. A path without acks keeps its X: no queue has changed the path behind it.

use super::ecf::rounds;
use super::{Choice, EcfParams, MAX_PATHS, PathId, PathState, Scheduler, SendState, candidates};
use crate::unit::{Span, Time};

/// Settings of [`Earliest`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct EarliestParams {
    /// β: by how much more the condition must fail before waiting ends, 0 to 10. 0.25, as of ECF.
    pub beta: f64,
}

impl Default for EarliestParams {
    fn default() -> Self {
        Self { beta: EcfParams::default().beta }
    }
}

/// TCP's gain of srtt (RFC 6298), so that Ŵ and srtt are means over as many packets.
const GAIN: f64 = 1.0 / 8.0;

/// The estimates of one path.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The smoothed round trip of `wait` and `service`.
    srtt: Option<Span>,
    /// Ŵ, in s.
    wait: f64,
    /// X, in s.
    service: f64,
}

/// Sends each packet by the path on which it arrives first.
#[derive(Debug, Clone)]
pub struct Earliest {
    params: EarliestParams,
    known: [Known; MAX_PATHS],
    is_waiting: bool,
}

impl Earliest {
    pub(super) fn new(params: EarliestParams) -> Self {
        Self { params, known: [Known::default(); MAX_PATHS], is_waiting: false }
    }

    /// D, in s.
    fn delivery(&mut self, path: &PathState) -> f64 {
        let known = &mut self.known[usize::from(path.id.0) % MAX_PATHS];
        let round_trip = path.round_trip().as_secs_f64();
        let queue = path.queue.map_or(Some(Span::ZERO), |queue| queue.wait());
        // A blocked queue counts with its mean delay, or a round trip if that is longer.
        let wait = queue.map_or(known.wait.max(round_trip), Span::as_secs_f64);
        if known.srtt != path.srtt {
            known.srtt = path.srtt;
            known.wait += GAIN * (wait - known.wait);
            known.service = path.beyond_device(known.wait);
        }
        wait + known.service
    }
}

impl Scheduler for Earliest {
    fn name(&self) -> &'static str {
        "earliest"
    }

    fn choose(&mut self, _now: Time, flow: &SendState, paths: &[PathState]) -> Choice {
        // The minimum D of all paths, and of those with room.
        let mut best: [Option<(f64, &PathState)>; 2] = [None; 2];
        for path in candidates(paths) {
            let delivery = self.delivery(path);
            for (best, may_be) in best.iter_mut().zip([true, path.has_room()]) {
                if may_be && best.is_none_or(|(least, _)| delivery < least) {
                    *best = Some((delivery, path));
                }
            }
        }
        let [Some((fast, first)), Some((slow, with_room))] = best else { return Choice::Wait };
        if first.has_room() {
            return Choice::Send(first.id);
        }
        let left = flow.unsent.min(flow.window_left);
        let margin = if self.is_waiting { 1.0 + self.params.beta } else { 1.0 };
        self.is_waiting = (1.0 + rounds(left, first)) * fast < margin * slow;
        if self.is_waiting { Choice::Wait } else { Choice::Send(with_room.id) }
    }

    fn forget(&mut self, path: PathId) {
        self.known[usize::from(path.0) % MAX_PATHS] = Known::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::DeviceQueue;
    use crate::path::tests::{PLENTY, SEGMENT, path, queued};

    fn choose(earliest: &mut Earliest, flow: &SendState, paths: &[PathState]) -> Choice {
        earliest.choose(Time::ZERO, flow, paths)
    }

    #[test]
    fn a_queue_takes_as_long_as_its_device_needs() {
        // Calculated: 8 packets at 1000 per second are queued for 8 ms; Ŵ = 8/8 = 1 ms; 8 + (20 −
        // 1) ms.
        let mut earliest = Earliest::new(EarliestParams::default());
        assert!((earliest.delivery(&queued(0, 20, 8, 1e3)) - 0.027).abs() < 1e-12);
        // Without a new round trip only the queue has changed.
        assert!((earliest.delivery(&queued(0, 20, 2, 1e3)) - 0.021).abs() < 1e-12);
        // Ŵ = 1 + (4 − 1)/8 = 1.375 ms, 4 + (24 − 1.375) ms.
        assert!((earliest.delivery(&queued(0, 24, 4, 1e3)) - 0.026625).abs() < 1e-12);
    }

    #[test]
    fn a_device_twice_as_fast_gets_twice_as_many() {
        let mut earliest = Earliest::new(EarliestParams::default());
        let mut waiting = [0u64; 2];
        for _ in 0..300 {
            let paths = [(0, 1e3), (1, 5e2)].map(|(id, rate)| PathState {
                min_rtt: Some(Span::from_millis(20)),
                ..queued(id, 20, waiting[usize::from(id)], rate)
            });
            match choose(&mut earliest, &PLENTY, &paths) {
                Choice::Send(id) => waiting[usize::from(id.0)] += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(waiting, [200, 100]);
    }

    #[test]
    fn it_waits_while_the_rest_of_data_or_window_is_over_sooner() {
        // 10 packets each 10 ms; 100 ms.
        let paths = [path(0, 10, 10, 10), path(1, 100, 10, 0)];
        let few = |packets: u64| {
            [
                SendState { unsent: SEGMENT * packets, ..PLENTY },
                SendState { window_left: SEGMENT * packets, ..PLENTY },
            ]
        };
        // (1 + 8.9)·10 ms < 100 ms.
        for flow in few(89) {
            let mut earliest = Earliest::new(EarliestParams::default());
            assert_eq!(choose(&mut earliest, &flow, &paths), Choice::Wait);
            let room = [path(0, 10, 10, 9), paths[1]];
            assert_eq!(choose(&mut earliest, &flow, &room), Choice::Send(PathId(0)));
            // It has waited, and the data that the fast path took since does not end that: 125 ms.
            assert_eq!(choose(&mut earliest, &few(110)[0], &paths), Choice::Wait);
            assert_eq!(choose(&mut earliest, &few(116)[0], &paths), Choice::Send(PathId(1)));
            assert_eq!(choose(&mut earliest, &few(110)[0], &paths), Choice::Send(PathId(1)));
        }
        for flow in few(91) {
            let mut earliest = Earliest::new(EarliestParams::default());
            assert_eq!(choose(&mut earliest, &flow, &paths), Choice::Send(PathId(1)));
        }
    }

    #[test]
    fn a_full_path_behind_a_long_queue_is_not_waited_for() {
        // 300 ms of queue: 310 ms against 100.
        let queue = Some(DeviceQueue { packets: 300, rate: 1e3 });
        let full = PathState { queue, ..path(0, 10, 10, 10) };
        let one = SendState { unsent: SEGMENT, ..PLENTY };
        let mut earliest = Earliest::new(EarliestParams::default());
        assert_eq!(
            choose(&mut earliest, &one, &[full, path(1, 100, 10, 0)]),
            Choice::Send(PathId(1))
        );
    }

    #[test]
    fn once_a_queue_is_empty_its_path_is_as_good_as_before() {
        let mut earliest = Earliest::new(EarliestParams::default());
        let short = Some(Span::from_millis(10));
        // By now round trips include the queue: 200 ms of queueing delay, 210 ms in all.
        for step in 0..200 {
            let full = PathState { min_rtt: short, ..queued(0, 210 + step % 2, 200, 1e3) };
            earliest.delivery(&full);
        }
        // Nothing has been sent since, and srtt still says 210 ms.
        let empty = PathState { min_rtt: short, ..queued(0, 210, 0, 1e3) };
        let other = PathState { min_rtt: short, ..queued(1, 60, 0, 1e3) };
        assert_eq!(choose(&mut earliest, &PLENTY, &[empty, other]), Choice::Send(PathId(0)));
    }
}
