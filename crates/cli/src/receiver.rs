//! `freshline receiver`: how much others may have in flight to this host.

mod attach;
mod run;
mod status;

use std::path::PathBuf;

use clap::Subcommand;
use freshline_core::unit::Span;
use freshline_kernel::KernelError;
use freshline_kernel::rtac::{self, Settings};

use crate::Failure;

/// Keep downloads from filling queues in the network: the kernel advertises smaller windows.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Attach(attach::Args),
    Status(status::Args),
    Detach(Detach),
    Run(run::Args),
}

/// End what `attach` began: connections get the windows that they would have without it.
#[derive(Debug, clap::Args)]
struct Detach {
    /// Only from this cgroup; from all unless said.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
}

/// Settings of the law, for the commands that begin control.
#[derive(Debug, clap::Args)]
struct Law {
    /// Where the round trip settles, in multiples of the shortest one; above 1, at most 10.
    #[arg(long, value_name = "RATIO", default_value_t = Settings::default().theta)]
    theta: f64,
    /// Added to the shortest round trip, where the path is longer now and then without any queue:
    /// 8ms for Wi-Fi, 18ms for LTE.
    #[arg(long, value_name = "SPAN", default_value_t = Settings::default().delta)]
    delta: Span,
}

impl Law {
    fn settings(&self) -> Settings {
        Settings { theta: self.theta, delta: self.delta }
    }
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::Attach(args) => attach::run(args),
        What::Status(args) => status::run(args),
        What::Detach(args) => rtac::detach(args.cgroup.as_deref()).map_err(failure),
        What::Run(args) => run::run(args),
    }
}

fn failure(error: KernelError) -> Failure {
    let usage = matches!(
        error,
        KernelError::NoCgroup { .. } | KernelError::Settings(_) | KernelError::LongDelta { .. }
    );
    let report = miette::Report::from_err(error);
    if usage { Failure::Usage(report) } else { Failure::Runtime(report) }
}
