//! `freshline wlan`: a stop before the receiver, over Wi-Fi. One file a subcommand.

mod locate;
mod plan;

use crate::Failure;

/// Low delay at a high rate over Wi-Fi, by holding the aggregation level.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Locate(locate::Args),
    Plan(plan::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Locate(args) => locate::run(args),
        Command::Plan(args) => plan::run(args),
    }
}
