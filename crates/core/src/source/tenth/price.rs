//! The price of a round: the part of its queueing delays and losses that the source itself causes.

use super::round::Round;
use super::{FEW, Tenth};
use crate::source::RateLaw;

/// What varies counts in full on paths that hold no more updates than this; on longer ones the share
/// falls as the square of their length.
const SHORT: f64 = 10.0;

/// The least share of what varies that counts: 1.4 updates may wait then. A crowd on a long path would
/// else wait for each source to see its own part of the queue.
const MIN_SHARE: f64 = 0.1;

/// Of what varies and lasts, this part counts in addition: with more, a link whose capacity varies passes
/// for a queue.
const LASTING: f64 = 0.3;

/// Waits of this roughness are jitter.
const ROUGH: f64 = 2.0 / 3.0;

/// So little lost has no price.
pub(super) const FREE: f64 = 0.02;

/// A loss costs λ for sources that use this part of the narrowest hop or more; less for others, so that
/// sources that lose come to the same rate.
const WHOLE_PRICE: f64 = 0.05;

/// The power of the part that they use: with more, unequal sources come together sooner, and a crowd loses
/// more.
const FAIRNESS: f64 = 0.5;

/// No source pays less than one with so much of that part: a quarter of λ, which is κ at a sixth lost.
const SMALLEST: f64 = 1.0 / 16.0;

impl Tenth {
    /// What a round has cost: updates of ours that waited, and what was lost.
    pub(super) fn price(&self, round: &Round, length: f64) -> f64 {
        self.queueing_price(round, length) + self.price_of_all() * self.loss(round)
    }

    /// Updates of ours that waited.
    pub(super) fn queueing_price(&self, round: &Round, length: f64) -> f64 {
        let used = (f64::from(round.sent) / length).min(self.rate().per_second());
        used * self.counted_wait(round)
    }

    /// The price of a loss of everything.
    pub(super) fn price_of_all(&self) -> f64 {
        let part = self.part_of_the_path().unwrap_or(1.0) / WHOLE_PRICE;
        self.params.loss_price * libm::pow(part.clamp(SMALLEST, 1.0), FAIRNESS)
    }

    /// The part that was lost to a full queue and has a price, 0 to 1.
    pub(super) fn loss(&self, round: &Round) -> f64 {
        let is_sudden = round.since.lost >= f64::from(FEW);
        let sudden = if is_sudden { self.losses.not_random(round.since) } else { 0.0 };
        (sudden.max(self.losses.part()) - FREE).max(0.0)
    }

    /// What of a round's wait counts, s.
    fn counted_wait(&self, round: &Round) -> f64 {
        let standing = round.standing_wait();
        let lasting = LASTING * (1.0 - self.variation.roughness() / ROUGH).max(0.0);
        let share = self.share();
        standing + (share + (1.0 - share) * lasting) * (round.mean_wait() - standing)
    }

    /// The part of what varies that counts: 0.1 to 1.
    pub(super) fn share(&self) -> f64 {
        let Some((service, own)) = self.service.least().zip(self.part_of_the_path()) else {
            return 1.0;
        };
        let short = SHORT * service / self.delays.min_rtt().max(service);
        own.max(short * short).clamp(MIN_SHARE, 1.0)
    }

    /// How much of what the narrowest hop carries is ours, 0 to 1.
    fn part_of_the_path(&self) -> Option<f64> {
        self.service.least().map(|service| self.rate().per_second() * service)
    }
}
