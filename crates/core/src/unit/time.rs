//! Moments and lengths of time, in nanoseconds.

use core::ops::{Add, AddAssign, Div, Mul, Sub};

use super::parse::{Notation, textual};

/// A moment: nanoseconds since an arbitrary start (the start of a simulation, or of a clock).
///
/// Times of two clocks must never be subtracted from each other; only differences of times of the
/// same clock are meaningful. The range is 584 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A length of time in nanoseconds, never negative. The range is 584 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Time {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);
    /// The maximum, later than any event.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` after the start of the clock.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start of the clock.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The earliest of moments that may not come; `None` if none of them does.
    ///
    /// For a `poll_timeout` put together from several. Unlike a chain of iterators, it compiles to
    /// compares and moves.
    #[inline]
    pub fn earliest<const N: usize>(moments: [Option<Self>; N]) -> Option<Self> {
        moments.into_iter().fold(None, |first, next| match (first, next) {
            (Some(first), Some(next)) => Some(first.min(next)),
            (first, next) => first.or(next),
        })
    }

    /// How long ago `earlier` was; zero if it lies in the future.
    #[inline]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// How long ago `earlier` was, or `None` if it lies in the future.
    #[inline]
    pub fn checked_since(self, earlier: Self) -> Option<Span> {
        self.0.checked_sub(earlier.0).map(Span)
    }

    /// The moment `span` later, or `None` beyond the range.
    #[inline]
    pub fn checked_add(self, span: Span) -> Option<Self> {
        self.0.checked_add(span.0).map(Self)
    }
}

impl Span {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The maximum, longer than any real span.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `nanos` ns.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A span of `micros` µs, at most [`Span::MAX`].
    #[inline]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// A span of `millis` ms, at most [`Span::MAX`].
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// A span of `secs` s, at most [`Span::MAX`].
    #[inline]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// A span of `secs` s, rounded to the nearest ns; negative numbers and NaN give zero, too
    /// large ones [`Span::MAX`].
    #[inline]
    pub fn from_secs_f64(secs: f64) -> Self {
        Self(rounded(secs * 1e9))
    }

    /// Length in ns.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Length in whole µs, rounded down.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Length in ms.
    #[inline]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Length in s.
    #[inline]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Whether it is zero.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, or `None` beyond the range.
    #[inline]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The difference, or `None` where `other` is longer.
    #[inline]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// This span times a factor; negative factors and NaN give zero.
    #[inline]
    pub fn mul_f64(self, factor: f64) -> Self {
        Self(rounded(self.0 as f64 * factor))
    }
}

/// The nearest whole number, halves upwards: as `libm::round`, which takes a part of the lab's
/// time.
fn rounded(nanos: f64) -> u64 {
    // `as` saturates, and maps negative numbers and NaN to zero.
    let whole = nanos as u64;
    whole.saturating_add(u64::from(nanos - whole as f64 >= 0.5))
}

impl Add<Span> for Time {
    type Output = Self;
    #[inline]
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    #[inline]
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Time {
    type Output = Self;
    #[inline]
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    #[inline]
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Span {
    type Output = Self;
    /// Division by zero gives [`Span::MAX`].
    #[inline]
    fn div(self, parts: u64) -> Self {
        Self(self.0.checked_div(parts).unwrap_or(u64::MAX))
    }
}

impl From<core::time::Duration> for Span {
    #[inline]
    fn from(duration: core::time::Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for core::time::Duration {
    #[inline]
    fn from(span: Span) -> Self {
        Self::from_nanos(span.0)
    }
}

const NOTATION: Notation = Notation {
    what: "length of time",
    example: "`20ms`, `1.5s` or `2min`",
    usual: "s",
    suffixes: &[
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
    printed: &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)],
};
textual!(Span, NOTATION);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn spans_read_as_people_write_them() {
        for (text, nanos) in [
            ("20ms", 20_000_000),
            ("1.5s", 1_500_000_000),
            (" 250 us ", 250_000),
            ("3µs", 3_000),
            ("7NS", 7),
            ("2min", 120_000_000_000),
            (".5ms", 500_000),
        ] {
            assert_eq!(text.parse(), Ok(Span::from_nanos(nanos)), "{text}");
        }
    }

    proptest! {
        #[test]
        fn rounding_is_that_of_libm(bits in any::<u64>(), small in 0.0f64..100.0) {
            for value in [f64::from_bits(bits), small, libm::round(small) + 0.5, 0.5f64.next_down()] {
                prop_assert_eq!(rounded(value), libm::round(value) as u64, "{}", value);
            }
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (text, reason) in [
            ("20", "it has no unit; write for example `20s`"),
            ("20 ", "it has no unit; write for example `20s`"),
            ("ms", "does not start with a number"),
            ("-5ms", "it is below zero"),
            ("20x", "unknown unit"),
            ("", "does not start with a number"),
            ("1.2.3s", "does not start with a number"),
            ("0.5ns", "more digits"),
            (".05ns", "more digits"),
            ("1.01ns", "more digits"),
            ("99999999999999999999s", "too large"),
            ("20ms20", "unknown unit"),
        ] {
            let error = text.parse::<Span>().unwrap_err().to_string();
            assert!(
                error.contains(reason) && error.contains("; write for example `20"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn the_earliest_is_of_those_that_come() {
        let [soon, late] = [1, 2].map(|nanos| Some(Time::from_nanos(nanos)));
        assert_eq!(Time::earliest([None, late, soon]), soon);
        assert_eq!(Time::earliest([late, None]), late);
        assert_eq!(Time::earliest([None, None]), None);
    }

    #[test]
    fn arithmetic_stops_at_the_ends_of_the_range() {
        assert_eq!(Time::MAX + Span::from_secs(1), Time::MAX);
        assert_eq!(Time::ZERO.since(Time::MAX), Span::ZERO);
        assert_eq!(Span::ZERO - Span::from_secs(1), Span::ZERO);
        assert_eq!(Span::from_secs(1) / 0, Span::MAX);
        assert_eq!(Span::from_secs_f64(f64::NAN), Span::ZERO);
        assert_eq!(Time::MAX.checked_add(Span::from_nanos(1)), None);
        assert_eq!(Time::ZERO.checked_since(Time::from_nanos(1)), None);
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(nanos: u64) {
            let span = Span::from_nanos(nanos);
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }

        #[test]
        fn the_reader_is_total(text in "\\PC{0,60}") {
            let _ = text.parse::<Span>();
        }
    }
}
