//! Finds the queueing discipline that serves the bands of a device without a shaper.

use freshline_system::netlink::Route;

use crate::device::Device;
use crate::error::KernelError;
use crate::root::cannot_read;

/// Kinds that serve by a packet's priority: `pfifo_fast` and `prio` strictly, `fq` by weights since
/// Linux 6.7.
const WITH_BANDS: &[&str] = &["pfifo_fast", "prio", "fq"];

/// The bands of a device without a shaper: those of the first of its queueing disciplines that
/// serves by priority.
pub(super) fn bands(route: &mut Route, device: &Device) -> Result<Bands, KernelError> {
    let all = route.qdiscs(device.index).map_err(cannot_read(device))?;
    let mut kinds: Vec<_> = all.into_iter().map(|qdisc| qdisc.kind).collect();
    Ok(match kinds.iter().position(|kind| WITH_BANDS.contains(&kind.as_str())) {
        Some(at) => Bands::Theirs(kinds.swap_remove(at)),
        None => Bands::Nobodys(kinds.into_iter().next().unwrap_or_else(|| "noop".to_owned())),
    })
}

/// A band of packets that leave through a device, in the order of service (`enum band` of `law.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Band {
    /// Served before all others.
    Urgent,
    /// UDP from sockets that send super-packets (GSO): served if the urgent band is empty.
    Batched,
    /// Data of uploads: served if the other bands are empty.
    Bulk,
}

impl Band {
    /// All bands, in the order of service.
    pub const ALL: [Self; 3] = [Self::Urgent, Self::Batched, Self::Bulk];

    /// The name in tables, JSON and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::Batched => "batched",
            Self::Bulk => "bulk",
        }
    }
}

/// The provider of the bands of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bands {
    /// This project's shaper.
    Ours,
    /// A queueing discipline of this kind, which is left as it was.
    Theirs(String),
    /// No bands: the device's queueing discipline, of this kind, ignores priorities.
    Nobodys(String),
}
