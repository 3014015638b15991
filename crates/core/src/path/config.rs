//! Schedulers by their names, with their settings.

use alloc::boxed::Box;
use alloc::string::String;
use core::str::FromStr;

use super::{
    Blest, BlestParams, Daps, Earliest, EarliestParams, Ecf, EcfParams, Estimator, Freshest,
    FreshestParams, Linger, LingerParams, MinSrtt, QAware, QAwareParams, Redundant, RoundRobin,
    Scheduler,
};

/// A scheduler and its settings. In a file, a string such as `"qaware"`, or a table such as
/// `{ scheduler = "qaware", alpha = 0.9 }`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "scheduler", rename_all = "snake_case"))]
pub enum SchedulerConfig {
    /// [`MinSrtt`].
    MinSrtt,
    /// [`RoundRobin`].
    RoundRobin,
    /// [`Redundant`].
    Redundant,
    /// [`Ecf`].
    Ecf(EcfParams),
    /// [`Blest`].
    Blest(BlestParams),
    /// [`Daps`].
    Daps,
    /// [`Linger`], the default of mainline Linux.
    Linger(LingerParams),
    /// [`QAware`].
    #[cfg_attr(feature = "serde", serde(rename = "qaware"))]
    QAware(QAwareParams),
    /// [`Earliest`].
    Earliest(EarliestParams),
    /// [`Freshest`].
    Freshest(FreshestParams),
}

/// A setting outside its range.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("`{field}` is {value}, which is not {range}; give for example {example}")]
pub struct SchedulerError {
    /// The setting.
    pub field: &'static str,
    /// Its value.
    pub value: f64,
    /// The allowed range.
    pub range: &'static str,
    /// A reasonable value.
    pub example: &'static str,
}

impl SchedulerConfig {
    /// All schedulers with their default settings.
    pub const ALL: [Self; 10] = [
        Self::MinSrtt,
        Self::RoundRobin,
        Self::Redundant,
        Self::Ecf(EcfParams { beta: 0.25, min_delta: crate::unit::Span::ZERO }),
        Self::Blest(BlestParams {
            lambda: 1.2,
            bounds: [1.0, 1.3],
            steps: [0.01, 0.04],
            extremes: false,
        }),
        Self::Daps,
        Self::Linger(LingerParams::MAINLINE),
        Self::QAware(QAwareParams { alpha: 0.8, estimator: Estimator::PerPacket }),
        Self::Earliest(EarliestParams { beta: 0.25 }),
        Self::Freshest(FreshestParams {
            copies: 25.0,
            worth: 0.1,
            forget: crate::unit::Span::from_millis(500),
            alpha: 0.8,
        }),
    ];

    /// The name, as files and commands write it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MinSrtt => "min_srtt",
            Self::RoundRobin => "round_robin",
            Self::Redundant => "redundant",
            Self::Ecf(_) => "ecf",
            Self::Blest(_) => "blest",
            Self::Daps => "daps",
            Self::Linger(_) => "linger",
            Self::QAware(_) => "qaware",
            Self::Earliest(_) => "earliest",
            Self::Freshest(_) => "freshest",
        }
    }

    /// Whether all settings are within their ranges.
    ///
    /// # Errors
    /// The first setting that is not.
    pub fn check(&self) -> Result<(), SchedulerError> {
        match *self {
            Self::MinSrtt | Self::RoundRobin | Self::Redundant | Self::Daps => Ok(()),
            Self::Ecf(EcfParams { beta: value, .. }) => beta(value),
            Self::Earliest(EarliestParams { beta: value }) => beta(value),
            Self::Blest(params) => {
                let [least, most] = params.bounds;
                within("bounds[0]", least, f64::MIN_POSITIVE..=100.0, ["above 0", "1.0"])?;
                within("bounds[1]", most, least..=100.0, ["from bounds[0] to 100", "1.3"])?;
                within("lambda", params.lambda, least..=most, ["within `bounds`", "1.2"])?;
                let mut steps = params.steps.into_iter();
                steps.try_for_each(|step| {
                    within("steps", step, 0.0..=100.0, ["from 0 to 100", "[0.01, 0.04]"])
                })
            }
            Self::Linger(params) => {
                let burst = params.burst as f64;
                within("burst", burst, 1.0..=f64::MAX, ["from 1 on", "65428"])?;
                within("buffer", params.buffer, 1.0..=100.0, ["from 1 to 100", "2"])?;
                let mut pacing = params.pacing.into_iter();
                pacing.try_for_each(|windows| {
                    let range = f64::MIN_POSITIVE..=100.0;
                    within("pacing", windows, range, ["above 0 to 100", "[2.0, 1.2]"])
                })
            }
            Self::QAware(params) => alpha(params.alpha),
            Self::Freshest(params) => {
                alpha(params.alpha)?;
                within("copies", params.copies, 0.0..=100.0, ["from 0 to 100", "25"])?;
                within("worth", params.worth, 0.0..=1.0, ["from 0 to 1", "0.1"])?;
                let forget = params.forget.as_secs_f64();
                within("forget", forget, 1e-9..=f64::MAX, ["above 0", "500ms"])
            }
        }
    }

    /// The scheduler, in its initial state.
    ///
    /// # Errors
    /// As [`SchedulerConfig::check`].
    pub fn build(&self) -> Result<Box<dyn Scheduler>, SchedulerError> {
        self.check()?;
        Ok(match *self {
            Self::MinSrtt => Box::new(MinSrtt::new()),
            Self::RoundRobin => Box::new(RoundRobin::new()),
            Self::Redundant => Box::new(Redundant::new()),
            Self::Ecf(params) => Box::new(Ecf::new(params)),
            Self::Blest(params) => Box::new(Blest::new(params)),
            Self::Daps => Box::new(Daps::new()),
            Self::Linger(params) => Box::new(Linger::new(params)),
            Self::QAware(params) => Box::new(QAware::new(params)),
            Self::Earliest(params) => Box::new(Earliest::new(params)),
            Self::Freshest(params) => Box::new(Freshest::new(params)),
        })
    }

    /// Whether it uses the queueing delays of single packets, so that stamps of their departures
    /// are worth their cost ([`Scheduler::wants_acks`]).
    pub fn wants_queueing_delays(&self) -> bool {
        self.build().is_ok_and(|scheduler| scheduler.wants_acks())
    }
}

/// A name that no scheduler has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no scheduler `{0}`; there are {names}",
    names = SchedulerConfig::ALL.map(|config| config.name()).join(", ")
)]
pub struct ParseSchedulerError(String);

/// Parses a scheduler's name; its settings are the defaults.
impl FromStr for SchedulerConfig {
    type Err = ParseSchedulerError;

    fn from_str(name: &str) -> Result<Self, ParseSchedulerError> {
        let mut all = Self::ALL.into_iter();
        all.find(|config| config.name() == name).ok_or_else(|| ParseSchedulerError(name.into()))
    }
}

fn alpha(alpha: f64) -> Result<(), SchedulerError> {
    within("alpha", alpha, 0.0..=1.0 - f64::EPSILON, ["from 0 to below 1", "0.8"])
}

fn beta(beta: f64) -> Result<(), SchedulerError> {
    within("beta", beta, 0.0..=10.0, ["from 0 to 10", "0.25"])
}

fn within(
    field: &'static str,
    value: f64,
    within: core::ops::RangeInclusive<f64>,
    [range, example]: [&'static str; 2],
) -> Result<(), SchedulerError> {
    if within.contains(&value) {
        Ok(())
    } else {
        Err(SchedulerError { field, value, range, example })
    }
}

/// A scheduler in a file: a name, or a table.
#[cfg(feature = "serde")]
mod reading {
    use serde::{Deserialize, Deserializer};

    use super::{
        BlestParams, EarliestParams, EcfParams, FreshestParams, LingerParams, QAwareParams,
        SchedulerConfig,
    };
    use crate::reading::string_or_table;

    /// The table.
    #[derive(Deserialize)]
    #[serde(tag = "scheduler", rename_all = "snake_case", deny_unknown_fields)]
    enum Table {
        MinSrtt {},
        RoundRobin {},
        Redundant {},
        Ecf(EcfParams),
        Blest(BlestParams),
        Daps {},
        Linger(LingerParams),
        #[serde(rename = "qaware")]
        QAware(QAwareParams),
        Earliest(EarliestParams),
        Freshest(FreshestParams),
    }

    impl From<Table> for SchedulerConfig {
        fn from(table: Table) -> Self {
            match table {
                Table::MinSrtt {} => Self::MinSrtt,
                Table::RoundRobin {} => Self::RoundRobin,
                Table::Redundant {} => Self::Redundant,
                Table::Ecf(params) => Self::Ecf(params),
                Table::Blest(params) => Self::Blest(params),
                Table::Daps {} => Self::Daps,
                Table::Linger(params) => Self::Linger(params),
                Table::QAware(params) => Self::QAware(params),
                Table::Earliest(params) => Self::Earliest(params),
                Table::Freshest(params) => Self::Freshest(params),
            }
        }
    }

    impl<'de> Deserialize<'de> for SchedulerConfig {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let expected = "a scheduler's name, or a table with `scheduler` and its settings";
            string_or_table::<Table, _, _, _>(deserializer, expected, str::parse)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn all_are_found_by_their_names_as_they_are_unless_said() {
        for config in SchedulerConfig::ALL {
            assert_eq!(config.name().parse(), Ok(config));
            assert_eq!(config.build().unwrap().name(), config.name());
        }
        let error = "fastest".parse::<SchedulerConfig>().unwrap_err().to_string();
        assert!(error.contains("`fastest`") && error.contains("qaware"), "{error}");
        let [.., ecf, blest, _, linger, qaware, earliest, freshest] = SchedulerConfig::ALL;
        assert_eq!(ecf, SchedulerConfig::Ecf(EcfParams::default()));
        assert_eq!(blest, SchedulerConfig::Blest(BlestParams::default()));
        assert_eq!(linger, SchedulerConfig::Linger(LingerParams::default()));
        assert_eq!(qaware, SchedulerConfig::QAware(QAwareParams::default()));
        assert_eq!(earliest, SchedulerConfig::Earliest(EarliestParams::default()));
        assert_eq!(freshest, SchedulerConfig::Freshest(FreshestParams::default()));
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let error = SchedulerConfig::QAware(QAwareParams { alpha: 1.0, ..QAwareParams::default() })
            .build()
            .unwrap_err();
        let text = "`alpha` is 1, which is not from 0 to below 1; give for example 0.8";
        assert_eq!(error.to_string(), text);
        let wrong = BlestParams { bounds: [2.0, 1.0], ..BlestParams::default() };
        assert_eq!(SchedulerConfig::Blest(wrong).build().unwrap_err().field, "bounds[1]");
        for (wrong, field) in [
            (LingerParams { burst: 0, ..LingerParams::MAINLINE }, "burst"),
            (LingerParams { buffer: 0.5, ..LingerParams::MAINLINE }, "buffer"),
            (LingerParams { pacing: [2.0, 0.0], ..LingerParams::MAINLINE }, "pacing"),
        ] {
            assert_eq!(SchedulerConfig::Linger(wrong).build().unwrap_err().field, field);
        }
        let wrong = FreshestParams { worth: f64::NAN, ..FreshestParams::default() };
        assert_eq!(SchedulerConfig::Freshest(wrong).build().unwrap_err().field, "worth");
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_scheduler_is_a_name_or_a_table() {
        #[derive(Debug, serde::Deserialize)]
        struct File {
            scheduler: SchedulerConfig,
        }
        let read = |text: &str| {
            let text = alloc::format!("scheduler = {text}");
            toml::from_str::<File>(&text).map(|file| file.scheduler)
        };
        assert_eq!(read("\"min_srtt\"").unwrap(), SchedulerConfig::MinSrtt);
        let table = read("{ scheduler = \"qaware\", alpha = 0.9 }").unwrap();
        let params = QAwareParams { alpha: 0.9, estimator: Estimator::PerPacket };
        assert_eq!(table, SchedulerConfig::QAware(params));
        let table = read("{ scheduler = \"qaware\", estimator = \"algorithm-1\" }").unwrap();
        let params = QAwareParams { alpha: 0.8, estimator: Estimator::Algorithm1 };
        assert_eq!(table, SchedulerConfig::QAware(params));
        let table = read("{ scheduler = \"qaware\", estimator = \"per-packet\" }").unwrap();
        assert_eq!(table, SchedulerConfig::QAware(QAwareParams::default()));
        assert!(read("{ scheduler = \"qaware\", estimator = \"algorithm1\" }").is_err());
        let table = read("{ scheduler = \"linger\", burst = 1500 }").unwrap();
        let params = LingerParams { burst: 1_500, ..LingerParams::MAINLINE };
        assert_eq!(table, SchedulerConfig::Linger(params));
        assert!(read("\"lia\"").unwrap_err().to_string().contains("min_srtt, round_robin"));
        assert!(read("{ scheduler = \"daps\", alpha = 0.9 }").is_err());
    }
}
