//! Lazy: one update a smoothed round trip (000 section 3.8), which keeps a backlog of one.
//!
//! rate = 1 / srtt,  srtt ← (1 − α)·srtt + α·rtt with every fresh ack.
//!
//! Where the paper is silent: the first round trip comes from one probe with a timeout that backs
//! off; a path that falls silent keeps the last rate, and the session above notices the silence.

use super::estimator;
use super::feedback::Feedback;
use super::startup;
use super::{Ack, Phase, RateBounds, RateLaw};
use crate::unit::{Time, UpdateRate};

/// Settings of [`Lazy`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Params {
    /// Weight α of the newest round trip. 0.2, as the authors' prototype of ACP has it.
    pub smoothing: f64,
    /// The probe before the first round trip is known.
    pub startup: startup::Params,
    /// Floor and ceiling of the rate.
    pub bounds: RateBounds,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            smoothing: 0.2,
            startup: startup::Params { probes: 1, ..startup::Params::default() },
            bounds: RateBounds::default(),
        }
    }
}

/// One update a smoothed round trip.
#[derive(Debug, Clone)]
pub struct Lazy {
    params: Params,
    feedback: Feedback,
}

impl Lazy {
    /// A source that will probe with its first update.
    pub fn new(params: Params) -> Self {
        let Params { smoothing, startup, bounds } = params;
        let estimator = estimator::Params { smoothing, ..estimator::Params::default() };
        Self { params, feedback: Feedback::new(estimator, startup, bounds) }
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
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        self.feedback.on_ack(now, ack);
        if let Some(srtt) = self.feedback.estimator.srtt() {
            self.feedback.set_rate(UpdateRate::from_period(srtt));
        }
    }

    fn on_tick(&mut self, now: Time) {
        self.feedback.on_tick(now);
    }

    fn next_event(&self) -> Option<Time> {
        self.feedback.next_event()
    }

    fn next_update_at(&self) -> Option<Time> {
        self.feedback.next_update_at()
    }

    fn rate(&self) -> UpdateRate {
        self.feedback.rate()
    }

    fn phase(&self) -> Phase {
        self.feedback.phase()
    }
}
