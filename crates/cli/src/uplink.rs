//! `freshline uplink`: orders the packets of this host by priority.

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

/// Give uploads the lowest priority among all packets that leave through a device.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Attach(attach::Args),
    /// Show the attached programs, the packets per band, and the known connections; also shapers
    /// that a killed process left behind. Metrics cover the devices of this network namespace.
    /// Needs root.
    Status(Form),
    Detach(Detach),
    Run(run::Args),
}

/// Undo `attach`: restore the device's queues.
#[derive(Debug, clap::Args)]
struct Detach {
    /// Detach only from this device; default: from all devices of this network namespace.
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,
}

/// The remedy if there is a queue below the bands.
const HIDDEN: &str = ", in which packets of all bands share one queue of unknown length: \
                      give --rate, a little less than the link's capacity";

/// The device and settings, for the commands that start the control.
#[derive(Debug, clap::Args)]
struct Law {
    /// Control the packets that leave through this device.
    #[arg(long, value_name = "DEV")]
    dev: String,
    /// Shape to this rate, such as 20mbit, with separate bands: a little less than the capacity of
    /// the link behind the device. Without it the device's queue is left as it is, and must have
    /// bands, as pfifo_fast has.
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Count a connection as an upload once its send buffer is filled to this fraction; above 0, at
    /// most 1.
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
