//! Dynamic receive window adjustment (DRWA): the window shrinks in proportion to the growth of the
//! round trip.
//!
//! ```text
//! rwnd = λ · RTTm/R̂TT · ŵ         bytes or packets; equation 2.13
//! ```
//!
//! Im, PhD thesis, Seoul National University, 2015, chapter 2. Alone on a path it settles at R̂TT =
//! λ·RTTm. Alongside flows that fill a queue, which it cannot empty, each round multiplies its
//! window by λ·RTTm/R̂TT < 1: it starves, as the thesis shows.

use super::round::RoundMeter;
use super::{Arrival, Limits, WindowLaw};
use crate::unit::{Bytes, Packets, Span, Time};

/// Settings of [`Drwa`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct DrwaParams {
    /// λ, above 1: where the round trip settles, in multiples of its minimum. 3 (Im, PhD thesis,
    /// Table 2.1).
    pub lambda: f64,
    /// α, from 0 to below 1: the weight of the past in ŵ. 1/8, as in RTAC.
    pub keep: f64,
    /// β, above 0 and at most 1: the weight of a sample in R̂TT. 1/8, as in RTAC.
    pub gain: f64,
    /// The minimum window in segments, above zero: 4, with which losses are found by duplicate acks
    /// and not by timeouts.
    pub least: Packets,
}

impl Default for DrwaParams {
    fn default() -> Self {
        Self { lambda: 3.0, keep: 0.125, gain: 0.125, least: Packets::new(4) }
    }
}

/// The baseline law of the thesis.
#[derive(Debug, Clone, Copy)]
pub struct Drwa {
    params: DrwaParams,
    limits: Limits,
    round: RoundMeter,
    /// RTTm.
    base: Span,
    window: Bytes,
}

impl Drwa {
    pub(super) fn new(params: DrwaParams, limits: Limits) -> Self {
        let round = RoundMeter::new(params.keep, params.gain);
        Self { params, limits, round, base: Span::MAX, window: limits.initial }
    }
}

impl WindowLaw for Drwa {
    fn name(&self) -> &'static str {
        "drwa"
    }

    fn on_round_trip(&mut self, now: Time, sample: Span) {
        self.base = self.base.min(sample);
        self.round.on_round_trip(now, sample);
    }

    fn on_arrival(&mut self, now: Time, arrival: Arrival) {
        let Some((rtt, flight)) = self.round.on_bytes(now, arrival.bytes) else { return };
        let ratio = self.base.as_secs_f64() / rtt.as_secs_f64();
        let wanted = self.params.lambda * ratio * flight.get() as f64;
        self.window = self.limits.bound(wanted, self.params.least, arrival.segment);
    }

    fn on_read(&mut self, _now: Time, _bytes: Bytes) {}

    fn window(&self) -> Bytes {
        self.window
    }
}
