//! The price of a round: the part of its queueing delays and losses that the source itself causes.
//!
//! ```text
//!   price    = used · counted + λ′ · loss                              updates
//!   used     = min(updates sent / length of the round, rate)           updates/s
//!   counted  = standing + (share + (1 − share) · lasting) · (mean delay − standing)        s
//!   share    = max(own load, (10 · service / min rtt)²)                0.1 to 1
//!   lasting  = 0.3 · (1 − roughness / ⅔)                               0 to 0.3
//!   own load = rate · service                                          fraction of the capacity
//!   λ′       = λ · (own load / 0.05)^½                                 λ/4 to λ
//! ```
//!
//! `service` is the service time of an update at the bottleneck, `standing` the delay common to all
//! updates of the round (`round`), `roughness` that of `variation`, and `loss` the fraction lost to
//! a full queue beyond 0.02.

use super::round::Round;
use super::{FEW, Tenth};
use crate::source::RateLaw;

/// The variation of the delay counts in full on paths of at most this number of updates; on longer
/// ones its share falls as the square of their length.
const SHORT: f64 = 10.0;

/// The minimum share: then 1.4 updates may be queued. Without it each source of a crowd on a long
/// path would see only its own part of the queue, and the crowd would hold a long one.
const MIN_SHARE: f64 = 0.1;

/// The fraction of a lasting variation that counts in addition: with more, a link whose capacity
/// varies passes for a queue.
const LASTING: f64 = 0.3;

/// Delays of this roughness are jitter.
const ROUGH: f64 = 2.0 / 3.0;

/// A loss of this fraction has no price.
pub(super) const FREE: f64 = 0.02;

/// A loss costs λ for sources that use this fraction of the bottleneck rate or more; less for
/// others, so that sources with losses converge to the same rate.
const WHOLE_PRICE: f64 = 0.05;

/// The exponent of the fraction in use: with more, unequal sources converge sooner, and a crowd
/// loses more.
const FAIRNESS: f64 = 0.5;

/// The minimum of the fraction in use divided by [`WHOLE_PRICE`]: no price is below a quarter of λ,
/// with which a loss of a sixth costs κ.
const SMALLEST: f64 = 1.0 / 16.0;

impl Tenth {
    /// The price of a round: the source's own queued updates, and losses.
    pub(super) fn price(&self, round: &Round, length: f64) -> f64 {
        self.queueing_price(round, length) + self.price_of_all() * self.loss(round)
    }

    /// The source's own queued updates, on average.
    pub(super) fn queueing_price(&self, round: &Round, length: f64) -> f64 {
        let used = (f64::from(round.sent) / length).min(self.rate().per_second());
        used * self.counted_wait(round)
    }

    /// The price of losing everything.
    pub(super) fn price_of_all(&self) -> f64 {
        let part = self.part_of_the_path().unwrap_or(1.0) / WHOLE_PRICE;
        self.params.loss_price * libm::pow(part.clamp(SMALLEST, 1.0), FAIRNESS)
    }

    /// The fraction that was lost to a full queue and has a price, 0 to 1.
    pub(super) fn loss(&self, round: &Round) -> f64 {
        let is_sudden = round.since.lost >= f64::from(FEW);
        let sudden = if is_sudden { self.losses.not_random(round.since) } else { 0.0 };
        (sudden.max(self.losses.part()) - FREE).max(0.0)
    }

    /// The part of a round's queueing delay that counts, s.
    fn counted_wait(&self, round: &Round) -> f64 {
        let standing = round.standing_wait();
        let lasting = LASTING * (1.0 - self.variation.roughness() / ROUGH).max(0.0);
        let share = self.share();
        standing + (share + (1.0 - share) * lasting) * (round.mean_wait() - standing)
    }

    /// The share of the variation that counts: 0.1 to 1.
    pub(super) fn share(&self) -> f64 {
        let Some((service, own)) = self.service.least().zip(self.part_of_the_path()) else {
            return 1.0;
        };
        let short = SHORT * service / self.delays.min_rtt().max(service);
        own.max(short * short).clamp(MIN_SHARE, 1.0)
    }

    /// The source's share of the bottleneck rate, 0 to 1.
    fn part_of_the_path(&self) -> Option<f64> {
        self.service.least().map(|service| self.rate().per_second() * service)
    }
}
