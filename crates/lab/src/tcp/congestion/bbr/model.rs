//! BBR's model of the path: its delivery rate and its minimum round trip, with time counted in
//! rounds.

use freshline_core::unit::{Span, Time};

use crate::tcp::congestion::Ack;
use crate::tcp::filter::WindowedMax;

/// A delivery rate in segments per 10⁶ s, which is fine enough for an integer.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(super) struct Rate(u64);

const SCALE: f64 = 1e6;

impl Rate {
    pub(super) fn per_second(segments: f64) -> Self {
        Self((segments * SCALE) as u64)
    }

    pub(super) fn segments_per_second(self) -> f64 {
        self.0 as f64 / SCALE
    }
}

#[derive(Debug, Clone)]
pub(super) struct Model {
    /// The window is counted in rounds.
    rate: WindowedMax,
    round: u64,
    /// A round ends with the ack of a segment that was sent after this many segments were
    /// delivered.
    round_ends: u64,
    round_started: bool,
    /// Segments sent before this many were delivered do not show the path's rate, as BBR held them
    /// back.
    held_back_until: u64,
    min_rtt: Option<(Span, Time)>,
}

impl Model {
    pub(super) fn new(rate_rounds: u64) -> Self {
        Self {
            rate: WindowedMax::new(rate_rounds),
            round: 0,
            round_ends: 0,
            round_started: false,
            held_back_until: 0,
            min_rtt: None,
        }
    }

    pub(super) fn rate(&self) -> Option<Rate> {
        self.rate.get().map(Rate)
    }

    pub(super) fn min_rtt(&self) -> Option<Span> {
        self.min_rtt.map(|(rtt, _)| rtt)
    }

    /// The bandwidth-delay product, in segments.
    pub(super) fn pipe(&self) -> Option<f64> {
        Some(self.rate()?.segments_per_second() * self.min_rtt()?.as_secs_f64())
    }

    /// Whether the last ack was the first of a round.
    pub(super) fn round_started(&self) -> bool {
        self.round_started
    }

    /// Counts rounds and records the rate. Returns whether the rate was limited by the application.
    pub(super) fn on_ack(&mut self, ack: &Ack) -> bool {
        self.round_started = false;
        let Some(sample) = ack.rate else { return false };
        if sample.prior_delivered >= self.round_ends {
            self.round_ends = ack.total_delivered.get();
            self.round += 1;
            self.round_started = true;
        }
        let limited = sample.app_limited || sample.prior_delivered < self.held_back_until;
        let rate = Rate::per_second(sample.delivered as f64 / sample.interval.as_secs_f64());
        if !limited || self.rate().is_none_or(|known| rate >= known) {
            self.rate.insert(self.round, rate.0);
        }
        limited
    }

    /// A new round begins with the next segment sent.
    pub(super) fn restart_round(&mut self, ack: &Ack) {
        self.round_ends = ack.total_delivered.get();
    }

    /// The segments in flight now were held back.
    pub(super) fn limited_by_application(&mut self, ack: &Ack) {
        self.held_back_until = ack.total_delivered.get() + ack.in_flight.get();
    }

    /// Records the round trip. Returns whether the old minimum had expired.
    pub(super) fn update_min_rtt(&mut self, now: Time, ack: &Ack, window: Span) -> bool {
        let expired = self.min_rtt.is_some_and(|(_, since)| now > since + window);
        if let Some(rtt) = ack.rtt
            && (expired || self.min_rtt.is_none_or(|(least, _)| rtt <= least))
        {
            self.min_rtt = Some((rtt, now));
        }
        expired
    }

    /// The minimum round trip has just been probed: it is valid from now on.
    pub(super) fn min_rtt_holds(&mut self, now: Time) {
        if let Some((_, since)) = &mut self.min_rtt {
            *since = now;
        }
    }
}
