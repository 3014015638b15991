//! `freshline receiver run`: control for one command.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use freshline_kernel::cgroup::OwnCgroup;
use freshline_kernel::receiver::{Target, attach};
use miette::{IntoDiagnostic, WrapErr};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{LawArgs, failure};
use crate::Failure;

/// Run a command whose TCP connections are controlled, in a cgroup of its own. Needs root.
///
/// When the command ends, so does all that it has started, and the control.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

    freshline receiver run -- curl -O https://example.org/large.iso

EXIT CODES

That of the command, or 128 and the signal's number if a signal ended it. Before it starts:
1  no root, the kernel lacks something, or the command is not to be had
2  the flags cannot be understood")]
pub(super) struct Args {
    #[command(flatten)]
    law: LawArgs,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let law = args.law.law()?;
    let cgroup = OwnCgroup::enter().map_err(failure)?;
    let target = Target::Cgroup(cgroup.path().to_owned());
    let _held = attach(&target, &law).map_err(failure)?;
    let (program, arguments) = args.command.split_first().expect("clap requires a command");
    let mut child = Command::new(program)
        .args(arguments)
        .spawn()
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot run `{}`", program.to_string_lossy()))
        .map_err(Failure::Runtime)?;
    // A signal ends the command, and its end all else; so that nothing is left behind.
    let id = Pid::from_raw(child.id().cast_signed());
    let pass_on = move || _ = kill(id, Signal::SIGTERM);
    ctrlc::set_handler(pass_on).into_diagnostic().map_err(Failure::Runtime)?;
    let status = child.wait().into_diagnostic().map_err(Failure::Runtime)?;
    match status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()) {
        0 => Ok(()),
        code => Err(Failure::Command(code as u8)),
    }
}
