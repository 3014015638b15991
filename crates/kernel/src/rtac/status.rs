//! What is attached where, and what it has done so far.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use freshline_core::unit::{BitRate, Bytes, Span};
use libbpf_rs::query::{
    LinkInfoIter, LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions, ProgramInfo,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use serde::Serialize;

use super::{PIN_PREFIX, pin_name};
use crate::cgroup::Cgroup;
use crate::error::{KernelError, require_root};
use crate::pin;

/// The program's name, by which it is found again.
const PROGRAM: &str = "freshline_rtac";

/// The program on one cgroup.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// Where the cgroup is; nothing if it was removed.
    pub cgroup: Option<PathBuf>,
    /// Whether it is pinned, so that it outlives processes.
    pub pinned: bool,
    /// What it has done.
    pub counters: Counters,
    /// How often it ran, and for how long in all, while `kernel.bpf_stats_enabled` was set.
    pub runs: u64,
    /// See [`Attachment::runs`].
    pub run_time: Span,
    /// Whom it has heard, the latest first.
    pub peers: Vec<Peer>,
}

/// Sums over all processors since the program was attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Outgoing segments that were looked at.
    pub segments: u64,
    /// Round trips measured.
    pub round_trips: u64,
    /// Windows set.
    pub windows: u64,
    /// Windows that the kernel refused to set.
    pub refused: u64,
    /// New connections that came under control.
    pub connections: u64,
    /// Connections taken over that were there before.
    pub adopted: u64,
}

/// A remote address. All but the shortest round trip is of the connection that was heard last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peer {
    /// The address.
    pub address: IpAddr,
    /// The shortest round trip.
    pub min_rtt: Span,
    /// The smoothed round trip.
    pub rtt: Span,
    /// The rate at which data arrives.
    pub rate: BitRate,
    /// What seems to wait in the network.
    pub queue: Bytes,
    /// The window given.
    pub window: Bytes,
    /// Round trips of its connections that are over.
    pub rounds: u64,
}

/// Every cgroup that the program is attached to, whoever holds it.
///
/// # Errors
///
/// Without root: the kernel tells nobody else.
pub fn attachments() -> Result<Vec<Attachment>, KernelError> {
    require_root("ask the kernel for its programs")?;
    links().map(|(cgroup_id, program)| attachment(cgroup_id, &program)).collect()
}

/// The cgroups that the program is attached to, by their numbers, with what the kernel tells of it.
pub(super) fn links() -> impl Iterator<Item = (u64, ProgramInfo)> {
    let with_maps = ProgInfoQueryOptions::default().include_map_ids(true);
    let programs: Vec<_> = ProgInfoIter::with_query_opts(with_maps)
        .filter(|program| program.name == PROGRAM)
        .collect();
    LinkInfoIter::default().filter_map(move |link| {
        let LinkTypeInfo::Cgroup(at) = link.info else { return None };
        let program = programs.iter().find(|program| program.id == link.prog_id)?;
        Some((at.cgroup_id, program.clone()))
    })
}

fn attachment(cgroup_id: u64, program: &ProgramInfo) -> Result<Attachment, KernelError> {
    let cannot = || KernelError::bpf("read the statistics");
    let maps = program
        .map_ids
        .iter()
        .map(|id| MapHandle::from_map_id(*id))
        .collect::<libbpf_rs::Result<Vec<_>>>()
        .map_err(cannot())?;
    let named = |name| maps.iter().find(|map| map.name() == name);
    Ok(Attachment {
        cgroup: Cgroup::find(cgroup_id).map(|cgroup| cgroup.path),
        pinned: pin::folders(PIN_PREFIX).iter().any(|pinned| pinned.ends_with(pin_name(cgroup_id))),
        counters: named("counters")
            .map(counters)
            .transpose()
            .map_err(cannot())?
            .unwrap_or_default(),
        peers: named("peers").map(peers).transpose().map_err(cannot())?.unwrap_or_default(),
        runs: program.run_cnt,
        run_time: Span::from_nanos(program.run_time_ns),
    })
}

/// In the order of `enum counter` in `intf.h`.
fn counters(map: &MapHandle) -> libbpf_rs::Result<Counters> {
    let sum = |counter: u32| -> libbpf_rs::Result<u64> {
        let of_each = map.lookup_percpu(&counter.to_ne_bytes(), MapFlags::ANY)?;
        Ok(of_each.into_iter().flatten().map(|value| numbers(&value)[0]).sum())
    };
    Ok(Counters {
        segments: sum(0)?,
        round_trips: sum(1)?,
        windows: sum(2)?,
        refused: sum(3)?,
        connections: sum(4)?,
        adopted: sum(5)?,
    })
}

/// In the order of `struct peer` in `intf.h`, which begins with what the law knows: RTTm first.
fn peers(map: &MapHandle) -> libbpf_rs::Result<Vec<Peer>> {
    let mut found = Vec::new();
    for key in map.keys() {
        // One may be forgotten while we look.
        let Some(value) = map.lookup(&key, MapFlags::ANY)? else { continue };
        let [min_rtt, .., rtt, rate, queue, window, rounds, heard_at] = numbers(&value)[..] else {
            continue;
        };
        let Ok(address) = <[u8; 16]>::try_from(key) else { continue };
        let peer = Peer {
            address: Ipv6Addr::from(address).to_canonical(),
            min_rtt: Span::from_nanos(min_rtt),
            rtt: Span::from_nanos(rtt),
            rate: BitRate::from_bps(rate.saturating_mul(8)),
            queue: Bytes::new(queue),
            window: Bytes::new(window),
            rounds,
        };
        found.push((heard_at, peer));
    }
    found.sort_by_key(|(heard_at, _)| Reverse(*heard_at));
    Ok(found.into_iter().map(|(_, peer)| peer).collect())
}

fn numbers(value: &[u8]) -> Vec<u64> {
    let words = value.chunks_exact(8);
    words.map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect()
}
