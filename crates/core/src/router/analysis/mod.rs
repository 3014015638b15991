//! The theory of the router's freshness control on one link: the age of updates, the rate left for
//! other traffic, and the share γ for a wanted age or throughput.
//!
//! Tseng, Han, Wierman, "In-Network Freshness Control: Trading Throughput for Freshness", sections
//! IV and V. The proofs, and the limits of the models, are on the book's page on the router.
//!
//! [`PulseTrain`] is one flow alone, exact to the nanosecond: the age under IFIL, the minimum age
//! of any policy, and the distance between them (Theorem 1). [`Bottleneck`] is a link that flows of
//! updates share with traffic that fills the rest, under SDM or TDM; [`Bottleneck::suggest`] is the
//! guideline that the paper defers to an appendix.
//!
//! ```
//! use freshline_core::router::SchedulerParams;
//! use freshline_core::router::analysis::{Bottleneck, Wish};
//! use freshline_core::unit::{BitRate, Bytes, Span};
//!
//! let link = Bottleneck {
//!     rate: BitRate::from_mbps(10),
//!     propagation: Span::from_millis(10),
//!     flows: 1,
//!     update_period: Span::from_millis(5),
//!     update_size: Bytes::new(1052),
//!     drop_averse_size: Bytes::new(1500),
//! };
//! let wish = Wish::AgeAtMost(Span::from_millis(20));
//! let suggestion = link.suggest(SchedulerParams::default(), wish)?;
//! assert_eq!(suggestion.share.to_string(), "0.063199");
//! assert_eq!(suggestion.prediction.age.as_micros(), 19_999);
//! # Ok::<(), freshline_core::router::analysis::SuggestError>(())
//! ```

mod bottleneck;
mod guideline;
mod pulse_train;

pub use bottleneck::{Bottleneck, ModelError, Prediction};
pub use guideline::{SuggestError, Suggestion, Wish};
pub use pulse_train::{PulseTrain, Tie};

/// The single link of the paper's Figure 6: an update has 1024 bytes in UDP and IPv4, the others
/// fill packets of 1500 bytes.
#[cfg(test)]
const PAPER: Bottleneck = Bottleneck {
    rate: crate::unit::BitRate::from_mbps(10),
    propagation: crate::unit::Span::from_millis(10),
    flows: 1,
    update_period: crate::unit::Span::from_millis(5),
    update_size: crate::unit::Bytes::new(1052),
    drop_averse_size: crate::unit::Bytes::new(1500),
};
