//! The path itself: a change of the route, and a large base RTT.

use super::evidence;
use super::view::{View, single_rtts, spread};
use crate::advise::finding::{Bottleneck, Direction, Fault, Finding, Stop};
use crate::advise::observation::{Connection, InterfaceSample, median};

/// The minimum base RTT of a long path in seconds: longer than any terrestrial path within a
/// continent.
const LONG: f64 = 0.150;
/// The minimum step of the round trip in seconds, longer than a delayed ack, and as a fraction of
/// the smaller value.
const MIN_STEP: f64 = 0.045;
const MIN_STEP_SHARE: f64 = 0.2;
/// The minimum number of samples on each side of a step.
const MIN_SAMPLES: usize = 4;
/// The maximum interquartile range on both sides of a step, as a fraction of the step.
const STEADY: f64 = 0.2;

/// A change of the route: of the next hop, or a step of the round trip that no traffic explains.
pub(super) fn change(view: &View<'_>) -> Option<Finding> {
    let is_here = |device: u32| device == view.interface.device;
    let changed = view.seen.route_changes.iter().filter(|it| is_here(it.from_hop.device)).count();
    let has_bulk = view.bulk_senders().chain(view.bulk_receivers()).next().is_some();
    let step = view.connections.iter().filter(|_| !has_bulk).find_map(|one| step(view, one));
    if changed == 0 && step.is_none() {
        return None;
    }
    let [before, after] = step.unwrap_or_default();
    let ratio = if step.is_some() { before.max(after) / before.min(after) } else { 1.05 };
    Some(Finding {
        stop: Stop::Path,
        direction: Direction::Both,
        fault: Fault::RouteChange,
        interface: view.name(),
        slowdown: ratio,
        evidence: evidence([
            ("changed_next_hops", changed as f64),
            ("rtt_before_ms", before * 1e3),
            ("rtt_after_ms", after * 1e3),
        ]),
        bottleneck: Bottleneck { base_rtt: after, ..Bottleneck::default() },
    })
}

/// The round trip before and after a step, in seconds. Both sides are steady, and the traffic is the same, so
/// that no queue explains it; no connection sends or receives in bulk.
fn step(view: &View<'_>, connection: &Connection) -> Option<[f64; 2]> {
    let rtts = single_rtts(connection);
    let (first, last) = (connection.samples.first()?.at, connection.samples.last()?.at);
    let third = (last - first) / 3.0;
    let within = |is_in: &dyn Fn(f64) -> bool| {
        rtts.iter().filter(|(at, _)| is_in(*at)).map(|(_, rtt)| *rtt).collect::<Vec<_>>()
    };
    let sides = [within(&|at| at <= first + third), within(&|at| at >= last - third)];
    if sides.iter().any(|side| side.len() < MIN_SAMPLES) {
        return None;
    }
    let [before, after] = [median(sides[0].clone())?, median(sides[1].clone())?];
    let size = (after - before).abs();
    let is_large = size >= MIN_STEP.max(MIN_STEP_SHARE * before.min(after));
    let is_steady = sides.iter().all(|side| spread(side) <= STEADY * size);
    (is_large && is_steady && has_equal_traffic(&view.interface.samples)).then_some([before, after])
}

/// Whether the interface moved about as many bytes in the first third as in the last one.
fn has_equal_traffic(samples: &[InterfaceSample]) -> bool {
    let third = samples.len() / 3;
    let moved = |part: &[InterfaceSample]| {
        let all = |sample: &InterfaceSample| sample.sent_bytes + sample.received_bytes;
        match (part.first(), part.last()) {
            (Some(first), Some(last)) => all(last).saturating_sub(all(first)) as f64,
            _ => 0.0,
        }
    };
    let (first, last) = (moved(&samples[..third]), moved(&samples[samples.len() - third..]));
    first.max(last) <= 3.0 * first.min(last) + 20_000.0
}

/// A large base RTT.
pub(super) fn long_path(view: &View<'_>) -> Option<Finding> {
    let used = view.connections.iter().filter(|one| one.sent() + one.received() > 0);
    let bases: Vec<(f64, u64)> = used
        .map(|one| (view.base_rtt(one), one.sent() + one.received()))
        .filter(|(base, _)| *base > 0.0)
        .collect();
    let base = super::view::weighted_median(bases)?;
    if base < LONG {
        return None;
    }
    Some(Finding {
        stop: Stop::Path,
        direction: Direction::Both,
        fault: Fault::LongPath,
        interface: view.name(),
        slowdown: base / LONG,
        evidence: evidence([("base_rtt_ms", base * 1e3)]),
        bottleneck: Bottleneck { base_rtt: base, ..Bottleneck::default() },
    })
}
