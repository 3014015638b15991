//! `freshline uplink`: which of this host's packets go first.

mod attach;
mod metrics;
mod run;
mod status;

use clap::Subcommand;
use freshline_core::unit::BitRate;
use freshline_kernel::sorpc::{self, Settings};

use crate::failure::Failure;
use crate::hold::failure;
use crate::output::Form;

/// Keep uploads out of the way of all else that leaves through a device.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Attach(attach::Args),
    /// Show what is attached, what went into its bands, and the connections that it knows; also
    /// shapers that a killed process left behind. Metrics cover the devices of this network namespace.
    /// Needs root.
    Status(Form),
    Detach(Detach),
    Run(run::Args),
}

/// End what `attach` began: the device's queues are what they were before.
#[derive(Debug, clap::Args)]
struct Detach {
    /// Only from this device; default: from all devices of this network namespace.
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,
}

/// What to do where a queue stands below the bands.
const HIDDEN: &str = ", in which packets of all bands wait in one line, and nothing shows how many: \
                      give --rate, a little less than the link gives";

/// What is controlled and how, for the commands that begin control.
#[derive(Debug, clap::Args)]
struct Law {
    /// The device through which the packets leave.
    #[arg(long, value_name = "DEV")]
    dev: String,
    /// Shape to this rate, such as 20mbit, with bands of our own: a little less than the link
    /// behind the device gives. Without it the device's queue is left as it is, and must have
    /// bands, as pfifo_fast has.
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// From which part of its send buffer on a connection is an upload; above 0, at most 1.
    #[arg(long, value_name = "PART", default_value_t = Settings::default().threshold)]
    threshold: f64,
}

impl Law {
    fn settings(&self) -> Settings {
        Settings { threshold: self.threshold, rate: self.rate }
    }
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::Attach(args) => attach::run(args),
        What::Status(form) => status::run(&form),
        What::Detach(args) => sorpc::detach(args.dev.as_deref()).map_err(failure),
        What::Run(args) => run::run(args),
    }
}
