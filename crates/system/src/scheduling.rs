//! Real-time scheduling of a thread.
//!
//! Unsafe: two system calls without a safe wrapper in `nix`. Their only pointer is to a structure on the
//! stack, which the kernel reads or writes during the call.
#![allow(unsafe_code)]

use std::io;

use nix::errno::Errno;
use nix::libc::{
    SCHED_FIFO, SCHED_RESET_ON_FORK, SCHED_RR, c_int, sched_getscheduler, sched_param,
    sched_setscheduler,
};
use nix::unistd::{Pid, gettid};

/// Real-time priority (`SCHED_FIFO`) of a thread as long as this exists: the thread runs before all threads
/// without. Threads and processes that it starts have the usual priority.
#[derive(Debug)]
pub struct RealTime {
    thread: Pid,
    /// The policy before; `None` if it was real-time already, with a priority that remains.
    before: Option<c_int>,
}

impl RealTime {
    /// The lowest real-time priority is above all others, and leaves room for more urgent threads.
    const PRIORITY: c_int = 1;

    /// Gives the calling thread real-time priority.
    ///
    /// # Errors
    /// `EPERM` without CAP_SYS_NICE, unless the limit on real-time priorities (`ulimit -r`) allows it.
    pub fn begin() -> io::Result<Self> {
        let thread = gettid();
        // SAFETY: the call takes no pointer.
        let policy = Errno::result(unsafe { sched_getscheduler(thread.as_raw()) })?;
        let before = match policy & !SCHED_RESET_ON_FORK {
            SCHED_FIFO | SCHED_RR => None,
            _ => {
                set(thread, SCHED_FIFO, Self::PRIORITY)?;
                Some(policy)
            }
        };
        Ok(Self { thread, before })
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // Every thread may have the usual priority. A thread that has ended needs none.
            let _ = set(self.thread, before, 0);
        }
    }
}

/// Sets a thread's policy and priority. Only a privileged thread may clear the flag that resets them on
/// `fork`, so it remains set.
fn set(thread: Pid, policy: c_int, sched_priority: c_int) -> io::Result<()> {
    let param = sched_param { sched_priority };
    // SAFETY: `param` outlives the call, which only reads it.
    let done = unsafe { sched_setscheduler(thread.as_raw(), policy | SCHED_RESET_ON_FORK, &param) };
    Ok(Errno::result(done).map(drop)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::privileges::without;

    /// The policy of the calling thread, field 41 of its `stat` (proc(5)).
    fn policy() -> c_int {
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
        let behind_name = stat.rsplit_once(')').unwrap().1;
        behind_name.split_whitespace().nth(41 - 3).unwrap().parse().unwrap()
    }

    #[test]
    fn a_thread_has_real_time_priority_for_a_while_and_its_children_do_not() {
        let usual = policy();
        let Ok(real_time) = RealTime::begin() else {
            println!("skipped: needs CAP_SYS_NICE");
            return;
        };
        assert_eq!(policy(), SCHED_FIFO);
        assert_eq!(std::thread::spawn(policy).join().unwrap(), usual);
        drop(RealTime::begin().unwrap());
        assert_eq!(policy(), SCHED_FIFO, "the second one does not end the first");
        drop(real_time);
        assert_eq!(policy(), usual);
    }

    #[test]
    fn a_thread_without_the_privilege_is_refused() {
        let refused = without(|| RealTime::begin().err());
        // A limit on real-time priorities above zero allows it.
        if let Some(error) = refused {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
    }
}
