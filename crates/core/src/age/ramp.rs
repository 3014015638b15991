//! One tooth of the sawtooth.

use crate::unit::Span;

/// An uninterrupted growth of age with slope 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ramp {
    from: Span,
    to: Span,
}

impl Ramp {
    /// The growth from age `from` to age `to`; empty where `to` is the smaller.
    pub fn new(from: Span, to: Span) -> Self {
        Self { from, to: to.max(from) }
    }

    /// Age at the start.
    pub const fn from(self) -> Span {
        self.from
    }

    /// Age at the end, never below [`Ramp::from`].
    pub const fn to(self) -> Span {
        self.to
    }

    /// How long it lasted, which with slope 1 is how much age grew.
    pub fn duration(self) -> Span {
        self.to - self.from
    }

    /// Its last `time`; the whole of it where it was shorter.
    pub(super) fn last(self, time: Span) -> Self {
        Self { from: self.from.max(self.to - time), to: self.to }
    }

    /// Twice the area under it in ns², a whole number: to² − from².
    pub(super) fn twice_area(self) -> u128 {
        let (from, to) = (u128::from(self.from.as_nanos()), u128::from(self.to.as_nanos()));
        (to - from) * (to + from)
    }
}
