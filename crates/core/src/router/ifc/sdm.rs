//! Size-driven multiplexing (SDM) controls the class of the next packet so that the classes share
//! the link's bytes: the AoI class gets γ of them while both have queued packets.
//!
//! ```text
//! b = γ S_LDA − (1 − γ) S_AoI        (section IV-A of the paper; S: bytes sent so far)
//! b > 0: the AoI class goes first    b < 0: the drop-averse class
//! ```
//!
//! At b = 0, which the paper leaves open, the AoI class goes first, unless γ = 0. So γ = 0 and γ =
//! 1 are strict priorities.
//!
//! # Credit
//!
//! As long as both classes have queued packets, b stays within one packet of zero. While one of
//! them has nothing to send, the paper's b grows in its favour without bound: after a night without
//! bulk traffic one download would block all updates for as long as the night was. Here a class
//! that is preferred and has no packets saves up at most a credit: when it returns, it sends at
//! most these bytes ahead of its share. (In b that is (1 − γ) · credit in favour of the AoI class,
//! γ · credit in favour of the other one.) A class that always sends less than its share is
//! unaffected: it is always preferred. [`Credit::Unlimited`] gives the paper's form.

use core::fmt;
use core::str::FromStr;

use alloc::string::String;

use super::{AoiShare, Class, Scheduler};
use crate::unit::{Bytes, ParseUnitError, Time};

/// How far ahead of its share a class may get after it had nothing to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub enum Credit {
    /// By this number of bytes.
    Limited(Bytes),
    /// By its whole share in the meantime: the paper's scheduler.
    Unlimited,
}

impl Default for Credit {
    /// 64 KiB, the largest packet that a network card segments. With less, a class of such packets
    /// would lose part of its share between two of them.
    fn default() -> Self {
        Self::Limited(Bytes::new(64 * 1024))
    }
}

impl FromStr for Credit {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "unlimited" => Ok(Self::Unlimited),
            _ => text.parse().map(Self::Limited),
        }
    }
}

impl fmt::Display for Credit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limited(bytes) => bytes.fmt(f),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

impl TryFrom<String> for Credit {
    type Error = ParseUnitError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Credit> for String {
    fn from(credit: Credit) -> Self {
        alloc::format!("{credit}")
    }
}

/// Parameters of [`Sdm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SdmParams {
    /// The maximum that a class saves up while it has nothing to send.
    pub credit: Credit,
}

/// The scheduler that shares bytes.
#[derive(Debug)]
pub struct Sdm {
    params: SdmParams,
    aoi_share: AoiShare,
    /// b, in bytes times the unit of the weights. Whole numbers do not drift, and 128 bits hold
    /// 2⁶⁴ packets of 2⁴⁰ bytes.
    budget: i128,
    /// The bounds of b in favour of a class that is passed over.
    credit: Bounds,
    /// The class that b prefers.
    preferred: Class,
}

#[derive(Debug)]
struct Bounds {
    aoi: i128,
    drop_averse: i128,
}

impl Sdm {
    /// A scheduler with b = 0.
    pub fn new(params: SdmParams, aoi_share: AoiShare) -> Self {
        let weights = aoi_share.weights();
        let credit = match params.credit {
            Credit::Unlimited => Bounds { aoi: i128::MAX, drop_averse: i128::MAX },
            Credit::Limited(credit) => Bounds {
                aoi: weighted(weights.drop_averse, credit),
                drop_averse: weighted(weights.aoi, credit),
            },
        };
        let preferred = preferred(0, aoi_share);
        Self { params, aoi_share, budget: 0, credit, preferred }
    }
}

fn preferred(budget: i128, aoi_share: AoiShare) -> Class {
    let in_favour = budget > 0 || (budget == 0 && aoi_share > AoiShare::ZERO);
    if in_favour { Class::Aoi } else { Class::DropAverse }
}

fn weighted(weight: u32, size: Bytes) -> i128 {
    i128::from(weight) * i128::from(size.get())
}

impl Scheduler for Sdm {
    #[inline]
    fn prefer(&mut self, _: Time) -> Class {
        self.preferred
    }

    #[inline]
    fn on_sent(&mut self, class: Class, size: Bytes) {
        let weights = self.aoi_share.weights();
        self.budget = match class {
            Class::Aoi => self.budget.saturating_sub(weighted(weights.drop_averse, size)),
            Class::DropAverse => self.budget.saturating_add(weighted(weights.aoi, size)),
        };
        if class != self.preferred {
            self.budget = self.budget.clamp(-self.credit.drop_averse, self.credit.aoi);
        }
        self.preferred = preferred(self.budget, self.aoi_share);
    }

    fn aoi_share(&self) -> AoiShare {
        self.aoi_share
    }

    /// Resets b, which counts by the old share.
    fn set_aoi_share(&mut self, aoi_share: AoiShare) {
        *self = Self::new(self.params, aoi_share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn sdm(share: f64, credit: &str) -> Sdm {
        let params = SdmParams { credit: credit.parse().unwrap() };
        Sdm::new(params, AoiShare::new(share).unwrap())
    }

    /// Sends `count` packets of `size`, all of the preferred class.
    fn both_wait(sdm: &mut Sdm, count: usize, size: u64) -> Vec<Class> {
        let mut send = |_| {
            let class = sdm.prefer(Time::ZERO);
            sdm.on_sent(class, Bytes::new(size));
            class
        };
        (0..count).map(&mut send).collect()
    }

    fn alone(sdm: &mut Sdm, class: Class, count: usize, size: u64) {
        for _ in 0..count {
            sdm.prefer(Time::ZERO);
            sdm.on_sent(class, Bytes::new(size));
        }
    }

    #[test]
    fn a_quarter_is_every_fourth_packet_of_one_size() {
        let (a, l) = (Class::Aoi, Class::DropAverse);
        assert_eq!(both_wait(&mut sdm(0.25, "64kB"), 8, 1000), [a, l, l, l, a, l, l, l]);
    }

    #[test]
    fn the_extremes_are_strict_priorities() {
        for credit in ["0B", "64kB", "unlimited"] {
            for (share, first) in [(0.0, Class::DropAverse), (1.0, Class::Aoi)] {
                let mut sdm = sdm(share, credit);
                alone(&mut sdm, Class::Aoi, 100, 1000);
                alone(&mut sdm, Class::DropAverse, 100, 1000);
                assert_eq!(both_wait(&mut sdm, 50, 1000), [first; 50], "{credit}");
            }
        }
    }

    #[test]
    fn an_idle_class_saves_up_its_credit_and_no_more() {
        for (idle, other) in [(Class::Aoi, Class::DropAverse), (Class::DropAverse, Class::Aoi)] {
            let mut sdm = sdm(0.5, "5kB");
            alone(&mut sdm, other, 100_000, 1000);
            let next = both_wait(&mut sdm, 1000, 1000);
            let ahead = next.iter().take_while(|class| **class == idle).count();
            // One more may be sent if b is exactly zero.
            assert!((5..=6).contains(&ahead), "{idle:?}: {ahead}");
            let idle_again = next.iter().filter(|class| **class == idle).count();
            assert!(idle_again.abs_diff(500) <= 3, "{idle:?}: {idle_again}");
        }
    }

    #[test]
    fn without_a_limit_an_idle_class_is_owed_all_of_its_share() {
        let mut sdm = sdm(0.5, "unlimited");
        alone(&mut sdm, Class::Aoi, 10_000, 1000);
        assert_eq!(both_wait(&mut sdm, 10_000, 1000), [Class::DropAverse; 10_000]);
    }

    #[test]
    fn a_new_share_starts_from_nothing_owed() {
        let mut sdm = sdm(0.5, "unlimited");
        alone(&mut sdm, Class::DropAverse, 1000, 1000);
        sdm.set_aoi_share(AoiShare::ZERO);
        assert_eq!(both_wait(&mut sdm, 10, 1000), [Class::DropAverse; 10]);
        assert_eq!(sdm.aoi_share(), AoiShare::ZERO);
    }

    #[test]
    fn no_amount_of_traffic_overflows_the_budget() {
        for class in Class::ALL {
            let mut sdm = sdm(0.5, "unlimited");
            alone(&mut sdm, class, 1000, u64::MAX);
            assert_eq!(both_wait(&mut sdm, 1000, u64::MAX), [class.other(); 1000]);
            sdm.budget = if class == Class::Aoi { i128::MIN } else { i128::MAX };
            alone(&mut sdm, class, 10, u64::MAX);
            assert_eq!(sdm.prefer(Time::ZERO), class.other());
        }
    }

    #[test]
    fn credits_are_written_as_sizes_or_unlimited() {
        for text in ["64000B", "unlimited"] {
            assert_eq!(String::from(text.parse::<Credit>().unwrap()), text);
        }
        assert!("much".parse::<Credit>().is_err());
    }
}
