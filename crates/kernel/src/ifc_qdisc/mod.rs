//! Freshness control (IFC) as the queueing discipline of a device, in the kernel: `main.bpf.c`, its
//! settings, and what holds it in place.
//!
//! ```text
//!  attach ──► pinned, at the root of the device ──► stays until detach, or until the device is gone
//! ```
//!
//! Each device has a program of its own, whose maps are its queues. The kernel knows a queueing
//! discipline by its name, which all network namespaces share; so names are made of the numbers of
//! namespace and device. What was at the root before stands in a map that is pinned with the others, and
//! comes back at the end.

#[cfg(ifc_qdisc)]
mod load;
mod settings;
mod status;

use freshline_core::router::{AoiShare, RouterReport};
use freshline_core::unit::BitRate;
use freshline_system::netlink::{Handle, Qdisc, Route};
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::device::{Device, name_of, own_netns};
use crate::error::{KernelError, require_btf, require_root};
use crate::maps::numbers;
use crate::pin::{self, CONTROL, Folder};
use crate::root::{Found, cannot_read};
pub use settings::Settings;

/// Folders of pins are called so, with the numbers of their namespace and of their device.
const PIN_PREFIX: &str = "router-";
/// The type that a kernel has which takes queueing disciplines in BPF.
const OFFERED_BY: &str = "bpf_struct_ops_Qdisc_ops";
/// The first key of maps.
const FIRST: [u8; 4] = 0_u32.to_ne_bytes();
/// How many numbers stand before the attributes in a `struct found`.
const BEFORE_FOUND: usize = 2 * 8;

/// Maps that are pinned, by their names.
const SETTINGS: &str = "settings";
const BOOKS: &str = "books";
const ABOUT: &str = "about";
const SOJOURNS: &str = "sojourns";
const FLOWS: &str = "flows";
const FOUND: &str = "found";

/// What is to change while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// The share γ of the AoI class.
    pub aoi_share: Option<AoiShare>,
    /// The rate to which it shapes.
    pub rate: Option<BitRate>,
}

/// Whether this kernel and this build have the discipline.
///
/// # Errors
///
/// [`KernelError::Missing`], with what to do, if not.
pub fn offered() -> Result<(), KernelError> {
    require_btf()?;
    let has_it = Btf::from_vmlinux()
        .is_ok_and(|btf| btf.type_by_name::<types::Struct<'_>>(OFFERED_BY).is_some());
    if !has_it {
        return Err(KernelError::Missing {
            feature: "queueing disciplines in eBPF",
            remedy: "take Linux 6.16 or later with CONFIG_NET_SCH_BPF, as Debian's from 7.2 on, or \
                     `freshline router run`, which needs neither",
        });
    }
    if !cfg!(ifc_qdisc) {
        return Err(KernelError::Missing {
            feature: "a `freshline` that was built with clang 16 or later",
            remedy: "build it again with one (`scripts/setup build` installs it), or take \
                     `freshline router run`, which needs none",
        });
    }
    Ok(())
}

/// Puts the discipline at the root of a device of this network namespace, where it stays.
///
/// # Errors
///
/// Where there is no such device, or it has the discipline already; where its root could not be
/// restored afterwards; where the kernel or the rights do not suffice. Nothing is left of it then.
pub fn attach(device: &str, settings: &Settings) -> Result<(), KernelError> {
    let device = Device::named(device)?;
    require_root("put a queueing discipline in place")?;
    offered()?;
    let _alone = pin::lock()?;
    remove_deserted()?;
    if let Some(folder) = Folder::find(&pin_name(&device))? {
        // Of a command that was killed before it was done.
        let is_whole = folder.at(CONTROL).exists();
        let is_at_work = is_whole && status::is_in_place(&folder);
        if is_at_work {
            return Err(KernelError::Controlled { place: device.name, command: "router" });
        }
        remove(&folder, &device)?;
    }
    put_in_place(device, settings)
}

#[cfg(ifc_qdisc)]
fn put_in_place(device: Device, settings: &Settings) -> Result<(), KernelError> {
    load::put_in_place(device, settings)
}

#[cfg(not(ifc_qdisc))]
fn put_in_place(_: Device, _: &Settings) -> Result<(), KernelError> {
    offered()
}

/// Whether the discipline is at the root of a device. It takes neither root nor the sight of pins.
///
/// # Errors
///
/// [`KernelError::NoDevice`], and where the kernel does not tell.
pub fn is_attached(device: &str) -> Result<bool, KernelError> {
    let device = Device::named(device)?;
    let mut route = Route::open().map_err(cannot_read(&device))?;
    let all = route.qdiscs(device.index).map_err(cannot_read(&device))?;
    Ok(all.iter().any(|root| is_ours(root, &device)))
}

/// What the discipline of a device did so far and how it is set, with at most so many flows; nothing if
/// the device has none.
///
/// # Errors
///
/// [`KernelError::NoDevice`]; without root; and where pins are hidden.
pub fn report(device: &str, flows: usize) -> Result<Option<RouterReport>, KernelError> {
    let Some((device, folder)) = find(device)? else { return Ok(None) };
    status::report(&folder, &device, flows).map(Some)
}

/// Changes how the discipline of a device is set, from the next packet on; nothing is done if the device
/// has none, and that is told.
///
/// # Errors
///
/// [`KernelError::SlowRate`], and those of [`report`].
pub fn set(device: &str, change: Change) -> Result<bool, KernelError> {
    let Some((_, folder)) = find(device)? else { return Ok(false) };
    let _alone = pin::lock()?;
    let map = open(&folder, SETTINGS)?;
    let mut settings = status::settings(&map)?;
    if let Some(rate) = change.rate {
        settings.set_rate(rate)?;
    }
    if let Some(share) = change.aoi_share {
        settings.set_aoi_share(share);
    }
    write(&map, &settings.to_bytes())?;
    Ok(true)
}

/// Ends the discipline of a device: what was at its root before is there again. What waits is lost.
///
/// # Errors
///
/// [`KernelError::NotAttached`] if the device has none, and where the kernel does not take back what was
/// found.
pub fn detach(device: &str) -> Result<(), KernelError> {
    let device = Device::named(device)?;
    require_root("remove a queueing discipline")?;
    let _alone = pin::lock()?;
    match Folder::find(&pin_name(&device))? {
        Some(folder) => remove(&folder, &device),
        None => Err(KernelError::NotAttached(Some(device.name))),
    }
}

/// A device and its pins, if the discipline is at its root.
fn find(device: &str) -> Result<Option<(Device, Folder)>, KernelError> {
    let device = Device::named(device)?;
    require_root("ask the kernel for its programs")?;
    let folder = Folder::find(&pin_name(&device))?.filter(status::is_in_place);
    Ok(folder.map(|folder| (device, folder)))
}

/// Takes the discipline of a device from its root, and from the kernel.
fn remove(folder: &Folder, device: &Device) -> Result<(), KernelError> {
    if folder.at(FOUND).exists() {
        found(folder)?.restore(device, |root| is_ours(root, device))?;
    }
    folder.detach().and(folder.remove())
}

/// Removes the pins of devices that are gone, or have another root now.
fn remove_deserted() -> Result<(), KernelError> {
    let own = own_netns()?;
    for folder in Folder::all(PIN_PREFIX)? {
        let Some((netns, index)) = place_of(folder.name()) else { continue };
        let is_gone = netns == own && name_of(index).is_none();
        // No other command is at work. What is not in place has no root to give back: it was killed
        // before it put the discipline there or after it took it away, or it was replaced.
        if is_gone || status::is_out_of_place(&folder) {
            folder.detach().and(folder.remove())?;
        }
    }
    Ok(())
}

/// What stood at the root before.
fn found(folder: &Folder) -> Result<Found, KernelError> {
    let value = read(&open(folder, FOUND)?)?;
    let (row, attributes) =
        value.split_at_checked(BEFORE_FOUND).ok_or(KernelError::OtherVersion)?;
    let [handle, length] = numbers(row)[..] else { return Err(KernelError::OtherVersion) };
    let attributes = attributes.get(..length as usize).ok_or(KernelError::OtherVersion)?;
    Ok(Found::from_bytes(handle as u32, attributes))
}

fn is_ours(root: &Qdisc, device: &Device) -> bool {
    root.parent == Handle::ROOT && root.kind == qdisc_name(device)
}

/// The name under which the kernel has it: at most 15 bytes, and no other device's. Of punctuation it takes
/// `_` and `.`.
fn qdisc_name(device: &Device) -> String {
    format!("fl{}_{}", base36(device.netns), base36(device.index.into()))
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    while number > 0 || digits.is_empty() {
        digits.push(char::from_digit((number % 36) as u32, 36).expect("a digit of base 36"));
        number /= 36;
    }
    digits.into_iter().rev().collect()
}

fn pin_name(device: &Device) -> String {
    format!("{PIN_PREFIX}{}-{}", device.netns, device.index)
}

/// Namespace and number of the device whose pins are in a folder of this name.
fn place_of(folder: &str) -> Option<(u64, u32)> {
    let (netns, index) = folder.strip_prefix(PIN_PREFIX)?.split_once('-')?;
    Some((netns.parse().ok()?, index.parse().ok()?))
}

fn open(folder: &Folder, name: &str) -> Result<MapHandle, KernelError> {
    MapHandle::from_pinned_path(folder.at(name))
        .map_err(KernelError::bpf("open a map of the discipline"))
}

fn read(map: &MapHandle) -> Result<Vec<u8>, KernelError> {
    let value = map.lookup(&FIRST, MapFlags::ANY);
    Ok(value.map_err(KernelError::bpf("read a map of the discipline"))?.unwrap_or_default())
}

fn write<M: MapCore>(map: &M, value: &[u8]) -> Result<(), KernelError> {
    map.update(&FIRST, value, MapFlags::ANY)
        .map_err(KernelError::bpf("write a map of the discipline"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_differ() {
        let device = |netns, index| Device { name: "eth0".to_owned(), index, netns };
        assert_eq!(qdisc_name(&device(35, 36)), "flz_10");
        assert!(qdisc_name(&device(u64::from(u32::MAX), 50_000_000)).len() <= 15);
        assert_ne!(qdisc_name(&device(1, 23)), qdisc_name(&device(12, 3)));
        assert_eq!(place_of(&pin_name(&device(4_026_531_840, 7))), Some((4_026_531_840, 7)));
        assert_eq!(place_of("router-x"), None);
    }
}
