//! The report of an emulator.

use std::collections::BTreeMap;

use freshline_core::link::{
    Airborne, Conditions, ConditionsConfig, Direction, DropCounts, Hop, HopConfig, SpanHistogram,
};
use freshline_core::router::{Packet, Qdisc};
use freshline_core::unit::{Span, Time};
use freshline_core::wlan::mac::{CellConfig, StationStats};
use rand_pcg::rand_core::Rng;
use serde::Serialize;

/// The whole report.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The seed of all random numbers.
    pub seed: u64,
    /// How long the emulator has existed, in s.
    pub duration_s: f64,
    /// From the clients to the target.
    pub forward: DirectionReport,
    /// From the target back to the clients.
    pub reverse: DirectionReport,
    /// The cell, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wlan: Option<CellReport>,
    /// The clients.
    pub flows: FlowReport,
    /// How often the target's host answered that the port is unreachable.
    pub target_unreachable: u64,
    /// Other failures to send or to receive.
    pub socket_errors: u64,
}

/// The number of clients, by their state.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct FlowReport {
    /// Clients that are served now.
    pub active: usize,
    /// Clients that were ever served.
    pub opened: u64,
    /// Clients that were forgotten after they had been idle.
    pub expired: u64,
    /// Packets of clients that arrived when no more clients could be served.
    pub refused_packets: u64,
}

/// One direction.
#[derive(Debug, Clone, Serialize)]
pub struct DirectionReport {
    /// The hops from first to last.
    pub hops: Vec<HopReport>,
    /// The accuracy of the emulated times.
    pub timing_error: TimingError,
}

/// How long after its emulated arrival a packet was actually sent on.
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
    /// The configured conditions of the hop.
    pub conditions: HopConfig,
    /// Packets that arrived.
    pub packets_in: u64,
    /// Packets that left at the far end.
    pub packets_out: u64,
    /// Packets that are in the hop now.
    pub packets_in_flight: u64,
    /// Bytes that arrived.
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
    /// The used fraction of the link's capacity, from 0 to 1: of the time with a rate, of the
    /// delivery opportunities with a trace.
    pub utilisation: f64,
}

/// The cell of the clients. Bytes include IP headers, and UDP headers around a relay.
#[derive(Debug, Clone, Serialize)]
pub struct CellReport {
    /// The configuration of the cell.
    pub conditions: CellConfig,
    /// Packets in its queues, on the air, and received but held back behind a missing one.
    pub packets_in_flight: u64,
    /// The number of transmissions; a collision counts once.
    pub exchanges: u64,
    /// The fraction of the time during which the medium was busy, from 0 to 1.
    pub utilisation: f64,
    /// The stations that had anything to send or to receive.
    pub stations: Vec<StationReport>,
}

/// The transmissions of one station, except for `frames_received` and `level_received`.
#[derive(Debug, Clone, Serialize)]
pub struct StationReport {
    /// Its number; 0 is the access point.
    pub station: u32,
    /// Packets that it was given to send.
    pub packets_in: u64,
    /// The number of these packets that arrived.
    pub packets_out: u64,
    /// Bytes that it was given to send.
    pub bytes_in: u64,
    /// The number of these bytes that arrived.
    pub bytes_out: u64,
    /// Dropped packets by reason: `too_big`, `queue_full`, `lifetime`, `retry_limit`.
    pub drops: BTreeMap<&'static str, u64>,
    /// The number of its transmissions: frames, or A-MPDUs.
    pub frames: u64,
    /// The mean aggregation level of these: packets per frame; zero without frames.
    pub level: f64,
    /// Packets sent again.
    pub retries: u64,
    /// Frames that collided with another one.
    pub collisions: u64,
    /// The fraction of the time during which it transmitted, acknowledgements included, from 0
    /// to 1.
    pub airtime: f64,
    /// Frames that it received, at least in part.
    pub frames_received: u64,
    /// The mean aggregation level of these: packets received per frame; zero without frames.
    pub level_received: f64,
}

impl CellReport {
    /// The report of the cell in `conditions`, which match `config`, if there is a cell.
    pub(super) fn of<P: Airborne>(
        config: &ConditionsConfig,
        conditions: &Conditions<P>,
        start: Time,
        now: Time,
    ) -> Option<Self> {
        let (wlan_config, cell) = (config.wlan.clone()?, conditions.cell()?);
        let elapsed = now.since(start);
        let stats = cell.stats();
        let stations = (0u32..).zip(&stats.stations).filter(|(_, station)| is_active(station));
        let report = |(number, stats)| StationReport::new(number, stats, elapsed);
        Some(Self {
            conditions: CellConfig { stations: stats.stations.len() as u32, ..wlan_config },
            packets_in_flight: cell.inside().get(),
            exchanges: stats.exchanges,
            utilisation: part(cell.busy(now), elapsed),
            stations: stations.map(report).collect(),
        })
    }
}

fn is_active(station: &StationStats) -> bool {
    station.arrived.packets.get() > 0 || station.received_frames > 0
}

/// The fraction `span` / `whole`; zero if `whole` is zero.
fn part(span: Span, whole: Span) -> f64 {
    if whole.is_zero() { 0.0 } else { span.as_secs_f64() / whole.as_secs_f64() }
}

fn by_reason(drops: &DropCounts) -> BTreeMap<&'static str, u64> {
    drops.iter().map(|(why, count)| (why.name(), count.get())).collect()
}

impl StationReport {
    fn new(station: u32, stats: &StationStats, elapsed: Span) -> Self {
        Self {
            station,
            packets_in: stats.arrived.packets.get(),
            packets_out: stats.delivered.packets.get(),
            bytes_in: stats.arrived.bytes.get(),
            bytes_out: stats.delivered.bytes.get(),
            drops: by_reason(&stats.drops),
            frames: stats.transmissions,
            level: stats.level_sent(),
            retries: stats.retries,
            collisions: stats.collisions,
            airtime: part(stats.airtime, elapsed),
            frames_received: stats.received_frames,
            level_received: stats.level_received(),
        }
    }
}

impl DirectionReport {
    pub(super) fn new<P: Airborne>(
        config: &ConditionsConfig,
        conditions: &Conditions<P>,
        direction: Direction,
        lateness: &SpanHistogram,
        start: Time,
        now: Time,
    ) -> Self {
        let wlan_config = match direction {
            Direction::Forward => &config.forward,
            Direction::Reverse => &config.reverse,
        };
        // A path without configured hops is one ideal hop.
        let wlan_config = wlan_config.hop.iter().cloned().chain([HopConfig::default()]);
        let hops = conditions.path(direction).hops().iter().zip(wlan_config);
        Self {
            hops: hops
                .map(|(hop, wlan_config)| HopReport::new(wlan_config, hop, start, now))
                .collect(),
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
            packets_in_flight: hop.inside().get(),
            bytes_in: stats.arrived.bytes.get(),
            bytes_out: stats.delivered.bytes.get(),
            drops: by_reason(&stats.drops),
            sojourn_mean_ms: stats.sojourn.mean().as_millis_f64(),
            sojourn_p50_ms: stats.sojourn.quantile(0.5).as_millis_f64(),
            sojourn_p99_ms: stats.sojourn.quantile(0.99).as_millis_f64(),
            sojourn_max_ms: stats.sojourn.max().as_millis_f64(),
            utilisation: hop.utilisation(start, now),
        }
    }
}
