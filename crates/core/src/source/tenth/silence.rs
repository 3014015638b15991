//! Rounds without an ack, and the first round with one after them.

use super::{STEP, Stage, Tenth};
use crate::source::RateLaw;

/// After an outage the climb begins at this part of the rate before.
const BACK: f64 = 0.25;

impl Tenth {
    /// Silence is no wait that could be known, but no reason to go on either.
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
        // What was silent is back as it was, and it was no long queue.
        self.floors = floors;
        let least = (BACK * rate.per_second()).max(self.floors.left() / self.srtt);
        self.set_rate(self.aim().max(least));
        self.climb_again();
    }
}
