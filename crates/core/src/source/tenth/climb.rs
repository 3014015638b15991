//! Start-up: the number of updates in transit doubles each round, within the capacity that pairs of
//! updates show.
//!
//! A pair is the first two updates of a round, which leave at once. 1 / distance of the pair at
//! arrival is the capacity C of the path. Each round:
//!
//! ```text
//!   price > 3 κ, or 3 losses       steering
//!   no pair yet                    hold the number in transit; steering after 4 such rounds
//!   first pair, rate > C/10        rate ← C/10
//!   otherwise                      rate ← min(2 · rate, 10/srtt, 0.8 · C)
//!                                  steering once 2 · rate ≥ min(10/srtt, 0.8 · C, 0.8 · ceiling)
//! ```

use super::round::Round;
use super::{AMPLE, FEW, Stage, Tenth};

/// The first pair shows the capacity; then the rate is at most this fraction of it.
const BEGIN: f64 = 0.1;

/// Start-up ends at this fraction of the rate at which pairs arrived,
const BELOW_PAIRS: f64 = 0.8;

/// or at a price of this number of κ: the second update of a pair queues behind the first.
const DEAR: f64 = 3.0;

/// Start-up ends after this number of rounds without a pair.
const UNPAIRED: u32 = 4;

impl Tenth {
    /// The next step of start-up, after a round.
    pub(super) fn climb(&mut self, round: &Round, length: f64) {
        let is_dear = self.price(round, length) > DEAR * self.params.target_queue;
        if is_dear || round.since.lost >= f64::from(FEW) {
            self.stage = Stage::Steering;
            return self.steer(round, length);
        }
        self.was_clean = self.price_of_all() * self.loss(round) < self.params.target_queue;
        if self.pair_gap == 0.0 {
            // The capacity of the path is unknown.
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

    /// Restarts the ramp-up at the current rate.
    pub(super) fn climb_again(&mut self) {
        (self.stage, self.unpaired) = (Stage::Climbing, 0);
    }

    /// The round whose first two updates leave at once, if a measurement of the capacity is worth
    /// it.
    pub(super) fn round_of_pair(&self) -> Option<&Round> {
        let is_worth_it = |round: &&Round| {
            self.stage == Stage::Climbing || self.service.wants_pair(round.began_at)
        };
        self.round.as_ref().filter(is_worth_it)
    }
}
