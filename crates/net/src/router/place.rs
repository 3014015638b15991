//! Where the sockets of running routers are: in a folder that only root, or the router's own user,
//! may enter, so that no other user can take a name there or answer in a router's place.
//!
//! | place | for |
//! |---|---|
//! | `/run/freshline` | root |
//! | `$XDG_RUNTIME_DIR/freshline` | other users; root where `/run` cannot be written |
//!
//! A device belongs to a network namespace, while `/run` is usually shared by many: the name of a
//! socket contains the number of the namespace.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

use freshline_system::folder_lock::FolderLock;
use nix::unistd::Uid;

/// For root.
const OF_ROOT: &str = "/run";
/// Names the folder of a user (XDG Base Directory Specification).
const OF_USER: &str = "XDG_RUNTIME_DIR";
/// The folder of this program in it.
const OURS: &str = "freshline";
/// The prefix of the sockets' names.
const PREFIX: &str = "router-";

/// A folder for sockets that no other user may enter.
#[derive(Debug, Clone)]
pub(super) struct Place(PathBuf);

/// Held while a name is taken, by one router at a time.
pub(super) type Lock = FolderLock;

impl Place {
    /// The folders that may have sockets, in the order of preference.
    pub(super) fn all() -> Vec<Self> {
        let of_root = Uid::effective().is_root().then(|| PathBuf::from(OF_ROOT));
        let of_user = env::var_os(OF_USER).map(PathBuf::from).filter(|path| path.is_absolute());
        of_root.into_iter().chain(of_user).map(|path| Self(path.join(OURS))).collect()
    }

    /// Creates the first folder that can be created.
    pub(super) fn prepared() -> io::Result<Self> {
        let mut failed = Vec::new();
        for place in Self::all() {
            match place.prepare() {
                Ok(()) => return Ok(place),
                Err(error) => failed.push(format!("{}: {error}", place.0.display())),
            }
        }
        let why = if failed.is_empty() { String::new() } else { failed.join("; ") + "; " };
        Err(io::Error::other(format!("{why}name a folder of this user by {OF_USER}")))
    }

    /// Creates it, or checks that only this user can enter it.
    pub(super) fn prepare(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let about = fs::symlink_metadata(&self.0)?;
        let is_ours =
            about.is_dir() && about.uid() == Uid::effective().as_raw() && about.mode() & 0o077 == 0;
        if is_ours {
            return Ok(());
        }
        let why = "it has to be a folder of this user with mode 0700";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Waits until no other router takes a name, with the timeout of [`FolderLock::take`].
    pub(super) fn lock(&self) -> io::Result<Lock> {
        FolderLock::take(&self.0)
    }

    /// The socket of the router for a device of the calling thread's network namespace.
    pub(super) fn socket_of(&self, device: &str) -> io::Result<PathBuf> {
        if device.contains(['/', '\0']) {
            let why = format!("`{}` is no name of a device", device.escape_debug());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let netns = fs::metadata("/proc/thread-self/ns/net")?.ino();
        Ok(self.0.join(format!("{PREFIX}{netns}-{device}")))
    }

    /// The sockets of all routers, including killed ones.
    pub(super) fn sockets(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
            .map(|entry| entry.path())
            .collect()
    }

    #[cfg(test)]
    pub(super) fn at(path: &std::path::Path) -> Self {
        Self(path.join(OURS))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    #[test]
    fn a_folder_that_others_may_enter_or_that_is_a_link_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::at(base.path());
        place.prepare().unwrap();
        place.prepare().unwrap();
        fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(place.prepare().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        fs::remove_dir(&place.0).unwrap();
        symlink("/root", &place.0).unwrap();
        assert_eq!(place.prepare().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_name_leads_to_no_other_folder() {
        let place = Place::at(Path::new("/nowhere"));
        assert!(place.socket_of("../x").is_err());
        let socket = place.socket_of("eth0.5").unwrap();
        assert!(socket.starts_with(&place.0) && socket.to_str().unwrap().ends_with("-eth0.5"));
    }
}
