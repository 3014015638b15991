//! Means over an epoch from a running integral.

use crate::unit::{Span, Time};

/// The running integral of a process up to a moment.
///
/// Taken at the start of an epoch and passed back at its end, it gives the exact mean over the
/// epoch, Δarea / Δtime. It is valid only for the process that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Integral {
    at: Time,
    /// In the units of the process that made it.
    area: u128,
}

impl Integral {
    pub(super) const fn new(at: Time, area: u128) -> Self {
        Self { at, area }
    }

    /// When it was taken.
    pub const fn at(self) -> Time {
        self.at
    }

    pub(super) const fn area(self) -> u128 {
        self.area
    }

    /// The same integral, of a process that was only defined from `start` on.
    pub(super) fn not_before(self, start: Time) -> Self {
        Self { at: self.at.max(start), ..self }
    }

    /// Area gained and time passed since `earlier`; `None` if no time has passed.
    pub(super) fn gained_since(self, earlier: Self) -> Option<(u128, Span)> {
        let time = self.at.since(earlier.at);
        let area = self.area.checked_sub(earlier.area)?;
        (!time.is_zero()).then_some((area, time))
    }
}
