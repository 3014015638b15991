//! `freshline router`: freshness control in a machine that forwards packets.

mod run;
mod set;
mod status;
mod suggest;
mod table;

use clap::Subcommand;
use freshline_net::router::{ControlError, Order, order};

use crate::Failure;

/// Shape what leaves through a network device, and keep in it what is fresh.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Run(run::Args),
    Set(set::Args),
    Status(status::Args),
    Suggest(suggest::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::Run(args) => run::run(args),
        What::Set(args) => set::run(args),
        What::Status(args) => status::run(args),
        What::Suggest(args) => suggest::run(args),
    }
}

/// Has the running router of a device carry out an order, and prints what it tells.
fn ordered(device: &str, what: Order, json: bool) -> Result<(), Failure> {
    let report = order(device, what).map_err(|error| {
        let usage = matches!(error, ControlError::Refused(_));
        let report = miette::Report::msg(error);
        if usage { Failure::Usage(report) } else { Failure::Runtime(report) }
    })?;
    table::print(&report, json)
}
