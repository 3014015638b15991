//! A constant rate: the simplest law, and the baseline of all others.

use super::pacer::Pacer;
use super::{Ack, Phase, RateLaw};
use crate::unit::{Time, UpdateRate};

/// Sends at a constant rate, independent of the path.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    rate: UpdateRate,
    pacer: Pacer,
}

impl Fixed {
    /// A source that sends at `rate` from its start.
    pub fn new(rate: UpdateRate) -> Self {
        Self { rate, pacer: Pacer::new() }
    }

    /// Sends at `rate` from the last update on.
    pub fn set_rate(&mut self, rate: UpdateRate) {
        self.rate = rate;
    }
}

impl RateLaw for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn restart(&mut self, _now: Time) {
        self.pacer = Pacer::new();
    }

    fn on_sent(&mut self, now: Time, _seq: u64) {
        self.pacer.on_sent(now, self.rate);
    }

    fn on_ack(&mut self, _now: Time, _ack: &Ack) {}

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn next_update_at(&self) -> Option<Time> {
        Some(self.pacer.next_at(self.rate))
    }

    fn rate(&self) -> UpdateRate {
        self.rate
    }

    fn phase(&self) -> Phase {
        Phase::Steering
    }
}
