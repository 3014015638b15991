//! A relay's metrics for Prometheus: those of its monitor, and those of its sessions at the destinations.

use std::net::SocketAddr;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::{Asker, DestinationReport, RelayReport, RelayedReport};
use crate::metrics::{self, Column, MetricsError, counters, gauges, totals};
use crate::monitor::output::encode_metrics;

/// Serves `http://ADDRESS/metrics` on its own thread; `max` bounds the number of named sources, of
/// the monitor and of each destination. Returns the address with the port that the system chose for
/// port 0.
///
/// # Errors
/// [`MetricsError`] if it cannot listen at the address.
pub fn serve(address: SocketAddr, asker: Asker, max: usize) -> Result<SocketAddr, MetricsError> {
    metrics::serve(address, move || {
        asker.report(max).map(Snapshot).map_err(|gone| gone.to_string())
    })
}

/// The report for one request.
#[derive(Debug)]
struct Snapshot(RelayReport);

const GAUGES: [Column<RelayedReport, Option<f64>>; 4] = [
    ("relayed_age_seconds", "Age of the state that the destination has acknowledged", |it| {
        it.age_ms.map(|ms| ms / 1e3)
    }),
    ("relayed_rate_per_second", "Updates per second by the session's law", |it| {
        Some(it.rate_per_s)
    }),
    ("relayed_round_trip_seconds", "Mean round trip to the destination", |it| {
        it.session.rtt_mean_ms.map(|ms| ms / 1e3)
    }),
    ("relayed_open", "Whether the session is open", |it| Some(f64::from(u8::from(it.is_open)))),
];

const COUNTERS: [Column<RelayedReport, u64>; 2] = [
    ("relayed_updates_sent", "Updates sent to the destination", |it| it.session.sent),
    ("relayed_updates_acked", "Updates that the destination acknowledged as fresh", |it| {
        it.session.acked
    }),
];

const OF_DESTINATIONS: [Column<DestinationReport, f64>; 2] = [
    ("relay_sessions", "Sources that are relayed to the destination", |it| it.sessions as f64),
    ("relay_sessions_open", "Sessions that are open at the destination", |it| it.open as f64),
];

const SUMS: [Column<DestinationReport, u64>; 2] = [
    ("relay_sessions_begun", "Sessions begun at the destination", |it| it.begun),
    ("relay_sessions_failed", "Sessions that could not be begun or go on", |it| it.failed),
];

const NOT_HANDED_ON: [Column<RelayReport, u64>; 2] = [
    ("relay_old_states", "States not handed on, as newer ones of their name were", |it| {
        it.old_states
    }),
    ("relay_left_out", "States and records of topics not handed on", |it| it.left_out),
];

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Self(report) = self;
        encode_metrics(&report.monitor, &mut encoder)?;
        let destinations = report.destinations.iter();
        let named = |to: &'_ DestinationReport| [("destination", to.destination.clone())];
        let destinations = destinations.map(|to| (named(to), to));
        gauges(&mut encoder, &OF_DESTINATIONS, destinations.clone())?;
        counters(&mut encoder, &SUMS, destinations)?;
        let sources = report.destinations.iter().flat_map(|to| {
            let labels = |it: &RelayedReport| {
                [("destination", to.destination.clone()), ("source", it.source.clone())]
            };
            to.sources.iter().map(move |it| (labels(it), it))
        });
        gauges(&mut encoder, &GAUGES, sources.clone())?;
        counters(&mut encoder, &COUNTERS, sources)?;
        totals(&mut encoder, &NOT_HANDED_ON, report)
    }
}
