//! Downlink laws by name, with their settings.

use alloc::boxed::Box;

use super::{
    Algorithm2Params, DownlinkLaw, DownlinkParams, Fixed, LinearParams, NonlinearParams,
    ParamsError,
};
use crate::unit::BitRate;

/// A law of the downlink and its settings. In a file, a string such as `"nonlinear"`, or a table
/// such as `{ law = "nonlinear", delay = "2.5ms", level = 48.0 }`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "law", rename_all = "snake_case"))]
pub enum DownlinkLawConfig {
    /// [`Nonlinear`](super::Nonlinear).
    Nonlinear(NonlinearParams),
    /// [`Algorithm2`](super::Algorithm2).
    Algorithm2(Algorithm2Params),
    /// [`Linear`](super::Linear).
    Linear(LinearParams),
    /// [`Fixed`].
    Fixed {
        /// The rate to each station, above zero.
        rate: BitRate,
        /// The packet size and the interval of reports; the other settings have no effect.
        downlink: DownlinkParams,
    },
}

impl DownlinkLawConfig {
    /// The law, without stations.
    pub fn build(&self) -> Result<Box<dyn DownlinkLaw>, ParamsError> {
        Ok(match *self {
            Self::Nonlinear(params) => Box::new(params.build()?),
            Self::Algorithm2(params) => Box::new(params.build()?),
            Self::Linear(params) => Box::new(params.build()?),
            Self::Fixed { rate, downlink } => {
                downlink.check()?;
                let bps = rate.as_bps();
                let range = ["above 0", "nothing would ever be sent", "200mbit"];
                super::params::check("rate", bps as f64, bps > 0, range)?;
                Box::new(Fixed::new(rate))
            }
        })
    }

    /// Packets, slots and stations.
    pub fn downlink(&self) -> &DownlinkParams {
        match self {
            Self::Nonlinear(params) => &params.downlink,
            Self::Algorithm2(params) => &params.downlink,
            Self::Linear(params) => &params.downlink,
            Self::Fixed { downlink, .. } => downlink,
        }
    }

    /// The same, to be changed.
    pub fn downlink_mut(&mut self) -> &mut DownlinkParams {
        match self {
            Self::Nonlinear(params) => &mut params.downlink,
            Self::Algorithm2(params) => &mut params.downlink,
            Self::Linear(params) => &mut params.downlink,
            Self::Fixed { downlink, .. } => downlink,
        }
    }
}

/// A law in a file: a name, or a table.
#[cfg(feature = "serde")]
mod reading {
    use alloc::format;
    use alloc::string::String;

    use serde::{Deserialize, Deserializer};

    use super::{
        Algorithm2Params, BitRate, DownlinkLawConfig, DownlinkParams, LinearParams, NonlinearParams,
    };
    use crate::reading::string_or_table;

    /// The table.
    #[derive(Deserialize)]
    #[serde(tag = "law", rename_all = "snake_case", deny_unknown_fields)]
    enum Table {
        Nonlinear(NonlinearParams),
        Algorithm2(Algorithm2Params),
        Linear(LinearParams),
        Fixed {
            rate: BitRate,
            #[serde(default)]
            downlink: DownlinkParams,
        },
    }

    impl From<Table> for DownlinkLawConfig {
        fn from(table: Table) -> Self {
            match table {
                Table::Nonlinear(params) => Self::Nonlinear(params),
                Table::Algorithm2(params) => Self::Algorithm2(params),
                Table::Linear(params) => Self::Linear(params),
                Table::Fixed { rate, downlink } => Self::Fixed { rate, downlink },
            }
        }
    }

    fn named(name: &str) -> Result<DownlinkLawConfig, String> {
        match name {
            "nonlinear" => Ok(DownlinkLawConfig::Nonlinear(NonlinearParams::default())),
            "algorithm2" => Ok(DownlinkLawConfig::Algorithm2(Algorithm2Params::default())),
            "linear" => Ok(DownlinkLawConfig::Linear(LinearParams::default())),
            "fixed" => Err("`fixed` needs a rate: { law = \"fixed\", rate = \"200mbit\" }".into()),
            _ => Err(format!(
                "`{name}` is no law of the downlink; write `nonlinear`, `algorithm2`, `linear` or a \
                 table"
            )),
        }
    }

    impl<'de> Deserialize<'de> for DownlinkLawConfig {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let expected =
                "`nonlinear`, `algorithm2`, `linear`, or a table with `law` and its settings";
            string_or_table::<Table, _, _, _>(deserializer, expected, named)
        }
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;
    use crate::unit::Span;
    use crate::wlan::Sharing;

    #[derive(Debug, serde::Deserialize)]
    struct File {
        law: DownlinkLawConfig,
    }

    fn read(law: &str) -> Result<DownlinkLawConfig, toml::de::Error> {
        toml::from_str::<File>(&alloc::format!("law = {law}")).map(|file| file.law)
    }

    #[test]
    fn a_law_is_a_name_or_a_table() {
        let params = NonlinearParams::default();
        assert_eq!(read("\"nonlinear\"").unwrap(), DownlinkLawConfig::Nonlinear(params));
        let delay = Span::from_micros(2_500);
        let table = read("{ law = \"nonlinear\", delay = \"2.5ms\" }").unwrap();
        let expected = NonlinearParams { delay, ..params };
        assert_eq!(table, DownlinkLawConfig::Nonlinear(expected));
        assert_eq!(read("\"algorithm2\"").unwrap().build().unwrap().name(), "algorithm2");
        let table = read("{ law = \"algorithm2\", delay = \"2.5ms\" }").unwrap();
        let expected = Algorithm2Params { delay, ..Algorithm2Params::default() };
        assert_eq!(table, DownlinkLawConfig::Algorithm2(expected));
        let shared = read("{ law = \"linear\", sharing = \"level\" }").unwrap();
        let expected = LinearParams { sharing: Sharing::Level, ..LinearParams::default() };
        assert_eq!(shared, DownlinkLawConfig::Linear(expected));
        let linear = read("{ law = \"linear\", downlink = { interval = \"1s\" } }").unwrap();
        assert_eq!(linear.downlink().interval, Span::from_secs(1));
        let fixed = read("{ law = \"fixed\", rate = \"200mbit\" }").unwrap();
        assert_eq!(fixed.build().unwrap().name(), "fixed");
        for wrong in ["\"fixed\"", "\"cubic\"", "{ law = \"linear\", delay = \"1ms\" }"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let none = read("{ law = \"fixed\", rate = \"0mbit\" }").unwrap();
        assert!(none.build().is_err());
    }
}
