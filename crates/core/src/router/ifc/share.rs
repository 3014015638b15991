//! The AoI class's share of a link.

use core::fmt;
use core::str::FromStr;

use alloc::string::{String, ToString};

/// The AoI ratio γ, from 0 to 1, exact to a millionth: the AoI class's share of the link while both
/// classes have queued packets. With 0 the drop-averse class always goes first, with 1 the AoI
/// class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "f64", into = "f64"))]
pub struct AoiShare(u32);

impl AoiShare {
    /// Everything to the drop-averse class.
    pub const ZERO: Self = Self(0);
    /// Everything to the AoI class.
    pub const ONE: Self = Self(Self::WHOLE);
    /// A half each: the paper's recommendation for unknown traffic.
    pub const HALF: Self = Self(Self::WHOLE / 2);

    const WHOLE: u32 = 1_000_000;

    /// The share nearest to `share`, which is from 0 to 1.
    pub fn new(share: f64) -> Result<Self, AoiShareError> {
        if (0.0..=1.0).contains(&share) {
            Ok(Self(libm::round(share * f64::from(Self::WHOLE)) as u32))
        } else {
            Err(AoiShareError(share.to_string()))
        }
    }

    /// From 0 to 1.
    pub fn get(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }

    /// γ and 1 − γ as whole numbers, in the same unit.
    pub(super) fn weights(self) -> Weights {
        Weights { aoi: self.0, drop_averse: Self::WHOLE - self.0 }
    }
}

/// Shares of the two classes in whole numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weights {
    pub(super) aoi: u32,
    pub(super) drop_averse: u32,
}

impl Weights {
    /// The sum of both.
    pub(super) const WHOLE: u32 = AoiShare::WHOLE;
}

impl Default for AoiShare {
    fn default() -> Self {
        Self::HALF
    }
}

/// A number that is not a share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no share of a link; give a number from 0 to 1, such as 0.5")]
pub struct AoiShareError(String);

impl FromStr for AoiShare {
    type Err = AoiShareError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || AoiShareError(text.to_string());
        text.trim().parse().ok().and_then(|share| Self::new(share).ok()).ok_or_else(refused)
    }
}

impl TryFrom<f64> for AoiShare {
    type Error = AoiShareError;

    fn try_from(share: f64) -> Result<Self, Self::Error> {
        Self::new(share)
    }
}

impl From<AoiShare> for f64 {
    fn from(share: AoiShare) -> Self {
        share.get()
    }
}

impl fmt::Display for AoiShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_numbers_from_zero_to_one_are_shares() {
        for bad in ["-0.1", "1.1", "nan", "half", ""] {
            let message = bad.parse::<AoiShare>().unwrap_err().to_string();
            assert!(message.contains("from 0 to 1"), "{message}");
        }
        assert_eq!("0".parse(), Ok(AoiShare::ZERO));
        assert_eq!("1".parse(), Ok(AoiShare::ONE));
        assert_eq!("0.5".parse(), Ok(AoiShare::HALF));
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(parts in 0..=AoiShare::WHOLE) {
            let share = AoiShare(parts);
            prop_assert_eq!(share.to_string().parse(), Ok(share));
            prop_assert_eq!(AoiShare::new(share.get()), Ok(share));
        }
    }
}
