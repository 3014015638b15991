//! Control groups of version 2, as far as a program is attached to one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::error::{KernelError, require_root};
use crate::mounts::mounted;
use crate::pin;

/// What the names of cgroups of [`OwnCgroup`] begin with.
const PREFIX: &str = "freshline-run-";

/// How often it is looked whether killed processes are gone, and how many times at most.
const GONE_EVERY: Duration = Duration::from_millis(5);
const GONE_LOOKS: usize = 400;

/// The cgroup above all others, which has every process of the host.
///
/// # Errors
///
/// [`KernelError::Missing`] where no hierarchy of version 2 is mounted.
pub fn root() -> Result<PathBuf, KernelError> {
    mounted("cgroup2").ok_or(KernelError::Missing {
        feature: "control groups of version 2",
        remedy: "mount -t cgroup2 none /sys/fs/cgroup",
    })
}

/// A cgroup that exists: its full path, and the number by which the kernel knows it.
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

    /// The cgroup with this number, if it is still there.
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

    /// Whether one of the two holds the other, or they are the same.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.path.starts_with(&other.path) || other.path.starts_with(&self.path)
    }
}

/// A cgroup made for one command, below that of this process, which enters it: what it starts from
/// then on is in it too. Dropped, this process is back where it was, and what else is left in the
/// cgroup is killed.
#[derive(Debug)]
pub struct OwnCgroup {
    path: PathBuf,
    before: PathBuf,
}

impl OwnCgroup {
    /// Makes it and enters it. Removes the empty cgroups of runs that were killed, wherever they are.
    ///
    /// # Errors
    ///
    /// Where there is no hierarchy of version 2, or no right to change it.
    pub fn enter() -> Result<Self, KernelError> {
        require_root("make a cgroup")?;
        let before = of_this_process()?;
        // Lest one be taken for deserted before it is entered.
        let _alone = pin::lock()?;
        remove_deserted_runs();
        let own = Self { path: make_free(&before)?, before };
        join(&own.path)?;
        Ok(own)
    }

    /// Where it is.
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

/// Makes the first that does not exist. Process numbers would not do: they repeat in namespaces.
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

/// Removes a cgroup, with those that its processes have made below it; not while one has processes.
fn remove(cgroup: &Path) -> io::Result<()> {
    for entry in fs::read_dir(cgroup)? {
        let path = entry?.path();
        if path.is_dir() {
            remove(&path)?;
        }
    }
    fs::remove_dir(cgroup)
}

/// Removes the cgroups of runs that were killed, in the whole hierarchy: the next run may start in
/// another cgroup. Needs the lock of [`pin::lock`], lest one be removed before it is entered. A run
/// that is not over is in its cgroup itself.
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
