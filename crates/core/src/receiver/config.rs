//! Laws by their names, with their settings.

use alloc::boxed::Box;

use super::WindowLaw;
use super::{
    Algorithm1, Autotune, Delta, Drwa, DrwaParams, Fixed, Limits, Remote, Rtac, RtacParams, Slope,
};
use crate::unit::{Bytes, Packets};

/// A law of the receive window and its settings. In a file, a string such as `"rtac"`, or a table
/// such as `{ law = "rtac", theta = 1.38, slope = { fixed = 15e-5 } }`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "law", rename_all = "snake_case"))]
pub enum WindowLawConfig {
    /// [`Rtac`].
    Rtac(RtacParams),
    /// [`Drwa`].
    Drwa(DrwaParams),
    /// [`Autotune`].
    Autotune,
    /// [`Fixed`].
    Fixed {
        /// The window, above zero.
        window: Bytes,
    },
}

/// Invalid settings.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WindowLawError {
    /// A number outside its range.
    #[error("`{field}` is {value}, which is not {range}; give for example {example}")]
    OutOfRange {
        /// The setting.
        field: &'static str,
        /// Its value.
        value: f64,
        /// The allowed range.
        range: &'static str,
        /// A reasonable value.
        example: &'static str,
    },
    /// Algorithm 1 as printed, without a K.
    #[error("`pure` needs K set by hand; give for example `slope = {{ fixed = 15e-5 }}`")]
    PureWithoutSlope,
    /// Δ is to be learnt, but K is set by hand.
    #[error("Δ is learnt with K from the path only; give a Δ, for example `delta = \"18ms\"`")]
    LearntDeltaWithSlope,
    /// A setting that must not be zero.
    #[error("`{field}` is zero; give for example `{example}`")]
    Zero {
        /// The setting.
        field: &'static str,
        /// A reasonable value.
        example: &'static str,
    },
}

/// The maximum that the window scale can express (RFC 7323 section 2.3).
const LARGEST_WINDOW: Bytes = Bytes::new(1 << 30);

impl WindowLawConfig {
    /// The law, in its initial state; `remote` holds the shared measurements of flows from the same
    /// host.
    pub fn build(
        &self,
        limits: Limits,
        remote: &Remote,
    ) -> Result<Box<dyn WindowLaw>, WindowLawError> {
        Ok(match *self {
            Self::Rtac(params) if params.pure => Box::new(params.build_pure(limits)?),
            Self::Rtac(params) => Box::new(params.build(limits, remote.clone())?),
            Self::Drwa(params) => Box::new(params.build(limits)?),
            Self::Autotune => Box::new(Autotune::new(limits)),
            Self::Fixed { window: Bytes::ZERO } => {
                return Err(WindowLawError::Zero { field: "window", example: "200kB" });
            }
            Self::Fixed { window } if window > LARGEST_WINDOW => {
                let (field, value) = ("window", window.get() as f64);
                let range = "at most 1073741824 bytes";
                return Err(WindowLawError::OutOfRange { field, value, range, example: "200kB" });
            }
            Self::Fixed { window } => Box::new(Fixed::new(window)),
        })
    }
}

impl RtacParams {
    /// The law, in its initial state; `remote` holds the shared measurements of flows from the same
    /// host. Ignores [`RtacParams::pure`]: see [`RtacParams::build_pure`].
    ///
    /// # Errors
    ///
    /// A setting outside its range.
    pub fn build(self, limits: Limits, remote: Remote) -> Result<Rtac, WindowLawError> {
        self.check()?;
        Ok(Rtac::new(self, limits, remote))
    }

    /// Algorithm 1 of the thesis as printed, in its initial state.
    ///
    /// # Errors
    ///
    /// A setting outside its range, or [`Slope::Auto`].
    pub fn build_pure(self, limits: Limits) -> Result<Algorithm1, WindowLawError> {
        self.check()?;
        let Slope::Fixed(slope) = self.slope else { return Err(WindowLawError::PureWithoutSlope) };
        Ok(Algorithm1::new(slope, self, limits))
    }

    fn check(&self) -> Result<(), WindowLawError> {
        let Self { theta, slope, delta, keep, gain, least, auto, .. } = *self;
        check("theta", theta, (1.01..=10.0).contains(&theta), "from 1.01 to 10", "1.38")?;
        if let Slope::Fixed(slope) = slope {
            let is_slope = (1e-13..=1.0).contains(&slope);
            check("slope", slope, is_slope, "from 1e-13 to 1", "15e-5")?;
            if delta == Delta::Learn {
                return Err(WindowLawError::LearntDeltaWithSlope);
            }
        }
        check_averages(keep, gain, least)?;
        let is_headroom = (0.0..=100.0).contains(&auto.headroom);
        check("auto.headroom", auto.headroom, is_headroom, "from 0 to 100", "1")?;
        if auto.bucket.is_zero() {
            return Err(WindowLawError::Zero { field: "auto.bucket", example: "200ms" });
        }
        let is_patience = auto.patience <= 1000;
        check("auto.patience", auto.patience.into(), is_patience, "at most 1000", "3")?;
        if auto.test_every.is_zero() {
            return Err(WindowLawError::Zero { field: "auto.test_every", example: "10s" });
        }
        Ok(())
    }
}

impl DrwaParams {
    /// The law, in its initial state.
    pub fn build(self, limits: Limits) -> Result<Drwa, WindowLawError> {
        let Self { lambda, keep, gain, least } = self;
        check("lambda", lambda, lambda > 1.0 && lambda.is_finite(), "above 1", "3")?;
        check_averages(keep, gain, least)?;
        Ok(Drwa::new(self, limits))
    }
}

fn check_averages(keep: f64, gain: f64, least: Packets) -> Result<(), WindowLawError> {
    check("keep", keep, (0.0..1.0).contains(&keep), "from 0 to below 1", "0.125")?;
    check("gain", gain, gain > 0.0 && gain <= 1.0, "above 0 and at most 1", "0.125")?;
    if least == Packets::ZERO {
        return Err(WindowLawError::Zero { field: "least", example: "4p" });
    }
    Ok(())
}

fn check(
    field: &'static str,
    value: f64,
    holds: bool,
    range: &'static str,
    example: &'static str,
) -> Result<(), WindowLawError> {
    if holds { Ok(()) } else { Err(WindowLawError::OutOfRange { field, value, range, example }) }
}

/// A law in a file: a name, or a table.
#[cfg(feature = "serde")]
mod reading {
    use alloc::format;
    use alloc::string::String;

    use serde::{Deserialize, Deserializer};

    use super::{Bytes, DrwaParams, RtacParams, WindowLawConfig};
    use crate::reading::string_or_table;

    /// The table.
    #[derive(Deserialize)]
    #[serde(tag = "law", rename_all = "snake_case", deny_unknown_fields)]
    enum Table {
        Rtac(RtacParams),
        Drwa(DrwaParams),
        Autotune {},
        Fixed { window: Bytes },
    }

    impl From<Table> for WindowLawConfig {
        fn from(table: Table) -> Self {
            match table {
                Table::Rtac(params) => Self::Rtac(params),
                Table::Drwa(params) => Self::Drwa(params),
                Table::Autotune {} => Self::Autotune,
                Table::Fixed { window } => Self::Fixed { window },
            }
        }
    }

    fn named(name: &str) -> Result<WindowLawConfig, String> {
        match name {
            "rtac" => Ok(WindowLawConfig::Rtac(RtacParams::default())),
            "drwa" => Ok(WindowLawConfig::Drwa(DrwaParams::default())),
            "autotune" => Ok(WindowLawConfig::Autotune),
            _ => {
                Err(format!("`{name}` is no law of the window; write `rtac`, `drwa` or `autotune`"))
            }
        }
    }

    impl<'de> Deserialize<'de> for WindowLawConfig {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let expected = "`rtac`, `drwa`, `autotune`, or a table with `law` and its settings";
            string_or_table::<Table, _, _, _>(deserializer, expected, named)
        }
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct File {
        receiver: WindowLawConfig,
    }

    fn read(receiver: &str) -> Result<WindowLawConfig, toml::de::Error> {
        toml::from_str::<File>(&alloc::format!("receiver = {receiver}")).map(|file| file.receiver)
    }

    #[test]
    fn a_law_is_a_name_or_a_table() {
        assert_eq!(read("\"rtac\"").unwrap(), WindowLawConfig::Rtac(RtacParams::default()));
        let table = read("{ law = \"rtac\", slope = { fixed = 15e-5 }, delta = \"8ms\" }").unwrap();
        let delta = Delta::Fixed(crate::unit::Span::from_millis(8));
        let params = RtacParams { slope: Slope::Fixed(15e-5), delta, ..RtacParams::default() };
        assert_eq!(table, WindowLawConfig::Rtac(params));
        let learnt = read("{ law = \"rtac\", delta = \"learn\" }").unwrap();
        let params = RtacParams { delta: Delta::Learn, ..RtacParams::default() };
        assert_eq!(learnt, WindowLawConfig::Rtac(params));
        let error = read("{ law = \"rtac\", delta = \"later\" }").unwrap_err();
        assert!(error.message().contains("`learn`"), "{error}");
        let by_hand = "{ law = \"rtac\", delta = \"learn\", slope = { fixed = 15e-5 } }";
        let limits = Limits { initial: Bytes::new(65_536), most: Bytes::new(1 << 20) };
        let error = read(by_hand).unwrap().build(limits, &Remote::default()).err();
        assert_eq!(error, Some(WindowLawError::LearntDeltaWithSlope));
        assert_eq!(read("{ law = \"autotune\" }").unwrap(), WindowLawConfig::Autotune);
        let table = read("{ law = \"rtac\", pure = true, slope = { fixed = 15e-5 } }").unwrap();
        let params = RtacParams { pure: true, slope: Slope::Fixed(15e-5), ..RtacParams::default() };
        assert_eq!(table, WindowLawConfig::Rtac(params));
        let window = Bytes::new(200_000);
        assert_eq!(
            read("{ law = \"fixed\", window = \"200kB\" }").unwrap(),
            WindowLawConfig::Fixed { window }
        );
        assert!(read("\"cubic\"").is_err() && read("{ law = \"drwa\", theta = 2.0 }").is_err());
    }

    #[test]
    fn algorithm_1_as_printed_needs_a_k() {
        let limits = Limits { initial: Bytes::new(65_536), most: Bytes::new(1 << 20) };
        let law = |table: &str| read(table).unwrap().build(limits, &Remote::default());
        assert_eq!(
            law("{ law = \"rtac\", pure = true }").err(),
            Some(WindowLawError::PureWithoutSlope)
        );
        let built = law("{ law = \"rtac\", pure = true, slope = { fixed = 15e-5 } }").unwrap();
        assert_eq!(built.name(), "rtac-pure");
        for slope in ["0.9e-13", "1.01", "nan", "-1.0"] {
            let table = alloc::format!("{{ law = \"rtac\", slope = {{ fixed = {slope} }} }}");
            assert!(law(&table).is_err(), "{slope}");
        }
    }

    #[test]
    fn settings_that_would_never_ask_or_always_are_refused() {
        for (auto, expected) in [
            ("patience = 1001", "`auto.patience` is 1001, which is not at most 1000"),
            ("test_every = \"0s\"", "`auto.test_every` is zero"),
            ("bucket = \"0s\"", "`auto.bucket` is zero"),
        ] {
            let law = read(&alloc::format!("{{ law = \"rtac\", auto = {{ {auto} }} }}")).unwrap();
            let limits = Limits { initial: Bytes::new(65_536), most: Bytes::new(1 << 20) };
            let error = law.build(limits, &Remote::default()).err().unwrap();
            let message = alloc::format!("{error}");
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
