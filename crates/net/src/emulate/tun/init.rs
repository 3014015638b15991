//! The command's first ancestor, which ensures that no process of the command outlives the
//! emulator.
//!
//! ```text
//! emulator ── thread in the namespace ──► init (process 1 of a namespace) ──► command ──► ...
//! ```
//!
//! The kernel kills init when that thread ends, for any reason, and kills all processes of a
//! process namespace when its process 1 ends. Init forwards signals, and ends when the command
//! ends.
//!
//! Unsafe: the caller is responsible for the code between `fork` and `exec`. Here that code makes
//! system calls only, without locks and allocations, in a process of a single thread.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use freshline_system::User;
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// The signals that the emulator and init pass on to the command.
pub(super) const FORWARDED: [Signal; 4] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Whether a signal was sent by the kernel, like the signals of a terminal: then all processes of
/// its group have received it.
pub(super) fn is_from_kernel(code: i32) -> bool {
    code > 0
}

/// Starts `command`, as `user` if given, below an init, whose handle is returned. The calling
/// thread must outlive the command, and can start nothing else.
pub(super) fn spawn(mut command: Command, user: Option<&User>) -> io::Result<Child> {
    unshare(CloneFlags::CLONE_NEWPID)?;
    // SAFETY: `become_init` makes system calls only; see the head of this file.
    unsafe { command.pre_exec(become_init) };
    // After the fork of init, which remains root.
    if let Some(user) = user {
        user.runs(&mut command);
    }
    command.spawn()
}

/// Returns in the future command; init itself never returns.
fn become_init() -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    show_own_processes();
    // A signal that arrives before init waits for it stays pending.
    let mut signals = SigSet::from_iter(FORWARDED);
    signals.add(Signal::SIGCHLD);
    signals.thread_block()?;
    // SAFETY: this process has a single thread.
    match unsafe { fork() }? {
        ForkResult::Child => Ok(signals.thread_unblock()?),
        ForkResult::Parent { child } => {
            // The spawning thread waits until all copies of its pipe are closed.
            // SAFETY: this process uses no file except the ones that `attend` opens.
            let code = unsafe {
                libc::close_range(3, libc::c_uint::MAX, 0);
                attend(child, &signals)
            };
            // SAFETY: ends this process without touching anything that belongs to the emulator.
            unsafe { libc::_exit(code) }
        }
    }
}

/// Mounts a `/proc` of this process namespace, in a separate mount namespace.
fn show_own_processes() {
    let none = None::<&str>;
    // If this is not allowed, tools such as `ps` see the processes outside.
    let _ = unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none))
        .and_then(|()| mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none));
}

/// Forwards signals and reaps orphans until the command ends; returns its exit code, or 128 plus
/// the number of the signal that ended it.
fn attend(command: Pid, signals: &SigSet) -> i32 {
    let Ok(arrivals) = SignalFd::new(signals) else { return 1 };
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == command => return code,
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == command => {
                return 128 + signal as i32;
            }
            // Another process has ended, and more may have.
            Ok(status) if status != WaitStatus::StillAlive => continue,
            _ => {}
        }
        let Ok(Some(arrival)) = arrivals.read_signal() else { continue };
        let forwarded = FORWARDED.into_iter().find(|known| *known as u32 == arrival.ssi_signo);
        if let Some(signal) = forwarded.filter(|_| !is_from_kernel(arrival.ssi_code)) {
            // This fails only if the command has ended, which the next round sees.
            let _ = kill(command, signal);
        }
    }
}
