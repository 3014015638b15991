//! Attached programs and their statistics.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};

use freshline_core::receiver::{Delta, QueueOwner, Slope, slope};
use freshline_core::unit::{BitRate, Bytes, Span};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;

use super::live::{PROGRAMS, Setup, in_place};
use super::{Place, Settings, pins};
use crate::error::{KernelError, require_root};
use crate::maps::{numbers, sums};
use crate::programs::{Attached, attached};

/// An attached program.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// Its place.
    pub place: Place,
    /// The name of its law.
    pub law: &'static str,
    /// RTAC's settings; `None` for another law, or a program of another version.
    pub settings: Option<Settings>,
    /// Whether it is pinned, so that it outlives processes; `None` if pins are hidden
    /// ([`KernelError::HiddenPins`]).
    pub pinned: Option<bool>,
    /// Its counters.
    pub counters: Counters,
    /// The number of its runs, and their total time, while `kernel.bpf_stats_enabled` was set; on a
    /// device, for packets of both directions.
    pub runs: u64,
    /// See [`Attachment::runs`].
    pub run_time: Span,
    /// The remote addresses with recent segments, the latest first.
    pub peers: Vec<Peer>,
}

/// Sums over all processors since the program was attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Outgoing segments inspected.
    pub segments: u64,
    /// Round trips measured.
    pub round_trips: u64,
    /// Windows set.
    pub windows_set: u64,
    /// Windows that the kernel refused to set.
    pub windows_refused: u64,
    /// New connections under control.
    pub connections: u64,
    /// Existing connections that were adopted.
    pub connections_adopted: u64,
    /// On a device, incoming segments with data of connections without control: they are older than
    /// the control, have no timestamps, or their windows must not be changed.
    pub uncontrolled_segments: u64,
}

/// A remote address. All values except the minimum RTT are those of the connection with the latest
/// segment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peer {
    /// The address.
    pub address: IpAddr,
    /// The minimum RTT.
    pub min_rtt: Span,
    /// Δ: as set, or as learnt so far; `None` for other laws than RTAC.
    pub delta: Option<Span>,
    /// The smoothed round trip.
    pub rtt: Span,
    /// The rate at which data arrives.
    pub rate: BitRate,
    /// The estimated queue in the network.
    pub queue: Bytes,
    /// The advertised window.
    pub window: Bytes,
    /// Completed round trips of its connections.
    pub rounds: u64,
    /// K of its window, per packet: set manually, or that of the path when the window was last
    /// derived from it. `None` before that, and for other laws than RTAC.
    pub slope: Option<f64>,
    /// The flow that keeps the queue; `None` for other laws than RTAC.
    pub queue_owner: Option<QueueOwner>,
}

/// All attached programs, held by any process or pin.
///
/// # Errors
///
/// Without root: the kernel reports programs only to root.
pub fn attachments() -> Result<Vec<Attachment>, KernelError> {
    require_root("ask the kernel for its programs")?;
    let pinned = match pins::pinned_links() {
        Ok(links) => Some(links),
        Err(KernelError::HiddenPins) => None,
        Err(error) => return Err(error),
    };
    let all = attached(PROGRAMS);
    let report =
        |(one, Setup { law, settings, .. }, place): (&Attached, _, _)| -> libbpf_rs::Result<_> {
            // On a device there are two programs, which share maps.
            let together = || all.iter().filter(|other| shares_maps(one, other));
            let run_time_ns = together().map(|other| other.program.run_time_ns).sum();
            Ok(Attachment {
                place,
                law,
                settings,
                pinned: pinned.as_ref().map(|links| links.contains(&one.link.id)),
                counters: one.map("counters").map(counters).transpose()?.unwrap_or_default(),
                runs: together().map(|other| other.program.run_cnt).sum(),
                run_time: Span::from_nanos(run_time_ns),
                peers: one
                    .map("peers")
                    .map(|map| peers(map, settings))
                    .transpose()?
                    .unwrap_or_default(),
            })
        };
    let reports: libbpf_rs::Result<_> = in_place(&all).map(report).collect();
    reports.map_err(KernelError::bpf("read the statistics"))
}

fn shares_maps(one: &Attached, other: &Attached) -> bool {
    other.program.map_ids.iter().any(|id| one.program.map_ids.contains(id))
}

/// In the order of `enum counter` in `intf.h`.
fn counters(map: &MapHandle) -> libbpf_rs::Result<Counters> {
    let sum = |counter| sums(map, counter).map(|[sum]| sum);
    Ok(Counters {
        segments: sum(0)?,
        round_trips: sum(1)?,
        windows_set: sum(2)?,
        windows_refused: sum(3)?,
        connections: sum(4)?,
        connections_adopted: sum(5)?,
        uncontrolled_segments: sum(6)?,
    })
}

/// In the order of `struct peer` in `intf.h`, which begins with the state of the law: RTTm first.
fn peers(map: &MapHandle, settings: Option<Settings>) -> libbpf_rs::Result<Vec<Peer>> {
    let mut found = Vec::new();
    for key in map.keys() {
        // An entry may be removed during the loop.
        let Some(value) = map.lookup(&key, MapFlags::ANY)? else { continue };
        let [min_rtt, delta, .., owner, held, segment, rtt, rate, queue, window, rounds, heard_at] =
            numbers(&value)[..]
        else {
            continue;
        };
        let owner = || QueueOwner::ALL.get(usize::try_from(owner).ok()?).copied();
        let Ok(address) = <[u8; 16]>::try_from(key) else { continue };
        let peer = Peer {
            address: Ipv6Addr::from(address).to_canonical(),
            min_rtt: Span::from_nanos(min_rtt),
            delta: settings.map(|settings| match settings.delta {
                Delta::Fixed(delta) => delta,
                Delta::Learn => Span::from_nanos(delta),
            }),
            rtt: Span::from_nanos(rtt),
            rate: BitRate::from_bps(rate.saturating_mul(8)),
            queue: Bytes::new(queue),
            window: Bytes::new(window),
            rounds,
            slope: settings.and_then(|settings| slope_of(settings, held, segment)),
            queue_owner: settings.and_then(|_| owner()),
        };
        found.push((heard_at, peer));
    }
    found.sort_by_key(|(heard_at, _)| Reverse(*heard_at));
    Ok(found.into_iter().map(|(_, peer)| peer).collect())
}

/// The K that corresponds to a window derived from a path that holds `held` bytes.
fn slope_of(settings: Settings, held: u64, segment: u64) -> Option<f64> {
    match settings.slope {
        Slope::Fixed(slope) => Some(slope),
        Slope::Auto if held == 0 || segment == 0 => None,
        Slope::Auto => Some(slope(held as f64 / segment as f64, settings.theta)),
    }
}
