//! `freshline uplink run`: controls the uploads of one command.

use freshline_kernel::cgroup::OwnCgroup;
use freshline_kernel::sorpc;

use super::{Law, failure};
use crate::failure::Failure;
use crate::hold::Signals;
use crate::wrapped::Wrapped;

/// Run a command whose uploads have the lowest priority, in a separate cgroup. Needs root.
///
/// Connections of other programs never count as uploads. When the command ends, all processes that
/// it has started end, too, and so does the control. Ctrl-C interrupts the command, which may go
/// on; signals sent to this process are forwarded.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

    freshline uplink run --dev eth0 --rate 19mbit -- rsync -a photos backup:

EXIT CODES

That of the command, or 128 and the signal's number if a signal ended it. Before it starts:
1  no root, the kernel lacks something, or the command cannot be run
2  the flags cannot be understood, or there is no such device")]
pub(super) struct Args {
    #[command(flatten)]
    law: Law,
    #[command(flatten)]
    wrapped: Wrapped,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let signals = Signals::catch()?;
    let cgroup = OwnCgroup::enter().map_err(failure)?;
    let settings = args.law.settings();
    let _held = sorpc::attach(&args.law.dev, &settings, Some(cgroup.path())).map_err(failure)?;
    signals.run(&args.wrapped)
}
