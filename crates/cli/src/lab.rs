//! `freshline lab`: runs the laws in virtual time. One file per subcommand.

mod board;
mod chosen;
mod figure;
mod frames;
mod journey;
mod list;
mod packets;
mod reproduce;
mod run;
mod safety;
mod sockets;
mod torture;
mod trace;
mod watch;

use crate::failure::Failure;

/// Try the laws in virtual time: deterministic, without a network, faster than real time.
///
/// Only `sockets` runs in real time: it compares the lab with real sockets.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(run::Args),
    List(list::Args),
    Reproduce(reproduce::Args),
    Journey(journey::Args),
    Packets(packets::Args),
    Torture(torture::Args),
    Frames(frames::Args),
    Trace(Box<trace::Args>),
    Sockets(sockets::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Run(args) => run::run(args),
        Command::List(args) => list::run(args),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Journey(args) => journey::run(args),
        Command::Packets(args) => packets::run(args),
        Command::Torture(args) => torture::run(args),
        Command::Frames(args) => frames::run(args),
        Command::Trace(args) => trace::run(&args),
        Command::Sockets(args) => sockets::run(args),
    }
}
