//! Vegas controls the window so that a few of the flow's packets are in the queue: enough to use
//! the capacity, and few enough for a short delay (Brakmo, Peterson: "TCP Vegas: End to End
//! Congestion Avoidance on a Global Internet", 1995).
//!
//! ```text
//! once per round trip:  queued = ⌊cwnd·(rtt − base)/base⌋
//! slow start:           doubles, until queued > γ;  then cwnd ← min(cwnd, ⌊cwnd·base/rtt⌋ + 1)
//! afterwards:           queued < α: cwnd + 1     queued > β: cwnd − 1
//! loss:                 as Reno
//! ```
//!
//! As in Linux: whole segments are counted, so that β is exceeded by a fifth one; the window
//! doubles in every round trip of slow start, not in every other one; rounds with fewer than three
//! samples, and recovery, follow Reno.

use freshline_core::unit::{Packets, Time};

use super::Ack;
use super::delay::{Delay, DelayMeter, Stage};
use super::window::{LikeReno, Window};

/// Settings of [`Vegas`], in segments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VegasParams {
    /// α: 2. The window grows while fewer are queued.
    pub least: f64,
    /// β: 4. The window shrinks while more are queued.
    pub most: f64,
    /// γ: 1. Slow start ends when more are queued.
    pub slow_start: f64,
}

impl Default for VegasParams {
    fn default() -> Self {
        Self { least: 2.0, most: 4.0, slow_start: 1.0 }
    }
}

/// Vegas.
#[derive(Debug, Clone)]
pub struct Vegas {
    params: VegasParams,
    window: Window,
    delay: DelayMeter,
}

impl Vegas {
    /// In slow start, with a window of `initial` segments.
    pub fn new(params: VegasParams, initial: Packets) -> Self {
        Self { params, window: Window::new(initial), delay: DelayMeter::new() }
    }

    fn steer(&mut self, delay: Delay, ack: &Ack) {
        let window = &mut self.window;
        let base = delay.base.as_secs_f64();
        let queued = (window.cwnd * delay.queueing().as_secs_f64() / base).floor();
        if window.in_slow_start() {
            if queued > self.params.slow_start {
                let target = (window.cwnd * base / delay.rtt.as_secs_f64()).floor();
                window.reduce_to(window.cwnd.min(target + 1.0));
            } else if window.may_grow(ack) {
                window.slow_start(ack.delivered);
            }
        } else if queued > self.params.most {
            window.reduce_to(window.cwnd - 1.0);
        } else if queued < self.params.least && window.may_grow(ack) {
            window.cwnd += 1.0;
        }
    }
}

impl LikeReno for Vegas {
    fn name(&self) -> &'static str {
        "vegas"
    }

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn on_ack(&mut self, _now: Time, ack: &Ack) {
        let stage = self.delay.on_ack(ack);
        if ack.recovering {
            return;
        }
        match stage {
            Stage::Over(Some(delay)) => self.steer(delay, ack),
            Stage::Over(None) if self.window.may_grow(ack) => {
                self.window.grow_as_reno(ack.delivered);
            }
            Stage::Within if self.window.may_grow(ack) => {
                self.window.slow_start(ack.delivered);
            }
            Stage::Over(None) | Stage::Within => {}
        }
    }

    fn on_recovered(&mut self, _now: Time) {
        self.delay.restart();
    }
}
