//! The privileges that a long-running command keeps once it is set up, and the files that it can
//! still write. [The table](../../../docs/operation.md#privileges) has a row per command.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use freshline_system::confinement::write_only_below;
use freshline_system::privileges::{Privilege, keep_only, without};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{AccessFlags, access};

/// Ports from here on are open to all users by default (`net.ipv4.ip_unprivileged_port_start`).
const FIRST_FREE_PORT: u16 = 1024;

/// The maximum number of symbolic links that the kernel follows.
const MAX_LINKS: usize = 40;

/// The privileges to detach from the kernel: from the maps of programs, and from network devices.
pub(crate) const DETACHES: &[Privilege] = &[Privilege::CAP_BPF, Privilege::CAP_NET_ADMIN];

/// The privileges to detach the congestion control of a mesh: detaching loads a program that lists
/// connections.
pub(crate) const DETACHES_MESH: &[Privilege] =
    &[Privilege::CAP_BPF, Privilege::CAP_NET_ADMIN, Privilege::CAP_PERFMON];

/// The privileges to open sockets that send by an interface, with large buffers, when interfaces
/// come and go: Linux before 5.7 binds sockets to interfaces for CAP_NET_RAW only.
pub(crate) const LEAVES_BY_INTERFACES: &[Privilege] =
    &[Privilege::CAP_NET_ADMIN, Privilege::CAP_NET_RAW];

/// Raises the limit on descriptors as far as this user may: a command needs one per connection or
/// session, and the usual limit is 1024. If the limit cannot be raised, the command goes on with
/// it.
pub(crate) fn raise_descriptor_limit() {
    if let Ok((_, max)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, max, max);
    }
}

/// The privileges and files that a command needs from now on.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    privileges: Vec<Privilege>,
    writes_below: Vec<PathBuf>,
}

impl Needs {
    /// Needs these privileges.
    pub(crate) fn new(privileges: &[Privilege]) -> Self {
        Self { privileges: privileges.to_vec(), ..Self::default() }
    }

    /// Adds the privilege to listen at an address.
    pub(crate) fn listens(mut self, at: Option<SocketAddr>) -> Self {
        if at.is_some_and(|at| (1..FIRST_FREE_PORT).contains(&at.port())) {
            self.privileges.push(Privilege::CAP_NET_BIND_SERVICE);
        }
        self
    }

    /// Adds the privilege to read a file again and again.
    pub(crate) fn reads(mut self, file: Option<&Path>) -> Self {
        let file = file.filter(|file| file.as_os_str() != "-");
        if file.is_some_and(|file| !without(|| may(file, AccessFlags::R_OK))) {
            self.privileges.push(Privilege::CAP_DAC_READ_SEARCH);
        }
        self
    }

    /// Adds the privilege to create, write and remove a file.
    pub(crate) fn writes(mut self, file: Option<&Path>) -> Self {
        let Some(file) = file.filter(|file| file.as_os_str() != "-") else { return self };
        let target = followed(file);
        let folders = [folder_of(file), folder_of(&target)];
        let is_open_to_all = without(|| {
            folders.iter().all(|folder| may(folder, AccessFlags::W_OK | AccessFlags::X_OK))
                && (!target.exists() || may(&target, AccessFlags::W_OK))
        });
        if !is_open_to_all {
            self.privileges.push(Privilege::CAP_DAC_OVERRIDE);
        }
        self.writes_below.extend(folders);
        self.writes_below.dedup();
        self
    }

    /// Gives up all other privileges of the calling thread and of the threads that it starts from
    /// now on.
    pub(crate) fn give_up_others(&self) {
        if let Err(error) = keep_only(&self.privileges) {
            say!("{error}; going on with them");
        }
    }

    /// Like [`Needs::give_up_others`], for a command that executes no program: it may then write
    /// only in the directories of the named files, if the kernel has Landlock.
    pub(crate) fn confine(&self) {
        self.give_up_others();
        match write_only_below(&self.writes_below) {
            // Older kernels confine less, or not at all.
            Ok(_) => {}
            Err(error) => say!("{error}; going on without confinement"),
        }
    }
}

fn may(file: &Path, access_flags: AccessFlags) -> bool {
    access(file, access_flags).is_ok()
}

/// The path with symbolic links resolved, also of a file that does not exist yet.
fn followed(file: &Path) -> PathBuf {
    let mut target = file.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(next) = target.read_link() else { break };
        target = folder_of(&target).join(next);
    }
    target
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if folder.as_os_str().is_empty() => ".".into(),
        Some(folder) => folder.to_owned(),
        None => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_privilege_is_kept_only_where_a_flag_needs_it() {
        let at = |text: &str| Some(text.parse().unwrap());
        assert_eq!(Needs::default().listens(at("127.0.0.1:9090")).privileges, []);
        assert_eq!(Needs::default().listens(at("127.0.0.1:0")).privileges, []);
        let low = Needs::default().listens(at("127.0.0.1:80"));
        assert_eq!(low.privileges, [Privilege::CAP_NET_BIND_SERVICE]);

        let folder = tempfile::tempdir().unwrap();
        let own = Needs::default().writes(Some(&folder.path().join("new")));
        assert_eq!(
            (&own.privileges[..], &own.writes_below[..]),
            (&[][..], &[folder.path().into()][..])
        );
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("../elsewhere/new", &link).unwrap();
        let target = folder.path().join("../elsewhere");
        assert_eq!(Needs::default().writes(Some(&link)).writes_below, [folder.path(), &target]);

        let foreign = Needs::default()
            .writes(Some(Path::new("/proc/1/nowhere/new")))
            .reads(Some(Path::new("/proc/1/nowhere")));
        let wanted = [Privilege::CAP_DAC_OVERRIDE, Privilege::CAP_DAC_READ_SEARCH];
        assert_eq!(foreign.privileges, wanted);
        assert_eq!(Needs::default().writes(Some(Path::new("-"))).writes_below, [] as [PathBuf; 0]);
        assert_eq!(folder_of(Path::new("out.jsonl")), Path::new("."));
    }
}
