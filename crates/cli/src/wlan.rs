//! `freshline wlan`: low delay at a high rate over Wi-Fi. One file a subcommand.

mod locate;

use crate::Failure;

/// Quick and plenty over Wi-Fi: where the bottleneck is.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Locate(locate::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Locate(args) => locate::run(args),
    }
}
