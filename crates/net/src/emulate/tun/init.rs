//! The command's first ancestor: it makes sure that nothing of the command outlives the emulator.
//!
//! ```text
//! emulator ── thread in the namespace ──► init (process 1 of a namespace) ──► command ──► ...
//! ```
//!
//! The kernel kills init when that thread ends, whatever ends it, and all of a process namespace
//! when its process 1 ends. Init forwards signals, and ends as the command ends.
//!
//! Unsafe: what runs between `fork` and `exec` is the caller's responsibility. Here it is
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

/// Whether a signal was sent by the kernel, as those of a terminal are: all processes of its
/// group have it then.
pub(super) fn is_from_kernel(code: i32) -> bool {
    code > 0
}

/// Starts `command`, as `user` if given, below an init, of which the handle is. The calling thread must outlive the
/// command, and can start nothing else.
pub(super) fn spawn(mut command: Command, user: Option<&User>) -> io::Result<Child> {
    unshare(CloneFlags::CLONE_NEWPID)?;
    // SAFETY: `become_init` makes system calls only; see the head of this file.
    unsafe { command.pre_exec(become_init) };
    // After the init has forked, which remains root.
    if let Some(user) = user {
        user.runs(&mut command);
    }
    command.spawn()
}

/// Returns in the command-to-be; init itself never returns.
fn become_init() -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    show_own_processes();
    // A signal that comes before init waits for it is kept.
    let mut signals = SigSet::from_iter(FORWARDED);
    signals.add(Signal::SIGCHLD);
    signals.thread_block()?;
    // SAFETY: this process has a single thread.
    match unsafe { fork() }? {
        ForkResult::Child => Ok(signals.thread_unblock()?),
        ForkResult::Parent { child } => {
            // The spawning thread waits until all copies of its pipe are closed.
            // SAFETY: nothing in this process uses a file but those that `attend` opens.
            let code = unsafe {
                libc::close_range(3, libc::c_uint::MAX, 0);
                attend(child, &signals)
            };
            // SAFETY: ends this process without anything that belongs to the emulator.
            unsafe { libc::_exit(code) }
        }
    }
}

/// Mounts a `/proc` of this process namespace, in a mount namespace of its own.
fn show_own_processes() {
    let none = None::<&str>;
    // Where this is not allowed, tools such as `ps` see the processes of the outside.
    let _ = unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none))
        .and_then(|()| mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none));
}

/// Forwards signals and reaps orphans until the command ends: its exit code, or 128 and the
/// signal that ended it.
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
            // It fails only if the command has ended, which the next round sees.
            let _ = kill(command, signal);
        }
    }
}
