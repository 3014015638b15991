//! The registration, its counters, and the connections that have chosen the congestion control.

use std::net::{Ipv6Addr, SocketAddr};

use freshline_core::unit::{Bytes, Span};
use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;

use super::{FIRST, NAME, PINS, Settings, sockets};
use crate::error::{KernelError, require_root};
use crate::maps::{numbers, sums};
use crate::pin::{self, CONTROL, Folder};

/// The name of the program whose maps are read.
const PROGRAM: &str = "freshline_acked";
/// The length of a `struct row` of `intf.h`.
const ROW: usize = 88;

/// The congestion control, registered.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// Whether it is pinned, so that it outlives processes; `None` if pins are hidden
    /// ([`KernelError::HiddenPins`]).
    pub pinned: Option<bool>,
    /// Its settings.
    pub settings: Settings,
    /// Its counters.
    pub counters: Counters,
    /// The connections of this network namespace that have chosen it.
    pub connections: Vec<Connection>,
}

/// Sums over the connections of all network namespaces since it was registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Connections opened with it.
    pub connections_opened: u64,
    /// Segments with data, including retransmissions.
    pub segments: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Fast retransmits.
    pub fast_retransmits: u64,
}

/// A TCP connection that has chosen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The remote end.
    pub remote: SocketAddr,
    /// The local port.
    pub local_port: u16,
    /// The congestion window, in segments.
    pub window: u64,
    /// The size of a full segment.
    pub segment: Bytes,
    /// The law's count of its segments; halved from time to time if there is a memory.
    pub segments: u64,
    /// See [`Connection::segments`].
    pub timeouts: u64,
    /// See [`Connection::segments`].
    pub fast_retransmits: u64,
    /// The smoothed round trip; `None` before the first one.
    pub round_trip: Option<Span>,
    /// TXP.
    pub period: Span,
}

impl Connection {
    /// Timeouts and fast retransmits over segments sent.
    #[must_use]
    pub fn loss(&self) -> f64 {
        let losses = self.timeouts + self.fast_retransmits;
        if self.segments == 0 { 0.0 } else { losses as f64 / self.segments as f64 }
    }
}

/// The congestion control if it is registered by any process or pin.
///
/// # Errors
///
/// Without root: the kernel reports programs only to root. [`KernelError::OtherVersion`] if it
/// belongs to another version.
pub fn attachment() -> Result<Option<Attachment>, KernelError> {
    require_root("ask the kernel for its programs")?;
    let _alone = pin::lock()?;
    let Some(maps) = maps() else { return Ok(None) };
    let pinned = match Folder::find(PINS) {
        Ok(folder) => Some(folder.is_some_and(|folder| folder.at(CONTROL).exists())),
        Err(KernelError::HiddenPins) => None,
        Err(error) => return Err(error),
    };
    let settings = maps
        .settings
        .lookup(&FIRST, MapFlags::ANY)
        .map_err(KernelError::bpf("read the settings"))?
        .unwrap_or_default();
    Ok(Some(Attachment {
        pinned,
        settings: Settings::from_numbers(&numbers(&settings)).ok_or(KernelError::OtherVersion)?,
        counters: counters(&maps.counters).map_err(KernelError::bpf("read the statistics"))?,
        connections: connections()?,
    }))
}

/// Whether its link exists.
pub(super) fn is_registered() -> bool {
    let is_it = |link: LinkTypeInfo| match link {
        LinkTypeInfo::StructOps(at) => {
            MapHandle::from_map_id(at.map_id).is_ok_and(|map| map.name() == NAME)
        }
        _ => false,
    };
    LinkInfoIter::default().any(|link| is_it(link.info))
}

/// The maps that its programs share.
pub(super) struct Maps {
    pub(super) settings: MapHandle,
    counters: MapHandle,
}

/// The maps of the registered one.
pub(super) fn maps() -> Option<Maps> {
    if !is_registered() {
        return None;
    }
    let with_maps = ProgInfoQueryOptions::default().include_map_ids(true);
    // A previously registered one lives on with its last connection; the newest one is registered.
    let program = ProgInfoIter::with_query_opts(with_maps)
        .filter(|program| program.name == PROGRAM)
        .max_by_key(|program| program.load_time)?;
    let named = |name: &str| {
        let mut all = program.map_ids.iter().filter_map(|id| MapHandle::from_map_id(*id).ok());
        all.find(|map| map.name() == name)
    };
    Some(Maps { settings: named("settings")?, counters: named("counters")? })
}

/// In the order of `enum counter` in `intf.h`.
fn counters(map: &MapHandle) -> libbpf_rs::Result<Counters> {
    let sum = |counter| sums(map, counter).map(|[sum]| sum);
    Ok(Counters {
        connections_opened: sum(0)?,
        segments: sum(1)?,
        timeouts: sum(2)?,
        fast_retransmits: sum(3)?,
    })
}

fn connections() -> Result<Vec<Connection>, KernelError> {
    Ok(sockets::list()?.chunks_exact(ROW).filter_map(connection).collect())
}

/// A `struct row` of `intf.h`.
fn connection(value: &[u8]) -> Option<Connection> {
    let (address, row) = value.split_first_chunk::<16>()?;
    let [
        remote_port,
        local_port,
        window,
        segment,
        segments,
        timeouts,
        fast_retransmits,
        srtt,
        period,
    ] = numbers(row)[..]
    else {
        return None;
    };
    Some(Connection {
        remote: (Ipv6Addr::from(*address).to_canonical(), remote_port as u16).into(),
        local_port: local_port as u16,
        window,
        segment: Bytes::new(segment),
        segments,
        timeouts,
        fast_retransmits,
        round_trip: (srtt > 0).then(|| Span::from_micros(srtt)),
        period: Span::from_micros(period),
    })
}
