//! Intervals of simulated time.

use freshline_core::unit::Time;

/// An interval of time, such as that in which a flow sends or is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period {
    /// Its start.
    pub from: Time,
    /// Its end, not before the start.
    pub until: Time,
}
