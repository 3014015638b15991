//! Frames from kernel timestamps: for clients that may not see the network card's.
//!
//! ```text
//!  kernel's stamp ─► gap ─► first of a frame? ─► frames ─► Aggregation ─► slots of 100 ms ─► report
//!                           Threshold, Logistic                          Svm, under high load
//! ```
//!
//! A kernel stamps a packet when its driver hands it over, not when its frame came
//! ([`napi`](super::Napi) says what lies between). Between frames there is mostly a jump, but there are
//! jumps inside of frames too, and frames without one. Hassani, MSc thesis: Achieving Low Delay & High
//! Rate in 802.11ac Edge Networks, sections 4.4.1 and 4.4.2. [`Threshold`] is the baseline there, m = 1.
//!
//! Weights come from files that `make train` writes: [`FRAMES`] and [`LEVELS`] are the shipped ones, to
//! be read with a TOML parser into [`FrameWeights`] and [`LevelWeights`].
//!
//! # Where the paper is silent
//!
//! - **Features** end with the packet that is judged, as printed, so that each is judged when it comes.
//! - **Before m gaps were seen** nothing is said, and packets are left out.
//! - **Gaps** count up to [`MAX_GAP`], and stamps that go back as none. A longer gap says no more than
//!   that a frame begins, but would be in the features for m packets: without this, weights from a fast
//!   channel fail on a slow one, where frames are longer apart than any that they have seen.
//! - **Nmax**: a run without a first packet that is as long as a frame can be ends, and the next packet
//!   begins a frame.
//! - **The deviation** is that of the gaps as they are, divided by m, not by m − 1.

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

/// What a gap counts at most.
pub const MAX_GAP: Span = Span::from_micros(400);

/// Tells from stamps which packets are the first of their frame.
pub trait FrameEstimator: fmt::Debug {
    /// The next packet, with this stamp: whether it is the first of a frame; `None` until enough was
    /// seen.
    fn on_packet(&mut self, stamp: Time) -> Option<bool>;
}

/// From one stamp to the next.
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

/// In µs, as features are.
fn micros(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e3
}

impl FrameWeights {
    /// The baseline, which has seen nothing yet.
    ///
    /// # Errors
    /// Another version, or a threshold that is not finite.
    pub fn threshold(&self) -> Result<Threshold, WeightsError> {
        WeightsError::check_version(self.version)?;
        self.threshold.build()
    }

    /// The logistic, which has seen nothing yet.
    ///
    /// # Errors
    /// Another version, no weights of gaps or more than 64, or numbers that are not finite.
    pub fn logistic(&self) -> Result<Logistic, WeightsError> {
        WeightsError::check_version(self.version)?;
        self.logistic.build()
    }
}
