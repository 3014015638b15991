//! Finds frames by kernel timestamps, for clients without access to the network card's timestamps.
//!
//! ```text
//!  kernel's stamp ─► gap ─► first of a frame? ─► frames ─► Aggregation ─► slots of 100 ms ─► report
//!                           Threshold, Logistic                          Svm, under high load
//! ```
//!
//! A kernel stamps a packet when its driver hands it over, not when its frame arrived
//! ([`napi`](super::Napi) models the difference). Between frames there is usually a gap, but there
//! are gaps within frames too, and frames without a gap between them. Hassani, MSc thesis:
//! Achieving Low Delay & High Rate in 802.11ac Edge Networks, sections 4.4.1 and 4.4.2.
//! [`Threshold`] is the baseline there, m = 1.
//!
//! Weights come from files that `make train` writes: [`FRAMES`] and [`LEVELS`] are the shipped
//! ones, to be read with a TOML parser into [`FrameWeights`] and [`LevelWeights`].
//!
//! # Where the paper is silent
//!
//! - **Features** end with the packet that is classified, as printed, so each packet is classified
//!   on arrival.
//! - **Before m gaps were seen** there is no result, and packets do not count.
//! - **Gaps** are limited to [`MAX_GAP`], and a stamp that goes back gives a gap of 0. A longer gap
//!   has no more information than that a frame begins, but would be in the features for m packets:
//!   without the limit, weights trained on a fast channel fail on a slow one, whose gaps between
//!   frames are longer than in the training.
//! - **Nmax**: after Nmax packets without a first packet, the next packet begins a frame.
//! - **The deviation** is the population standard deviation of the gaps: the divisor is m, not m
//!   − 1.

mod counter;
mod logistic;
mod svm;
mod threshold;
mod weights;

pub use counter::{CounterError, KernelCounter, KernelCounterParams, KernelFrames};
pub use logistic::Logistic;
pub use svm::{SLOT, SlotSeen, Svm};
pub use threshold::Threshold;
pub use weights::{
    FRAMES, FrameWeights, LEVELS, LevelWeights, LogisticWeights, SupportVector, ThresholdWeights,
    WeightsError,
};

use core::fmt;

use crate::unit::{Span, Time};

/// The maximum length with which a gap counts.
pub const MAX_GAP: Span = Span::from_micros(400);

/// Finds by the stamps which packets are the first of their frame.
pub trait FrameEstimator: fmt::Debug {
    /// Whether the next packet, with this stamp, is the first of a frame; `None` until enough
    /// packets were seen.
    fn on_packet(&mut self, stamp: Time) -> Option<bool>;
}

/// The gaps between consecutive stamps.
#[derive(Debug, Clone, Copy, Default)]
struct Gaps {
    last: Option<Time>,
}

impl Gaps {
    /// The gap before a packet; `None` before the first one.
    fn next(&mut self, stamp: Time) -> Option<Span> {
        let last = self.last.replace(stamp)?;
        Some(stamp.since(last).min(MAX_GAP))
    }
}

/// In µs, the unit of the features.
fn micros(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e3
}

impl FrameWeights {
    /// The baseline in its initial state.
    ///
    /// # Errors
    /// Another version, or a threshold that is not finite.
    pub fn threshold(&self) -> Result<Threshold, WeightsError> {
        WeightsError::check_version(self.version)?;
        self.threshold.build()
    }

    /// The logistic estimator in its initial state.
    ///
    /// # Errors
    /// Another version, no weights of gaps or more than 64, or numbers that are not finite.
    pub fn logistic(&self) -> Result<Logistic, WeightsError> {
        WeightsError::check_version(self.version)?;
        self.logistic.build()
    }
}
