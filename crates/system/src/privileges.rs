//! Privileges (Linux capabilities) that a process gives up once it does not need them any more.
//!
//! Capabilities belong to threads. A thread has those of the thread that started it, so a process
//! gives them up before it starts further threads, and starts threads that need none by
//! [`without`].

use std::collections::HashSet;
use std::thread;

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;

pub use caps::Capability as Privilege;

/// Why privileges could not be given up.
#[derive(Debug, thiserror::Error)]
#[error("the system did not take back privileges: {0}")]
pub struct PrivilegesError(#[from] caps::errors::CapsError);

/// Restricts the calling thread, and all threads that it starts from now on, to these privileges,
/// as far as it has them. Neither it nor a command that it runs can get others later, by
/// set-user-ID programs or as root. The user stays the same: files of that user remain accessible.
///
/// # Errors
/// [`PrivilegesError`]; some may be gone all the same.
pub fn keep_only(kept: &[Privilege]) -> Result<(), PrivilegesError> {
    // With these bounds `exec` cannot give root its privileges back.
    let _ = prctl::set_no_new_privs();
    let kept: CapsHashSet = kept.iter().copied().collect();
    let permitted = caps::read(None, CapSet::Permitted)?;
    if permitted.contains(&Capability::CAP_SETPCAP) {
        for bounded in caps::read(None, CapSet::Bounding)?.difference(&kept) {
            caps::drop(None, CapSet::Bounding, *bounded)?;
        }
    }
    // Each is a part of the one after it.
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    let left: CapsHashSet = permitted.intersection(&kept).copied().collect();
    caps::set(None, CapSet::Effective, &left)?;
    caps::set(None, CapSet::Permitted, &left)?;
    Ok(())
}

/// Does something on a thread that has given up all privileges but `kept`, as do the threads that
/// it starts.
pub fn with_only<T: Send>(kept: &[Privilege], action: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Err(error) = keep_only(kept) {
                tracing::warn!("{error}");
            }
            action()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// As [`with_only`], with none.
pub fn without<T: Send>(action: impl FnOnce() -> T + Send) -> T {
    with_only(&[], action)
}

/// The privileges that the calling thread can use.
pub fn effective() -> HashSet<Privilege> {
    caps::read(None, CapSet::Effective).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::unistd::Uid;

    use super::*;

    #[test]
    fn what_a_thread_gives_up_neither_it_nor_its_commands_get_back() {
        if !Uid::effective().is_root() {
            println!("skipped: needs root");
            return;
        }
        let before = effective();
        let (own, command) = with_only(&[Privilege::CAP_NET_ADMIN], || {
            let grep = ["-E", "^(CapEff|CapBnd|NoNewPrivs)", "/proc/self/status"];
            let said = Command::new("grep").args(grep).output().unwrap().stdout;
            (effective(), String::from_utf8(said).unwrap())
        });
        assert_eq!(own, HashSet::from([Privilege::CAP_NET_ADMIN]));
        let only = "0000000000001000";
        let expected = format!("CapEff:\t{only}\nCapBnd:\t{only}\nNoNewPrivs:\t1\n");
        assert_eq!(command, expected);
        assert_eq!(effective(), before, "other threads keep theirs");
        assert_eq!(without(effective), HashSet::new());
    }
}
