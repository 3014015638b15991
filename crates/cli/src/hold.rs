//! What the commands share that hold a program in the kernel: until Ctrl-C, or for one command.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};

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

/// Runs a command to its end, as which this process is to end.
pub(crate) fn run_command(command: &[OsString]) -> Result<(), Failure> {
    let (program, arguments) = command.split_first().expect("clap requires a command");
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
