//! `freshline receiver detach`: ends the control.

use std::path::PathBuf;

use freshline_kernel::receiver::{Target, detach, detach_all};

use super::failure;
use crate::failure::Failure;

/// Undo `attach`: restore the windows that connections have without control. A running
/// `attach --foreground` or `run` ends its own control.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Detach only from this cgroup; default: from all cgroups, and all devices of all network
    /// namespaces.
    #[arg(long, value_name = "PATH", conflicts_with = "dev")]
    cgroup: Option<PathBuf>,
    /// Detach only from this device of this network namespace.
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let target = args.cgroup.map(Target::Cgroup).or(args.dev.map(Target::Device));
    target.map_or_else(detach_all, |target| detach(&target)).map_err(failure)
}
