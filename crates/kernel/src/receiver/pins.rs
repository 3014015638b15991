//! What keeps programs in place, and how it ends.

use std::collections::HashSet;
use std::fs;
use std::io::Read;

use libbpf_rs::{Iter, Link};

use super::{Place, Target};
use crate::KernelError;
use crate::device::own_netns;
use crate::error::require_root;
use crate::pin::{self, Folder};

/// What the names of folders begin with; those of cgroups, and those of devices.
pub(super) const PREFIX: &str = "receiver-";
const CGROUP: &str = "receiver-cgroup-";
const DEVICE: &str = "receiver-dev-";
/// The iterator that gives connections their windows back.
const RELEASE: &str = "release";

fn name(place: Place) -> String {
    match place {
        Place::Cgroup { id } => format!("{CGROUP}{id}"),
        Place::Device { netns, index } => format!("{DEVICE}{netns}-{index}"),
    }
}

/// Pins what is attached at a place, the programs last.
pub(super) fn fill(
    place: Place,
    release: Option<&mut Link>,
    control: &mut [(&'static str, Link)],
) -> Result<(), KernelError> {
    let _alone = pin::lock()?;
    // Of one that was killed while it pinned: nobody else is attached here.
    if let Some(left) = Folder::find(&name(place))? {
        left.remove()?;
    }
    let folder = Folder::create(&name(place))?;
    let release = release.into_iter().map(|link| (RELEASE, link));
    let control = control.iter_mut().map(|(name, link)| (*name, link));
    let pinned = release
        .chain(control)
        .try_for_each(|(name, link)| link.pin(folder.at(name)))
        .map_err(KernelError::bpf("pin the program"));
    if pinned.is_err() {
        folder.remove()?;
    }
    pinned
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
    let folders = Folder::all(PREFIX)?;
    if folders.is_empty() && gone.is_empty() {
        return Err(KernelError::NotAttached(None));
    }
    KernelError::of_all(folders.iter().map(end))
}

/// The programs go first, so that they take no window back; the pins go even where something else
/// fails.
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

/// Ends what is pinned for cgroups and devices that are gone, in folders whose names begin with
/// `prefix`, and gives these names. A program that was detached by a killed command looks as if its
/// cgroup were gone: connections then get their windows back now.
pub(super) fn remove_deserted(prefix: &str) -> Result<Vec<String>, KernelError> {
    let gone: Vec<_> = Folder::all(prefix)?.into_iter().filter(Folder::is_deserted).collect();
    gone.iter().try_for_each(end)?;
    Ok(gone.iter().map(|folder| folder.name().to_owned()).collect())
}

/// Reads an iterator to its end, which is what makes it work.
pub(super) fn read_to_end(iterator: &Link) -> Result<(), KernelError> {
    let mut reader = Iter::new(iterator).map_err(KernelError::bpf("list the connections"))?;
    reader
        .read_to_end(&mut Vec::new())
        .map(drop)
        .map_err(KernelError::file("read", "the connections"))
}
