//! A span of simulated time with its ends.

use freshline_core::unit::Time;

/// From when until when something lasts, such as a flow or the time over which it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period {
    /// Its start.
    pub from: Time,
    /// Its end, not before the start.
    pub until: Time,
}
