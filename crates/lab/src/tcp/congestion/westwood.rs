//! Westwood+ measures the delivery rate. After a loss it sets the window to the bandwidth-delay
//! product, so that random losses do not halve it (Mascolo et al.: "TCP Westwood", MobiCom 2001;
//! Grieco, Mascolo, CCR 2004).
//!
//! ```text
//! once per round trip, at least 50 ms apart:  sample = delivered / time
//! rate: samples through two filters in series, each with 7/8 of the past
//! loss:  cwnd, ssthresh ← min(rate·rtt_min, cwnd)     otherwise as Reno
//! ```

use freshline_core::unit::{Packets, Span, Time};

use super::window::{LikeReno, Window};
use super::{Ack, Signal};

/// The minimum time over which the rate is measured.
const MIN_INTERVAL: Span = Span::from_millis(50);

/// Westwood+.
#[derive(Debug, Clone)]
pub struct Westwood {
    window: Window,
    since: Option<Time>,
    /// Segments delivered since then.
    delivered: f64,
    /// The outputs of the first and the second filter, in segments/s.
    rate: Option<(f64, f64)>,
    rtt: Span,
    min_rtt: Span,
}

impl Westwood {
    /// In slow start, with a window of `initial` segments.
    pub fn new(initial: Packets) -> Self {
        Self {
            window: Window::new(initial),
            since: None,
            delivered: 0.0,
            rate: None,
            rtt: Span::ZERO,
            min_rtt: Span::MAX,
        }
    }

    fn measure(&mut self, now: Time, ack: &Ack) {
        if let Some(rtt) = ack.rtt {
            self.rtt = rtt;
            self.min_rtt = self.min_rtt.min(rtt);
        }
        let since = *self.since.get_or_insert(now);
        self.delivered += ack.delivered.get() as f64;
        let span = now.since(since);
        if span <= self.rtt.max(MIN_INTERVAL) {
            return;
        }
        let sample = self.delivered / span.as_secs_f64();
        self.rate = Some(match self.rate {
            None => (sample, sample),
            Some((once, twice)) => {
                let once = (7.0 * once + sample) / 8.0;
                (once, (7.0 * twice + once) / 8.0)
            }
        });
        (self.since, self.delivered) = (Some(now), 0.0);
    }

    /// The bandwidth-delay product, in segments, if it is known.
    fn pipe(&self) -> Option<f64> {
        let (_, rate) = self.rate?;
        Some(rate * self.min_rtt.as_secs_f64())
    }
}

impl LikeReno for Westwood {
    fn name(&self) -> &'static str {
        "westwood"
    }

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        self.measure(now, ack);
        if self.window.may_grow(ack) {
            self.window.grow_as_reno(ack.delivered);
        }
    }

    fn on_congestion(&mut self, _now: Time, _signal: Signal) {
        let cwnd = self.window.cwnd;
        self.window.answer_congestion(self.pipe().unwrap_or(cwnd / 2.0).min(cwnd));
    }
}
