//! A monitor's output for a topic: its newest state, with its age and the uncertainty of the age.

use super::held::Since;
use crate::unit::{Span, Time};

/// The age of a state, and by how much the true age may differ from it, to either side.
///
/// The uncertainty is the error of the clock offset (half a round trip and 500 ppm of the time
/// since), and 500 ppm of the time from the state's generation to the sending of the update; or
/// less, as a state is not older than the previous one. Ages are measured by the monitor's clock.
/// They are valid if both clocks count all time, including time in which a machine sleeps, and the
/// source reports true times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateAge {
    /// The middle of the possible ages.
    pub estimate: Span,
    /// The maximum difference of the true age, in either direction.
    pub uncertainty: Span,
}

impl StateAge {
    /// From the estimate with its error, if there is one, and the bound.
    pub(super) fn of(estimate: Option<(Span, Span)>, since: Since, now: Time) -> Self {
        let max = since.max_age(now);
        // For a state whose update had no offset, only the bound of an older state is known.
        let min = estimate.map_or(Span::ZERO, |(estimate, error)| estimate - error).min(max);
        let uncertainty = (max - min) / 2;
        Self { estimate: max - uncertainty, uncertainty }
    }

    /// The maximum possible age of the state; deadlines are compared with this.
    pub fn max(&self) -> Span {
        self.estimate + self.uncertainty
    }
}

/// The newest state of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latest<'a> {
    /// Its bytes.
    pub payload: &'a [u8],
    /// Its age; `None` until an update has carried it, or an older state of the session, together
    /// with the clock offset.
    pub age: Option<StateAge>,
}
