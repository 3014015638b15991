//! What an emulator did, as numbers.

use std::collections::BTreeMap;

use freshline_core::link::{Hop, HopConfig, Path, PathConfig, SpanHistogram};
use freshline_core::router::{Packet, Qdisc};
use freshline_core::unit::Time;
use rand_pcg::rand_core::Rng;
use serde::Serialize;

/// The whole report.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The seed of all that was random.
    pub seed: u64,
    /// How long the emulator has been there, in s.
    pub duration_s: f64,
    /// From the clients to the target.
    pub forward: DirectionReport,
    /// From the target back to the clients.
    #[serde(rename = "return")]
    pub back: DirectionReport,
    /// The clients.
    pub flows: FlowReport,
    /// How often the target's machine answered that nobody listens there.
    pub target_unreachable: u64,
    /// Other failures to send or to receive.
    pub socket_errors: u64,
}

/// How many clients came and went.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct FlowReport {
    /// Clients that are served now.
    pub active: usize,
    /// Clients that were ever served.
    pub opened: u64,
    /// Clients that were forgotten after they had been idle.
    pub expired: u64,
    /// Packets of clients that came when no more could be served.
    pub refused_packets: u64,
}

/// One direction.
#[derive(Debug, Clone, Serialize)]
pub struct DirectionReport {
    /// The hops from first to last.
    pub hops: Vec<HopReport>,
    /// How exactly the emulated times were kept.
    pub timing_error: TimingError,
}

/// How long after its emulated arrival a packet was really sent on.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TimingError {
    /// The median, in ms.
    pub p50_ms: f64,
    /// The 99th percentile, in ms.
    pub p99_ms: f64,
    /// The largest, in ms.
    pub max_ms: f64,
}

/// One hop. Bytes include IP and UDP headers.
#[derive(Debug, Clone, Serialize)]
pub struct HopReport {
    /// What the hop was told to do.
    pub conditions: HopConfig,
    /// Packets that came.
    pub packets_in: u64,
    /// Packets that left at the far end.
    pub packets_out: u64,
    /// Packets that are in the hop now.
    pub packets_inside: u64,
    /// Bytes that came.
    pub bytes_in: u64,
    /// Bytes that left at the far end.
    pub bytes_out: u64,
    /// Dropped packets by reason: `too_big`, `queue_full`, `loss`, `line_full`.
    pub drops: BTreeMap<&'static str, u64>,
    /// The mean time in the queue, without the transmission, in ms.
    pub sojourn_mean_ms: f64,
    /// Its median, in ms.
    pub sojourn_p50_ms: f64,
    /// Its 99th percentile, in ms.
    pub sojourn_p99_ms: f64,
    /// Its maximum, in ms.
    pub sojourn_max_ms: f64,
    /// The part of the link's capacity that was used, from 0 to 1: of the time with a rate, of
    /// the delivery opportunities with a trace.
    pub utilisation: f64,
}

impl DirectionReport {
    pub(super) fn new<Q: Qdisc<P>, P: Packet, R: Rng>(
        config: &PathConfig,
        path: &Path<Q, P, R>,
        lateness: &SpanHistogram,
        start: Time,
        now: Time,
    ) -> Self {
        // A path that was told nothing is one ideal hop.
        let conditions = config.hop.iter().cloned().chain([HopConfig::default()]);
        let hops = path.hops().iter().zip(conditions);
        Self {
            hops: hops.map(|(hop, told)| HopReport::new(told, hop, start, now)).collect(),
            timing_error: TimingError {
                p50_ms: lateness.quantile(0.5).as_millis_f64(),
                p99_ms: lateness.quantile(0.99).as_millis_f64(),
                max_ms: lateness.max().as_millis_f64(),
            },
        }
    }
}

impl HopReport {
    fn new<Q: Qdisc<P>, P: Packet, R: Rng>(
        conditions: HopConfig,
        hop: &Hop<Q, P, R>,
        start: Time,
        now: Time,
    ) -> Self {
        let stats = hop.stats();
        Self {
            conditions,
            packets_in: stats.arrived.packets.get(),
            packets_out: stats.delivered.packets.get(),
            packets_inside: hop.inside().get(),
            bytes_in: stats.arrived.bytes.get(),
            bytes_out: stats.delivered.bytes.get(),
            drops: stats.drops.iter().map(|(why, count)| (why.name(), count.get())).collect(),
            sojourn_mean_ms: stats.sojourn.mean().as_millis_f64(),
            sojourn_p50_ms: stats.sojourn.quantile(0.5).as_millis_f64(),
            sojourn_p99_ms: stats.sojourn.quantile(0.99).as_millis_f64(),
            sojourn_max_ms: stats.sojourn.max().as_millis_f64(),
            utilisation: hop.utilisation(start, now),
        }
    }
}
