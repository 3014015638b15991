//! CUBIC controls the window as a cubic function of the time since the last congestion, to use
//! paths of high capacity and long delay (RFC 9438). The window returns quickly to its size at the
//! last loss, stays near it, and then probes beyond it.
//!
//! ```text
//! W(t) = C·(t − K)³ + W_max        K = ∛((W_max − cwnd_epoch) / C)
//! W_est grows by α segments per window delivered,   α = 3·(1 − β)/(1 + β)
//!
//! ack:    cwnd moves towards max(W(t + rtt), W_est) within one round trip
//! loss:   W_max ← cwnd, or cwnd·(1 + β)/2 where that is below the last one (fast convergence)
//!         cwnd, ssthresh ← β·cwnd
//! ```
//!
//! Where Linux differs from the RFC, this follows Linux, with which it is compared: the window
//! grows by at most half per round trip; a flow that has not met congestion grows by at least one
//! segment per 20 delivered; W_est starts from the window and keeps its α; a timeout resets W_max;
//! t excludes pauses of the application.

use freshline_core::unit::{Packets, Span, Time};

use super::hystart::{HyStart, HyStartParams};
use super::window::{LikeReno, Window};
use super::{Ack, Idle, Signal};

/// Settings of [`Cubic`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CubicParams {
    /// C, in segments/s³: 0.4 (RFC 9438 section 5.1).
    pub scaling: f64,
    /// β, the factor by which congestion reduces the window: 0.7 (section 4.6).
    pub decrease: f64,
    /// Whether a flow whose W_max falls leaves room early (section 4.7).
    pub fast_convergence: bool,
    /// Leaves slow start early; with `None`, slow start ends with a loss.
    pub hystart: Option<HyStartParams>,
}

impl Default for CubicParams {
    fn default() -> Self {
        Self {
            scaling: 0.4,
            decrease: 0.7,
            fast_convergence: true,
            hystart: Some(HyStartParams::default()),
        }
    }
}

/// CUBIC.
#[derive(Debug, Clone)]
pub struct Cubic {
    params: CubicParams,
    window: Window,
    hystart: Option<HyStart>,
    /// The minimum round trip since the last timeout.
    min_rtt: Option<Span>,
    /// W_max; zero before the first congestion.
    w_max: f64,
    epoch: Option<Epoch>,
}

/// A stage of growth, from the first ack after a reduction to the next one.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    start: Time,
    /// K, in s.
    k: f64,
    /// The window at which the curve is level.
    origin: f64,
    /// W_est.
    reno: f64,
}

impl Cubic {
    /// In slow start, with a window of `initial` segments.
    pub fn new(params: CubicParams, initial: Packets) -> Self {
        Self {
            params,
            window: Window::new(initial),
            hystart: params.hystart.map(HyStart::new),
            min_rtt: None,
            w_max: 0.0,
            epoch: None,
        }
    }

    fn sample(&mut self, now: Time, ack: &Ack, rtt: Span) {
        // Just after a reduction, round trips still contain the queue that it drains.
        let settling = |epoch: Epoch| now.since(epoch.start) < Span::from_secs(1);
        if self.epoch.is_some_and(settling) {
            return;
        }
        let least = self.min_rtt.map_or(rtt, |least| least.min(rtt));
        self.min_rtt = Some(least);
        if self.window.in_slow_start()
            && let Some(hystart) = &mut self.hystart
            && hystart.is_enough(now, ack, self.window.cwnd, rtt, least)
        {
            self.window.ssthresh = self.window.cwnd;
        }
    }

    fn avoid_congestion(&mut self, now: Time, delivered: f64) {
        let cwnd = self.window.cwnd;
        let CubicParams { scaling, decrease, .. } = self.params;
        let epoch = self.epoch.get_or_insert_with(|| {
            let below = (self.w_max - cwnd).max(0.0);
            Epoch {
                start: now,
                k: libm::cbrt(below / scaling),
                origin: self.w_max.max(cwnd),
                reno: cwnd,
            }
        });
        let ahead = now.since(epoch.start) + self.min_rtt.unwrap_or(Span::ZERO);
        let beyond = ahead.as_secs_f64() - epoch.k;
        let target = epoch.origin + scaling * beyond * beyond * beyond;
        let alpha = 3.0 * (1.0 - decrease) / (1.0 + decrease);
        epoch.reno += alpha * delivered / cwnd;
        // The number of segments to be delivered per segment of window growth.
        let mut per_segment = if target > cwnd { cwnd / (target - cwnd) } else { 100.0 * cwnd };
        if self.w_max == 0.0 {
            per_segment = per_segment.min(20.0);
        }
        if epoch.reno > cwnd {
            per_segment = per_segment.min(cwnd / (epoch.reno - cwnd));
        }
        self.window.cwnd += delivered / per_segment.max(2.0);
    }
}

impl LikeReno for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        if let Some(rtt) = ack.rtt {
            self.sample(now, ack, rtt);
        }
        if self.window.may_grow(ack) {
            let left = self.window.slow_start(ack.delivered);
            if left > 0.0 {
                self.avoid_congestion(now, left);
            }
        }
    }

    fn on_congestion(&mut self, _now: Time, _signal: Signal) {
        let CubicParams { decrease, fast_convergence, .. } = self.params;
        let cwnd = self.window.cwnd;
        self.w_max = if fast_convergence && cwnd < self.w_max {
            cwnd * (1.0 + decrease) / 2.0
        } else {
            cwnd
        };
        self.window.answer_congestion(cwnd * decrease);
        self.epoch = None;
    }

    fn on_rto(&mut self) {
        self.window.collapse();
        (self.w_max, self.min_rtt, self.epoch) = (0.0, None, None);
        self.hystart = self.params.hystart.map(HyStart::new);
    }

    fn on_idle(&mut self, now: Time, idle: Idle) {
        self.window.restart(idle);
        if let Some(epoch) = &mut self.epoch {
            epoch.start = (epoch.start + idle.span).min(now);
        }
    }
}
