//! The processes of running commands, which can be killed together.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Process groups that can be killed together. A group is removed after its first process has ended
/// and before that process is waited for, as its number is its own until then.
pub(super) struct Groups(Mutex<State>);

struct State {
    running: BTreeSet<Pid>,
    is_over: bool,
}

impl Groups {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(State { running: BTreeSet::new(), is_over: false }))
    }

    fn with<T>(&self, what: impl FnOnce(&mut State) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts a command in a group of its own.
    pub(super) fn start(&self, command: &mut std::process::Command) -> io::Result<(Child, Pid)> {
        self.with(|state| {
            if state.is_over {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let child = command.process_group(0).spawn()?;
            let group = Pid::from_raw(child.id().cast_signed());
            state.running.insert(group);
            Ok((child, group))
        })
    }

    pub(super) fn remove(&self, group: Pid) {
        self.with(|state| state.running.remove(&group));
    }

    /// Kills a group; returns whether it was still running.
    pub(super) fn kill(&self, group: Pid) -> bool {
        self.with(|state| state.running.contains(&group) && killpg(group, Signal::SIGKILL).is_ok())
    }

    pub(super) fn end(&self) {
        self.with(|state| {
            state.is_over = true;
            for group in &state.running {
                let _ = killpg(*group, Signal::SIGKILL);
            }
        });
    }
}
