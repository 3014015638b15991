//! YeAH controls the window by losses and delay: it grows fast while the queue is short, otherwise
//! as Reno, and drains the queue that it has built (Baiocchi, Castellani, Vacirca: "YeAH-TCP: Yet
//! Another Highspeed TCP", PFLDnet 2007).
//!
//! ```text
//! once per round trip:  queue = cwnd·(rtt − base)/rtt      congested: queue > Q_max
//!                                                                     or (rtt − base)/base > 1/φ
//! fast (not congested):   1 segment per min(cwnd, 100) delivered, as Scalable TCP
//! slow (congested):       as Reno; if queue > Q_max, cwnd ← cwnd − min(queue, cwnd/2), but not
//!                         below the window that a Reno flow would have
//! loss:  fewer than ρ congested rounds:         cwnd ← cwnd − clamp(queue, cwnd/8, cwnd/2)
//!        otherwise, competitors are greedy:     cwnd ← cwnd/2
//! ```

use freshline_core::unit::{Packets, Span, Time};

use super::delay::{Delay, DelayMeter, Stage};
use super::window::{LikeReno, Window};
use super::{Ack, Signal};

/// Settings of [`Yeah`], with the defaults of Linux.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct YeahParams {
    /// Q_max, the maximum number of queued segments: 80.
    pub max_queued: f64,
    /// φ: a queueing delay above the minimum round trip divided by this counts as congestion: 8.
    pub delay_share: u64,
    /// ρ: after this many congested rounds, a loss halves the window: 16.
    pub patience: u32,
    /// ζ: after this many rounds without congestion, Reno's window is reset: 50.
    pub forget_after: u32,
    /// In fast mode, the window grows by one segment per this many delivered segments: 100.
    pub per_segment: f64,
}

impl Default for YeahParams {
    fn default() -> Self {
        Self {
            max_queued: 80.0,
            delay_share: 8,
            patience: 16,
            forget_after: 50,
            per_segment: 100.0,
        }
    }
}

/// The minimum of Reno's window.
const MIN_RENO: f64 = 2.0;

/// YeAH.
#[derive(Debug, Clone)]
pub struct Yeah {
    params: YeahParams,
    window: Window,
    delay: DelayMeter,
    /// Segments queued, as of the last round.
    queue: f64,
    /// The window that a Reno flow would have.
    reno: f64,
    /// The number of consecutive congested rounds; 0 means fast mode.
    congested: u32,
    uncongested: u32,
}

impl Yeah {
    /// In slow start, with a window of `initial` segments.
    pub fn new(params: YeahParams, initial: Packets) -> Self {
        Self {
            params,
            window: Window::new(initial),
            delay: DelayMeter::new(),
            queue: 0.0,
            reno: MIN_RENO,
            congested: 0,
            uncongested: 0,
        }
    }

    fn grow(&mut self, ack: &Ack) {
        let left = self.window.slow_start(ack.delivered);
        if self.congested > 0 {
            self.window.additive(left);
        } else {
            self.window.cwnd += left / self.window.cwnd.min(self.params.per_segment);
        }
    }

    fn steer(&mut self, delay: Delay) {
        let cwnd = self.window.cwnd;
        let queueing: Span = delay.queueing();
        self.queue = cwnd * queueing.as_secs_f64() / delay.rtt.as_secs_f64();
        let long = self.queue > self.params.max_queued;
        if long || queueing > delay.base / self.params.delay_share {
            if long && cwnd > self.reno {
                let drained = cwnd - self.queue.min(cwnd / 2.0);
                self.window.reduce_to(drained.max(self.reno));
            }
            self.reno = if self.reno <= MIN_RENO {
                (self.window.cwnd / 2.0).max(MIN_RENO)
            } else {
                self.reno + 1.0
            };
            self.congested = self.congested.saturating_add(1);
        } else {
            self.uncongested += 1;
            if self.uncongested > self.params.forget_after {
                (self.reno, self.uncongested) = (MIN_RENO, 0);
            }
            self.congested = 0;
        }
    }
}

impl LikeReno for Yeah {
    fn name(&self) -> &'static str {
        "yeah"
    }

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn on_ack(&mut self, _now: Time, ack: &Ack) {
        let stage = self.delay.on_ack(ack);
        if self.window.may_grow(ack) {
            self.grow(ack);
        }
        if let Stage::Over(Some(delay)) = stage
            && !ack.recovering
        {
            self.steer(delay);
        }
    }

    fn on_congestion(&mut self, _now: Time, _signal: Signal) {
        let cwnd = self.window.cwnd;
        let cut = if self.congested < self.params.patience {
            self.queue.clamp(cwnd / 8.0, cwnd / 2.0)
        } else {
            cwnd / 2.0
        };
        self.window.answer_congestion(cwnd - cut);
        self.reno = (self.reno / 2.0).max(MIN_RENO);
        self.uncongested = 0;
    }

    fn on_recovered(&mut self, _now: Time) {
        self.delay.restart();
    }
}
