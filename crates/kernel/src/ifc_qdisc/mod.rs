//! Freshness control (IFC) as the queueing discipline of a device, in the kernel: loads
//! `main.bpf.c`, installs it, changes its settings, reads its counters, and removes it.
//!
//! ```text
//!  attach ──► pinned, at the root of the device ──► stays until detach or the end of the device
//! ```
//!
//! Each device has its own instance of the program, whose maps are the queues. The kernel
//! identifies a queueing discipline by a name that is unique among all network namespaces, so the
//! name contains the numbers of namespace and device. The previous root discipline is saved in a
//! pinned map, and restored when this one is removed.

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

/// The prefix of folders of pins; the numbers of namespace and device follow.
const PIN_PREFIX: &str = "router-";
/// The kernel has this type if it accepts queueing disciplines in BPF.
const OFFERED_BY: &str = "bpf_struct_ops_Qdisc_ops";
/// The key of the only value of a map.
const FIRST: [u8; 4] = 0_u32.to_ne_bytes();
/// The length of the numbers before the attributes in a `struct found`, in bytes.
const BEFORE_FOUND: usize = 2 * 8;

/// The names of pinned maps.
const SETTINGS: &str = "settings";
const BOOKS: &str = "books";
const ABOUT: &str = "about";
const SOJOURNS: &str = "sojourns";
const FLOWS: &str = "flows";
const FOUND: &str = "found";

/// A change of settings of a running discipline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// The share γ of the AoI class.
    pub aoi_share: Option<AoiShare>,
    /// The rate of its shaper.
    pub rate: Option<BitRate>,
}

/// Checks that this kernel and this build support the discipline.
///
/// # Errors
///
/// [`KernelError::Missing`], with a remedy, if not.
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

/// Installs the discipline at the root of a device of this network namespace, where it stays after
/// this process has ended.
///
/// # Errors
///
/// If there is no such device; if it has the discipline already; if its present root discipline
/// could not be restored later; if the kernel or this build does not support the discipline;
/// without root. After an error, nothing is left installed.
pub fn attach(device: &str, settings: &Settings) -> Result<(), KernelError> {
    let device = Device::named(device)?;
    require_root("put a queueing discipline in place")?;
    offered()?;
    let _alone = pin::lock()?;
    remove_deserted()?;
    if let Some(folder) = Folder::find(&pin_name(&device))? {
        // Without the discipline in place, the folder is left over from a command that was killed.
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

/// Whether the discipline is at the root of a device. Needs neither root nor access to pins.
///
/// # Errors
///
/// [`KernelError::NoDevice`], and if the kernel does not report the disciplines of the device.
pub fn is_attached(device: &str) -> Result<bool, KernelError> {
    let device = Device::named(device)?;
    let mut route = Route::open().map_err(cannot_read(&device))?;
    let all = route.qdiscs(device.index).map_err(cannot_read(&device))?;
    Ok(all.iter().any(|root| is_ours(root, &device)))
}

/// The counters and settings of the discipline of a device, with at most `flows` flows; `None` if
/// the device does not have the discipline.
///
/// # Errors
///
/// [`KernelError::NoDevice`]; without root; and if the pins are not accessible.
pub fn report(device: &str, flows: usize) -> Result<Option<RouterReport>, KernelError> {
    let Some((device, folder)) = find(device)? else { return Ok(None) };
    status::report(&folder, &device, flows).map(Some)
}

/// Changes settings of the discipline of a device, from the next packet on. Returns `false` if the
/// device does not have the discipline.
///
/// # Errors
///
/// [`KernelError::SlowRate`], and the errors of [`report`].
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

/// Removes the discipline of a device, and restores its previous root discipline. Queued packets
/// are lost.
///
/// # Errors
///
/// [`KernelError::NotAttached`] if the device does not have the discipline, and if the kernel
/// refuses the previous one.
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

/// Removes the discipline from the root of a device, and its program from the kernel.
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
        // No other command runs now. A discipline that is not installed has no root to restore:
        // either its command was killed before it was installed or after it was removed, or another
        // root discipline has replaced it.
        if is_gone || status::is_out_of_place(&folder) {
            folder.detach().and(folder.remove())?;
        }
    }
    Ok(())
}

/// The previous root discipline.
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

/// Its name in the kernel: at most 15 bytes, and unique per device. The only punctuation that the
/// kernel accepts is `_` and `.`.
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

/// The numbers of namespace and device in the name of a folder of pins.
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
