//! H-TCP controls the window by losses. The longer ago the last loss was, the faster the window
//! grows, so that paths of high capacity are filled in a short time (Leith, Shorten: "H-TCP: TCP
//! for high-speed and long-distance networks", PFLDnet 2004; draft-leith-tcp-htcp).
//!
//! ```text
//! Δ = time since the last loss      f(Δ) = 1 up to 1 s, then 1 + 10·(Δ−1) + ((Δ−1)/2)²
//! α = 2·(1 − β)·max(1, f(Δ)·rtt_min / 100 ms), where rtt_min counts as 10 to 200 ms
//! ack:   cwnd ← cwnd + α·delivered/cwnd
//! loss:  β ← rtt_min/rtt_max within 0.5 to 0.8, but 0.5 if the maximum throughput has changed by
//!        more than 20 % since the last loss, or if rtt_min is below 10 ms
//!        cwnd ← β·cwnd
//! ```

use freshline_core::unit::{Packets, Span, Time};

use super::window::{LikeReno, Window};
use super::{Ack, Signal};

/// Settings of [`HTcp`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HTcpParams {
    /// The time after a loss during which it grows as Reno does: 1 s.
    pub low_speed: Span,
    /// The minimum β: 0.5.
    pub min_backoff: f64,
    /// The maximum β: 0.8.
    pub max_backoff: f64,
    /// A relative change of throughput above this sets β to its minimum: 0.2.
    pub throughput_change: f64,
    /// Whether flows with unequal round trips grow equally fast.
    pub rtt_scaling: bool,
}

impl Default for HTcpParams {
    fn default() -> Self {
        Self {
            low_speed: Span::from_secs(1),
            min_backoff: 0.5,
            max_backoff: 0.8,
            throughput_change: 0.2,
            rtt_scaling: true,
        }
    }
}

/// The round trip to which growth is scaled.
const REFERENCE_RTT: Span = Span::from_millis(100);
/// On paths shorter than this, the ratio of round trips means little.
const MIN_RTT_FOR_BACKOFF: Span = Span::from_millis(10);
/// The fraction of the distance between the maximum and the minimum round trip that is kept with
/// each loss.
const FADING: f64 = 0.95;

/// H-TCP.
#[derive(Debug, Clone)]
pub struct HTcp {
    params: HTcpParams,
    window: Window,
    last_loss: Option<Time>,
    min_rtt: Span,
    max_rtt: Span,
    backoff: f64,
    throughput: Throughput,
}

/// The maximum throughput since the last loss, and before it, in segments/s.
#[derive(Debug, Clone, Copy, Default)]
struct Throughput {
    since: Option<Time>,
    delivered: f64,
    smoothed: f64,
    most: f64,
    max_before: f64,
}

impl HTcp {
    /// In slow start, with a window of `initial` segments.
    pub fn new(params: HTcpParams, initial: Packets) -> Self {
        Self {
            params,
            window: Window::new(initial),
            last_loss: None,
            min_rtt: Span::MAX,
            max_rtt: Span::ZERO,
            backoff: params.min_backoff,
            throughput: Throughput::default(),
        }
    }

    fn increase(&self, now: Time) -> f64 {
        let since = now.since(self.last_loss.unwrap_or(now));
        let beyond = (since - self.params.low_speed).as_secs_f64();
        let mut growth = 1.0 + 10.0 * beyond + (beyond / 2.0) * (beyond / 2.0);
        if self.params.rtt_scaling && self.min_rtt < Span::MAX {
            let scale = self.min_rtt.as_secs_f64() / REFERENCE_RTT.as_secs_f64();
            growth = (growth * scale.clamp(0.1, 2.0)).max(1.0);
        }
        2.0 * growth * (1.0 - self.backoff)
    }

    fn adapt_backoff(&mut self) {
        let HTcpParams { min_backoff, max_backoff, throughput_change, .. } = self.params;
        let Throughput { most, max_before, .. } = self.throughput;
        let changed = (most - max_before).abs() > throughput_change * max_before;
        self.backoff = if changed || self.min_rtt < MIN_RTT_FOR_BACKOFF {
            min_backoff
        } else {
            let ratio = self.min_rtt.as_secs_f64() / self.max_rtt.as_secs_f64();
            ratio.clamp(min_backoff, max_backoff)
        };
        let spread = (self.max_rtt - self.min_rtt).mul_f64(FADING);
        self.max_rtt = self.min_rtt.min(self.max_rtt) + spread;
    }
}

impl Throughput {
    /// Takes a sample per delivered window, at most one per round trip.
    fn on_ack(&mut self, now: Time, ack: &Ack, cwnd: f64) {
        let since = *self.since.get_or_insert(now);
        self.delivered += ack.delivered.get() as f64;
        let span = now.since(since);
        if self.delivered < cwnd || span < ack.min_rtt || span.is_zero() {
            return;
        }
        let sample = self.delivered / span.as_secs_f64();
        self.smoothed =
            if self.most == 0.0 { sample } else { (3.0 * self.smoothed + sample) / 4.0 };
        self.most = self.most.max(self.smoothed);
        (self.since, self.delivered) = (Some(now), 0.0);
    }

    fn on_loss(&mut self) {
        *self = Self { max_before: self.most, ..Self::default() };
    }
}

impl LikeReno for HTcp {
    fn name(&self) -> &'static str {
        "htcp"
    }

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        if !ack.recovering {
            if let Some(rtt) = ack.rtt {
                self.min_rtt = self.min_rtt.min(rtt);
                self.max_rtt = self.max_rtt.max(rtt);
            }
            self.throughput.on_ack(now, ack, self.window.cwnd);
        }
        if self.window.may_grow(ack) {
            let left = self.window.slow_start(ack.delivered);
            self.window.cwnd += self.increase(now) * left / self.window.cwnd;
        }
    }

    fn on_congestion(&mut self, now: Time, _signal: Signal) {
        self.adapt_backoff();
        self.throughput.on_loss();
        self.window.answer_congestion(self.window.cwnd * self.backoff);
        self.last_loss = Some(now);
    }

    fn on_recovered(&mut self, now: Time) {
        self.last_loss = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_rises_with_the_time_since_the_last_loss() {
        let mut law = HTcp::new(HTcpParams::default(), Packets::new(10));
        (law.min_rtt, law.max_rtt) = (REFERENCE_RTT, REFERENCE_RTT * 3);
        law.on_congestion(Time::ZERO, Signal::Loss);
        let after = |seconds| law.increase(Time::ZERO + Span::from_secs(seconds));
        // With a β of one half, the increase is f itself.
        assert_eq!([after(0), after(1), after(3), after(5)], [1.0, 1.0, 22.0, 45.0]);
    }

    #[test]
    fn the_backoff_leaves_the_queue_just_empty() {
        let mut law = HTcp::new(HTcpParams::default(), Packets::new(10));
        law.min_rtt = Span::from_millis(70);
        law.max_rtt = Span::from_millis(100);
        law.adapt_backoff();
        assert!((law.backoff - 0.7).abs() < 1e-12);
        law.throughput.most = 100.0;
        law.adapt_backoff();
        assert_eq!(law.backoff, 0.5, "throughput has changed");
    }
}
