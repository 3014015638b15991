//! Settings of the law.

use crate::source::queueing_delay::DelaySource;
use crate::source::sparse::Acks;
use crate::source::{RateBounds, startup};
use crate::unit::Span;

/// Settings of [`Tenth`](super::Tenth).
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Params {
    /// κ: the mean number of its own queued updates. More is more throughput and more age. 0.14: at
    /// an M/D/1 queue it is within 6 % of the best for 1 to 48 sources (`docs/fresher.md`).
    pub target_queue: f64,
    /// λ: the price of losing everything, in queued updates. 4: a loss of a twentieth costs κ.
    pub loss_price: f64,
    /// The minimum number of updates per smoothed round trip behind a deep queue. 1: Lazy's.
    pub min_in_flight: f64,
    /// The delay that shows queued updates.
    pub delay: DelaySource,
    /// Which updates ask for an ack.
    pub acks: Acks,
    /// Updates per round, 1 or more. 8: their mean has a third of the spread of one.
    pub round_updates: u32,
    /// The minimum factor on the number in transit per round, except after losses.
    pub min_factor: f64,
    /// The maximum factor on the number in transit per round.
    pub max_factor: f64,
    /// How acks give the first round trip.
    pub startup: startup::Params,
    /// Floor and ceiling of the rate.
    pub bounds: RateBounds,
}

impl Default for Params {
    fn default() -> Self {
        // A crowd that starts behind a slow link keeps it busy with probes for this long.
        let max_timeout = Span::from_secs(8);
        Self {
            target_queue: 0.14,
            loss_price: 4.0,
            min_in_flight: 1.0,
            delay: DelaySource::default(),
            acks: Acks::default(),
            round_updates: 8,
            min_factor: 0.8,
            max_factor: 1.25,
            startup: startup::Params { probes: 1, max_timeout, ..startup::Params::default() },
            bounds: RateBounds::default(),
        }
    }
}
