//! Rounds without an ack, and the first round with one after them.
//!
//! Each silent round halves the number in transit, but not below one update per round trip times
//! the fraction of `floors`. After the silence, if it was an outage and not a queue, the floors
//! return to their value before it, and start-up begins at a quarter of the rate before it.

use super::{STEP, Stage, Tenth};
use crate::source::RateLaw;

/// After an outage start-up begins at this fraction of the rate before.
const BACK: f64 = 0.25;

impl Tenth {
    /// A round has no ack: its delay is unknown, but it is no reason to go on, either.
    pub(super) fn hear_nothing(&mut self) {
        if !self.was_silent {
            self.before_silence = self.is_clean().then_some((self.floors, self.rate()));
        }
        self.stage = Stage::Steering;
        self.was_silent = true;
        self.stride = STEP;
        self.free.reset();
        if self.before_silence.is_none() {
            self.floors.halve();
        }
        let least = self.aim().min(self.floors.left() / self.srtt);
        self.set_rate((self.aim() / 2.0).max(least).max(self.testing_rate()));
    }

    pub(super) fn end_silence(&mut self, is_queueing: bool) {
        let Some((floors, rate)) = self.before_silence.take().filter(|_| !is_queueing) else {
            return;
        };
        // The path is back as it was, and the silence was no long queue.
        self.floors = floors;
        let least = (BACK * rate.per_second()).max(self.floors.left() / self.srtt);
        self.set_rate(self.aim().max(least));
        self.climb_again();
    }
}
