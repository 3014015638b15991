//! Window arithmetic shared by the laws: slow start, additive increase, reduction, restart (RFC
//! 5681).

use std::fmt;

use freshline_core::unit::{Packets, Time};

use super::{Ack, CongestionControl, Idle, Signal};

/// The minimum window after a reduction: two segments (RFC 5681 equation 4).
const LEAST: f64 = 2.0;

/// A window and the threshold below which it grows by slow start, in segments.
///
/// Windows have a fractional part: the acks counted towards the next segment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    pub(super) cwnd: f64,
    /// Infinite at first.
    pub(super) ssthresh: f64,
    /// The window after a pause.
    initial: f64,
    /// Window and threshold before the last congestion.
    before: (f64, f64),
}

impl Window {
    pub(super) fn new(initial: Packets) -> Self {
        let initial = initial.get().max(1) as f64;
        Self { cwnd: initial, ssthresh: f64::INFINITY, initial, before: (initial, initial) }
    }

    pub(super) fn packets(&self) -> Packets {
        Packets::new((self.cwnd as u64).max(1))
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Whether the ack lets the window grow: not during a reduction, and only while the window is
    /// in use (RFC 7661). In slow start, using half of it is enough, as it may double per round
    /// trip.
    pub(super) fn may_grow(&self, ack: &Ack) -> bool {
        let used =
            ack.window_limited || self.in_slow_start() && self.cwnd < 2.0 * ack.peak.get() as f64;
        used && !ack.recovering
    }

    /// Grows by one segment per delivered segment, up to the threshold. Returns the number of
    /// delivered segments that remain.
    pub(super) fn slow_start(&mut self, delivered: Packets) -> f64 {
        let delivered = delivered.get() as f64;
        if !self.in_slow_start() {
            return delivered;
        }
        let grown = (self.cwnd + delivered).min(self.ssthresh);
        let left = self.cwnd + delivered - grown;
        self.cwnd = grown;
        left
    }

    /// Grows by one segment per `cwnd` delivered segments: Reno's congestion avoidance.
    pub(super) fn additive(&mut self, delivered: f64) {
        self.cwnd += delivered / self.cwnd;
    }

    /// Slow start below the threshold, and Reno's congestion avoidance beyond it.
    pub(super) fn grow_as_reno(&mut self, delivered: Packets) {
        let left = self.slow_start(delivered);
        self.additive(left);
    }

    /// Congestion: reduces the window to `window`, and saves the previous state.
    pub(super) fn answer_congestion(&mut self, window: f64) {
        self.before = (self.cwnd, self.ssthresh);
        self.reduce_to(window);
    }

    /// The congestion was spurious: restores the saved state.
    pub(super) fn take_back(&mut self) {
        let (cwnd, ssthresh) = self.before;
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
    }

    /// Sets window and threshold.
    pub(super) fn reduce_to(&mut self, window: f64) {
        self.ssthresh = window.max(LEAST);
        self.cwnd = self.ssthresh;
    }

    /// Halves the window, to at least one segment, and beyond slow start the threshold: MPTCP's
    /// penalty for a subflow that blocks others.
    pub(super) fn penalise(&mut self) {
        if !self.in_slow_start() {
            self.ssthresh = (self.ssthresh / 2.0).max(LEAST);
        }
        self.cwnd = (self.cwnd / 2.0).max(1.0);
    }

    /// A timeout: restarts from one segment, up to the threshold.
    pub(super) fn collapse(&mut self) {
        self.cwnd = 1.0;
    }

    /// After a pause longer than a timeout: halves the window per timeout that has passed, but not
    /// below the initial window, and keeps the old window in the threshold (RFC 2861 section 3).
    pub(super) fn restart(&mut self, idle: Idle) {
        if idle.span <= idle.rto {
            return;
        }
        self.ssthresh = self.ssthresh.max(self.cwnd * 0.75);
        let timeouts = idle.span.as_nanos() / idle.rto.as_nanos().max(1);
        let halved = self.cwnd / (1u64 << timeouts.min(62)) as f64;
        self.cwnd = halved.max(self.initial.min(self.cwnd));
    }
}

/// A law that controls a [`Window`]. By default each method does as Reno does.
pub(super) trait LikeReno: fmt::Debug + Send {
    fn name(&self) -> &'static str;

    fn window(&self) -> &Window;

    fn window_mut(&mut self) -> &mut Window;

    fn on_ack(&mut self, now: Time, ack: &Ack);

    fn on_congestion(&mut self, _now: Time, _signal: Signal) {
        let window = self.window_mut();
        window.answer_congestion(window.cwnd / 2.0);
    }

    fn on_rto(&mut self) {
        self.window_mut().collapse();
    }

    fn on_recovered(&mut self, _now: Time) {}

    fn on_idle(&mut self, _now: Time, idle: Idle) {
        self.window_mut().restart(idle);
    }
}

impl<L: LikeReno> CongestionControl for L {
    fn name(&self) -> &'static str {
        LikeReno::name(self)
    }

    fn window(&self) -> Packets {
        LikeReno::window(self).packets()
    }

    fn ssthresh(&self) -> Option<f64> {
        Some(LikeReno::window(self).ssthresh)
    }

    fn on_penalty(&mut self) {
        self.window_mut().penalise();
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        LikeReno::on_ack(self, now, ack);
    }

    fn on_congestion(&mut self, now: Time, signal: Signal) {
        LikeReno::on_congestion(self, now, signal);
    }

    fn on_rto(&mut self, _now: Time) {
        LikeReno::on_rto(self);
    }

    fn on_recovered(&mut self, now: Time) {
        LikeReno::on_recovered(self, now);
    }

    fn on_needless(&mut self, _now: Time) {
        self.window_mut().take_back();
    }

    fn on_idle(&mut self, now: Time, idle: Idle) {
        LikeReno::on_idle(self, now, idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_core::unit::Span;

    #[test]
    fn a_pause_halves_the_window_for_each_timeout_down_to_the_initial_one() {
        let paused = |timeouts| {
            let mut window = Window::new(Packets::new(10));
            window.cwnd = 100.0;
            window.reduce_to(100.0);
            let rto = Span::from_millis(240);
            window.restart(Idle { span: rto * timeouts + Span::from_millis(1), rto });
            (window.cwnd, window.ssthresh)
        };
        assert_eq!(paused(0), (100.0, 100.0));
        assert_eq!(paused(1), (50.0, 100.0));
        assert_eq!(paused(3), (12.5, 100.0));
        assert_eq!(paused(100), (10.0, 100.0));
    }

    #[test]
    fn slow_start_stops_at_the_threshold_and_leaves_the_rest() {
        let mut window = Window::new(Packets::new(10));
        window.ssthresh = 12.0;
        assert_eq!(window.slow_start(Packets::new(5)), 3.0);
        assert_eq!(window.cwnd, 12.0);
        assert!(!window.in_slow_start());
    }
}
