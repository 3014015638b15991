//! The BPF file system: what is pinned there outlives the process that pinned it.

use std::fs;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::unistd::Pid;

use crate::KernelError;
use crate::cgroup::mounted;

/// Where it is mounted if it is not yet; the place that systemd and others take.
const USUAL: &str = "/sys/fs/bpf";

/// The folder for all of ours.
const OURS: &str = "freshline";

/// The folder for ours in a BPF file system, which is mounted if there is none. Not in a mount
/// namespace of this command alone: with that, all pins would be gone.
pub(crate) fn folder() -> Result<PathBuf, KernelError> {
    let at = match mounted("bpf") {
        Some(at) => at,
        None if is_passing() => {
            return Err(KernelError::Missing {
                feature: "the BPF file system, outside of `ip netns exec`, which hides it",
                remedy: "enter the network namespace by `nsenter --net=/run/netns/NAME` instead, \
                         or use --foreground",
            });
        }
        None => {
            let none: Option<&str> = None;
            mount(Some("bpf"), USUAL, Some("bpf"), MsFlags::empty(), none).map_err(|error| {
                KernelError::file("mount the BPF file system at", USUAL)(error.into())
            })?;
            PathBuf::from(USUAL)
        }
    };
    Ok(at.join(OURS))
}

/// Whether this process has a mount namespace that its parent or the first process has not, as by
/// `ip netns exec`: what is mounted there goes with the last process in it, and so would all pins.
fn is_passing() -> bool {
    let of = |process: Pid| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let own = of(Pid::this());
    // In a container, the first process may not be for us to ask.
    [Pid::parent(), Pid::from_raw(1)]
        .map(of)
        .iter()
        .flatten()
        .any(|other| Some(other) != own.as_ref())
}

/// Folders of ours whose name begins with `prefix`; none without a BPF file system.
pub(crate) fn folders(prefix: &str) -> Vec<PathBuf> {
    let listing = mounted("bpf").and_then(|at| fs::read_dir(at.join(OURS)).ok());
    let named = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
    };
    listing.into_iter().flatten().flatten().map(|entry| entry.path()).filter(named).collect()
}

/// Removes a folder of ours with all that is pinned in it, and the folder for all of ours if it
/// was the last.
pub(crate) fn remove(folder: &Path) -> Result<(), KernelError> {
    fs::remove_dir_all(folder).map_err(KernelError::file("remove", folder))?;
    if let Some(ours) = folder.parent() {
        // Others may be left in it.
        let _ = fs::remove_dir(ours);
    }
    Ok(())
}
