//! The congestion control laws by name.

use std::fmt;
use std::str::FromStr;

use freshline_core::unit::{Bytes, Packets};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use super::{
    Bbr, BbrParams, CongestionControl, Cubic, CubicParams, Dctcp, DctcpParams, Dtpa, HTcp,
    HTcpParams, Reno, Vegas, VegasParams, Westwood, Yeah, YeahParams,
};

/// A law with the defaults of Linux, as named in scenario files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// [`Reno`]
    Reno,
    /// [`Cubic`]
    Cubic,
    /// [`HTcp`]
    HTcp,
    /// [`Westwood`]
    Westwood,
    /// [`Vegas`]
    Vegas,
    /// [`Yeah`]
    Yeah,
    /// [`Dctcp`]
    Dctcp,
    /// [`Bbr`]
    Bbr,
    /// [`Dtpa`], with the share that it measures; outside a mesh it is Reno
    Dtpa,
}

/// A name that no law has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a congestion control; write reno, cubic, htcp, westwood, vegas, yeah, dctcp, bbr or dtpa"
)]
pub struct ParseAlgorithmError(String);

impl Algorithm {
    /// Every law.
    pub const ALL: [Self; 9] = [
        Self::Reno,
        Self::Cubic,
        Self::HTcp,
        Self::Westwood,
        Self::Vegas,
        Self::Yeah,
        Self::Dctcp,
        Self::Bbr,
        Self::Dtpa,
    ];

    /// The name in scenario files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::HTcp => "htcp",
            Self::Westwood => "westwood",
            Self::Vegas => "vegas",
            Self::Yeah => "yeah",
            Self::Dctcp => "dctcp",
            Self::Bbr => "bbr",
            Self::Dtpa => "dtpa",
        }
    }

    /// Creates the law with an initial window of `initial` segments, a full segment having a
    /// payload of `segment`. `rng` is the random stream of a law that draws random numbers.
    pub fn build(self, initial: Packets, segment: Bytes, rng: Pcg64) -> Box<dyn CongestionControl> {
        match self {
            Self::Reno => Box::new(Reno::new(initial)),
            Self::Cubic => Box::new(Cubic::new(CubicParams::default(), initial)),
            Self::HTcp => Box::new(HTcp::new(HTcpParams::default(), initial)),
            Self::Westwood => Box::new(Westwood::new(initial)),
            Self::Vegas => Box::new(Vegas::new(VegasParams::default(), initial)),
            Self::Yeah => Box::new(Yeah::new(YeahParams::default(), initial)),
            Self::Dctcp => Box::new(Dctcp::new(DctcpParams::default(), initial)),
            Self::Bbr => {
                let params = BbrParams { segment, ..BbrParams::default() };
                Box::new(Bbr::new(params, initial, rng))
            }
            Self::Dtpa => Box::new(Dtpa::by_listening(initial)),
        }
    }
}

impl FromStr for Algorithm {
    type Err = ParseAlgorithmError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|law| law.name() == text);
        found.ok_or_else(|| ParseAlgorithmError(text.to_string()))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_laws_of_that_name() {
        for law in Algorithm::ALL {
            assert_eq!(law.to_string().parse(), Ok(law));
            let built = law.build(Packets::new(10), Bytes::new(1448), Pcg64::new(1, 1));
            assert_eq!(built.name(), law.name());
        }
        let error = "tahoe".parse::<Algorithm>().unwrap_err().to_string();
        assert!(error.contains("`tahoe`") && error.contains("cubic"), "{error}");
    }
}
