//! Ack aggregation: the number of segments delivered at once in excess of the rate.
//!
//! The window is enlarged by the maximum excess of the last 5 to 10 rounds, so that the sender does
//! not run dry while the path holds acks back (Linux since 5.1; Wi-Fi is the usual case).

use freshline_core::unit::{Span, Time};

use super::model::{Model, Rate};
use crate::tcp::congestion::Ack;

const ROUNDS: u32 = 5;
/// The excess is capped at the segments that the rate delivers in this time.
const MOST: Span = Span::from_millis(100);

#[derive(Debug, Clone, Default)]
pub(super) struct Aggregation {
    /// Start of the interval in which deliveries are compared with the rate, and the deliveries in
    /// it.
    since: Option<Time>,
    delivered: f64,
    /// The maximum excess of the current rounds and of the previous ones.
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

    /// The number of segments by which to enlarge the window.
    pub(super) fn extra(&self, rate: Option<Rate>) -> f64 {
        let most = rate.map_or(0.0, |rate| rate.segments_per_second() * MOST.as_secs_f64());
        self.now.max(self.before).min(most)
    }
}
