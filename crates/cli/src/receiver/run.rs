//! `freshline receiver run`: controls the connections of one command.

use freshline_kernel::cgroup::OwnCgroup;
use freshline_kernel::receiver::{Target, attach};

use super::{LawArgs, failure};
use crate::failure::Failure;
use crate::hold::Signals;
use crate::wrapped::Wrapped;

/// Run a command whose TCP connections are controlled, in a separate cgroup. Needs root.
///
/// When the command ends, all processes that it has started end, too, and so does the control.
/// Ctrl-C interrupts the command, which may go on; signals sent to this process are forwarded.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

    freshline receiver run --user alice -- curl -O https://example.org/large.iso

EXIT CODES

That of the command, or 128 and the signal's number if a signal ended it. Before it starts:
1  no root, the kernel lacks something, or the command cannot be run
2  the flags cannot be understood")]
pub(super) struct Args {
    #[command(flatten)]
    law: LawArgs,
    #[command(flatten)]
    wrapped: Wrapped,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let law = args.law.law()?;
    let signals = Signals::catch()?;
    let cgroup = OwnCgroup::enter().map_err(failure)?;
    let target = Target::Cgroup(cgroup.path().to_owned());
    let _held = attach(&target, &law).map_err(failure)?;
    signals.run(&args.wrapped)
}
