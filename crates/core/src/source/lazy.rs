//! Lazy: one update per smoothed round trip, which keeps a backlog of one.
//!
//! ```text
//! rate = 1 / srtt,  srtt ← (1 − α)·srtt + α·rtt with every fresh ack
//! update k leaves at t_k;  t_{k+1} = t_k + 1/rate, with the rate of t_k
//! ```
//!
//! Shreedhar, PhD thesis, IIIT-Delhi, section 3.8: it "updates the RTT every time an ACK is
//! received and sets the current update rate to the inverse of RTT"; section 3.7: updates leave
//! "at a fixed period". An ack changes the period after the next update, not the one that runs.
//! [`SendTime::Moving`] moves t_{k+1} with each fresh ack. With many sources on one path the
//! two differ: a longer round trip then postpones the pending update at once, which keeps queues
//! shorter than the published law does (`docs/lab.md` has the figures).
//!
//! Where the paper is silent: the first round trip comes from one probe with a timeout that backs
//! off, and the update after it leaves one round trip behind it; a path that falls silent keeps
//! the last rate, and the session above notices the silence.

use super::estimator;
use super::feedback::{Feedback, Heard};
use super::pacer::Pacer;
use super::startup;
use super::{Ack, Phase, RateBounds, RateLaw};
use crate::unit::{Time, UpdateRate};

/// Settings of [`Lazy`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Params {
    /// Weight α of the newest round trip. 0.2, as in the authors' prototype of ACP.
    pub smoothing: f64,
    /// Whether an ack moves the pending update.
    pub send_time: SendTime,
    /// The probe before the first round trip is known.
    pub startup: startup::Params,
    /// Floor and ceiling of the rate.
    pub bounds: RateBounds,
}

/// When the next update of [`Lazy`] leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum SendTime {
    /// One smoothed round trip after the previous update, as known when that one left.
    #[default]
    Fixed,
    /// One smoothed round trip after the previous update, as known by the newest fresh ack.
    Moving,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            smoothing: 0.2,
            send_time: SendTime::default(),
            startup: startup::Params { probes: 1, ..startup::Params::default() },
            bounds: RateBounds::default(),
        }
    }
}

/// One update per smoothed round trip.
#[derive(Debug, Clone)]
pub struct Lazy {
    params: Params,
    feedback: Feedback,
    /// The rate at the departure of the previous update.
    pending: UpdateRate,
    pacer: Pacer,
}

impl Lazy {
    /// A source that probes with its first update.
    pub fn new(params: Params) -> Self {
        let Params { smoothing, startup, bounds, .. } = params;
        let estimator = estimator::Params { smoothing, ..estimator::Params::default() };
        Self {
            params,
            feedback: Feedback::new(estimator, startup, bounds),
            pending: bounds.floor,
            pacer: Pacer::new(),
        }
    }

    fn heard(&mut self, heard: Heard) {
        if let Some(srtt) = self.feedback.estimator.srtt() {
            self.feedback.set_rate(UpdateRate::from_period(srtt));
        }
        // The probe left before there was a round trip to wait for.
        if let Heard::Measured(_) = heard {
            self.pending = self.rate();
        }
    }
}

impl RateLaw for Lazy {
    fn name(&self) -> &'static str {
        "lazy"
    }

    fn restart(&mut self, _now: Time) {
        *self = Self::new(self.params);
    }

    fn on_sent(&mut self, now: Time, seq: u64) {
        self.feedback.on_sent(now, seq);
        self.pacer.on_sent(now, self.pending);
        self.pending = self.rate();
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        let heard = self.feedback.on_ack(now, ack);
        self.heard(heard);
    }

    fn handle_timeout(&mut self, now: Time) {
        let heard = self.feedback.handle_timeout(now);
        self.heard(heard);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.feedback.poll_timeout()
    }

    fn next_update_at(&self) -> Option<Time> {
        match (self.params.send_time, self.phase()) {
            (SendTime::Fixed, Phase::Steering) => Some(self.pacer.next_at(self.pending)),
            _ => self.feedback.next_update_at(),
        }
    }

    fn rate(&self) -> UpdateRate {
        self.feedback.rate()
    }

    fn phase(&self) -> Phase {
        self.feedback.phase()
    }

    fn bounds(&self) -> Option<RateBounds> {
        Some(self.params.bounds)
    }

    fn set_bounds(&mut self, bounds: RateBounds) {
        self.params.bounds = bounds;
        self.feedback.set_bounds(bounds);
        self.pending = bounds.clamp(self.pending);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Span;

    fn ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn acked(law: &mut Lazy, seq: u64, sent_at: Time, now: Time) {
        let ack = Ack { fresh: seq as u32 + 1, ..Ack::of(seq, sent_at, now) };
        law.on_ack(now, &ack);
    }

    /// A law whose round trip is 100 ms, and whose update 1 left at 100 ms.
    fn steady(send_time: SendTime) -> Lazy {
        let mut law = Lazy::new(Params { send_time, ..Params::default() });
        law.on_sent(ms(0), 0);
        acked(&mut law, 0, ms(0), ms(100));
        assert_eq!(law.next_update_at(), Some(ms(100)), "a round trip behind the probe");
        law.on_sent(ms(100), 1);
        assert_eq!(law.next_update_at(), Some(ms(200)));
        law
    }

    #[test]
    fn an_ack_does_not_move_the_pending_update() {
        let mut law = steady(SendTime::Fixed);
        acked(&mut law, 1, ms(100), ms(150));
        assert_eq!(law.next_update_at(), Some(ms(200)));
        law.on_sent(ms(200), 2);
        // srtt = 0.8 · 100 ms + 0.2 · 50 ms.
        assert_eq!(law.next_update_at(), Some(ms(290)), "the next one follows the new rate");
    }

    #[test]
    fn a_moving_send_time_follows_each_ack() {
        let mut law = steady(SendTime::Moving);
        acked(&mut law, 1, ms(100), ms(150));
        assert_eq!(law.next_update_at(), Some(ms(190)));
    }

    #[test]
    fn a_driver_that_is_late_stays_on_the_fixed_grid() {
        let mut law = steady(SendTime::Fixed);
        law.on_sent(ms(203), 2);
        assert_eq!(law.next_update_at(), Some(ms(300)));
    }
}
