//! What keeps programs in place: a folder of pins for each attachment, below that of all of ours.
//!
//! ```text
//! receiver-1234/         a cgroup by its number:                control, release
//! receiver-dev-4026-3/   a device by its namespace and index:   in, out
//! ```

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use libbpf_rs::{Iter, Link};

use super::{Place, Target, have_libbpf_log};
use crate::error::require_root;
use crate::{KernelError, pin};

/// What the names of folders begin with.
const PREFIX: &str = "receiver-";
/// The iterator that gives connections their windows back.
const RELEASE: &str = "release";

/// Where the pins of an attachment are, or may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PinFolder(String);

impl PinFolder {
    pub(super) fn of(place: Place) -> Self {
        Self(match place {
            Place::Cgroup { id } => format!("{PREFIX}{id}"),
            Place::Device { netns, index } => format!("{PREFIX}dev-{netns}-{index}"),
        })
    }

    /// The folder, if it is there.
    pub(super) fn find(&self) -> Option<PathBuf> {
        pin::folders(PREFIX).into_iter().find(|folder| folder.ends_with(&self.0))
    }

    /// Pins these, the programs last.
    pub(super) fn fill(
        &self,
        release: Option<&mut Link>,
        control: &mut [(&'static str, Link)],
    ) -> Result<(), KernelError> {
        let folder = pin::folder()?.join(&self.0);
        if folder.exists() {
            // Of one that was ended while it pinned: nobody else is attached here.
            pin::remove(&folder)?;
        }
        fs::create_dir_all(&folder).map_err(KernelError::file("make", &folder))?;
        let release = release.into_iter().map(|link| (RELEASE, link));
        let control = control.iter_mut().map(|(name, link)| (*name, link));
        let pinned = release
            .chain(control)
            .try_for_each(|(name, link)| link.pin(folder.join(name)))
            .map_err(KernelError::bpf("pin the program"));
        if pinned.is_err() {
            pin::remove(&folder)?;
        }
        pinned
    }
}

/// Ends what is pinned on a cgroup or a device. Connections of this network namespace get the
/// windows back that they would have without it.
///
/// # Errors
///
/// [`KernelError::NotAttached`] if nothing is pinned there.
pub fn detach(target: &Target) -> Result<(), KernelError> {
    require_root("detach programs")?;
    have_libbpf_log();
    match PinFolder::of(target.place()?).find() {
        Some(folder) => end(&folder),
        None => Err(KernelError::NotAttached(Some(target.to_string()))),
    }
}

/// Ends all that is pinned, as [`detach`] does.
///
/// # Errors
///
/// [`KernelError::NotAttached`] if there is nothing, [`KernelError::NotEnded`] with the reasons of
/// each that failed; the others are ended all the same.
pub fn detach_all() -> Result<(), KernelError> {
    require_root("detach programs")?;
    have_libbpf_log();
    let folders = pin::folders(PREFIX);
    if folders.is_empty() {
        return Err(KernelError::NotAttached(None));
    }
    let failed: Vec<_> = folders.iter().filter_map(|folder| end(folder).err()).collect();
    if failed.is_empty() { Ok(()) } else { Err(KernelError::NotEnded(failed)) }
}

/// The programs go first, so that they take no window back. To remove their pins would end them as
/// well, but later than that returns; it is done even where something else fails.
fn end(folder: &Path) -> Result<(), KernelError> {
    let detached = controls(folder).try_for_each(|pinned| {
        let link = Link::open(&pinned).map_err(KernelError::bpf("open the program's pin"))?;
        link.detach().map_err(KernelError::bpf("detach the program"))
    });
    let release = folder.join(RELEASE);
    let released = if release.exists() {
        fs::read(&release).map(drop).map_err(KernelError::file("read", release))
    } else {
        Ok(())
    };
    detached.and(released).and(pin::remove(folder))
}

/// What has windows changed.
fn controls(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| !path.ends_with(RELEASE))
}

/// The numbers of the links that are pinned.
pub(super) fn pinned_links() -> HashSet<u32> {
    let number = |pinned| Some(Link::open(pinned).ok()?.info().ok()?.id);
    pin::folders(PREFIX).iter().flat_map(|folder| controls(folder)).filter_map(number).collect()
}

/// With its cgroup or device a program goes as well; only its pin stays. The kernel tells: a cgroup
/// may be out of sight, in a namespace of its own, and yet be there.
pub(super) fn remove_deserted() -> Result<(), KernelError> {
    let is_deserted = |pinned: PathBuf| {
        let info = Link::open(pinned).and_then(|link| link.info());
        info.is_ok_and(|link| Place::of_link(&link.info, 0).is_none())
    };
    pin::folders(PREFIX)
        .into_iter()
        .filter(|folder| controls(folder).any(is_deserted))
        .try_for_each(|folder| pin::remove(&folder))
}

/// Reads an iterator to its end, which is what makes it work.
pub(super) fn read_to_end(iterator: &Link) -> Result<(), KernelError> {
    let mut reader = Iter::new(iterator).map_err(KernelError::bpf("list the connections"))?;
    reader
        .read_to_end(&mut Vec::new())
        .map(drop)
        .map_err(KernelError::file("read", "the connections"))
}
