//! What keeps programs in place, and how it ends.

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

/// What the names of folders begin with; those of cgroups, and those of devices.
pub(super) const PREFIX: &str = "receiver-";
const CGROUP: &str = "receiver-cgroup-";
const DEVICE: &str = "receiver-dev-";
/// The two programs on a device.
pub(super) const CONTROLS: [&str; 2] = ["control-in", "control-out"];
/// The iterator that gives connections their windows back.
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

/// Begins the journal of a place, before anything changes there: completes what a killed command left,
/// then pins the iterator that gives connections their windows back. Nothing is recorded where pins are
/// hidden or cannot be made: a process that holds the programs needs no pins, and [`fill`] fails later. Needs
/// the lock.
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

/// Ends what is pinned on a cgroup or a device, or was on one that is gone. Connections of this
/// network namespace get the windows back that they would have without it.
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
        // What it was called no pin tells.
        Err(_) if !gone.is_empty() => return Ok(()),
        place => place?,
    };
    match Folder::find(&name(place))? {
        Some(folder) if is_held(&folder) => {
            Err(KernelError::Controlled { place: target.to_string(), command: COMMAND })
        }
        Some(folder) => end(&folder),
        // A killed command had begun to end it.
        None if gone.contains(&name(place)) => Ok(()),
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
    let _alone = pin::lock()?;
    let gone = remove_deserted(PREFIX)?;
    let mut folders = Folder::all(PREFIX)?;
    folders.retain(|folder| !is_held(folder));
    if folders.is_empty() && gone.is_empty() {
        return Err(KernelError::NotAttached(None));
    }
    KernelError::of_all(folders.iter().map(end))
}

/// Whether a process holds the programs, and not a pin.
fn is_held(folder: &Folder) -> bool {
    let place = || place_of(folder.name());
    !folder.has_controls() && live::places().into_iter().any(|live| Some(live) == place())
}

/// The programs go first, so that they take no window back, and the record last. It goes even where
/// something else fails.
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

/// The numbers of the links that are pinned.
pub(super) fn pinned_links() -> Result<HashSet<u32>, KernelError> {
    let folders = Folder::all(PREFIX)?;
    let links = folders.iter().filter_map(|folder| folder.controls().ok()).flatten();
    Ok(links.filter_map(|link| Some(link.info().ok()?.id)).collect())
}

/// Ends what is pinned for cgroups and devices that are gone, and for links that were detached, in
/// folders whose names begin with `prefix`, and gives these names.
pub(super) fn remove_deserted(prefix: &str) -> Result<Vec<String>, KernelError> {
    let mut gone = Folder::all(prefix)?;
    gone.retain(|folder| folder.is_deserted() || is_left(folder));
    gone.iter().try_for_each(end)?;
    Ok(gone.iter().map(|folder| folder.name().to_owned()).collect())
}

/// Whether a folder is of a killed command, and no window has to be given back: there is no record, the
/// cgroup is gone, or only one of a device's two programs is pinned. A cgroup in which a process holds
/// programs is not gone, but in a cgroup namespace of its own. Needs the lock.
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

/// Reads an iterator to its end, which is what makes it work.
pub(super) fn read_to_end(iterator: &Link) -> Result<(), KernelError> {
    let mut reader = Iter::new(iterator).map_err(KernelError::bpf("list the connections"))?;
    reader
        .read_to_end(&mut Vec::new())
        .map(drop)
        .map_err(KernelError::file("read", "the connections"))
}
