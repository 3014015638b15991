//! The list of a source's laws: their names and settings.
//!
//! | name | law | settings |
//! |---|---|---|
//! | `acp+d` | [`AcpPlus`], the default | [`AcpPlusParams`], `estimator` by default of [`departure`](AcpPlusParams::departure) |
//! | `acp+` | [`AcpPlus`] as published | [`AcpPlusParams`] |
//! | `acp` | [`Acp`] | [`AcpParams`] |
//! | `tenth` | [`Tenth`] | [`TenthParams`] |
//! | `lazy` | [`Lazy`] | [`LazyParams`] |
//! | `fixed` | [`Fixed`] | `rate` |

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use super::{
    Acp, AcpParams, AcpPlus, AcpPlusParams, Fixed, Lazy, LazyParams, RateBounds, RateLaw, Tenth,
    TenthParams,
};
use crate::unit::UpdateRate;

/// The names of the laws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LawName {
    /// [`AcpPlus`] with the backlog at departure.
    AcpPlusD,
    /// [`AcpPlus`] as published.
    AcpPlus,
    /// [`Acp`].
    Acp,
    /// [`Tenth`].
    Tenth,
    /// [`Lazy`].
    Lazy,
    /// [`Fixed`].
    Fixed,
}

impl LawName {
    /// All laws; the default law first.
    pub const ALL: [Self; 6] =
        [Self::AcpPlusD, Self::AcpPlus, Self::Acp, Self::Tenth, Self::Lazy, Self::Fixed];

    /// The name in flags and files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AcpPlusD => "acp+d",
            Self::AcpPlus => "acp+",
            Self::Acp => "acp",
            Self::Tenth => "tenth",
            Self::Lazy => "lazy",
            Self::Fixed => "fixed",
        }
    }

    /// Describes the law in one sentence, without a full stop.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::AcpPlusD => {
                "ACP+ with our estimates: it compares age with the backlog at departure, and \
                 bridges losses"
            }
            Self::AcpPlus => "ACP+ as published: seeks the rate at which the mean age is smallest",
            Self::Acp => "ACP as published, the predecessor of acp+, with a step size",
            Self::Tenth => "Holds the number of its own queued updates at about a tenth",
            Self::Lazy => "One update per round trip",
            Self::Fixed => "A constant rate",
        }
    }

    /// Whether the law has control epochs, which [`RateLaw::last_epoch`] reports.
    pub const fn has_epochs(self) -> bool {
        matches!(self, Self::AcpPlusD | Self::AcpPlus | Self::Acp)
    }
}

impl fmt::Display for LawName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A law and its settings. In a flag it is a name, such as `acp+d`; in a file it may also be a
/// table, such as `{ law = "acp+", params = { tie = "hold" } }`. `fixed` needs its rate: `{ law =
/// "fixed", params = { rate = "50/s" } }`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LawConfig {
    /// `acp+d`.
    AcpPlusD(AcpPlusParams),
    /// `acp+`.
    AcpPlus(AcpPlusParams),
    /// `acp`.
    Acp(AcpParams),
    /// `tenth`.
    Tenth(TenthParams),
    /// `lazy`.
    Lazy(LazyParams),
    /// `fixed`.
    Fixed {
        /// The constant rate.
        rate: UpdateRate,
    },
}

/// A name from which no law can be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LawError {
    /// No law has this name.
    #[error(
        "`{0}` is not a law of a source; write `acp+d`, `acp+`, `acp`, `tenth`, `lazy` or `fixed`"
    )]
    Unknown(String),
    /// [`Fixed`] without its rate.
    #[error("`fixed` needs a rate, such as 50/s")]
    NeedsRate,
}

impl LawConfig {
    /// An adaptive law with its default settings.
    ///
    /// # Errors
    /// [`LawError::NeedsRate`] for [`LawName::Fixed`].
    pub fn with_defaults(name: LawName) -> Result<Self, LawError> {
        Ok(match name {
            LawName::AcpPlusD => Self::AcpPlusD(AcpPlusParams::departure()),
            LawName::AcpPlus => Self::AcpPlus(AcpPlusParams::default()),
            LawName::Acp => Self::Acp(AcpParams::default()),
            LawName::Tenth => Self::Tenth(TenthParams::default()),
            LawName::Lazy => Self::Lazy(LazyParams::default()),
            LawName::Fixed => return Err(LawError::NeedsRate),
        })
    }

    /// Its name.
    pub const fn name(&self) -> LawName {
        match self {
            Self::AcpPlusD(_) => LawName::AcpPlusD,
            Self::AcpPlus(_) => LawName::AcpPlus,
            Self::Acp(_) => LawName::Acp,
            Self::Tenth(_) => LawName::Tenth,
            Self::Lazy(_) => LawName::Lazy,
            Self::Fixed { .. } => LawName::Fixed,
        }
    }

    /// The same law with other bounds of its rate; [`Fixed`] has none.
    #[must_use]
    pub fn within(mut self, bounds: RateBounds) -> Self {
        match &mut self {
            Self::AcpPlusD(params) | Self::AcpPlus(params) => params.bounds = bounds,
            Self::Acp(params) => params.bounds = bounds,
            Self::Tenth(params) => params.bounds = bounds,
            Self::Lazy(params) => params.bounds = bounds,
            Self::Fixed { .. } => {}
        }
        self
    }

    /// The law, in its initial state.
    pub fn build(&self) -> Box<dyn RateLaw> {
        match *self {
            Self::AcpPlusD(params) | Self::AcpPlus(params) => Box::new(AcpPlus::new(params)),
            Self::Acp(params) => Box::new(Acp::new(params)),
            Self::Tenth(params) => Box::new(Tenth::new(params)),
            Self::Lazy(params) => Box::new(Lazy::new(params)),
            Self::Fixed { rate } => Box::new(Fixed::new(rate)),
        }
    }
}

impl Default for LawConfig {
    fn default() -> Self {
        Self::AcpPlusD(AcpPlusParams::departure())
    }
}

impl FromStr for LawName {
    type Err = LawError;

    fn from_str(text: &str) -> Result<Self, LawError> {
        let named = Self::ALL.into_iter().find(|name| name.as_str() == text);
        named.ok_or_else(|| LawError::Unknown(text.to_string()))
    }
}

impl FromStr for LawConfig {
    type Err = LawError;

    fn from_str(text: &str) -> Result<Self, LawError> {
        Self::with_defaults(text.parse()?)
    }
}

/// A law in a file: a name, or a table.
#[cfg(feature = "serde")]
mod reading {
    use serde::{Deserialize, Deserializer};

    use super::{AcpParams, AcpPlusParams, LawConfig, LazyParams, TenthParams, UpdateRate};
    use crate::reading::string_or_table;

    /// The table.
    #[derive(Deserialize)]
    #[serde(tag = "law", content = "params", rename_all = "snake_case", deny_unknown_fields)]
    enum Table {
        #[serde(rename = "acp+d", deserialize_with = "AcpPlusParams::deserialize_departure")]
        AcpPlusD(AcpPlusParams),
        #[serde(rename = "acp+")]
        AcpPlus(AcpPlusParams),
        Acp(AcpParams),
        Tenth(TenthParams),
        Lazy(LazyParams),
        Fixed {
            rate: UpdateRate,
        },
    }

    impl From<Table> for LawConfig {
        fn from(table: Table) -> Self {
            match table {
                Table::AcpPlusD(params) => Self::AcpPlusD(params),
                Table::AcpPlus(params) => Self::AcpPlus(params),
                Table::Acp(params) => Self::Acp(params),
                Table::Tenth(params) => Self::Tenth(params),
                Table::Lazy(params) => Self::Lazy(params),
                Table::Fixed { rate } => Self::Fixed { rate },
            }
        }
    }

    impl<'de> Deserialize<'de> for LawConfig {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let expected = "the name of a law, such as `acp+d`, or a table with `law` and `params`";
            string_or_table::<Table, _, _, _>(deserializer, expected, str::parse)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_builds_the_law_of_this_name() {
        for name in LawName::ALL {
            assert_eq!(name.as_str().parse(), Ok(name));
            match LawConfig::with_defaults(name) {
                Ok(config) => {
                    assert_eq!((config.name(), config.build().name()), (name, name.as_str()));
                }
                Err(error) => assert_eq!((name, error), (LawName::Fixed, LawError::NeedsRate)),
            }
        }
        assert_eq!(LawConfig::default(), "acp+d".parse().unwrap());
    }

    #[test]
    fn a_refused_name_comes_with_all_that_can_be_written() {
        let refusal = "cubic".parse::<LawConfig>().unwrap_err().to_string();
        assert!(refusal.starts_with("`cubic` is not a law"), "{refusal}");
        for name in LawName::ALL {
            assert!(refusal.contains(&alloc::format!("`{name}`")), "{refusal}");
        }
    }

    #[test]
    fn bounds_reach_each_law_that_adapts_its_rate() {
        let bounds = RateBounds { floor: UpdateRate::saturating(3.0), ..RateBounds::default() };
        for name in LawName::ALL {
            let Ok(config) = LawConfig::with_defaults(name) else { continue };
            assert_eq!(config.within(bounds).build().bounds(), Some(bounds), "{name}");
        }
    }

    #[cfg(feature = "serde")]
    mod files {
        use super::*;
        use crate::source::{Estimates, EstimatorParams, GapSource, Tie};

        #[derive(Debug, serde::Deserialize)]
        struct File {
            law: LawConfig,
        }

        fn read(law: &str) -> Result<LawConfig, toml::de::Error> {
            toml::from_str::<File>(&alloc::format!("law = {law}")).map(|file| file.law)
        }

        #[test]
        fn a_law_is_a_name_or_a_table() {
            assert_eq!(read("\"acp+d\"").unwrap(), LawConfig::default());
            let published = read("{ law = \"acp+\", params = { tie = \"hold\" } }").unwrap();
            let expected = AcpPlusParams { tie: Tie::Hold, ..AcpPlusParams::default() };
            assert_eq!(published, LawConfig::AcpPlus(expected));
            let rate = UpdateRate::saturating(50.0);
            let fixed = read("{ law = \"fixed\", params = { rate = \"50/s\" } }").unwrap();
            assert_eq!(fixed, LawConfig::Fixed { rate });
        }

        #[test]
        fn the_estimates_of_acp_plus_d_are_departure_unless_given() {
            let estimator = |estimator: &str| {
                let table =
                    alloc::format!("{{ law = \"acp+d\", params = {{ estimator = {estimator} }} }}");
                let LawConfig::AcpPlusD(params) = read(&table).unwrap() else { unreachable!() };
                params.estimator
            };
            let departure = EstimatorParams::departure();
            let params = AcpPlusParams { epoch_updates: 20, ..AcpPlusParams::departure() };
            let table = read("{ law = \"acp+d\", params = { epoch_updates = 20 } }").unwrap();
            assert_eq!(table, LawConfig::AcpPlusD(params));
            let expected = EstimatorParams { gap_source: GapSource::Acks, ..departure };
            assert_eq!(estimator("{ gap_source = \"acks\" }"), expected);
            let printed = EstimatorParams::of(Estimates::Printed);
            assert_eq!(estimator("{ estimates = \"printed\" }"), printed);
        }

        #[test]
        fn what_a_law_does_not_have_is_refused_by_its_key() {
            for (law, explanation) in [
                ("\"fixed\"", "`fixed` needs a rate"),
                ("\"cubic\"", "`cubic` is not a law"),
                ("{ law = \"cubic\", params = {} }", "unknown variant `cubic`"),
                ("{ law = \"lazy\", params = { tie = \"hold\" } }", "unknown field `tie`"),
                ("{ law = \"lazy\", params = {}, rate = \"1/s\" }", "string \"rate\""),
                ("{ law = \"fixed\", params = {} }", "missing field `rate`"),
                (
                    "{ law = \"acp+d\", params = { estimator = { gaps = 1 } } }",
                    "unknown field `gaps`",
                ),
            ] {
                let message = read(law).unwrap_err().to_string();
                assert!(message.contains(explanation), "{law}: {message}");
            }
        }
    }
}
