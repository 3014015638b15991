//! `freshline receiver detach`: the end of control.

use std::path::PathBuf;

use freshline_kernel::receiver::{Target, detach, detach_all};

use super::failure;
use crate::failure::Failure;

/// End what `attach` began: connections get the windows that they would have without it. What a
/// process holds ends with that.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only from this cgroup; default: from all cgroups, and all devices of all network namespaces.
    #[arg(long, value_name = "PATH", conflicts_with = "dev")]
    cgroup: Option<PathBuf>,
    /// Only from this device of this network namespace.
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let target = args.cgroup.map(Target::Cgroup).or(args.dev.map(Target::Device));
    target.map_or_else(detach_all, |target| detach(&target)).map_err(failure)
}
