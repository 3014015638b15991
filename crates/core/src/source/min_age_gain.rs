//! MinAgeGain: limits the rate to the point above which a lower age is not worth another update.
//!
//! Updates of a periodic source with rate r arrive after a delay D, so the age at the monitor grows
//! from D to D + 1/r, and its mean is
//!
//! ```text
//! age(r) = D + 1/(2r)
//! gain   = age(r) − age(r′) = 1/(2r) − 1/(2r′) < 1/(2r)      for every r′ > r
//! r_max  = 1/(2w),   w = max(least, share · base)
//! ```
//!
//! At r_max even an infinite rate improves the mean age by less than w, so the rate ends there. D
//! may grow with r, as queues do; the gain is smaller then. Updates at random times would have an
//! age of D + 1/r; the project's sources are periodic.
//!
//! `base` is half of the minimum round trip: the age counts the forward delay alone, and half of a
//! round trip estimates it without synchronized clocks. While no round trip is known, w is `least`.

use core::fmt;
use core::str::FromStr;

use crate::unit::{ParseUnitError, Span, UpdateRate};

/// The improvement of the mean age that is worth a higher rate: `least`, or `share` of the base
/// delay if that is larger. Read from text: a length of time, `0` for none, or `default`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MinAgeGain {
    /// The absolute gain. 0.5 ms, that is up to 1000 updates/s: below the period of a 1 kHz control
    /// loop.
    pub least: Span,
    /// The gain as a fraction of the base delay, 0 to 1. 0.01: delays vary by more than 1 % anyway.
    pub share: f64,
}

impl MinAgeGain {
    /// Every improvement counts, so there is no limit.
    pub const OFF: Self = Self { least: Span::ZERO, share: 0.0 };

    /// The maximum rate over a path with this base delay; `None` if there is no limit.
    pub fn max_rate(&self, base: Span) -> Option<UpdateRate> {
        let worth = self.least.max(base.mul_f64(self.share));
        (!worth.is_zero()).then(|| UpdateRate::from_period(worth * 2))
    }
}

impl Default for MinAgeGain {
    fn default() -> Self {
        Self { least: Span::from_micros(500), share: 0.01 }
    }
}

impl FromStr for MinAgeGain {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "default" => Ok(Self::default()),
            "0" => Ok(Self::OFF),
            other => Ok(Self { least: other.parse()?, share: 0.0 }),
        }
    }
}

impl fmt::Display for MinAgeGain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OFF => f.pad("0"),
            Self { least, share: 0.0 } => least.fmt(f),
            Self { least, share } => write!(f, "{least} or {} % of the base delay", 100.0 * share),
        }
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for MinAgeGain {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = alloc::string::String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_short_paths_it_is_a_thousand_updates_a_second_and_on_long_ones_fewer() {
        let rate = |millis| {
            let base = Span::from_millis(millis);
            MinAgeGain::default().max_rate(base).map(UpdateRate::per_second)
        };
        assert_eq!(rate(0), Some(1_000.0));
        assert_eq!(rate(50), Some(1_000.0));
        assert_eq!(rate(100), Some(500.0));
        assert_eq!(rate(300), UpdateRate::new(1.0 / 0.006).map(UpdateRate::per_second));
        assert_eq!(MinAgeGain::OFF.max_rate(Span::from_secs(1)), None);
    }

    #[test]
    fn no_higher_rate_gains_what_is_worth_it() {
        let worth = MinAgeGain::default();
        for base in [0, 7, 60, 250].map(Span::from_millis) {
            let least = worth.least.max(base.mul_f64(worth.share)).as_secs_f64();
            let age = |rate: f64| base.as_secs_f64() + 1.0 / (2.0 * rate);
            let cap = worth.max_rate(base).expect("one").per_second();
            assert!(age(cap) - age(1e12) <= least * (1.0 + 1e-6), "{base}");
            assert!(age(0.9 * cap) - age(1e12) > least, "and a lower one does");
        }
    }

    #[test]
    fn it_reads_as_people_write_it() {
        assert_eq!("0".parse(), Ok(MinAgeGain::OFF));
        assert_eq!("0ms".parse(), Ok(MinAgeGain::OFF));
        assert_eq!("default".parse(), Ok(MinAgeGain::default()));
        assert_eq!("2ms".parse(), Ok(MinAgeGain { least: Span::from_millis(2), share: 0.0 }));
        assert!("2".parse::<MinAgeGain>().is_err() && "-1ms".parse::<MinAgeGain>().is_err());
    }
}
