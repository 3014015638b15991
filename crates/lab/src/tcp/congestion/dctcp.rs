//! DCTCP controls the window by ECN marks, for short queues: it reduces the window in proportion to
//! the fraction of marked segments (RFC 8257).
//!
//! ```text
//! once a round trip:  F = delivered with marks / delivered      α ← (1 − g)·α + g·F
//! mark:               cwnd, ssthresh ← cwnd·(1 − α/2), once a round trip
//! loss:               as Reno, and growth too
//! ```
//!
//! It needs a sender with ECN, a receiver that echoes each mark, and queues that mark packets.

use freshline_core::unit::{Packets, Time};

use super::round::Round;
use super::window::{LikeReno, Window};
use super::{Ack, Signal};

/// Settings of [`Dctcp`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DctcpParams {
    /// g, the weight of the newest round trip: 1/16 (RFC 8257 section 4.2).
    pub gain: f64,
    /// α before the first measurement: 1, so that the first mark halves the window.
    pub initial_share: f64,
}

impl Default for DctcpParams {
    fn default() -> Self {
        Self { gain: 1.0 / 16.0, initial_share: 1.0 }
    }
}

/// DCTCP.
#[derive(Debug, Clone)]
pub struct Dctcp {
    params: DctcpParams,
    window: Window,
    round: Round,
    /// The segments delivered in this round, and the marked ones among them.
    delivered: u64,
    marked: u64,
    /// α.
    share: f64,
}

impl Dctcp {
    /// In slow start, with a window of `initial` segments.
    pub fn new(params: DctcpParams, initial: Packets) -> Self {
        Self {
            params,
            window: Window::new(initial),
            round: Round::default(),
            delivered: 0,
            marked: 0,
            share: params.initial_share,
        }
    }

    /// α: the smoothed fraction of marked segments.
    pub fn marked_share(&self) -> f64 {
        self.share
    }

    fn count(&mut self, ack: &Ack) {
        self.delivered += ack.delivered.get();
        if ack.marked {
            self.marked += ack.delivered.get();
        }
        if self.round.starts_with(ack) && self.delivered > 0 {
            let fraction = self.marked as f64 / self.delivered as f64;
            self.share += self.params.gain * (fraction - self.share);
            (self.delivered, self.marked) = (0, 0);
        }
    }
}

impl LikeReno for Dctcp {
    fn name(&self) -> &'static str {
        "dctcp"
    }

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn on_ack(&mut self, _now: Time, ack: &Ack) {
        self.count(ack);
        if self.window.may_grow(ack) {
            self.window.grow_as_reno(ack.delivered);
        }
    }

    fn on_congestion(&mut self, _now: Time, signal: Signal) {
        let left = match signal {
            Signal::Mark => 1.0 - self.share / 2.0,
            Signal::Loss | Signal::Probed => 0.5,
        };
        self.window.answer_congestion(self.window.cwnd * left);
    }
}
