//! A server's metrics for Prometheus.

use std::fmt;
use std::net::SocketAddr;

use freshline_core::session::downlink::ServerCounters;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::gauge::ConstGauge;

use super::report::{ClientStatus, ServerReport};
use crate::ask::Asker;
use crate::metrics::{self, Column, MetricsError, counters, gauges, total, totals};

/// Serves `http://ADDRESS/metrics` on its own thread; `most` bounds the number of labels. Returns
/// the address with the port that the system chose for port 0.
///
/// # Errors
/// [`MetricsError`] if it cannot listen at the address.
pub fn serve(
    address: SocketAddr,
    asker: Asker<ServerReport>,
    most: usize,
) -> Result<SocketAddr, MetricsError> {
    metrics::serve(address, move || {
        asker.report(most).map(Snapshot).map_err(|gone| gone.to_string())
    })
}

/// The server's report for one request.
#[derive(Debug)]
struct Snapshot(ServerReport);

const GAUGES: [Column<ClientStatus, Option<f64>>; 12] = [
    ("downlink_rate_bytes_per_second", "Rate of IP packets", |c| Some(c.rate_bps as f64 / 8.0)),
    (
        "downlink_limit_bytes_per_second",
        "Limit of the rate that the client's reports confirm",
        |c| c.limit_bps.map(|bps| bps as f64 / 8.0),
    ),
    ("downlink_limited", "1 while the limit is below the law's rate, else 0", |c| {
        c.limit_bps.map(|_| f64::from(u8::from(c.limited)))
    }),
    ("downlink_level", "Packets a frame, as last reported", |c| c.level),
    ("downlink_target", "Packets a frame that the law seeks", |c| c.target),
    (
        "downlink_overhead_seconds",
        "Overhead per frame besides its packets, as the law estimates it",
        |c| c.overhead_ms.map(|ms| ms / 1e3),
    ),
    ("downlink_slowest_target", "Packets a frame that the law seeks for the slowest client", |c| {
        c.slowest_target
    }),
    ("downlink_control_level", "Packets a frame from which the law calculates the rate", |c| {
        c.control_level
    }),
    ("downlink_delay_seconds", "One-way delay of a packet, as last reported", |c| {
        c.delay_ms.map(|ms| ms / 1e3)
    }),
    ("downlink_loss_ratio", "Share of packets that did not come, as last reported", |c| c.loss),
    ("downlink_dscp", "Code point of packets as they come, as last reported", |c| {
        c.marks.forward.received_dscp.map(|dscp| dscp.get().into())
    }),
    (
        "downlink_mcs_rate_bytes_per_second",
        "Rate of the frames' data symbols, as last reported",
        |c| c.mcs_rate_bps.map(|bps| bps as f64 / 8.0),
    ),
];

const COUNTERS: [Column<ClientStatus, u64>; 4] = [
    ("downlink_packets", "Packets sent", |c| c.packets),
    ("downlink_payload_bytes", "Payload sent", |c| c.payload_bytes),
    ("downlink_dropped", "Payloads not sent, since they had become too old", |c| c.dropped),
    ("downlink_reports", "Reports taken", |c| c.reports),
];

/// Sums over all clients, those of the past included.
const SUMS: [Column<ServerCounters, u64>; 11] = [
    ("downlink_all_packets", "Packets sent to all clients", |c| c.packets),
    ("downlink_all_payload_bytes", "Payload sent to all clients", |c| c.payload_bytes),
    ("downlink_all_reports", "Reports taken of all clients", |c| c.reports),
    ("downlink_datagrams", "Datagrams received", |c| c.datagrams),
    ("downlink_challenges", "Challenges sent", |c| c.challenged),
    ("downlink_joins_refused", "Joins refused", |c| c.refused),
    ("downlink_ignored", "Datagrams left aside", |c| c.ignored),
    ("downlink_joins", "Clients that have come", |c| c.joined),
    ("downlink_leaves", "Clients that have left", |c| c.left),
    ("downlink_clients_expired", "Clients forgotten because they were silent", |c| c.expired),
    ("downlink_clients_revoked", "Clients that new credentials do not permit", |c| c.revoked),
];

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self(report) = self;
        let clients = report.clients.iter().map(|client| (labels(client), client));
        gauges(&mut encoder, &GAUGES, clients.clone())?;
        counters(&mut encoder, &COUNTERS, clients)?;
        let now = ConstGauge::new(report.clients_active as u64);
        total(&mut encoder, "downlink_clients", "Clients of now", &now)?;
        totals(&mut encoder, &SUMS, &report.counters)?;
        report.refusals.encode(&mut encoder)
    }
}

/// Names are chosen by the clients, and numbers are not shared. A reader of metrics need not know a
/// session's name, which could be used to redirect packets.
fn labels(client: &ClientStatus) -> [(&'static str, String); 2] {
    let name = Some(&client.client).filter(|name| **name != client.number.to_string());
    [("client", name.cloned().unwrap_or_default()), ("number", client.number.to_string())]
}
