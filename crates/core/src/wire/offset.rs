//! The clocks' offset as an update carries it: with a bound of its error, in the same 8 bytes.
//!
//! ```text
//!   63                                    8 7       3 2        0
//!  ┌───────────────────────────────────────┬─────────┬──────────┐
//!  │ offset in 256 ns, signed, rounded down│ exponent│ mantissa │   error ≤ ((8 + mantissa) << exponent) − 8
//!  └───────────────────────────────────────┴─────────┴──────────┘           in units of 64 ns
//! ```
//!
//! An offset is never known to 256 ns, so its lowest byte is free for the error. Both are rounded
//! so that the age of a state is never underestimated: the offset down, the error up, by an eighth
//! at most.

use crate::unit::Span;

/// A source's estimate of (monitor's clock − source's clock), and its error bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetEstimate(u64);

/// The unit of the error.
const UNIT: u64 = 64;
/// The code of an error that is not bounded.
const UNBOUNDED: u64 = 0xff;

impl OffsetEstimate {
    /// An estimate of `nanos` ns with an error of at most `error`, in either direction. More than
    /// 1924 s count as unbounded.
    pub fn new(nanos: i64, error: Span) -> Self {
        Self(nanos.cast_unsigned() & !0xff | error_code(error))
    }

    /// From its 8 bytes.
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its 8 bytes.
    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// The estimate in ns, a multiple of 256.
    pub const fn nanos(self) -> i64 {
        (self.0 & !0xff).cast_signed()
    }

    /// By how much it may be too large; [`Span::MAX`] if that is unknown. It may be too small by
    /// 256 ns more.
    pub const fn error(self) -> Span {
        match self.0 & 0xff {
            UNBOUNDED => Span::MAX,
            code => Span::from_nanos((((8 + (code & 7)) << (code >> 3)) - 8) * UNIT),
        }
    }
}

/// The error of such a code.
pub(crate) const fn error_of(code: u64) -> Span {
    OffsetEstimate::from_bits(code).error()
}

/// The code of an error: the smallest whose error is `error` or more.
pub(crate) fn error_code(error: Span) -> u64 {
    let scaled = error.as_nanos().div_ceil(UNIT) + 8;
    let exponent = u64::from(scaled.ilog2() - 3);
    let is_rounded = scaled & ((1 << exponent) - 1) != 0;
    // A mantissa that overflows is that of the next exponent.
    let code = (exponent << 3) + (scaled >> exponent) - 8 + u64::from(is_rounded);
    code.min(UNBOUNDED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn errors_are_rounded_up_by_an_eighth_at_most() {
        for (nanos, kept) in [
            (0, 0),
            (1, 64),
            (512, 512),
            (100_000, 106_496 - 512),
            (1_000_000, 1_048_576 - 512),
            (1_924_145_348_096, 1_924_145_348_096),
        ] {
            let error = OffsetEstimate::new(-1, Span::from_nanos(nanos)).error();
            assert!(error.as_nanos() >= nanos && error.as_nanos() <= kept + kept / 8, "{error:?}");
        }
        assert_eq!(OffsetEstimate::new(0, Span::from_secs(1_925)).error(), Span::MAX);
        assert_eq!(OffsetEstimate::new(0, Span::MAX).error(), Span::MAX);
    }

    proptest! {
        #[test]
        fn neither_makes_a_state_younger(nanos: i64, error in 0u64..1 << 62) {
            let kept = OffsetEstimate::new(nanos, Span::from_nanos(error));
            prop_assert!((0..256).contains(&nanos.wrapping_sub(kept.nanos())));
            prop_assert!(kept.error() >= Span::from_nanos(error));
            if kept.error() != Span::MAX {
                prop_assert!(kept.error().as_nanos() <= error + error / 8 + 2 * UNIT);
            }
            prop_assert_eq!(OffsetEstimate::from_bits(kept.bits()), kept);
        }
    }
}
