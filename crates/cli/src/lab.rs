//! `freshline lab`: the laws in virtual time. One file a subcommand.

mod torture;

use crate::Failure;

/// Try the laws in virtual time: deterministic, without network, faster than life.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Torture(torture::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Torture(args) => torture::run(args),
    }
}
