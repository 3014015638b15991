//! Attached programs and their statistics.

use std::cmp::Reverse;
use std::fs;
use std::net::Ipv6Addr;

use freshline_core::unit::{BitRate, Bytes, Packets, Span};
use freshline_system::netlink::Route;
use libbpf_rs::MapHandle;
use libbpf_rs::query::LinkTypeInfo;

use super::constants::Constants;
use super::flow::{Account, RoundTrips, StreamReport};
use super::measured::unmanaged_delay;
use super::shaper::{self, BandQueue};
use super::{Band, Below, FLOWS, PIN_PREFIX, pin_name};
use crate::device::{Device, own_netns};
use crate::error::{KernelError, require_root};
use crate::maps;
use crate::pin::{self, CONTROL, Folder};
use crate::programs::{Attached, attached};
use crate::root;

/// The program's name, by which it is found.
const PROGRAM: &str = "freshline_sorpc";
/// The suffix of the name of the map of a program's constants.
const CONSTANTS: &str = ".rodata";
/// The length of a `struct row`.
const ROW: usize = 120;

/// The program on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// The device's name when it was attached.
    pub device: String,
    /// Whether the device is in another network namespace than the calling thread.
    pub other_namespace: bool,
    /// Whether it is pinned, so that it outlives processes; `None` if pins are hidden
    /// ([`KernelError::HiddenPins`]), and its streams are then unknown, too.
    pub pinned: Option<bool>,
    /// A stream is bulk once this fraction of its send buffer is filled.
    pub threshold: f64,
    /// Whether only the packets of one cgroup may be bulk.
    pub confined: bool,
    /// The shaping rate, if it is shaped.
    pub rate: Option<BitRate>,
    /// The queue below its queueing disciplines; `None` in other network namespaces.
    pub lower_queue: Option<Below>,
    /// The measured delay of uploads that bands cannot control: by how much the round trip of an
    /// upload exceeds its minimum, minus the delay in the device's queueing disciplines. `None`
    /// without uploads, and in other network namespaces.
    pub unmanaged_delay: Option<Span>,
    /// Whether it was to be shaped, but another program has replaced the shaper; unknown in other
    /// network namespaces.
    pub replaced: bool,
    /// The bands, in the order of service.
    pub bands: [BandReport; 3],
    /// Open streams of the network namespace of this process that have sent data, the latest first.
    pub flows: Vec<StreamReport>,
    /// The number of its runs, and their total time, while `kernel.bpf_stats_enabled` was set.
    pub runs: u64,
    /// See [`Attachment::runs`].
    pub run_time: Span,
}

/// The packets of a band.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BandReport {
    /// The band.
    pub band: Band,
    /// The packets that were put into it.
    pub sent: Account,
    /// The bytes queued in it now, if it is shaped, in this network namespace.
    pub backlog: Option<Bytes>,
    /// The packets dropped because it was full, likewise.
    pub drops: Option<Packets>,
}

/// Every device with the program, held by any process or pin, in any network namespace.
///
/// # Errors
///
/// Without root: the kernel reports programs only to root.
pub fn attachments() -> Result<Vec<Attachment>, KernelError> {
    require_root("ask the kernel for its programs")?;
    let netns = own_netns()?;
    let mut found = Vec::new();
    for one in live() {
        match constants(&one) {
            Ok(constants) => found.push(attachment(&one, constants, netns)?),
            Err(error) => tracing::warn!("{error}"),
        }
    }
    Ok(found)
}

/// The remains of an attachment of a killed process: the program is detached, and the rest stays
/// until [`detach`](super::detach).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The device's name when it was attached.
    pub device: String,
    /// The rate to which the shaper still shapes, if there is a shaper.
    pub rate: Option<BitRate>,
}

/// Every device of this network namespace on which a killed process left a shaper, or a record of
/// one. Waits for commands that are attaching or detaching.
///
/// # Errors
///
/// Without root, or if the kernel does not list its queueing disciplines.
pub fn orphans() -> Result<Vec<Orphan>, KernelError> {
    require_root("ask the kernel for its programs")?;
    let all = || match Folder::all(PIN_PREFIX) {
        Err(KernelError::HiddenPins) => Ok(Vec::new()),
        folders => folders,
    };
    if all()?.is_empty() {
        return Ok(Vec::new());
    }
    let _alone = pin::lock()?;
    let netns = own_netns()?;
    let mut found = Vec::new();
    for folder in all()? {
        // Without constants nothing was changed.
        let Ok(Constants { device, shaped, .. }) = Constants::open(&folder.at(super::CONSTANTS))
        else {
            continue;
        };
        if device.netns != netns || !device.exists() || is_live(&device)? {
            continue;
        }
        let mut rate = shaped.map(|(rate, _)| rate);
        if rate.is_some() {
            let bands = Route::open()
                .and_then(|mut route| shaper::bands(&mut route, device.index))
                .map_err(KernelError::device("ask for the classes of", &device.name))?;
            rate = rate.filter(|_| bands.is_some());
        }
        found.push(Orphan { device: device.name, rate });
    }
    Ok(found)
}

/// Whether the program is attached to a device, by any process or pin.
pub(super) fn is_live(device: &Device) -> Result<bool, KernelError> {
    for one in live() {
        let has_its_number =
            matches!(&one.link.info, LinkTypeInfo::Tcx(at) if at.ifindex == device.index);
        if has_its_number && constants(&one)?.device.is(device) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Programs on devices that exist.
fn live() -> impl Iterator<Item = Attached> {
    let is_on_device =
        |one: &Attached| matches!(&one.link.info, LinkTypeInfo::Tcx(at) if at.ifindex != 0);
    attached(&[PROGRAM]).into_iter().filter(is_on_device)
}

fn constants(one: &Attached) -> Result<Constants, KernelError> {
    Constants::read(one.map(CONSTANTS).ok_or(KernelError::OtherVersion)?)
}

fn attachment(one: &Attached, constants: Constants, netns: u64) -> Result<Attachment, KernelError> {
    let Constants { device, threshold_milli, confined, shaped } = constants;
    let (folder, is_hidden) = match Folder::find(&pin_name(&device)) {
        Err(KernelError::HiddenPins) => (None, true),
        found => (found?, false),
    };
    let is_pinned = folder.as_ref().is_some_and(|folder| folder.at(CONTROL).exists());
    let here = device.netns == netns;
    let mut rate = shaped.map(|(rate, _)| rate);
    let mut replaced = false;
    let mut queues = None;
    if rate.is_some() && here {
        queues = Route::open()
            .and_then(|mut route| shaper::bands(&mut route, device.index))
            .map_err(KernelError::device("ask for the classes of", &device.name))?;
        replaced = queues.is_none();
    }
    if replaced {
        rate = None;
    }
    let flows = folder.map(|folder| flows(&folder)).unwrap_or_default();
    let mut delay = None;
    if here {
        let backlog =
            Route::open().and_then(|mut route| root::backlog(&mut route, device.index)).map_err(
                KernelError::device("ask for the queueing disciplines of", &device.name),
            )?;
        delay = unmanaged_delay(&flows, backlog);
    }
    Ok(Attachment {
        other_namespace: !here,
        pinned: (!is_hidden).then_some(is_pinned),
        threshold: threshold_milli as f64 / 1e3,
        confined,
        rate,
        lower_queue: here.then(|| Below::of(&device.name)),
        replaced,
        bands: bands(one.map("bands"), queues).map_err(KernelError::bpf("read the statistics"))?,
        flows,
        unmanaged_delay: delay,
        runs: one.program.run_cnt,
        run_time: Span::from_nanos(one.program.run_time_ns),
        device: device.name,
    })
}

fn bands(
    map: Option<&MapHandle>,
    queues: Option<[BandQueue; 3]>,
) -> libbpf_rs::Result<[BandReport; 3]> {
    let report = |band: Band| -> libbpf_rs::Result<BandReport> {
        let sums = map.map(|map| maps::sums(map, band as u32)).transpose()?;
        let [packets, bytes] = sums.unwrap_or_default();
        let queue = queues.map(|bands| bands[band as usize]);
        Ok(BandReport {
            band,
            sent: account(packets, bytes),
            backlog: queue.map(|queue| queue.bytes),
            drops: queue.map(|queue| queue.drops),
        })
    };
    Ok([report(Band::Urgent)?, report(Band::Batched)?, report(Band::Bulk)?])
}

fn account(packets: u64, bytes: u64) -> Account {
    Account { packets: Packets::new(packets), bytes: Bytes::new(bytes) }
}

/// The flows from the iterator in this folder; empty if that is gone by now.
fn flows(folder: &Folder) -> Vec<StreamReport> {
    let rows = fs::read(folder.at(FLOWS)).unwrap_or_default();
    let mut found: Vec<_> = rows.chunks_exact(ROW).filter_map(flow).collect();
    found.sort_by_key(|(sent_ns, _)| Reverse(*sent_ns));
    found.into_iter().map(|(_, flow)| flow).collect()
}

/// The time of the last packet, and the `struct row` in `intf.h`.
fn flow(value: &[u8]) -> Option<(u64, StreamReport)> {
    let (address, row) = value.split_first_chunk::<16>()?;
    let row = maps::numbers(row);
    let (&[remote_port, local_port, queued, size, band, sent_ns, packets, bytes, _lane], rest) =
        row.split_first_chunk()?;
    let &[rtt_us, min_rtt_us, rate, idle_ns] = rest else { return None };
    let is_known = rtt_us > 0 && min_rtt_us < u64::from(u32::MAX);
    let smoothed = Span::from_micros(rtt_us);
    let round_trips = RoundTrips { smoothed, min: Span::from_micros(min_rtt_us) };
    let flow = StreamReport {
        remote: (Ipv6Addr::from(*address).to_canonical(), remote_port as u16).into(),
        local_port: local_port as u16,
        queued: Bytes::new(queued),
        size: Bytes::new(size),
        band: if band == Band::Bulk as u64 { Band::Bulk } else { Band::Urgent },
        sent: account(packets, bytes),
        // A paced packet has a timestamp in the future.
        idle: Span::from_nanos(u64::try_from(idle_ns.cast_signed()).unwrap_or(0)),
        round_trips: is_known.then_some(round_trips),
        rate: BitRate::from_bps(rate.saturating_mul(8)),
    };
    Some((sent_ns, flow))
}
