//! Earliest delivery.

use super::{Choice, Flow, MOST_PATHS, PathState, Scheduler, candidates};
use crate::unit::{Span, Time};

#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct EarliestParams {
    pub beta: f64,
}

impl Default for EarliestParams {
    fn default() -> Self {
        Self { beta: 0.25 }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    srtt: Option<Span>,
    wait: f64,
    service: f64,
}

#[derive(Debug, Clone)]
pub struct Earliest {
    params: EarliestParams,
    known: [Known; MOST_PATHS],
    is_waiting: bool,
}

impl Earliest {
    pub(super) fn new(params: EarliestParams) -> Self {
        Self { params, known: [Known::default(); MOST_PATHS], is_waiting: false }
    }

    fn delivery(&mut self, path: &PathState) -> f64 {
        let known = &mut self.known[usize::from(path.id.0) % MOST_PATHS];
        let round_trip = path.round_trip().as_secs_f64();
        let queue = path.queue.map_or(Some(Span::ZERO), |queue| queue.wait());
        let wait = queue.map_or(known.wait.max(round_trip), Span::as_secs_f64);
        if known.srtt != path.srtt {
            known.srtt = path.srtt;
            known.wait = 0.875 * known.wait + 0.125 * wait;
            let least = path.min_rtt.map_or(round_trip / 16.0, Span::as_secs_f64);
            known.service = (round_trip - known.wait).max(least);
        }
        wait + known.service
    }
}

impl Scheduler for Earliest {
    fn name(&self) -> &'static str {
        "earliest"
    }

    fn choose(&mut self, _now: Time, flow: &Flow, paths: &[PathState]) -> Choice {
        let mut fast: Option<(f64, &PathState)> = None;
        let mut slow: Option<(f64, &PathState)> = None;
        for path in candidates(paths) {
            let time = self.delivery(path);
            if fast.is_none_or(|(least, _)| time < least) {
                fast = Some((time, path));
            }
            if path.has_room() && slow.is_none_or(|(least, _)| time < least) {
                slow = Some((time, path));
            }
        }
        let (Some((rtt_f, fast)), Some((rtt_s, slow))) = (fast, slow) else { return Choice::Wait };
        if fast.id == slow.id {
            return Choice::Send(slow.id);
        }
        let k = flow.unsent.min(flow.window_left).get() as f64;
        let rounds = k / fast.cwnd.get().max(1) as f64;
        let margin = if self.is_waiting { 1.0 + self.params.beta } else { 1.0 };
        self.is_waiting = (1.0 + rounds) * rtt_f < margin * rtt_s;
        if self.is_waiting { Choice::Wait } else { Choice::Send(slow.id) }
    }
}
