//! One decimal reader and one decimal writer for all units, exact in both directions.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use core::fmt;

/// A quantity that could not be read: the text given, and an accepted form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a {what}: {reason}; write for example {example}")]
pub struct ParseUnitError {
    given: String,
    what: &'static str,
    reason: &'static str,
    example: Cow<'static, str>,
}

/// How a unit type is written: its suffixes with their worth in the type's base unit.
pub(super) struct Notation {
    /// The name of the quantity in an error.
    pub what: &'static str,
    /// An example for the error message.
    pub example: &'static str,
    /// The suffix that is proposed for a number without one.
    pub usual: &'static str,
    /// `(suffix, worth)`; a suffix is matched without regard to case unless two differ by case.
    pub suffixes: &'static [(&'static str, u64)],
    /// The suffixes used for printing, from the largest to the smallest.
    pub printed: &'static [(&'static str, u64)],
}

impl Notation {
    /// The error for a number without a unit.
    fn no_unit(&self, given: &str) -> ParseUnitError {
        let mut error = self.error(given, "it has no unit");
        error.example = alloc::format!("`{}{}`", error.given.trim(), self.usual).into();
        error
    }

    pub(super) fn error(&self, given: &str, reason: &'static str) -> ParseUnitError {
        let mut given = given.to_string();
        if given.len() > 40 {
            let mut end = 40;
            while !given.is_char_boundary(end) {
                end -= 1;
            }
            given.truncate(end);
            given.push('…');
        }
        ParseUnitError { given, what: self.what, reason, example: self.example.into() }
    }

    /// Reads `12`, `1.5` or `.5` followed by one of the suffixes, as a whole number of base units.
    pub(super) fn parse(&self, text: &str) -> Result<u64, ParseUnitError> {
        let trimmed = text.trim();
        let split =
            trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, suffix) = trimmed.split_at(split);
        if trimmed.starts_with('-') {
            return Err(self.error(text, "it is below zero"));
        }
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return Err(self.error(text, "it does not start with a number"));
        }
        let suffix = suffix.trim();
        let worth = self.worth(suffix).ok_or_else(|| match suffix {
            "" => self.no_unit(text),
            _ => self.error(text, "unknown unit"),
        })?;
        let too_large = || self.error(text, "it is too large");
        let mut value: u128 = 0;
        for digit in whole.bytes() {
            value = value * 10 + u128::from(digit - b'0');
            if value > u128::from(u64::MAX) {
                return Err(too_large());
            }
        }
        value *= u128::from(worth);
        let mut scale = u128::from(worth);
        for digit in fraction.bytes() {
            let digit = u128::from(digit - b'0');
            if digit != 0 && (scale < 10 || !scale.is_multiple_of(10)) {
                // Finer than the base unit can hold.
                return Err(self.error(text, "it has more digits than the unit can hold"));
            }
            scale /= 10;
            value += digit * scale;
        }
        u64::try_from(value).map_err(|_| too_large())
    }

    fn worth(&self, suffix: &str) -> Option<u64> {
        let exact = self.suffixes.iter().find(|(name, _)| *name == suffix);
        let folded = || {
            let mut hits =
                self.suffixes.iter().filter(|(name, _)| name.eq_ignore_ascii_case(suffix));
            hits.next().filter(|_| hits.next().is_none())
        };
        exact.or_else(folded).map(|(_, worth)| *worth)
    }

    /// Writes `value` exactly, in the largest unit that is not larger than it.
    pub(super) fn print(&self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let smallest = self.printed[self.printed.len() - 1];
        let (suffix, worth) =
            self.printed.iter().copied().find(|(_, worth)| *worth <= value).unwrap_or(smallest);
        let (whole, mut rest) = (value / worth, value % worth);
        let mut text = whole.to_string();
        if rest > 0 {
            text.push('.');
            let mut scale = worth;
            while rest > 0 {
                scale /= 10;
                text.push(char::from(b'0' + (rest / scale) as u8));
                rest %= scale;
            }
        }
        text.push_str(suffix);
        f.pad(&text)
    }
}

/// `FromStr`, `Display` and serde's string form for a unit over `u64`.
macro_rules! textual {
    ($type:ident, $notation:expr) => {
        impl core::str::FromStr for $type {
            type Err = $crate::unit::ParseUnitError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $notation.parse(text).map(Self)
            }
        }
        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $notation.print(self.0, f)
            }
        }
        $crate::unit::parse::serde_as_text!($type, $notation);
    };
}

/// Reads a quantity from a text. A number without a unit is refused with a proposed unit.
#[cfg(feature = "serde")]
pub(super) fn from_text<'de, T, D>(notation: &Notation, deserializer: D) -> Result<T, D::Error>
where
    T: core::str::FromStr<Err = ParseUnitError>,
    D: serde::Deserializer<'de>,
{
    struct Text<'a, T>(&'a Notation, core::marker::PhantomData<T>);

    impl<T> Text<'_, T> {
        fn refuse<E: serde::de::Error>(&self, number: &impl ToString) -> E {
            E::custom(self.0.no_unit(&number.to_string()))
        }
    }

    impl<T: core::str::FromStr<Err = ParseUnitError>> serde::de::Visitor<'_> for Text<'_, T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a {} such as {}", self.0.what, self.0.example)
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
            Err(self.refuse(&number))
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
            Err(self.refuse(&number))
        }

        fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<T, E> {
            Err(self.refuse(&number))
        }
    }

    deserializer.deserialize_str(Text(notation, core::marker::PhantomData))
}

/// Serde by way of `Display` and `FromStr`.
macro_rules! serde_as_text {
    ($type:ident, $notation:expr) => {
        #[cfg(feature = "serde")]
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::unit::parse::from_text(&$notation, deserializer)
            }
        }
    };
}
pub(super) use {serde_as_text, textual};
