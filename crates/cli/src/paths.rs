//! The flags by which a source or a relay chooses its paths.

use freshline::driver::source::SourcePaths;
use freshline::driver::via::ViaPath;
use freshline_core::path::Tuning;
use freshline_system::privileges::Privilege;

use crate::failure::Failure;
use crate::privileges::LEAVES_BY_INTERFACES;
use crate::scheduler::{EstimatorName, scheduler};

/// Paths, and the scheduler that chooses among them.
#[derive(Debug, clap::Args)]
pub(crate) struct PathArgs {
    /// Send by these interfaces or local addresses; by default, by the routes. For a path on which
    /// the monitor has another address, give IF@ADDR:PORT.
    #[arg(long, value_name = "IF|ADDR", value_delimiter = ',', help_heading = "Paths")]
    via: Vec<ViaPath>,
    /// Choose the path of an update by this scheduler: freshest, the path with the earliest
    /// expected arrival, with copies if they pay off; qaware, by the queues of this host's devices;
    /// min_srtt; round_robin; linger, mainline Linux's default; or redundant, all of them.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "freshest",
        requires = "via",
        help_heading = "Paths"
    )]
    scheduler: String,
    /// Weigh the old mean with this, 0 to below 1, in qaware's service time and in freshest's mean
    /// queueing delay [default: 0.8].
    #[arg(long, value_name = "WEIGHT", requires = "via", help_heading = "Paths")]
    alpha: Option<f64>,
    /// Estimate the service time of a path in this way (qaware) [default: per-packet].
    #[arg(long, value_enum, value_name = "NAME", requires = "via", help_heading = "Paths")]
    estimator: Option<EstimatorName>,
}

impl PathArgs {
    pub(crate) fn paths(&self) -> Result<SourcePaths, Failure> {
        let tuning = Tuning {
            alpha: self.alpha,
            estimator: self.estimator.map(Into::into),
            ..Tuning::default()
        };
        let scheduler = scheduler(&self.scheduler, tuning)?;
        Ok(SourcePaths { vias: self.via.clone(), scheduler })
    }

    /// The given paths.
    pub(crate) fn vias(&self) -> &[ViaPath] {
        &self.via
    }

    /// The privileges that the sockets of these paths need.
    pub(crate) fn privileges(&self) -> &'static [Privilege] {
        if self.via.is_empty() { &[] } else { LEAVES_BY_INTERFACES }
    }
}
