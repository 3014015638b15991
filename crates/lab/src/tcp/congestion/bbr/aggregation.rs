//! Acks that come in lumps: how much more than the rate explains was delivered at once.
//!
//! The window is enlarged by the most of it in the last 5 to 10 rounds, so that the sender does
//! not run dry while the path holds acks back (Linux since 5.1; Wi-Fi is the usual case).

use freshline_core::unit::{Span, Time};

use super::model::{Model, Rate};
use crate::tcp::congestion::Ack;

const ROUNDS: u32 = 5;
/// No more than what the rate delivers in this time is made up for.
const MOST: Span = Span::from_millis(100);

#[derive(Debug, Clone, Default)]
pub(super) struct Aggregation {
    /// Since when deliveries are compared with the rate, and how many there were.
    since: Option<Time>,
    delivered: f64,
    /// The most in excess, in the last rounds and in those before.
    now: f64,
    before: f64,
    rounds: u32,
}

impl Aggregation {
    pub(super) fn restart(&mut self, now: Time) {
        (self.since, self.delivered) = (Some(now), 0.0);
    }

    pub(super) fn on_ack(&mut self, now: Time, ack: &Ack, model: &Model, cwnd: f64) {
        let Some(rate) = model.rate() else { return };
        if model.round_started() {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                (self.before, self.now, self.rounds) = (self.now, 0.0, 0);
            }
        }
        let since = *self.since.get_or_insert(now);
        let expected = rate.segments_per_second() * now.since(since).as_secs_f64();
        if self.delivered <= expected {
            self.restart(now);
            self.delivered = ack.delivered.get() as f64;
            self.now = self.now.max(self.delivered.min(cwnd));
        } else {
            self.delivered += ack.delivered.get() as f64;
            self.now = self.now.max((self.delivered - expected).min(cwnd));
        }
    }

    /// By how many segments to enlarge the window.
    pub(super) fn extra(&self, rate: Option<Rate>) -> f64 {
        let most = rate.map_or(0.0, |rate| rate.segments_per_second() * MOST.as_secs_f64());
        self.now.max(self.before).min(most)
    }
}
