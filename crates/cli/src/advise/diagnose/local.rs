//! A standing queue of this host, and its cause.

use super::own::{delay, drain_rate, queued};
use super::view::View;
use super::{evidence, is_standing, stretch};
use crate::advise::finding::{Bottleneck, Direction, Fault, Finding, Stop};
use crate::advise::observation::median;

/// The minimum share of the queued bytes, or of the sent bytes, that makes something the cause.
const CAUSE: f64 = 0.5;

/// A standing queue of this host, with its cause.
pub(super) fn finding(view: &View<'_>) -> Option<Finding> {
    let interface = view.interface;
    let queue = delay(interface)?;
    let bps = drain_rate(interface)? * 8.0;
    let bases = view.connections.iter().filter_map(|one| one.min_rtt());
    let base = bases.reduce(f64::min);
    // A short queue counts as short, however short the base RTT is.
    if !is_standing(queue, base.unwrap_or_default().min(0.1)) {
        return None;
    }
    let tcp_bytes: f64 = view
        .connections
        .iter()
        .filter_map(|one| median(one.samples.iter().map(|s| s.memory.sending.into()).collect()))
        .fold(0.0, |sum, bytes| sum + bytes);
    let udp_bytes = view.udp_sockets().iter().fold(0.0, |sum, one| sum + one.queued_bytes);
    let [foreign, _] = view.foreign_shares();
    let of_sockets = tcp_bytes + udp_bytes;
    let drops = interface.difference(|sample| sample.drops);
    let left = interface.difference(|sample| sample.left_bytes);
    let backlog = median(interface.samples.iter().map(|s| queued(s) as f64).collect())?;
    let is_forwarded = view.is_forwarding() && foreign > CAUSE && of_sockets < CAUSE * backlog;
    let (stop, fault) = if is_forwarded {
        (Stop::Router, Fault::ForwardingQueue)
    } else if udp_bytes > CAUSE * of_sockets || (foreign > CAUSE && drops > 0) {
        (Stop::Source, Fault::SourceOverload)
    } else {
        (Stop::Host, Fault::HostQueue)
    };
    let offered = bps * (1.0 + (drops * 1500) as f64 / left.max(1) as f64);
    Some(Finding {
        stop,
        direction: Direction::Up,
        fault,
        interface: view.name(),
        slowdown: stretch(queue, base.unwrap_or_default()),
        evidence: evidence([
            ("own_queueing_delay_ms", queue * 1e3),
            ("own_queue_bytes", backlog),
            ("own_queue_rate_bps", bps),
            ("own_queue_drops", drops as f64),
            ("udp_bytes_in_own_queue", udp_bytes),
            ("tcp_bytes_in_own_queue", tcp_bytes),
        ]),
        bottleneck: Bottleneck {
            bps,
            base_rtt: base.unwrap_or(0.02),
            queue,
            flows: view.connections.iter().filter(|one| one.sent() > 0).count().max(1),
            offered_bps: offered,
            ..Bottleneck::default()
        },
    })
}
