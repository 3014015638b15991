//! Causes of slow transfers without a queue: losses, windows, buffers, and programs that read
//! slowly.

use super::view::{MIN_SAMPLES, View, active};
use super::{evidence, is_empty};
use crate::advise::finding::{Bottleneck, Direction, Fault, Finding, Stop};
use crate::advise::observation::{Connection, Observation, median};

/// The minimum fraction of retransmitted bytes of a lossy path, and the minimum number of segments.
const LOSSY: f64 = 0.01;
const MIN_LOST: f64 = 8.0;
/// The minimum fraction of samples with data in which some data arrived out of order, above which
/// losses are too many to be counted singly; and the minimum number of losses that are counted
/// otherwise. One loss per reduction of a window, as a queue with AQM causes, is far below both.
const OUT_OF_ORDER: f64 = 0.25;
const MIN_EVENTS: usize = 3;
/// The minimum fraction of the busy time in which a limit applies, for it to be the cause.
const LIMITED: f64 = 0.4;
/// The fraction of the window that a receiver must see in flight for the window to be the limit.
const FILLED: f64 = 0.6;
/// The minimum number of unread bytes of a slow program, and their share of the buffer.
const UNREAD: f64 = 32_768.0;
const UNREAD_SHARE: f64 = 0.5;
/// The minimum number of datagrams that a socket dropped.
const MIN_DROPS: u32 = 10;

/// Faults of the connections of an interface that no queue explains.
pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(limited_sender(view));
    found.extend(window_of_receiver(view));
    found.extend(lossy_up(view));
    found.extend(lossy_down(view));
    found
}

fn finding(
    view: &View<'_>,
    (stop, direction, fault): (Stop, Direction, Fault),
    slowdown: f64,
    bottleneck: Bottleneck,
) -> Finding {
    Finding {
        stop,
        direction,
        fault,
        interface: view.name(),
        slowdown,
        evidence: Vec::new(),
        bottleneck,
    }
}

/// The bottleneck of some connections without a queue.
fn bottleneck(view: &View<'_>, of: &[&Connection], is_down: bool) -> Bottleneck {
    let interface = view.interface;
    let bps = match is_down {
        true => interface.bps(|sample| sample.received_bytes),
        false => interface.bps(|sample| sample.sent_bytes),
    };
    let bases = of.iter().filter_map(|one| match is_down {
        true => view.base_of_receiver(one),
        false => Some(view.base_rtt(one)),
    });
    let base_rtt = bases.reduce(f64::min).unwrap_or_default();
    Bottleneck { bps, base_rtt, flows: of.len(), ..Bottleneck::default() }
}

fn sum(of: &[&Connection], count: impl Fn(&Connection) -> u64) -> f64 {
    of.iter().fold(0.0, |sum, one| sum + count(one) as f64)
}

fn lossy_up(view: &View<'_>) -> Option<Finding> {
    let senders: Vec<_> = view.connections.iter().copied().filter(|one| one.sent() > 0).collect();
    let again = sum(&senders, |one| one.difference(|info| info.bytes_retransmitted));
    let sent = sum(&senders, |one| one.difference(|info| info.bytes_sent));
    let mss = senders.iter().filter_map(|one| Some(one.samples.last()?.info.mss)).max()?;
    let loss = again / sent.max(1.0);
    let own_drops = view.interface.difference(|sample| sample.drops) as f64;
    let lost = again / f64::from(mss.max(1));
    if loss < LOSSY || lost < MIN_LOST || own_drops > lost / 2.0 {
        return None;
    }
    let queues =
        senders.iter().filter_map(|one| Some((view.queue_of_sender(one)?, view.base_rtt(one))));
    let (queue, base) = queues.reduce(|one, other| if other.0 < one.0 { other } else { one })?;
    if !is_empty(queue, base) {
        return None;
    }
    let bottleneck = Bottleneck { loss, queue, ..bottleneck(view, &senders, false) };
    let what = (Stop::Link, Direction::Up, Fault::Loss);
    let numbers = evidence([
        ("retransmitted_share", loss),
        ("retransmitted_segments", lost),
        ("queueing_delay_ms", queue * 1e3),
        ("base_rtt_ms", base * 1e3),
        ("sent_bps", bottleneck.bps),
    ]);
    Some(Finding { evidence: numbers, ..finding(view, what, 1.0 + 100.0 * loss, bottleneck) })
}

fn lossy_down(view: &View<'_>) -> Option<Finding> {
    let receivers: Vec<_> = view.bulk_receivers().collect();
    let (mut arrived, mut disordered, mut events, mut segments) = (0, 0, 0, 0_u64);
    for one in &receivers {
        arrived += active(one, |sample| sample.info.data_segments_in.into()).count();
        disordered += active(one, |sample| sample.info.out_of_order.into()).count();
        events += losses(one);
        segments += one.difference(|info| info.data_segments_in.into());
    }
    let share = disordered as f64 / arrived.max(1) as f64;
    let counted = events as f64 / segments.max(1) as f64;
    let is_lossy = share >= OUT_OF_ORDER || (events >= MIN_EVENTS && counted >= LOSSY);
    if arrived < MIN_SAMPLES || !is_lossy {
        return None;
    }
    let queues = receivers
        .iter()
        .filter_map(|one| Some((view.queue_of_receiver(one)?, view.base_of_receiver(one)?)));
    let (queue, base) = queues.reduce(|one, other| if other.0 < one.0 { other } else { one })?;
    if !is_empty(queue, base) {
        return None;
    }
    let loss = counted.clamp(LOSSY, 0.5);
    let bottleneck = Bottleneck { loss, queue, ..bottleneck(view, &receivers, true) };
    let numbers = evidence([
        ("samples_with_segments_out_of_order_share", share),
        ("estimated_loss", loss),
        ("queueing_delay_ms", queue * 1e3),
        ("base_rtt_ms", base * 1e3),
        ("received_bps", bottleneck.bps),
    ]);
    let what = (Stop::Link, Direction::Down, Fault::Loss);
    Some(Finding { evidence: numbers, ..finding(view, what, 1.0 + 100.0 * loss, bottleneck) })
}

/// The number of losses on the path to a receiver: the times at which data began to arrive out of
/// order.
fn losses(connection: &Connection) -> usize {
    let late: Vec<u32> = connection.samples.iter().map(|sample| sample.info.out_of_order).collect();
    late.windows(3).filter(|three| three[0] == three[1] && three[1] < three[2]).count()
}

/// A sender limited by the peer's window, or by its own send buffer.
fn limited_sender(view: &View<'_>) -> Option<Finding> {
    let senders: Vec<_> = view.bulk_senders().collect();
    let busy = sum(&senders, |one| one.difference(|info| info.busy));
    if busy == 0.0 {
        return None;
    }
    let by_window = sum(&senders, |one| one.difference(|info| info.window_limited)) / busy;
    let by_buffer = sum(&senders, |one| one.difference(|info| info.buffer_limited)) / busy;
    let (what, share) = match () {
        () if by_window >= LIMITED => {
            ((Stop::Receiver, Direction::Up, Fault::ReceiveWindow), by_window)
        }
        () if by_buffer >= LIMITED => ((Stop::Source, Direction::Up, Fault::SendBuffer), by_buffer),
        () => return None,
    };
    let mut bottleneck = bottleneck(view, &senders, false);
    bottleneck.window = bottleneck.bps / 8.0 * bottleneck.base_rtt / senders.len() as f64;
    let numbers = evidence([
        ("receive_window_limited_share", by_window),
        ("send_buffer_limited_share", by_buffer),
        ("base_rtt_ms", bottleneck.base_rtt * 1e3),
        ("sent_bps", bottleneck.bps),
    ]);
    Some(Finding { evidence: numbers, ..finding(view, what, 1.0 + share, bottleneck) })
}

/// A download that fills the window advertised by this host.
fn window_of_receiver(view: &View<'_>) -> Option<Finding> {
    let one = view.bulk_receivers().find(|one| {
        let window = windows(one).unwrap_or(f64::MAX);
        in_flight(view, one).is_some_and(|bytes| bytes >= FILLED * window)
            && view.queue_of_receiver(one).unwrap_or_default() < super::NO_QUEUE
    })?;
    let window = windows(one)?;
    let bottleneck = Bottleneck { window, ..bottleneck(view, &[one], true) };
    let numbers = evidence([
        ("receive_window_bytes", window),
        ("in_flight_bytes", in_flight(view, one)?),
        ("base_rtt_ms", bottleneck.base_rtt * 1e3),
        ("received_bps", bottleneck.bps),
    ]);
    let what = (Stop::Receiver, Direction::Down, Fault::ReceiveWindow);
    Some(Finding { evidence: numbers, ..finding(view, what, 1.5, bottleneck) })
}

/// The maximum window that a receiver advertised.
fn windows(connection: &Connection) -> Option<f64> {
    let max = connection.samples.iter().map(|sample| sample.info.receive_window).max()?;
    (max > 0).then(|| f64::from(max))
}

/// Bytes in flight to a receiver: its rate times its round trip.
fn in_flight(view: &View<'_>, connection: &Connection) -> Option<f64> {
    let rate = connection.received() as f64 / connection.seconds().max(0.1);
    let rtt = view.base_of_receiver(connection)? + view.queue_of_receiver(connection)?;
    Some(rate * rtt)
}

/// A program that leaves most of the receive buffer unread.
pub(super) fn slow_reader(view: &View<'_>) -> Option<Finding> {
    let unread_of = |one: &Connection| {
        let unread = median(one.samples.iter().map(|s| s.unread.into()).collect())?;
        let window = median(one.samples.iter().map(|s| s.info.receive_window.into()).collect())?;
        // A program that pauses on purpose, such as a paused video, is not a fault.
        let is_unread = unread >= UNREAD && unread >= UNREAD_SHARE * (unread + window);
        (is_unread && one.received() > 0).then_some((unread, window))
    };
    let (one, (unread, window)) =
        view.connections.iter().find_map(|one| Some((*one, unread_of(one)?)))?;
    let numbers = evidence([
        ("unread_bytes", unread),
        ("receive_window_bytes", window),
        ("local_port", one.local.port().into()),
    ]);
    let what = (Stop::Receiver, Direction::Down, Fault::SlowReader);
    let bottleneck = bottleneck(view, &[one], true);
    Some(Finding {
        evidence: numbers,
        ..finding(view, what, 1.0 + unread / (unread + window), bottleneck)
    })
}

/// A program whose UDP socket drops datagrams, because it does not read them in time.
pub(super) fn udp_reader(seen: &Observation) -> Option<Finding> {
    let socket = seen.udp_sockets.iter().max_by_key(|one| one.drops)?;
    if socket.drops < MIN_DROPS {
        return None;
    }
    Some(Finding {
        stop: Stop::Receiver,
        direction: Direction::Down,
        fault: Fault::SlowReader,
        interface: None,
        slowdown: 1.5,
        evidence: evidence([
            ("dropped_datagrams", socket.drops.into()),
            ("local_port", socket.local.port().into()),
        ]),
        bottleneck: Bottleneck::default(),
    })
}
