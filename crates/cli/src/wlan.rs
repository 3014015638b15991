//! `freshline wlan`: low delay at a high rate over Wi-Fi. One file per subcommand.

mod counting;
mod locate;
mod packet_log;
mod packets;
mod plan;
mod receive;
mod serve;

use clap::Subcommand;

use crate::failure::Failure;

/// Send with low delay at a high rate over Wi-Fi, by holding the aggregation level.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Receive(receive::Args),
    Locate(locate::Args),
    Plan(plan::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Serve(args) => serve::run(args),
        Command::Receive(args) => receive::run(args),
        Command::Locate(args) => locate::run(args),
        Command::Plan(args) => plan::run(args),
    }
}
