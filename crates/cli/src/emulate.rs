//! `freshline emulate`: a network path on this machine.

mod path_file;
mod run;
mod table;
mod udp;

use clap::Subcommand;

use crate::Failure;

/// Emulate a network path: rate, delay, jitter, loss and queues, hop by hop.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Udp(udp::Args),
    Run(run::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::Udp(args) => udp::run(args),
        What::Run(args) => run::run(args),
    }
}

/// The seed that was asked for, or a new one: 32 bits are enough, and every reader of JSON takes
/// them for what they are.
fn seed_or_drawn(asked: Option<u64>) -> u64 {
    asked.unwrap_or_else(|| rand::random::<u32>().into())
}
