//! One interface of an observation, with the connections that use it.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::advise::observation::{
    Connection, Interface, Observation, TcpSample, UdpSocket, median, quantile,
};

/// Bytes of headers per segment: IPv4, TCP with timestamps.
const HEADERS: u64 = 52;
/// A connection with fewer bytes is not significant.
const MIN_BULK: u64 = 50_000;
/// The maximum time by which Linux delays acks while it expects data to send along, in seconds.
const ACK_DELAY: f64 = 0.040;
/// A standing queue lets data arrive without pauses: the time since the newest data is below this fraction of
/// the round trip. A sender with pauses makes the receiver's estimate of the round trip too long.
const PAUSE: f64 = 0.25;
/// The minimum number of samples for a result.
pub(super) const MIN_SAMPLES: usize = 3;

/// One interface, with the connections that use it.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) seen: &'a Observation,
    pub(super) interface: &'a Interface,
    pub(super) connections: Vec<&'a Connection>,
    /// The base RTT to each host in seconds.
    bases: HashMap<IpAddr, f64>,
}

impl<'a> View<'a> {
    pub(super) fn new(seen: &'a Observation, interface: &'a Interface) -> Self {
        let uses_it = |one: &&Connection| one.device == Some(interface.device);
        let connections: Vec<_> = seen.connections.iter().filter(uses_it).collect();
        let mut bases = HashMap::new();
        for one in &connections {
            let Some(rtt) = one.min_rtt() else { continue };
            let base = bases.entry(one.remote.ip()).or_insert(rtt);
            *base = rtt.min(*base);
        }
        Self { seen, interface, connections, bases }
    }

    /// UDP sockets of the host; the kernel does not report by which device they send.
    pub(super) fn udp_sockets(&self) -> &'a [UdpSocket] {
        &self.seen.udp_sockets
    }

    pub(super) fn name(&self) -> Option<String> {
        Some(self.interface.name.clone())
    }

    /// The base RTT of a connection: the minimum of all connections to the same host, in seconds.
    pub(super) fn base_rtt(&self, connection: &Connection) -> f64 {
        self.bases.get(&connection.remote.ip()).copied().unwrap_or_default()
    }

    /// The bytes of this host's TCP connections: sent bytes, and received bytes.
    pub(super) fn tcp_bytes(&self) -> [u64; 2] {
        let sum = |of: fn(&Connection) -> u64| self.connections.iter().map(|one| of(one)).sum();
        [
            sum(|one| {
                let payload = one.difference(|info| info.bytes_sent);
                payload + HEADERS * one.difference(|info| info.segments_out.into())
            }),
            sum(|one| one.received() + HEADERS * one.difference(|info| info.segments_in.into())),
        ]
    }

    /// The fractions of the sent and of the received bytes that do not belong to TCP of this host.
    pub(super) fn foreign_shares(&self) -> [f64; 2] {
        let all = [
            self.interface.difference(|sample| sample.sent_bytes),
            self.interface.difference(|sample| sample.received_bytes),
        ];
        let tcp = self.tcp_bytes();
        [0, 1].map(|at| all[at].saturating_sub(tcp[at]) as f64 / all[at].max(1) as f64)
    }

    /// Whether most outgoing packets arrived through other interfaces.
    pub(super) fn is_forwarding(&self) -> bool {
        let others = self.seen.interfaces.iter().filter(|one| one.device != self.interface.device);
        let arrived: u64 = others.map(|one| one.difference(|sample| sample.received_bytes)).sum();
        let sent = self.interface.difference(|sample| sample.sent_bytes);
        self.seen.forwards && arrived > sent / 2
    }

    /// The rates of delivered packets, up and down, in bit/s: acknowledged by peers, or received by
    /// this host. Packets may be dropped behind the device, so packets of other protocols count up
    /// as they leave, which is an upper bound. TCP bytes count only while a queue exists; at other
    /// times the bottleneck is not used.
    pub(super) fn delivered_bps(&self) -> [f64; 2] {
        let [foreign, _] = self.foreign_shares();
        let queued = self.queued_intervals();
        let is_short = queued.len() < MIN_SAMPLES;
        let seconds =
            if is_short { self.seen.seconds.max(0.1) } else { queued.values().sum::<f64>() };
        let delivered = self.connections.iter().map(|one| {
            let acked = if is_short { one.sent() } else { acked_within(one, &queued) };
            let mss =
                one.samples.last().map_or(1448.0, |sample| f64::from(sample.info.mss.max(200)));
            acked as f64 * (1.0 + HEADERS as f64 / mss) * 8.0 / seconds
        });
        let others = self.interface.bps(|sample| sample.sent_bytes) * foreign;
        [
            delivered.fold(others, |sum, bps| sum + bps),
            self.interface.bps(|sample| sample.received_bytes),
        ]
    }

    /// The intervals between samples in which a bulk sender has data in flight and a queue before
    /// it: their ends, as bits, with their lengths in seconds.
    fn queued_intervals(&self) -> HashMap<u64, f64> {
        let mut all = HashMap::new();
        for one in self.bulk_senders() {
            let base = self.base_rtt(one);
            for pair in one.samples.windows(2) {
                let (info, at) = (&pair[1].info, pair[1].at);
                let queue = f64::from(info.rtt) / 1e6 - base;
                if info.in_flight > 0 && queue >= super::STANDING / 2.0 {
                    all.insert(at.to_bits(), at - pair[0].at);
                }
            }
        }
        all
    }

    /// Connections that send in bulk.
    pub(super) fn bulk_senders(&self) -> impl Iterator<Item = &'a Connection> {
        self.connections.iter().copied().filter(|one| is_bulk_sender(one))
    }

    /// Connections that receive in bulk.
    pub(super) fn bulk_receivers(&self) -> impl Iterator<Item = &'a Connection> {
        self.connections.iter().copied().filter(|one| self.is_bulk_receiver(one))
    }

    /// Whether data arrives in each round trip.
    pub(super) fn is_bulk_receiver(&self, one: &Connection) -> bool {
        if one.received() < MIN_BULK {
            return false;
        }
        let active = active(one, |sample| sample.info.bytes_received).count() as f64;
        let samples = one.samples.len().max(2) as f64 - 1.0;
        let rounds = one.seconds() / self.base_rtt(one).max(0.001);
        active >= 0.6 * samples.min(rounds)
    }

    /// How long outgoing bytes were in this host's own queue, in seconds.
    pub(super) fn own_queue(&self) -> f64 {
        super::own::delay(self.interface).unwrap_or_default()
    }

    /// The median of a sender's round trips above the base RTT, when acks arrived, in seconds. For
    /// a sender that does not send in bulk, the possible delay of acks is subtracted.
    pub(super) fn queue_of_sender(&self, connection: &Connection) -> Option<f64> {
        let base = self.base_rtt(connection);
        let rtt = |sample: &TcpSample| f64::from(sample.info.rtt) / 1e6 - base;
        let mut rtts: Vec<_> =
            active(connection, |sample| sample.info.bytes_acked).map(rtt).collect();
        let in_flight =
            connection.samples.iter().filter(|sample| sample.info.in_flight > 0).count();
        if rtts.len() < MIN_SAMPLES && in_flight * 2 > connection.samples.len() {
            // Most packets of the sender are lost: its last measurement still counts.
            rtts = connection.samples.iter().map(rtt).collect();
        }
        let ack_delay = if is_bulk_sender(connection) { 0.0 } else { ACK_DELAY };
        Some((standing(rtts)? - ack_delay).max(0.0))
    }

    /// The same for a receiver, from its own estimate; 0 if data arrives with pauses.
    pub(super) fn queue_of_receiver(&self, connection: &Connection) -> Option<f64> {
        let rtts: Vec<f64> = active(connection, |sample| sample.info.bytes_received)
            .filter(|sample| sample.info.receiver_rtt > 0)
            .map(|sample| f64::from(sample.info.receiver_rtt) / 1e6)
            .collect();
        let base = self.base_of_receiver(connection)?;
        let queue = standing(rtts.into_iter().map(|rtt| rtt - base).collect())?;
        let pauses = connection.samples.iter().map(|sample| sample.info.since_received_ms.into());
        let pause = median(pauses.collect())? / 1e3;
        Some(if pause < PAUSE * queue { queue } else { 0.0 })
    }

    /// The base RTT of a receiver in seconds: that of the handshake, or the minimum that it estimated.
    pub(super) fn base_of_receiver(&self, connection: &Connection) -> Option<f64> {
        let estimates = connection.samples.iter().map(|sample| sample.info.receiver_rtt);
        let estimated = estimates.filter(|rtt| *rtt > 0).min().map(|rtt| f64::from(rtt) / 1e6);
        let shaken = Some(self.base_rtt(connection)).filter(|base| *base > 0.0);
        [estimated, shaken].into_iter().flatten().reduce(f64::min)
    }
}

/// The bytes that were acknowledged within these intervals.
fn acked_within(one: &Connection, intervals: &HashMap<u64, f64>) -> u64 {
    let within =
        one.samples.windows(2).filter(|pair| intervals.contains_key(&pair[1].at.to_bits()));
    within.map(|pair| pair[1].info.bytes_acked.saturating_sub(pair[0].info.bytes_acked)).sum()
}

/// Whether the sender is busy for most of the time, and not limited by the application.
fn is_bulk_sender(one: &Connection) -> bool {
    let busy = one.difference(|info| info.busy) as f64 / 1e6;
    one.sent() >= MIN_BULK && busy >= 0.5 * one.seconds()
}

/// The individual round trips of a connection, with their times, both in seconds: the kernel
/// reports their moving average, in which each has a weight of 1/8.
pub(super) fn single_rtts(connection: &Connection) -> Vec<(f64, f64)> {
    let pairs = connection.samples.windows(2).map(|pair| (&pair[0], &pair[1]));
    let acked = pairs.filter(|(one, next)| next.info.bytes_acked > one.info.bytes_acked);
    let single = acked.map(|(one, next)| {
        let sent = next.info.data_segments_out.saturating_sub(one.info.data_segments_out);
        let [before, after] = [one, next].map(|sample| f64::from(sample.info.rtt) / 1e6);
        let kept = 0.875_f64.powi(sent.clamp(1, 100).cast_signed());
        (next.at, before + (after - before) / (1.0 - kept))
    });
    single.collect()
}

/// The median, if there are enough samples.
fn standing(values: Vec<f64>) -> Option<f64> {
    (values.len() >= MIN_SAMPLES).then(|| median(values))?
}

/// Samples at which a counter has grown since the previous one.
pub(super) fn active(
    connection: &Connection,
    counter: fn(&TcpSample) -> u64,
) -> impl Iterator<Item = &TcpSample> {
    let pairs = connection.samples.windows(2);
    pairs.filter(move |pair| counter(&pair[1]) > counter(&pair[0])).map(|pair| &pair[1])
}

/// The median of values, each of which counts as often as its weight.
pub(super) fn weighted_median(mut values: Vec<(f64, u64)>) -> Option<f64> {
    values.sort_by(|one, other| one.0.total_cmp(&other.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<u64>() / 2;
    let mut sum = 0;
    let at = values.iter().find(|(_, weight)| {
        sum += weight;
        sum > half
    });
    at.or(values.last()).map(|(value, _)| *value)
}

/// The interquartile range.
pub(super) fn spread(values: &[f64]) -> f64 {
    let of = |fraction| quantile(values.to_vec(), fraction).unwrap_or_default();
    of(0.75) - of(0.25)
}
