//! What a monitor hands out of a topic: its newest state, with its age and how uncertain that is.

use super::held::Since;
use crate::unit::{Span, Time};

/// The age of a state, and by how much the true age may differ from it, to either side.
///
/// The uncertainty is the error of the clocks' offset, half of a round trip and 500 ppm of the time since,
/// and 500 ppm of the time from the state's generation to the sending of the update; or less, as a state is
/// not older than the one before it. Ages are of the monitor's clock. They hold while both clocks count all
/// time, also that in which a machine sleeps, and the source tells the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateAge {
    /// The middle of the ages that are possible.
    pub estimate: Span,
    /// By how much the true age may be greater, or less.
    pub uncertainty: Span,
}

impl StateAge {
    /// From the estimate with its error, if there is one, and the bound.
    pub(super) fn of(estimate: Option<(Span, Span)>, since: Since, now: Time) -> Self {
        let max = since.max_age(now);
        // Of a state whose update had no offset, only the bound of an older one is known.
        let min = estimate.map_or(Span::ZERO, |(estimate, error)| estimate - error).min(max);
        let uncertainty = (max - min) / 2;
        Self { estimate: max - uncertainty, uncertainty }
    }

    /// The greatest age that the state can have; a deadline is compared with this.
    pub fn max(&self) -> Span {
        self.estimate + self.uncertainty
    }
}

/// The newest state of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latest<'a> {
    /// Its bytes.
    pub payload: &'a [u8],
    /// Its age; `None` until an update has carried it, or an older one of the session, together with the
    /// clocks' offset.
    pub age: Option<StateAge>,
}
