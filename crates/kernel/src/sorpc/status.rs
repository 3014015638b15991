//! What is attached where, and what it has done so far.

use std::cmp::Reverse;
use std::fs;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;

use freshline_core::host::Band;
use freshline_core::unit::{BitRate, Bytes, Packets, Span};
use libbpf_rs::query::{
    LinkInfoIter, LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions, ProgramInfo,
};
use libbpf_rs::{MapCore, MapHandle};

use super::constants::Constants;
use super::{CONTROL, FLOWS, PIN_PREFIX, pin_name, shaper};
use crate::device::{Device, own_netns};
use crate::error::{KernelError, require_root};
use crate::qdisc::{TrafficControl, Waiting};
use crate::{maps, pin};

/// The program's name, by which it is found again.
const PROGRAM: &str = "freshline_sorpc";
/// How the name of the map of a program's constants ends.
const CONSTANTS: &str = ".rodata";
/// The length of a `struct row`.
const ROW: usize = 88;

/// The program on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// The device's name when it was attached.
    pub device: String,
    /// Whether the device is in another network namespace than the calling thread.
    pub elsewhere: bool,
    /// Whether it is pinned, so that it outlives processes.
    pub pinned: bool,
    /// From which part of its send buffer on a stream is bulk.
    pub threshold: f64,
    /// Whether only the packets of one cgroup may be bulk.
    pub confined: bool,
    /// The rate to which is shaped, if it is.
    pub rate: Option<BitRate>,
    /// Whether it was to be shaped, and somebody has put something else in place of our shaper; of
    /// other network namespaces that is not known.
    pub replaced: bool,
    /// The urgent band and the bulk band.
    pub bands: [BandReport; 2],
    /// Streams that are open and have sent data, the latest first.
    pub flows: Vec<Flow>,
    /// How often it ran, and for how long in all, while `kernel.bpf_stats_enabled` was set.
    pub runs: u64,
    /// See [`Attachment::runs`].
    pub run_time: Span,
}

/// Packets; each segment of a super-packet counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// How many.
    pub packets: Packets,
    /// With all headers, those of a super-packet once.
    pub bytes: Bytes,
}

/// What became of a band's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BandReport {
    /// Which.
    pub band: Band,
    /// What was put into it.
    pub sent: Account,
    /// What waits in it now, if it is shaped, in this network namespace.
    pub backlog: Option<Bytes>,
    /// How many packets met it full, likewise.
    pub drops: Option<Packets>,
}

/// A TCP stream of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Its other end.
    pub remote: SocketAddr,
    /// Its port here.
    pub local_port: u16,
    /// What was in its send buffer with its last packet, and what that held, in bytes of memory.
    pub queued: Bytes,
    /// See [`Flow::queued`].
    pub size: Bytes,
    /// The band of its last packet.
    pub band: Band,
    /// What it has sent, in either band.
    pub sent: Account,
}

/// Every device that the program is attached to, whoever holds it and in whatever network namespace.
///
/// # Errors
///
/// Without root: the kernel tells nobody else.
pub fn attachments() -> Result<Vec<Attachment>, KernelError> {
    require_root("ask the kernel for its programs")?;
    let netns = own_netns()?;
    live()?.into_iter().map(|one| attachment(one, netns)).collect()
}

/// Whether the program is attached to a device, whoever holds it.
pub(super) fn is_live(device: &Device) -> Result<bool, KernelError> {
    Ok(live()?.iter().any(|one| one.constants.device.is(device)))
}

/// A program on a device that exists.
struct Live {
    program: ProgramInfo,
    maps: Vec<MapHandle>,
    constants: Constants,
}

fn live() -> Result<Vec<Live>, KernelError> {
    let with_maps = ProgInfoQueryOptions::default().include_map_ids(true);
    let programs: Vec<_> = ProgInfoIter::with_query_opts(with_maps)
        .filter(|program| program.name == PROGRAM)
        .collect();
    let mut found = Vec::new();
    for link in LinkInfoIter::default() {
        let program = programs.iter().find(|program| program.id == link.prog_id);
        let is_on_device = matches!(link.info, LinkTypeInfo::Tcx(at) if at.ifindex != 0);
        let Some(program) = program.filter(|_| is_on_device) else { continue };
        // It may end while we look.
        let Ok(maps) = maps::of(program) else { continue };
        let named = |map: &&MapHandle| map.name().to_string_lossy().ends_with(CONSTANTS);
        let constants = maps.iter().find(named).ok_or(KernelError::OtherVersion)?;
        let constants = Constants::read(constants)?;
        found.push(Live { program: program.clone(), maps, constants });
    }
    Ok(found)
}

fn attachment(one: Live, netns: u64) -> Result<Attachment, KernelError> {
    let Live { program, maps, constants } = one;
    let Constants { device, threshold_milli, confined, shaped } = constants;
    let name = pin_name(device.netns, &device.index.to_string());
    let folder = pin::folders(PIN_PREFIX).into_iter().find(|folder| folder.ends_with(&name));
    let here = device.netns == netns;
    let mut rate = shaped.map(|(rate, _)| rate);
    let mut replaced = false;
    let mut waiting = None;
    if rate.is_some() && here {
        waiting = TrafficControl::open()
            .and_then(|traffic| shaper::waiting(&traffic, device.index))
            .map_err(KernelError::device("ask for the classes of", &device.name))?;
        replaced = waiting.is_none();
    }
    if replaced {
        rate = None;
    }
    Ok(Attachment {
        elsewhere: !here,
        pinned: folder.as_ref().is_some_and(|folder| folder.join(CONTROL).exists()),
        threshold: threshold_milli as f64 / 1e3,
        confined,
        rate,
        replaced,
        bands: bands(&maps, waiting).map_err(KernelError::bpf("read the statistics"))?,
        flows: folder.map(|folder| flows(&folder)).unwrap_or_default(),
        runs: program.run_cnt,
        run_time: Span::from_nanos(program.run_time_ns),
        device: device.name,
    })
}

fn bands(maps: &[MapHandle], waiting: Option<[Waiting; 2]>) -> libbpf_rs::Result<[BandReport; 2]> {
    let map = maps.iter().find(|map| map.name() == "bands");
    let report = |band: Band| -> libbpf_rs::Result<BandReport> {
        let sums = map.map(|map| maps::sums(map, band as u32)).transpose()?;
        let [packets, bytes] = sums.unwrap_or_default();
        let waiting = waiting.map(|bands| bands[band as usize]);
        Ok(BandReport {
            band,
            sent: account(packets, bytes),
            backlog: waiting.map(|waiting| Bytes::new(waiting.bytes)),
            drops: waiting.map(|waiting| Packets::new(waiting.drops)),
        })
    };
    Ok([report(Band::Urgent)?, report(Band::Bulk)?])
}

fn account(packets: u64, bytes: u64) -> Account {
    Account { packets: Packets::new(packets), bytes: Bytes::new(bytes) }
}

/// From the list in this folder; none if that is gone by now.
fn flows(folder: &Path) -> Vec<Flow> {
    let rows = fs::read(folder.join(FLOWS)).unwrap_or_default();
    let mut found: Vec<_> = rows.chunks_exact(ROW).filter_map(flow).collect();
    found.sort_by_key(|(sent_ns, _)| Reverse(*sent_ns));
    found.into_iter().map(|(_, flow)| flow).collect()
}

/// When it sent last, and `struct row` in `intf.h`.
fn flow(value: &[u8]) -> Option<(u64, Flow)> {
    let (address, row) = value.split_first_chunk::<16>()?;
    let [remote_port, local_port, queued, size, band, sent_ns, packets, bytes, _lane] =
        maps::numbers(row)[..]
    else {
        return None;
    };
    let flow = Flow {
        remote: (Ipv6Addr::from(*address).to_canonical(), remote_port as u16).into(),
        local_port: local_port as u16,
        queued: Bytes::new(queued),
        size: Bytes::new(size),
        band: if band == Band::Bulk as u64 { Band::Bulk } else { Band::Urgent },
        sent: account(packets, bytes),
    };
    Some((sent_ns, flow))
}
