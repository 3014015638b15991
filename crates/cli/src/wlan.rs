//! `freshline wlan`: a stop before the receiver, over Wi-Fi. One file a subcommand.

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
    Plan(plan::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Plan(args) => plan::run(args),
    }
}
