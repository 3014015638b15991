//! Reno controls the window by losses: it grows by one segment per round trip, and is halved after
//! a loss (RFC 5681, with appropriate byte counting in segments, RFC 3465).
//!
//! ```text
//! slow start:             cwnd ← cwnd + delivered          while cwnd < ssthresh
//! congestion avoidance:   cwnd ← cwnd + delivered / cwnd
//! loss or mark:           cwnd, ssthresh ← max(cwnd / 2, 2)
//! timeout:                cwnd ← 1
//! ```
//!
//! As in Linux, a loss halves the window and not the data in flight.

use freshline_core::unit::{Packets, Time};

use super::Ack;
use super::window::{LikeReno, Window};

/// Reno.
#[derive(Debug, Clone)]
pub struct Reno {
    window: Window,
}

impl Reno {
    /// In slow start, with a window of `initial` segments.
    pub fn new(initial: Packets) -> Self {
        Self { window: Window::new(initial) }
    }

    /// Caps the window at `most` segments, for now.
    pub(super) fn hold_to(&mut self, most: Packets) {
        self.window.cwnd = self.window.cwnd.min(most.get() as f64);
    }
}

impl LikeReno for Reno {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn on_ack(&mut self, _now: Time, ack: &Ack) {
        if self.window.may_grow(ack) {
            self.window.grow_as_reno(ack.delivered);
        }
    }
}
