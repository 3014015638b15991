//! Helpers of commands that hold a program in the kernel, until Ctrl-C or for the time of one
//! command.

use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use freshline_kernel::KernelError;
use freshline_system::privileges::{Privilege, with_only, without};
use miette::{IntoDiagnostic, WrapErr};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, getpgid, getpgrp};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::failure::Failure;
use crate::privileges::{DETACHES, Needs};
use crate::wrapped::Wrapped;

/// How long `attach` holds the program.
#[derive(Debug, clap::Args)]
pub(crate) struct Term {
    /// Keep the control until Ctrl-C, or until this process ends.
    #[arg(long)]
    foreground: bool,
}

impl Term {
    /// A channel that signals the end; `None` if the program stays attached. Call it before
    /// anything that needs to be undone.
    pub(crate) fn end(&self) -> Result<Option<Receiver<()>>, Failure> {
        if !self.foreground {
            return Ok(None);
        }
        let (sender, ended) = mpsc::channel();
        let end = move || _ = sender.send(());
        without(|| ctrlc::set_handler(end)).into_diagnostic().map_err(Failure::Runtime)?;
        Ok(Some(ended))
    }
}

/// Forwards signals to the command that is run, and waits for its end, so that nothing is left
/// behind.
///
/// The terminal sends the signals of its keys (Ctrl-C, Ctrl-\\) to all processes of the foreground
/// process group. A command in this group has received them already and reacts itself, so they are
/// not forwarded, and this process goes on until the command ends.
pub(crate) struct Signals {
    command: Arc<Mutex<State>>,
}

/// The command as seen by the thread that forwards signals.
#[derive(Debug, Clone, Copy)]
enum State {
    Starting,
    /// This signal came before the command was started; it will not be started.
    Cancelled(Signal),
    /// Not reaped: its process ID is not reused.
    Running(Pid),
    Ended,
}

/// Signals that would end this process before the command.
const FORWARDED: [Signal; 4] = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP];

impl Signals {
    /// Catches signals from now on. Call it before anything that needs to be undone.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let signals = FORWARDED.map(|signal| signal as i32);
        let mut arrivals =
            SignalsInfo::<WithOrigin>::new(signals).into_diagnostic().map_err(Failure::Runtime)?;
        let command = Arc::new(Mutex::new(State::Starting));
        let forwarded_to = Arc::clone(&command);
        // The command may belong to another user.
        with_only(&[Privilege::CAP_KILL], || {
            thread::spawn(move || {
                for arrival in arrivals.forever() {
                    arrived(&arrival, &mut locked(&forwarded_to));
                }
            })
        });
        Ok(Self { command })
    }

    /// Runs a command to its end and returns its exit status as a failure. From its start on, this
    /// process keeps only the privileges to detach and to remove its cgroup.
    pub(crate) fn run(&self, command: &Wrapped) -> Result<(), Failure> {
        let mut child = {
            let mut state = locked(&self.command);
            if let State::Cancelled(signal) = *state {
                return Err(Failure::Command((128 + signal as i32) as u8));
            }
            let child = command
                .command(true)
                .spawn()
                .into_diagnostic()
                .wrap_err_with(|| format!("cannot run `{}`", command.program().to_string_lossy()))
                .map_err(Failure::Runtime)?;
            *state = State::Running(Pid::from_raw(child.id().cast_signed()));
            child
        };
        // To remove the cgroup: its parent directory may be read-only, as that of the root cgroup
        // is, and the command may have given directories in it to other users.
        Needs::new(&[DETACHES, &[Privilege::CAP_DAC_OVERRIDE]].concat()).give_up_others();
        wait_unreaped(&child);
        let mut state = locked(&self.command);
        *state = State::Ended;
        let status = child.wait().into_diagnostic().map_err(Failure::Runtime)?;
        match status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()) {
            0 => Ok(()),
            code => Err(Failure::Command(code as u8)),
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until a child has ended, and leaves it a zombie, so that its process ID is not reused.
fn wait_unreaped(child: &Child) {
    let process = Pid::from_raw(child.id().cast_signed());
    let ended = || waitid(Id::Pid(process), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
    // Any other error shows up when the child is reaped.
    while ended() == Err(Errno::EINTR) {}
}

fn arrived(arrival: &Origin, command: &mut State) {
    let Ok(signal) = Signal::try_from(arrival.signal) else { return };
    match *command {
        State::Starting => *command = State::Cancelled(signal),
        State::Running(process) if !has_received(arrival.cause, signal, process) => {
            // The process may have ended.
            let _ = kill(process, signal);
        }
        State::Running(_) | State::Cancelled(_) | State::Ended => {}
    }
}

/// Whether the terminal has sent a signal to this process as well. When a terminal hangs up, SIGHUP
/// goes to the session's leader only, so it is forwarded.
fn has_received(cause: Cause, signal: Signal, process: Pid) -> bool {
    let is_of_a_key = matches!(signal, Signal::SIGINT | Signal::SIGQUIT) && cause == Cause::Kernel;
    is_of_a_key && getpgid(Some(process)) == Ok(getpgrp())
}

/// The failure for an error of the kernel crate.
pub(crate) fn failure(error: KernelError) -> Failure {
    let is_usage = error.is_usage();
    let report = miette::Report::from_err(error);
    if is_usage { Failure::Usage(report) } else { Failure::Runtime(report) }
}

/// The words of `status` for the holder of a program.
pub(crate) fn held(pinned: Option<bool>) -> &'static str {
    match pinned {
        Some(true) => "",
        Some(false) => " (held by a process)",
        None => " (pins are hidden here)",
    }
}

/// Pins `held`, or holds it until `ended`, with only the privileges that `release` needs. Prints
/// `said` once that is done.
pub(crate) fn keep<H, E>(
    held: H,
    ended: Option<Receiver<()>>,
    said: &str,
    pin: fn(H) -> Result<(), E>,
    release: fn(H) -> Result<(), E>,
    needs: &[Privilege],
) -> Result<(), E> {
    let Some(ended) = ended else {
        pin(held)?;
        say!("{said}");
        return Ok(());
    };
    Needs::new(needs).give_up_others();
    say!("{said}");
    // The sender lives as long as this process.
    let _ = ended.recv();
    release(held)
}
