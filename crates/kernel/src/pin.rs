//! The BPF file system: what is pinned there outlives the process that pinned it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

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
        None if !is_mount_namespace_of_init() => {
            return Err(KernelError::Missing {
                feature: "the BPF file system, which is not mounted in this mount namespace",
                remedy: "enter a network namespace by `nsenter --net=/run/netns/NAME`, as `ip \
                         netns exec` hides it; or mount it, or use --foreground",
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

fn is_mount_namespace_of_init() -> bool {
    let of = |process| fs::metadata(format!("/proc/{process}/ns/mnt")).map(|about| about.ino());
    of("self").ok() == of("1").ok()
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
