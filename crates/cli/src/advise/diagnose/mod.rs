//! Derives ranked [`Finding`]s from an [`Observation`].
//!
//! ```text
//!   own queue of an interface ── local ───┐
//!   RTT above its minimum ────── beyond ──┤
//!   losses, windows, buffers ── transfers ┼─► findings, the one that costs most first
//!   next hops, steps of RTT ──── routes ──┘
//! ```
//!
//! # The rules
//!
//! - **A standing queue** is a queueing delay whose median is at least [`STANDING`] and a quarter of the base
//!   RTT: a queue that a law could keep empty, and not jitter or the few ms that CoDel allows.
//! - **The owner of a queue** follows from the location of the bytes. Bytes in this host's queueing
//!   discipline are this host's; the socket that owns them is the cause. A round trip above its
//!   minimum without such bytes is a queue beyond this host, in the direction of the data.
//! - **A loss without a queue** is the link's. With a standing queue it is the queue that overflows.
//! - **A fault explains others**: a queue explains losses and a small share of a window, an
//!   overloading source explains a queue, and any fault explains a path that seems long.
//!
//! # What passive observation cannot see
//!
//! Acks of a download that queue in the other direction look like a queue of the download, unless an upload
//! runs or probes (`--target`) separate the directions. A connection that began while a queue was full has no
//! minimum RTT that is free of the queue, unless another connection to the same host has.

mod beyond;
mod local;
mod own;
mod probes;
mod routes;
mod transfers;
mod view;

#[cfg(test)]
mod tests;

use super::finding::{Evidence, Fault, Finding};
use super::observation::{Interface, Observation};
use view::View;

pub(in crate::advise) use own::delay as queueing_delay;

/// The minimum queueing delay of a standing queue in seconds: up to this increase of the round
/// trip, bufferbloat tests give their second best grade.
pub(super) const STANDING: f64 = 0.030;

/// The maximum queueing delay in seconds that counts as no queue, if losses occur.
const NO_QUEUE: f64 = 0.010;

/// The findings, the costliest first; empty without a fault.
pub(super) fn diagnose(seen: &Observation) -> Vec<Finding> {
    let mut found = Vec::new();
    for interface in &seen.interfaces {
        let view = View::new(seen, interface);
        let mut here: Vec<Finding> = local::finding(&view).into_iter().collect();
        let route = routes::change(&view);
        let is_step = route.is_some();
        here.extend(route);
        here.extend(transfers::slow_reader(&view));
        let is_read_slowly = here.iter().any(|one| one.fault == Fault::SlowReader);
        let owns = here.iter().any(|one| is_local(one.fault));
        if !owns && !is_step && !is_read_slowly {
            here.extend(beyond::finding(&view));
        }
        if !here.iter().any(|one| is_queue(one.fault)) && !is_read_slowly {
            here.extend(transfers::findings(&view));
        }
        if here.is_empty() {
            here.extend(routes::long_path(&view));
        }
        found.extend(here);
    }
    found.extend(transfers::udp_reader(seen));
    found.sort_by(|one, other| other.slowdown.total_cmp(&one.slowdown));
    found
}

/// The number of connections that send in bulk through an interface.
pub(super) fn bulk_senders(seen: &Observation, interface: &Interface) -> usize {
    View::new(seen, interface).bulk_senders().count()
}

/// Whether the queue is this host's own.
fn is_local(fault: Fault) -> bool {
    matches!(fault, Fault::HostQueue | Fault::ForwardingQueue | Fault::SourceOverload)
}

fn is_queue(fault: Fault) -> bool {
    let is_beyond =
        matches!(fault, Fault::UpstreamQueue | Fault::DownstreamQueue | Fault::AckCongestion);
    is_beyond || is_local(fault)
}

/// Whether a queueing delay is that of a standing queue, over a path with this base RTT; in seconds.
fn is_standing(queue: f64, base: f64) -> bool {
    queue >= STANDING.max(base / 4.0)
}

/// Whether a queueing delay is small enough to say that there is no queue.
fn is_empty(queue: f64, base: f64) -> bool {
    queue < NO_QUEUE.max(base / 4.0)
}

/// How much longer a round trip takes than it would without the queue. The base RTT counts as at
/// least 5 ms, because most paths are longer behind the first router.
fn stretch(queue: f64, base: f64) -> f64 {
    let base = base.max(0.005);
    (base + queue) / base
}

fn evidence<const N: usize>(numbers: [(&'static str, f64); N]) -> Vec<Evidence> {
    numbers.into_iter().map(|(name, value)| Evidence { name, value }).collect()
}
