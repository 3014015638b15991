//! A receiver's measurements once per round trip: its duration, and the data that arrived in it.
//!
//! ```text
//! with a sample:       R̂TT ← (1 − β)·R̂TT + β·sample
//! once each R̂TT:       ŵ ← α·ŵ + (1 − α)·arrived
//! ```
//!
//! (Im, PhD thesis, Algorithm 1.)

use crate::unit::{Bytes, Span, Time};

/// Smooths round trips and counts the bytes that arrive in each.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundMeter {
    /// α, the weight of the past in ŵ.
    keep: f64,
    /// β, the weight of a sample in R̂TT.
    gain: f64,
    rtt: Option<Span>,
    began_at: Option<Time>,
    last_arrival: Option<Time>,
    arrived: u64,
    /// ŵ in bytes, once a round is complete.
    flight: Option<f64>,
}

impl RoundMeter {
    pub(super) const fn new(keep: f64, gain: f64) -> Self {
        Self { keep, gain, rtt: None, began_at: None, last_arrival: None, arrived: 0, flight: None }
    }

    /// R̂TT.
    pub(super) fn rtt(&self) -> Option<Span> {
        self.rtt
    }

    /// Takes in a sample, unless it includes a pause of the sender; returns whether it did.
    pub(super) fn on_round_trip(&mut self, now: Time, sample: Span) -> bool {
        let paused = |rtt| self.last_arrival.is_some_and(|last| now.since(last) > rtt);
        // A pause cannot make a round trip shorter.
        if self.rtt.is_some_and(|rtt| sample > rtt && paused(rtt)) {
            return false;
        }
        self.smooth(sample);
        true
    }

    /// Takes in a sample without this check.
    pub(super) fn smooth(&mut self, sample: Span) {
        let mean = |rtt: Span| rtt.mul_f64(1.0 - self.gain) + sample.mul_f64(self.gain);
        self.rtt = Some(self.rtt.map_or(sample, mean));
    }

    /// Counts bytes that arrived, or were read; returns R̂TT and ŵ at the end of a round.
    pub(super) fn on_bytes(&mut self, now: Time, bytes: Bytes) -> Option<(Span, Bytes)> {
        self.last_arrival = Some(now);
        self.arrived = self.arrived.saturating_add(bytes.get());
        let began_at = *self.began_at.get_or_insert(now);
        let rtt = self.rtt.filter(|rtt| now.since(began_at) >= *rtt && !rtt.is_zero())?;
        let arrived = self.arrived as f64;
        let kept = |flight: f64| self.keep * flight + (1.0 - self.keep) * arrived;
        let flight = self.flight.map_or(arrived, kept);
        self.flight = Some(flight);
        self.began_at = Some(now);
        self.arrived = 0;
        Some((rtt, Bytes::new(flight as u64)))
    }
}
