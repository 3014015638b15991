//! `freshline wlan`: low delay at a high rate over Wi-Fi.

mod counting;
mod packets;
mod receive;
mod serve;

use clap::Subcommand;

use crate::Failure;

/// Low delay at a high rate over Wi-Fi: packets at the rate that keeps queues short.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Receive(receive::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Serve(args) => serve::run(args),
        Command::Receive(args) => receive::run(args),
    }
}
