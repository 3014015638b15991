//! The pins that keep programs attached, and how they are removed.

use std::collections::HashSet;
use std::fs;
use std::io::Read;

use libbpf_rs::{Iter, Link};

use super::{COMMAND, Place, Target, live};
use crate::KernelError;
use crate::cgroup::Cgroup;
use crate::device::own_netns;
use crate::error::require_root;
use crate::pin::{self, Folder};

/// The prefixes of folder names: of all, of cgroups and of devices.
pub(super) const PREFIX: &str = "receiver-";
const CGROUP: &str = "receiver-cgroup-";
const DEVICE: &str = "receiver-dev-";
/// The two programs on a device.
pub(super) const CONTROLS: [&str; 2] = ["control-in", "control-out"];
/// The iterator that restores the windows of connections.
const RELEASE: &str = "release";

fn name(place: Place) -> String {
    match place {
        Place::Cgroup { id } => format!("{CGROUP}{id}"),
        Place::Device { netns, index } => format!("{DEVICE}{netns}-{index}"),
    }
}

/// The place whose pins are in a folder of this name.
fn place_of(folder: &str) -> Option<Place> {
    if let Some(id) = folder.strip_prefix(CGROUP) {
        return Some(Place::Cgroup { id: id.parse().ok()? });
    }
    let (netns, index) = folder.strip_prefix(DEVICE)?.split_once('-')?;
    Some(Place::Device { netns: netns.parse().ok()?, index: index.parse().ok()? })
}

/// Begins the journal of a place, before anything changes there: first completes the journal of a
/// killed command, then pins the iterator that restores the windows of connections. Records nothing
/// if pins are hidden or cannot be created: a process that holds the programs needs no pins, and
/// [`fill`] fails later. Needs the lock.
pub(super) fn begin(place: Place, release: Option<&mut Link>) -> Result<(), KernelError> {
    let begun = || {
        if let Some(left) = Folder::find(&name(place))? {
            end(&left)?;
        }
        let Some(release) = release else { return Ok(()) };
        let folder = Folder::create(&name(place))?;
        release.pin(folder.at(RELEASE)).map_err(KernelError::bpf("pin the program"))
    };
    match begun() {
        Err(KernelError::HiddenPins | KernelError::NoPins { .. }) => Ok(()),
        begun => begun,
    }
}

/// Pins the programs that are attached at a place. Needs the lock.
pub(super) fn fill(place: Place, control: &mut [(&'static str, Link)]) -> Result<(), KernelError> {
    let folder = match Folder::find(&name(place))? {
        Some(folder) => folder,
        None => Folder::create(&name(place))?,
    };
    control
        .iter_mut()
        .try_for_each(|(name, link)| link.pin(folder.at(name)))
        .map_err(KernelError::bpf("pin the program"))
}

/// Completes the journal of a place whose programs are gone, if there is one. Needs the lock.
pub(super) fn complete(place: Place) -> Result<(), KernelError> {
    match Folder::find(&name(place)) {
        Ok(Some(folder)) => end(&folder),
        Ok(None) | Err(KernelError::HiddenPins) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes the pins of a cgroup or a device, including those of removed ones. Connections of this
/// network namespace get the windows back that they would have without control.
///
/// # Errors
///
/// [`KernelError::NotAttached`] if nothing is pinned there.
pub fn detach(target: &Target) -> Result<(), KernelError> {
    require_root("detach programs")?;
    let _alone = pin::lock()?;
    let alike = match target {
        Target::Cgroup(_) => CGROUP.to_owned(),
        Target::Device(_) => format!("{DEVICE}{}-", own_netns()?),
    };
    let gone = remove_deserted(&alike)?;
    let place = match target.place() {
        // Pins do not have the name of the target.
        Err(_) if !gone.is_empty() => return Ok(()),
        place => place?,
    };
    match Folder::find(&name(place))? {
        Some(folder) if is_held(&folder) => {
            Err(KernelError::Controlled { place: target.to_string(), command: COMMAND })
        }
        Some(folder) => end(&folder),
        // A killed command had begun to remove it.
        None if gone.contains(&name(place)) => Ok(()),
        None => Err(KernelError::NotAttached(Some(target.to_string()))),
    }
}

/// Removes all pins, like [`detach`].
///
/// # Errors
///
/// [`KernelError::NotAttached`] if there are no pins, [`KernelError::NotEnded`] with the reasons of
/// each failure; the others are removed regardless.
pub fn detach_all() -> Result<(), KernelError> {
    require_root("detach programs")?;
    let _alone = pin::lock()?;
    let gone = remove_deserted(PREFIX)?;
    let mut folders = Folder::all(PREFIX)?;
    folders.retain(|folder| !is_held(folder));
    if folders.is_empty() && gone.is_empty() {
        return Err(KernelError::NotAttached(None));
    }
    KernelError::of_all(folders.iter().map(end))
}

/// Whether a process holds the programs, not a pin.
fn is_held(folder: &Folder) -> bool {
    let place = || place_of(folder.name());
    !folder.has_controls() && live::places().into_iter().any(|live| Some(live) == place())
}

/// Detaches the programs first, so that they do not change windows again, and removes the record
/// last, even if another step fails.
fn end(folder: &Folder) -> Result<(), KernelError> {
    let detached = folder.detach();
    let release = folder.at(RELEASE);
    let released = if release.exists() {
        fs::read(&release).map(drop).map_err(KernelError::file("read", release))
    } else {
        Ok(())
    };
    let removed = folder.remove();
    detached.and(released).and(removed)
}

/// The IDs of the pinned links.
pub(super) fn pinned_links() -> Result<HashSet<u32>, KernelError> {
    let folders = Folder::all(PREFIX)?;
    let links = folders.iter().filter_map(|folder| folder.controls().ok()).flatten();
    Ok(links.filter_map(|link| Some(link.info().ok()?.id)).collect())
}

/// Removes the pins of removed cgroups and devices, and of detached links, in folders whose names
/// begin with `prefix`, and returns these names.
pub(super) fn remove_deserted(prefix: &str) -> Result<Vec<String>, KernelError> {
    let mut gone = Folder::all(prefix)?;
    gone.retain(|folder| folder.is_deserted() || is_left(folder));
    gone.iter().try_for_each(end)?;
    Ok(gone.iter().map(|folder| folder.name().to_owned()).collect())
}

/// Whether a folder belongs to a killed command, and no windows have to be restored: there is no
/// record, the cgroup is gone, or only one of a device's two programs is pinned. A cgroup in which
/// a process holds programs is not gone, but is in another cgroup namespace. Needs the lock.
fn is_left(folder: &Folder) -> bool {
    let is_over = || match place_of(folder.name()) {
        Some(Place::Cgroup { id }) => Cgroup::find(id).is_none() && !is_held(folder),
        _ => false,
    };
    let is_half = || {
        folder.name().starts_with(DEVICE) && CONTROLS.iter().any(|name| !folder.at(name).exists())
    };
    is_half() || !folder.has_controls() && (!folder.at(RELEASE).exists() || is_over())
}

/// Reads an iterator to its end; reading runs its program.
pub(super) fn read_to_end(iterator: &Link) -> Result<(), KernelError> {
    let mut reader = Iter::new(iterator).map_err(KernelError::bpf("list the connections"))?;
    reader
        .read_to_end(&mut Vec::new())
        .map(drop)
        .map_err(KernelError::file("read", "the connections"))
}
