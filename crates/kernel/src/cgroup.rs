//! Control groups of version 2, as places for programs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::error::{KernelError, require_root};
use crate::mounts::mounted;
use crate::pin;

/// The prefix of the names of [`OwnCgroup`]s.
const PREFIX: &str = "freshline-run-";

/// The interval between checks whether killed processes are gone, and the maximum number of checks.
const GONE_EVERY: Duration = Duration::from_millis(5);
const GONE_LOOKS: usize = 400;

/// The root cgroup, which contains every process of the host.
///
/// # Errors
///
/// [`KernelError::Missing`] if no hierarchy of version 2 is mounted.
pub fn root() -> Result<PathBuf, KernelError> {
    mounted("cgroup2").ok_or(KernelError::Missing {
        feature: "control groups of version 2",
        remedy: "mount -t cgroup2 none /sys/fs/cgroup",
    })
}

/// A cgroup that exists: its full path and its ID in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cgroup {
    pub(crate) path: PathBuf,
    pub(crate) id: u64,
}

impl Cgroup {
    pub(crate) fn open(path: &Path) -> Result<(Self, File), KernelError> {
        let no_cgroup = |mount| KernelError::NoCgroup { path: path.to_owned(), mount };
        let mount = root()?;
        let Ok(full) = path.canonicalize() else { return Err(no_cgroup(mount)) };
        if !full.starts_with(&mount) || !full.is_dir() {
            return Err(no_cgroup(mount));
        }
        let file = File::open(&full).map_err(KernelError::file("open", &full))?;
        let id = file.metadata().map_err(KernelError::file("ask", &full))?.ino();
        Ok((Self { path: full, id }, file))
    }

    /// The cgroup with this ID, if it still exists.
    pub(crate) fn find(id: u64) -> Option<Self> {
        let mut folders = vec![root().ok()?];
        while let Some(path) = folders.pop() {
            if path.metadata().ok().is_some_and(|about| about.ino() == id) {
                return Some(Self { path, id });
            }
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            folders.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
        None
    }

    /// Whether one of the two contains the other, or they are the same.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.path.starts_with(&other.path) || other.path.starts_with(&self.path)
    }
}

/// A cgroup for one command, below the cgroup of this process. This process enters it, so all
/// processes that it starts from then on are in it, too. When it is dropped, this process returns
/// to its former cgroup, and all processes left in the cgroup are killed.
#[derive(Debug)]
pub struct OwnCgroup {
    path: PathBuf,
    before: PathBuf,
}

impl OwnCgroup {
    /// Creates and enters the cgroup. Removes the empty cgroups of killed runs, wherever they are.
    ///
    /// # Errors
    ///
    /// If there is no hierarchy of version 2, or no permission to change it.
    pub fn enter() -> Result<Self, KernelError> {
        require_root("make a cgroup")?;
        let before = of_this_process()?;
        // Otherwise another command may regard the cgroup as deserted before it is entered.
        let _alone = pin::lock()?;
        remove_deserted_runs();
        let own = Self { path: make_free(&before)?, before };
        join(&own.path)?;
        Ok(own)
    }

    /// The path of the cgroup.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        let left = join(&self.before);
        let killed = fs::write(self.path.join("cgroup.kill"), "1");
        if left.is_err() || killed.is_err() {
            tracing::warn!("cannot empty {}", self.path.display());
            return;
        }
        for _ in 0..GONE_LOOKS {
            match remove(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(GONE_EVERY);
                }
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!("cannot remove {}: {error}", self.path.display());
                    return;
                }
            }
        }
        tracing::warn!("{} does not become empty", self.path.display());
    }
}

fn of_this_process() -> Result<PathBuf, KernelError> {
    let list = "/proc/self/cgroup";
    let all = fs::read_to_string(list).map_err(KernelError::file("read", list))?;
    let own = all.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    Ok(root()?.join(own))
}

/// Creates the first free one. Process IDs would not be unique: they repeat in namespaces.
fn make_free(below: &Path) -> Result<PathBuf, KernelError> {
    let mut number = 0;
    loop {
        let path = below.join(format!("{PREFIX}{number}"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(KernelError::file("make the cgroup", path)(error)),
        }
    }
}

fn join(cgroup: &Path) -> Result<(), KernelError> {
    fs::write(cgroup.join("cgroup.procs"), "0")
        .map_err(KernelError::file("enter the cgroup", cgroup))
}

/// Removes a cgroup and all cgroups below it; fails while one of them has processes.
fn remove(cgroup: &Path) -> io::Result<()> {
    for entry in fs::read_dir(cgroup)? {
        let path = entry?.path();
        if path.is_dir() {
            remove(&path)?;
        }
    }
    fs::remove_dir(cgroup)
}

/// Removes the cgroups of killed runs in the whole hierarchy, because the next run may start in
/// another cgroup. Needs the lock of [`pin::lock`]: otherwise it may remove a cgroup before it is
/// entered. A run that is not over is in its cgroup itself.
fn remove_deserted_runs() {
    let is_deserted = |cgroup: &Path| {
        let events = fs::read_to_string(cgroup.join("cgroup.events"));
        events.is_ok_and(|events| events.lines().any(|line| line == "populated 0"))
    };
    let mut folders: Vec<_> = root().into_iter().collect();
    while let Some(path) = folders.pop() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let is_of_run = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
            if is_of_run && is_deserted(&entry.path()) {
                let _ = remove(&entry.path());
            } else {
                folders.push(entry.path());
            }
        }
    }
}
