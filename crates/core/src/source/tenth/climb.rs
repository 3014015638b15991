//! The way up from one update in transit: twice as many a round, as far as pairs of updates say that the path
//! carries it.

use super::round::Round;
use super::{AMPLE, FEW, Stage, Tenth};

/// The first pair tells what the path can carry; no more than this part of it is used then.
const BEGIN: f64 = 0.1;

/// The climb ends at this part of the rate at which pairs arrived,
const BELOW_PAIRS: f64 = 0.8;

/// or at a price of so many κ: the second update of a pair waits for the first.
const DEAR: f64 = 3.0;

/// The climb ends after so many rounds without a pair.
const UNPAIRED: u32 = 4;

impl Tenth {
    /// The next step of the climb, after a round.
    pub(super) fn climb(&mut self, round: &Round, length: f64) {
        let is_dear = self.price(round, length) > DEAR * self.params.target_queue;
        if is_dear || round.since.lost >= f64::from(FEW) {
            self.stage = Stage::Steering;
            return self.steer(round, length);
        }
        self.was_clean = self.price_of_all() * self.loss(round) < self.params.target_queue;
        if self.pair_gap == 0.0 {
            // What the path can carry is not known.
            self.unpaired += 1;
            if self.unpaired >= UNPAIRED {
                self.stage = Stage::Steering;
            }
            return;
        }
        if self.has_little_to_say(round, length) {
            return;
        }
        let carried = 1.0 / self.pair_gap;
        if !core::mem::replace(&mut self.has_begun, true) && self.aim() > BEGIN * carried {
            return self.set_rate(BEGIN * carried);
        }
        let ceiling = self.params.bounds.ceiling.per_second();
        let (twice, ample) = (2.0 * self.aim(), AMPLE / self.srtt);
        if twice >= ample.min(BELOW_PAIRS * carried.min(ceiling)) {
            self.stage = Stage::Steering;
        }
        self.set_rate(twice.min(ample).min(BELOW_PAIRS * carried));
    }

    /// Restarts the climb at the present rate.
    pub(super) fn climb_again(&mut self) {
        (self.stage, self.unpaired) = (Stage::Climbing, 0);
    }

    /// The round whose first two updates leave at once, as it is worth knowing what the path can carry.
    pub(super) fn round_of_pair(&self) -> Option<&Round> {
        let is_worth_it = |round: &&Round| {
            self.stage == Stage::Climbing || self.service.wants_pair(round.began_at)
        };
        self.round.as_ref().filter(is_worth_it)
    }
}
