//! The root of a device's queueing disciplines: what stands there, and how it comes back.

use std::io;

use netlink_packet_core::DefaultNla;
use netlink_packet_route::tc::TcHandle;

use super::shaper;
use crate::device::Device;
use crate::error::KernelError;
use crate::qdisc::{Told, TrafficControl, from_bytes, to_bytes};

/// Kinds that the kernel takes back as it tells them: without classes, and without tables that it
/// keeps to itself.
const RESTORABLE: &[&str] =
    &["pfifo", "bfifo", "pfifo_fast", "codel", "fq_codel", "fq", "sfq", "pie", "fq_pie", "cake"];

/// Kinds that go by a packet's priority.
const WITH_BANDS: &[&str] = &["pfifo_fast", "prio", "fq"];

/// The longest that a program's constants have room for (`LONGEST_FOUND`).
pub(super) const LONGEST: usize = 1024;

/// A root that was configured, or that was the kernel's own choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// 0 is the kernel's own choice.
    pub(super) handle: u32,
    attributes: Vec<DefaultNla>,
}

impl Found {
    /// What is at a device's root, if it can be put back later.
    pub(super) fn at(control: &TrafficControl, device: &Device) -> Result<Self, KernelError> {
        let own_choice = Self { handle: 0, attributes: Vec::new() };
        let mut all = control.qdiscs(device.index).map_err(cannot_read(device))?;
        let Some(at) = all.iter().position(|one| one.parent == TcHandle::ROOT) else {
            return Ok(own_choice);
        };
        let root = all.swap_remove(at);
        if root.handle == TcHandle::UNSPEC {
            return Ok(own_choice);
        }
        let kind = root.kind();
        let found = Self { handle: root.handle.into(), attributes: root.settings() };
        if RESTORABLE.contains(&kind.as_str()) && found.to_bytes().len() <= LONGEST {
            return Ok(found);
        }
        Err(KernelError::Irreplaceable { device: device.name.clone(), kind })
    }

    /// From a program's constants.
    pub(super) fn from_bytes(handle: u32, bytes: &[u8]) -> Self {
        Self { handle, attributes: from_bytes(bytes) }
    }

    /// For a program's constants.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        to_bytes(&self.attributes)
    }

    /// Puts it back in place of our shaper. What waits there is lost. A root that is not ours, since
    /// somebody else has put another there, stays.
    pub(super) fn restore(&self, device: &Device) -> Result<(), KernelError> {
        let control = TrafficControl::open().map_err(cannot_read(device))?;
        if !is_shaped(&control, device)? {
            return Ok(());
        }
        let restored = if self.handle == 0 {
            control.remove_root(device.index)
        } else {
            control.put_qdisc(
                device.index,
                TcHandle::ROOT,
                self.handle.into(),
                self.attributes.clone(),
            )
        };
        restored.map_err(KernelError::device("restore the queueing discipline of", &device.name))
    }
}

/// Whether our shaper is at a device's root.
fn is_shaped(control: &TrafficControl, device: &Device) -> Result<bool, KernelError> {
    let all = control.qdiscs(device.index).map_err(cannot_read(device))?;
    Ok(all.iter().any(shaper::is_ours))
}

/// Who serves the bands of a device if nobody changes that: the first of its queueing disciplines
/// that goes by priorities.
pub(super) fn bands(control: &TrafficControl, device: &Device) -> Result<Bands, KernelError> {
    let all = control.qdiscs(device.index).map_err(cannot_read(device))?;
    let mut kinds: Vec<_> = all.iter().map(Told::kind).collect();
    Ok(match kinds.iter().position(|kind| WITH_BANDS.contains(&kind.as_str())) {
        Some(at) => Bands::Theirs(kinds.swap_remove(at)),
        None => Bands::Nobodys(kinds.into_iter().next().unwrap_or_else(|| "noop".to_owned())),
    })
}

/// Who serves the bands of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bands {
    /// Our shaper.
    Ours,
    /// A queueing discipline of this kind, which is left as it was.
    Theirs(String),
    /// Nobody: the device's queueing discipline, of this kind, does not look at priorities.
    Nobodys(String),
}

fn cannot_read(device: &Device) -> impl FnOnce(io::Error) -> KernelError {
    KernelError::device("ask for the queueing disciplines of", &device.name)
}
