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

/// For how long `attach` is to hold.
#[derive(Debug, clap::Args)]
pub(crate) struct Term {
    /// Until Ctrl-C, and no longer than this process lives.
    #[arg(long)]
    foreground: bool,
}

impl Term {
    /// Says when it is time to end; nothing where it is to stay. Comes before what is to be undone.
    pub(crate) fn end(&self) -> Result<Option<Receiver<()>>, Failure> {
        if !self.foreground {
            return Ok(None);
        }
        let (sender, ended) = mpsc::channel();
        let end = move || _ = sender.send(());
        ctrlc::set_handler(end).into_diagnostic().map_err(Failure::Runtime)?;
        Ok(Some(ended))
    }
}

/// Has signals end the command that is run, and its end all else, so that nothing is left behind.
pub(crate) struct Signals {
    /// The process to pass them on to; or [`NONE_YET`]; or [`OVER`].
    to: Arc<AtomicI32>,
}

/// The command has not begun.
const NONE_YET: i32 = 0;
/// There was a signal before it has begun, or it has ended.
const OVER: i32 = -1;

impl Signals {
    /// Comes before all that is to be undone.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let to = Arc::new(AtomicI32::new(NONE_YET));
        let handled = Arc::clone(&to);
        let pass_on = move || {
            if let Err(process @ 1..) = begin(&handled, OVER) {
                terminate(process);
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
        if begin(&self.to, process).is_err() {
            terminate(process);
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

/// Fails with what it is where that is not [`NONE_YET`] any more.
fn begin(to: &AtomicI32, next: i32) -> Result<i32, i32> {
    to.compare_exchange(NONE_YET, next, Ordering::SeqCst, Ordering::SeqCst)
}

fn terminate(process: i32) {
    // It may have ended.
    let _ = kill(Pid::from_raw(process), Signal::SIGTERM);
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

/// Lets what is `held` stay, or holds it until it is time to end; and says so once it is true.
pub(crate) fn keep<H, E>(
    held: H,
    ended: Option<Receiver<()>>,
    said: &str,
    pin: fn(H) -> Result<(), E>,
    release: fn(H) -> Result<(), E>,
) -> Result<(), E> {
    let Some(ended) = ended else {
        pin(held)?;
        eprintln!("{said}");
        return Ok(());
    };
    eprintln!("{said}");
    // The sender lives as long as this process.
    let _ = ended.recv();
    release(held)
}
