//! Rates: bits per second and updates per second, as different types.

use core::fmt;
use core::str::FromStr;

use super::parse::{Notation, ParseUnitError, serde_as_text, textual};
use super::{Bytes, Span};

/// A rate of data in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(u64);

impl BitRate {
    /// A rate of `bits` per second.
    #[inline]
    pub const fn from_bps(bits: u64) -> Self {
        Self(bits)
    }

    /// A rate of `mbit` million bits per second.
    #[inline]
    pub const fn from_mbps(mbit: u64) -> Self {
        Self(mbit.saturating_mul(1_000_000))
    }

    /// Bits per second.
    #[inline]
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// How long `size` takes to be sent, rounded up to a ns; [`Span::MAX`] at rate zero.
    #[inline]
    pub fn time_to_send(self, size: Bytes) -> Span {
        let bit_nanos = u128::from(size.get()) * 8 * 1_000_000_000;
        match bit_nanos.checked_add(u128::from(self.0)) {
            Some(sum) if self.0 > 0 => {
                Span::from_nanos(u64::try_from((sum - 1) / u128::from(self.0)).unwrap_or(u64::MAX))
            }
            _ => Span::MAX,
        }
    }

    /// The rate at which `size` is carried in `span`; `None` for an empty span.
    #[inline]
    pub fn of(size: Bytes, span: Span) -> Option<Self> {
        let bit_nanos = u128::from(size.get()) * 8 * 1_000_000_000;
        let bits = bit_nanos.checked_div(u128::from(span.as_nanos()))?;
        Some(Self(u64::try_from(bits).unwrap_or(u64::MAX)))
    }
}

const NOTATION: Notation = Notation {
    what: "bit rate",
    example: "`6mbit`, `128kbit` or `1gbit`",
    usual: "mbit",
    suffixes: &[
        ("bit", 1),
        ("bps", 1),
        ("kbit", 1_000),
        ("kbps", 1_000),
        ("mbit", 1_000_000),
        ("mbps", 1_000_000),
        ("gbit", 1_000_000_000),
        ("gbps", 1_000_000_000),
    ],
    printed: &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)],
};
textual!(BitRate, NOTATION);

/// A rate of updates per second: always finite and above zero.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct UpdateRate(f64);

impl UpdateRate {
    /// The slowest rate that can be expressed: one update in about 292 years.
    pub const MIN: Self = Self(1e-10);
    /// The fastest rate that can be expressed: one update per nanosecond.
    pub const MAX: Self = Self(1e9);

    /// A rate of `per_second` updates per second, or `None` unless it lies between
    /// [`UpdateRate::MIN`] and [`UpdateRate::MAX`].
    #[inline]
    pub fn new(per_second: f64) -> Option<Self> {
        (Self::MIN.0..=Self::MAX.0).contains(&per_second).then_some(Self(per_second))
    }

    /// A rate of `per_second` updates per second, brought into the range; NaN gives the minimum.
    #[inline]
    pub fn saturating(per_second: f64) -> Self {
        if per_second.is_nan() {
            return Self::MIN;
        }
        Self(per_second.clamp(Self::MIN.0, Self::MAX.0))
    }

    /// One update every `period`.
    #[inline]
    pub fn from_period(period: Span) -> Self {
        Self::saturating(1.0 / period.as_secs_f64())
    }

    /// Updates per second.
    #[inline]
    pub const fn per_second(self) -> f64 {
        self.0
    }

    /// The time from one update to the next, at least 1 ns.
    #[inline]
    pub fn period(self) -> Span {
        Span::from_secs_f64(1.0 / self.0)
    }

    /// This rate brought between `floor` and `ceiling`.
    #[inline]
    pub fn clamp(self, floor: Self, ceiling: Self) -> Self {
        Self(self.0.min(ceiling.0).max(floor.0))
    }

    /// This rate times `factor`, brought into the range.
    #[inline]
    pub fn scaled(self, factor: f64) -> Self {
        Self::saturating(self.0 * factor)
    }
}

const UPDATES: Notation = Notation {
    what: "rate of updates",
    example: "`50/s` or `0.5/s`",
    usual: "/s",
    suffixes: &[],
    printed: &[],
};

impl FromStr for UpdateRate {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let trimmed = text.trim();
        let number = ["/s", "hz", "Hz"].iter().find_map(|unit| trimmed.strip_suffix(unit));
        let value: f64 = number
            .unwrap_or(trimmed)
            .trim()
            .parse()
            .map_err(|_| UPDATES.error(text, "it is not a number per second"))?;
        Self::new(value).ok_or_else(|| UPDATES.error(text, "it lies outside of 1e-10/s to 1e9/s"))
    }
}

impl fmt::Display for UpdateRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.0)
    }
}
serde_as_text!(UpdateRate, UPDATES);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn a_kilobyte_at_six_megabit_takes_1_37_ms() {
        let rate: BitRate = "6mbit".parse().unwrap();
        assert_eq!(rate.time_to_send(Bytes::new(1024)), Span::from_nanos(1_365_334));
        assert_eq!(BitRate::from_bps(0).time_to_send(Bytes::new(1)), Span::MAX);
    }

    #[test]
    fn update_rates_stay_positive_and_finite() {
        assert_eq!("50/s".parse::<UpdateRate>().unwrap().period(), Span::from_millis(20));
        for text in ["0/s", "-1/s", "inf", "nan", "fast", "1e10/s"] {
            assert!(text.parse::<UpdateRate>().is_err(), "{text}");
        }
        for wild in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0] {
            let rate = UpdateRate::saturating(wild).per_second();
            assert!(rate.is_finite() && rate > 0.0, "{wild}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_number_without_a_unit_in_a_file_is_refused_with_one_that_would_do() {
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "read only")]
        struct Rates {
            bits: Option<BitRate>,
            updates: Option<UpdateRate>,
        }
        for (text, hint) in [
            (
                "updates = 700",
                "`700` is not a rate of updates: it has no unit; write for example `700/s`",
            ),
            ("updates = 0.5", "write for example `0.5/s`"),
            ("bits = 6", "write for example `6mbit`"),
            ("bits = true", "expected a bit rate such as `6mbit`"),
        ] {
            let error = toml::from_str::<Rates>(text).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
        let rates: Rates = toml::from_str("updates = '700/s'").unwrap();
        assert_eq!(rates.updates, UpdateRate::new(700.0));
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(bps: u64, per_second in 1e-9f64..1e9) {
            let bits = BitRate::from_bps(bps);
            prop_assert_eq!(bits.to_string().parse(), Ok(bits));
            let updates = UpdateRate::saturating(per_second);
            prop_assert_eq!(updates.to_string().parse(), Ok(updates));
        }

        #[test]
        fn sending_and_measuring_agree(bps in 1u64..1_000_000_000_000, bytes in 1u64..1_000_000_000) {
            let span = BitRate::from_bps(bps).time_to_send(Bytes::new(bytes));
            let measured = BitRate::of(Bytes::new(bytes), span).unwrap().as_bps();
            // Rounding the time up to a ns can only lower the measured rate.
            prop_assert!(measured <= bps);
        }
    }
}
