//! What the commands share that hold a program in the kernel: until Ctrl-C, or for one command.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver};

use freshline_kernel::KernelError;
use miette::{IntoDiagnostic, WrapErr};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Failure;

/// Says when it is time to end.
pub(crate) fn ended() -> Result<Receiver<()>, Failure> {
    let (sender, ended) = mpsc::channel();
    ctrlc::set_handler(move || _ = sender.send(())).into_diagnostic().map_err(Failure::Runtime)?;
    Ok(ended)
}

/// A signal's way to the command that is run for its own control: it ends the command, and the
/// command's end all else, so that nothing is left behind.
pub(crate) struct Signals {
    /// Where to pass one on to: the command's process; or [`NOWHERE`] yet; or there was one already,
    /// or is no command any more ([`OVER`]).
    to: Arc<AtomicI32>,
}

const NOWHERE: i32 = 0;
const OVER: i32 = -1;

impl Signals {
    /// Comes before all that is to be undone.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let to = Arc::new(AtomicI32::new(NOWHERE));
        let handled = Arc::clone(&to);
        let pass_on = move || {
            if let Err(process @ 1..) =
                handled.compare_exchange(NOWHERE, OVER, Ordering::SeqCst, Ordering::SeqCst)
            {
                let _ = kill(Pid::from_raw(process), Signal::SIGTERM);
            }
        };
        ctrlc::set_handler(pass_on).into_diagnostic().map_err(Failure::Runtime)?;
        Ok(Self { to })
    }

    /// Runs a command to its end, as which this process is to end.
    pub(crate) fn run(&self, command: &[OsString]) -> Result<(), Failure> {
        let (program, arguments) = command.split_first().expect("clap requires a command");
        if self.to.load(Ordering::SeqCst) == OVER {
            return Err(Failure::Command((128 + Signal::SIGTERM as i32) as u8));
        }
        let mut child = Command::new(program)
            .args(arguments)
            .spawn()
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot run `{}`", program.to_string_lossy()))
            .map_err(Failure::Runtime)?;
        let process = child.id().cast_signed();
        if self.to.compare_exchange(NOWHERE, process, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            let _ = kill(Pid::from_raw(process), Signal::SIGTERM);
        }
        let status = child.wait().into_diagnostic().map_err(Failure::Runtime);
        self.to.store(OVER, Ordering::SeqCst);
        let status = status?;
        match status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()) {
            0 => Ok(()),
            code => Err(Failure::Command(code as u8)),
        }
    }
}

/// How a command ends that the kernel crate refuses.
pub(crate) fn failure(error: KernelError) -> Failure {
    let is_usage = error.is_usage();
    let report = miette::Report::from_err(error);
    if is_usage { Failure::Usage(report) } else { Failure::Runtime(report) }
}

/// What `status` says of who holds a program.
pub(crate) fn held(pinned: Option<bool>) -> &'static str {
    match pinned {
        Some(true) => "",
        Some(false) => " (held by a process)",
        None => " (pins are hidden here)",
    }
}
