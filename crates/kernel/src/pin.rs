//! The BPF file system: pins in it outlive the process that created them.
//!
//! ```text
//! freshline/
//!     receiver-cgroup-1234/  a cgroup by its number:                control, release
//!     receiver-dev-4026-3/   a device by its namespace and index:   control-in, control-out
//!     uplink-4026-3/         likewise:                              control, flows, constants
//!     router-4026-3/         likewise:                              control, and maps
//!     mesh/                  a congestion control:                  control
//! ```
//!
//! A folder is a journal: it is created before the kernel's state changes, holds the pins that undo
//! the change, and is removed last. So a command may be killed between any two of its steps: the
//! next command finds the folder and completes the rest. Commands hold [`lock`] from the first step
//! to the last, so an incomplete folder belongs to a killed command.

use std::fs::{self, DirEntry, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use freshline_system::folder_lock::FolderLock;
use libbpf_rs::Link;
use libbpf_rs::query::LinkTypeInfo;
use nix::mount::{MsFlags, mount};
use nix::unistd::Pid;

use crate::KernelError;
use crate::mounts::mounted;

/// The mount point if the file system is not mounted yet; the same as that of systemd and others.
const USUAL: &str = "/sys/fs/bpf";

/// The folder of all of this project's pins.
const OURS: &str = "freshline";

/// The prefix of the names of links that keep a program attached.
pub(crate) const CONTROL: &str = "control";

/// Held while attachments are read and changed: by one command at a time.
#[derive(Debug)]
pub(crate) struct Lock {
    _folder: FolderLock,
}

/// Waits until no other command holds the lock, with the time limit of [`FolderLock::take`]. The
/// lock is on the root of the BPF file system, which containers may share, so that file system is
/// mounted first. If it cannot be mounted, the lock is on the bare directory.
pub(crate) fn lock() -> Result<Lock, KernelError> {
    loop {
        let at = lockable();
        let folder = FolderLock::take(&at).map_err(KernelError::file("lock", &at))?;
        // Under the lock of the bare directory, so that two commands do not both mount it.
        if let Err(error) = ensure_mounted() {
            tracing::debug!("{error}");
        }
        let at = lockable();
        if is_at(folder.folder(), &at).map_err(KernelError::file("ask", &at))? {
            return Ok(Lock { _folder: folder });
        }
        // It was mounted over this directory after the directory was opened.
    }
}

/// The current directory of the lock.
fn lockable() -> PathBuf {
    mounted("bpf").unwrap_or_else(|| USUAL.into())
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (one, other) = (file.metadata()?, fs::metadata(path)?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// The pins of one attachment.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates the folder, and mounts the BPF file system if necessary. The name must be free.
    pub(crate) fn create(name: &str) -> Result<Self, KernelError> {
        let ours = ensure_mounted()?.join(OURS);
        fs::create_dir_all(&ours).map_err(KernelError::file("make", &ours))?;
        let path = ours.join(name);
        fs::create_dir(&path).map_err(KernelError::file("make", &path))?;
        Ok(Self(path))
    }

    /// The folder of this name, if it exists.
    pub(crate) fn find(name: &str) -> Result<Option<Self>, KernelError> {
        Ok(Self::all(name)?.into_iter().find(|folder| folder.name() == name))
    }

    /// All folders whose name begins with `prefix`.
    pub(crate) fn all(prefix: &str) -> Result<Vec<Self>, KernelError> {
        let at = match mounted("bpf") {
            Some(at) => at,
            None if is_passing() => return Err(KernelError::HiddenPins),
            None => return Ok(Vec::new()),
        };
        let entries = fs::read_dir(at.join(OURS)).into_iter().flatten().flatten();
        let folders = entries.map(|entry| Self(entry.path()));
        Ok(folders.filter(|folder| folder.name().starts_with(prefix)).collect())
    }

    pub(crate) fn exists(&self) -> bool {
        self.0.exists()
    }

    pub(crate) fn name(&self) -> &str {
        self.0.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// The path of a pin with this name.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The links that keep programs attached.
    pub(crate) fn controls(&self) -> Result<Vec<Link>, KernelError> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries
            .filter(is_control)
            .map(|entry| Link::open(entry.path()))
            .collect::<Result<_, _>>()
            .map_err(KernelError::bpf("open the program's pin"))
    }

    /// Detaches the programs and removes their pins. The pins go first: if the process is killed
    /// between the two steps, its links end with it, and no pin of a detached link is left, which
    /// would look like that of a removed device. Removing only the pins would detach after this
    /// function returns.
    pub(crate) fn detach(&self) -> Result<(), KernelError> {
        let detach = |link: &Link| link.detach().map_err(KernelError::bpf("detach the program"));
        let links = self.controls()?;
        self.remove_controls()?;
        links.iter().try_for_each(detach)
    }

    /// Whether it has links that keep programs attached.
    pub(crate) fn has_controls(&self) -> bool {
        fs::read_dir(&self.0).into_iter().flatten().flatten().any(|entry| is_control(&entry))
    }

    /// Whether a program in it is no longer attached: its cgroup or device is gone, or its link was
    /// detached. In another namespace either may exist although it is not visible here.
    pub(crate) fn is_deserted(&self) -> bool {
        let is_gone = |link: &Link| {
            link.info().is_ok_and(|link| match link.info {
                LinkTypeInfo::Cgroup(at) => at.cgroup_id == 0,
                LinkTypeInfo::Tcx(at) => at.ifindex == 0,
                _ => false,
            })
        };
        self.controls().is_ok_and(|links| links.iter().any(is_gone))
    }

    /// Removes the pins that keep programs attached.
    fn remove_controls(&self) -> Result<(), KernelError> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.filter(is_control).try_for_each(|entry| {
            fs::remove_file(entry.path()).map_err(KernelError::file("remove", entry.path()))
        })
    }

    /// Removes the folder with all pins in it, and the parent folder of all pins if it was the last
    /// one.
    pub(crate) fn remove(&self) -> Result<(), KernelError> {
        fs::remove_dir_all(&self.0).map_err(KernelError::file("remove", &self.0))?;
        // It may have other folders.
        let _ = self.0.parent().map(fs::remove_dir);
        Ok(())
    }
}

fn is_control(entry: &DirEntry) -> bool {
    entry.file_name().to_string_lossy().starts_with(CONTROL)
}

/// The mount point of the BPF file system, which is mounted if necessary; but not in a private
/// mount namespace of this command, because all pins would end with that.
fn ensure_mounted() -> Result<PathBuf, KernelError> {
    match mounted("bpf") {
        Some(at) => Ok(at),
        None if is_passing() => Err(KernelError::HiddenPins),
        None => {
            let for_root = Some("mode=0700");
            mount(Some("bpf"), USUAL, Some("bpf"), MsFlags::empty(), for_root)
                .map_err(|error| KernelError::NoPins { at: USUAL, source: error.into() })?;
            Ok(Path::new(USUAL).to_owned())
        }
    }
}

/// Whether this process has a mount namespace other than that of its parent or of the first
/// process, as by `ip netns exec`: mounts there end with its last process, and so would all pins.
fn is_passing() -> bool {
    let of = |process: Pid| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let own = of(Pid::this());
    // In a container, the first process may not be accessible.
    [Pid::parent(), Pid::from_raw(1)]
        .map(of)
        .iter()
        .flatten()
        .any(|other| Some(other) != own.as_ref())
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;
    use std::time::Duration;

    use nix::fcntl::{Flock, FlockArg};

    use super::*;
    use crate::error::require_root;

    /// Set in the process that has a mount namespace without the BPF file system.
    const BARE: &str = "FRESHLINE_TEST_BARE";

    #[test]
    fn a_command_that_waits_while_the_file_system_is_mounted_takes_the_lock_of_the_mounted_one() {
        if env::var_os(BARE).is_some() {
            return in_bare_namespace();
        }
        if require_root("").is_err() {
            println!("skipped: needs root");
            return;
        }
        let name = thread::current().name().expect("tests have names").to_owned();
        let program = env::current_exe().unwrap();
        let script = format!("umount /sys/fs/bpf; {BARE}=1 {} --exact {name}", program.display());
        let own = ["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", &script];
        let done = Command::new("unshare").args(own).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
    }

    fn in_bare_namespace() {
        let locked = || Flock::lock(File::open(USUAL).unwrap(), FlockArg::LockExclusive).unwrap();
        assert_eq!(mounted("bpf"), None);
        let bare = locked();
        let (sender, receiver) = channel();
        thread::scope(|scope| {
            scope.spawn(move || sender.send(lock().map(drop)).unwrap());
            let waits = || receiver.recv_timeout(Duration::from_millis(200));
            assert_eq!(waits().err(), Some(RecvTimeoutError::Timeout));
            ensure_mounted().unwrap();
            let root = locked();
            drop(bare);
            let early = waits().err();
            drop(root);
            assert_eq!(early, Some(RecvTimeoutError::Timeout));
            receiver.recv().unwrap().unwrap();
        });

        nix::mount::umount(USUAL).unwrap();
        let first = lock().unwrap();
        assert_eq!(mounted("bpf").as_deref(), Some(Path::new(USUAL)));
        assert!(is_at(first._folder.folder(), Path::new(USUAL)).unwrap());
        drop(first);

        // Mounted elsewhere only: that is where other commands look.
        nix::mount::umount(USUAL).unwrap();
        let other = tempfile::tempdir().unwrap();
        mount(Some("bpf"), other.path(), Some("bpf"), MsFlags::empty(), None::<&str>).unwrap();
        let elsewhere = lock().unwrap();
        assert!(is_at(elsewhere._folder.folder(), other.path()).unwrap());
        drop(elsewhere);
        nix::mount::umount(other.path()).unwrap();
    }
}
