//! The flags by which a source or a relay chooses its paths.

use freshline::driver::source::SourcePaths;
use freshline::driver::via::ViaPath;
use freshline_core::path::Tuning;
use freshline_system::privileges::Privilege;

use crate::failure::Failure;
use crate::privileges::LEAVES_BY_INTERFACES;
use crate::scheduler::{EstimatorName, scheduler};

/// Paths, and what chooses among them.
#[derive(Debug, clap::Args)]
pub(crate) struct PathArgs {
    /// Leave by these interfaces or local addresses; by default, follow the routes. For a path on
    /// which the monitor has another address, give IF@ADDR:PORT.
    #[arg(long, value_name = "IF|ADDR", value_delimiter = ',', help_heading = "Paths")]
    via: Vec<ViaPath>,
    /// Which of several paths an update takes: freshest, where it is expected first, with copies
    /// where they pay; qaware, by the queues of this host's devices; min_srtt; round_robin;
    /// linger, mainline Linux's default; or redundant, all of them.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "freshest",
        requires = "via",
        help_heading = "Paths"
    )]
    scheduler: String,
    /// The weight of the old mean in qaware's service time and in freshest's mean wait, 0 to below 1
    /// [default: 0.8].
    #[arg(long, value_name = "WEIGHT", requires = "via", help_heading = "Paths")]
    alpha: Option<f64>,
    /// How qaware estimates the service time of a path [default: per-packet].
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

    /// The paths that were named.
    pub(crate) fn vias(&self) -> &[ViaPath] {
        &self.via
    }

    /// The privileges that sockets need on them.
    pub(crate) fn privileges(&self) -> &'static [Privilege] {
        if self.via.is_empty() { &[] } else { LEAVES_BY_INTERFACES }
    }
}
