//! Commands that are killed between two of their steps.
//!
//! A step is a system call that may change state that the kernel keeps when the process is gone: it
//! makes or removes a pin or a folder, links or detaches a program, or sends netlink a request. The
//! test traces the command (ptrace) and kills it as it enters one of these calls, which then does
//! The command needs no hook for that. The test reads the processor's registers, and so needs a
//! processor that it knows.
//!
//! A test takes the first and the last steps and some in between; with `FRESHLINE_EVERY_STEP=1` all:
//!
//! ```text
//! FRESHLINE_EVERY_STEP=1 cargo test -p freshline-cli --test uplink --test receiver --test mesh every_step -- --include-ignored
//! ```

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// Of the steps of a command, how many at its begin and at its end are taken, and each how many-th between.
const AT_ENDS: usize = 3;
const BETWEEN: usize = 40;

/// Whether the test can read this processor's registers; prints the reason if not.
pub(crate) fn can_trace() -> bool {
    if cfg!(target_arch = "x86_64") {
        return true;
    }
    println!("skipped: needs a processor of type x86_64");
    false
}

/// Whether a test takes all steps.
pub(crate) fn takes_all() -> bool {
    env::var_os("FRESHLINE_EVERY_STEP").is_some()
}

/// Runs a command to its end, and returns the steps before which a test kills it.
pub(crate) fn steps_of(command: &Command) -> Vec<usize> {
    let (count, is_killed) = traced(command, usize::MAX);
    assert!(count > 0 && !is_killed, "{command:?} takes no step");
    let is_taken = |step: &usize| {
        takes_all() || *step <= AT_ENDS || *step + AT_ENDS > count || step.is_multiple_of(BETWEEN)
    };
    (1..=count).filter(is_taken).collect()
}

/// Of these steps at most `most`, which is 2 or more: the first, the last, and some evenly between. All if a
/// test takes all.
#[allow(dead_code, reason = "for tests whose commands take long")]
pub(crate) fn few(steps: &[usize], most: usize) -> Vec<usize> {
    if takes_all() || steps.len() <= most {
        return steps.to_vec();
    }
    (0..most).map(|at| steps[at * (steps.len() - 1) / (most - 1)]).collect()
}

/// Kills a command before this step of it.
pub(crate) fn kill_before(command: &Command, step: usize) {
    let (_, is_killed) = traced(command, step);
    assert!(is_killed, "{command:?} has fewer steps than {step}");
}

/// The number of steps that began, and whether the command was killed before the last of them.
fn traced(command: &Command, last: usize) -> (usize, bool) {
    // It begins once it is traced.
    let mut child = Command::new("sh")
        .args(["-c", "read _ && exec \"$@\"", "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let process = Pid::from_raw(child.id().cast_signed());
    ptrace::seize(process, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL).unwrap();
    ptrace::interrupt(process).unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut steps = 0;
    let is_killed = loop {
        let signal = match waitpid(process, None).unwrap() {
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => break false,
            WaitStatus::PtraceSyscall(_) => {
                let entered =
                    ptrace::syscall_info(process).unwrap().op == libc::PTRACE_SYSCALL_INFO_ENTRY;
                steps += usize::from(entered && is_step(process));
                if entered && steps == last {
                    kill(process, Signal::SIGKILL).unwrap();
                    while !matches!(waitpid(process, None), Ok(WaitStatus::Signaled(..))) {}
                    break true;
                }
                None
            }
            WaitStatus::Stopped(_, signal) => Some(signal),
            _ => None,
        };
        ptrace::syscall(process, signal).unwrap();
    };
    // It has been waited for.
    let _ = child.wait();
    (steps, is_killed)
}

/// Whether the system call that a process enters is a step.
#[cfg(target_arch = "x86_64")]
fn is_step(process: Pid) -> bool {
    /// Of `enum bpf_cmd` in <linux/bpf.h>: to pin, to attach, to link, to detach.
    const CHANGING: [u64; 4] = [6, 8, 28, 34];
    let registers = ptrace::getregs(process).unwrap();
    match registers.orig_rax.cast_signed() {
        libc::SYS_bpf => CHANGING.contains(&registers.rdi),
        libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_mkdir
        | libc::SYS_mkdirat
        | libc::SYS_rmdir
        | libc::SYS_unlink
        | libc::SYS_unlinkat
        | libc::SYS_mount => true,
        _ => false,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn is_step(_: Pid) -> bool {
    unreachable!("`can_trace` comes first")
}
