//! A standing queue beyond this host.

use super::probes;
use super::view::{View, weighted_median};
use super::{evidence, is_standing, stretch};
use crate::advise::finding::{Bottleneck, Direction, Evidence, Fault, Finding, Stop};
use crate::advise::observation::Connection;

/// The minimum share of other protocols than TCP, in the sent or received bytes, that makes them
/// the cause.
const CAUSE: f64 = 0.5;

/// The minimum fraction of the rate of Wi-Fi frames that is delivered if Wi-Fi is the bottleneck.
const WLAN_USED: f64 = 0.35;

/// A queue as observed by some connections.
#[derive(Debug, Clone, Copy)]
struct Queue {
    /// In seconds.
    delay: f64,
    base: f64,
    /// The number of connections that observe it.
    flows: usize,
}

/// A standing queue beyond this host, and its direction.
pub(super) fn finding(view: &View<'_>) -> Option<Finding> {
    let up = queue_of_senders(view).filter(|queue| is_standing(queue.delay, queue.base));
    let down = queue_of_receivers(view).filter(|queue| is_standing(queue.delay, queue.base));
    let is_uploading = view.bulk_senders().next().is_some();
    let [foreign_up, foreign_down] = view.foreign_shares();
    let sent = view.interface.difference(|sample| sample.sent_bytes);
    let received = view.interface.difference(|sample| sample.received_bytes);
    let probed = probes::direction(&view.seen.probes);
    // Calls send as much as they receive, and adapt.
    let is_overloaded = foreign_up > CAUSE && sent > 2 * received && !view.is_forwarding();
    match (up, down) {
        (Some(queue), _) if is_overloaded && probed != Some(Direction::Down) => {
            Some(made(view, queue, Fault::SourceOverload, Direction::Up))
        }
        (Some(queue), Some(_)) if is_uploading && probed != Some(Direction::Down) => {
            Some(made(view, queue, Fault::AckCongestion, Direction::Up))
        }
        (_, Some(queue)) if probed == Some(Direction::Up) => {
            Some(made(view, queue, Fault::AckCongestion, Direction::Up))
        }
        (_, Some(queue)) => Some(made(view, queue, Fault::DownstreamQueue, Direction::Down)),
        (Some(queue), None) => {
            let is_down = match probed {
                Some(direction) => direction == Direction::Down,
                None => !is_uploading && foreign_down > CAUSE && received > sent,
            };
            if is_down {
                return Some(made(view, queue, Fault::DownstreamQueue, Direction::Down));
            }
            // Without traffic of this host the queue is another host's, and its direction is
            // unknown.
            let is_ours = is_uploading || probed == Some(Direction::Up);
            let direction = if is_ours { Direction::Up } else { Direction::Both };
            Some(made(view, queue, Fault::UpstreamQueue, direction))
        }
        (None, None) => None,
    }
}

/// The queue of this host's outgoing packets, without its own queue.
fn queue_of_senders(view: &View<'_>) -> Option<Queue> {
    let own = view.own_queue();
    seen_by(view, Connection::sent, |one| {
        Some((view.queue_of_sender(one)? - own, view.base_rtt(one)))
    })
}

fn queue_of_receivers(view: &View<'_>) -> Option<Queue> {
    let own = view.own_queue();
    seen_by(view, Connection::received, |one| {
        let queue = view.is_bulk_receiver(one).then(|| view.queue_of_receiver(one))??;
        Some((queue - own, view.base_of_receiver(one)?))
    })
}

/// The median over connections, weighted by their bytes.
fn seen_by(
    view: &View<'_>,
    weight: fn(&Connection) -> u64,
    queue: impl Fn(&Connection) -> Option<(f64, f64)>,
) -> Option<Queue> {
    let seen = view.connections.iter().filter_map(|one| Some((queue(one)?, weight(one))));
    let seen: Vec<_> = seen.filter(|(_, weight)| *weight > 0).collect();
    let of = |part: fn((f64, f64)) -> f64| {
        weighted_median(seen.iter().map(|(pair, weight)| (part(*pair), *weight)).collect())
    };
    Some(Queue { delay: of(|pair| pair.0)?, base: of(|pair| pair.1)?, flows: seen.len() })
}

/// Whether the Wi-Fi interface is the bottleneck: it carries about as much as its rate allows, or
/// its rate is unknown.
fn is_at_wlan(view: &View<'_>, direction: Direction) -> bool {
    let [up, down] = view.delivered_bps();
    let bps = match direction {
        Direction::Up => up,
        Direction::Down => down,
        Direction::Both => up.max(down),
    };
    let interface = view.interface;
    interface.is_wireless && interface.receive_bps.is_none_or(|rate| bps >= WLAN_USED * rate)
}

fn made(view: &View<'_>, queue: Queue, fault: Fault, direction: Direction) -> Finding {
    let interface = view.interface;
    let [up_bps, down_bps] =
        [interface.bps(|sample| sample.sent_bytes), interface.bps(|sample| sample.received_bytes)];
    let is_down = direction == Direction::Down;
    let stop = match fault {
        Fault::SourceOverload => Stop::Source,
        _ if is_at_wlan(view, direction) => Stop::Wlan,
        _ => Stop::Router,
    };
    let [foreign_up, foreign_down] = view.foreign_shares();
    let mut numbers = evidence([
        ("queueing_delay_ms", queue.delay * 1e3),
        ("base_rtt_ms", queue.base * 1e3),
        ("own_queueing_delay_ms", view.own_queue() * 1e3),
        ("sent_bps", up_bps),
        ("received_bps", down_bps),
        ("delivered_up_bps", view.delivered_bps()[0]),
        ("connections", queue.flows as f64),
        ("not_tcp_share", if is_down { foreign_down } else { foreign_up }),
    ]);
    if let Some([up, down]) = probes::variations(&view.seen.probes) {
        numbers.push(Evidence { name: "probed_up_variation_ms", value: up * 1e3 });
        numbers.push(Evidence { name: "probed_down_variation_ms", value: down * 1e3 });
    }
    numbers.extend(
        interface.receive_bps.map(|value| Evidence { name: "wlan_receive_rate_bps", value }),
    );
    let [delivered_up, delivered_down] = view.delivered_bps();
    let (bps, other_bps) = match is_down {
        true => (delivered_down, delivered_up),
        false => (delivered_up, delivered_down),
    };
    Finding {
        stop,
        direction,
        fault,
        interface: view.name(),
        slowdown: stretch(queue.delay, queue.base),
        evidence: numbers,
        bottleneck: Bottleneck {
            bps,
            other_bps,
            base_rtt: queue.base,
            queue: queue.delay,
            flows: queue.flows,
            offered_bps: up_bps,
            ..Bottleneck::default()
        },
    }
}
