//! The flags that choose and configure a scheduler of paths.

use clap::ValueEnum;
use freshline_core::path::{Estimator, SchedulerConfig, Tuning};
use miette::{IntoDiagnostic, miette};

use crate::failure::Failure;

/// How QAware estimates a path's service time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EstimatorName {
    /// Equation (2.2): the queueing delay of each packet subtracted from its own round trip.
    PerPacket,
    /// Algorithm 1: the mean queueing delay subtracted from the smoothed round trip.
    #[value(name = "algorithm-1")]
    Algorithm1,
}

impl From<EstimatorName> for Estimator {
    fn from(name: EstimatorName) -> Self {
        match name {
            EstimatorName::PerPacket => Self::PerPacket,
            EstimatorName::Algorithm1 => Self::Algorithm1,
        }
    }
}

/// The scheduler `name` with the settings of `tuning`. A setting that does not apply to the
/// scheduler, or is out of range, is a usage error.
pub(crate) fn scheduler(name: &str, tuning: Tuning) -> Result<SchedulerConfig, Failure> {
    let config = name.parse().into_diagnostic().map_err(Failure::Usage)?;
    tuning.apply(config).map_err(|error| Failure::Usage(miette!("--scheduler {name}: {error}")))
}
