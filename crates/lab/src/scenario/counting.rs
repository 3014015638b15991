//! How a downlink's client counts packets per frame.

use freshline_core::wlan::NapiParams;
use freshline_core::wlan::estimator::{
    FRAMES, FrameWeights, KernelCounterParams, LEVELS, LevelWeights,
};
use rand_pcg::Pcg64;
use serde::Deserialize;

use super::DownlinkConfig;
use crate::world::Client;

/// The method by which a client counts packets per frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counting {
    /// By the network card's timestamps.
    #[default]
    Mac,
    /// By the kernel's timestamps, with one threshold.
    Threshold,
    /// By the kernel's timestamps, with logistic regression.
    Logistic,
    /// By the kernel's timestamps, with logistic regression and a support vector machine.
    Svm,
}

/// The kernel's timestamping of packets: a name, or a table.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum StampsConfig {
    /// A known configuration.
    Named(StampsName),
    /// Fields that differ from those of a handset.
    Params(NapiParams),
}

/// Named configurations of the delivery from card to socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StampsName {
    /// [`NapiParams::HANDSET`].
    Handset,
    /// [`NapiParams::LOOPBACK`].
    Loopback,
}

impl Default for StampsConfig {
    fn default() -> Self {
        Self::Named(StampsName::Handset)
    }
}

impl StampsConfig {
    fn params(self) -> NapiParams {
        match self {
            Self::Named(StampsName::Handset) => NapiParams::HANDSET,
            Self::Named(StampsName::Loopback) => NapiParams::LOOPBACK,
            Self::Params(params) => params,
        }
    }
}

impl DownlinkConfig {
    /// The client with this method; the generator is that of its kernel.
    pub(super) fn client(&self, rng: Pcg64) -> Result<Client, String> {
        let stamps = self.stamps.params();
        let napi = stamps.build(rng).map_err(|error| format!("`stamps`: {error}"))?;
        // At most the maximum number of packets per frame of the law, and at most 1024; the law
        // rejects more.
        let most = u32::try_from(self.law.downlink().max_packets.get()).unwrap_or(u32::MAX);
        let params = KernelCounterParams { most, ..KernelCounterParams::default() };
        let frames = || toml::from_str::<FrameWeights>(FRAMES).map_err(|error| error.to_string());
        let levels = || toml::from_str::<LevelWeights>(LEVELS).map_err(|error| error.to_string());
        let counter = match self.counting {
            Counting::Mac => return Ok(Client::by_card(napi)),
            Counting::Threshold => params.threshold(&frames()?),
            Counting::Logistic => params.logistic(&frames()?),
            Counting::Svm => params.svm(&frames()?, &levels()?),
        };
        Ok(Client::by_kernel(napi, counter.map_err(|error| error.to_string())?))
    }
}
