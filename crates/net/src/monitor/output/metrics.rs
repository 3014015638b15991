//! A monitor's metrics for Prometheus.

use std::net::SocketAddr;

use freshline_core::session::MonitorCounters;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::metrics::{self, Column, MetricsError, counters, gauges, total, totals};
use crate::monitor::topic_status::TopicSum;
use crate::monitor::{Asker, MonitorReport, SourceStatus};

/// Serves `http://ADDRESS/metrics` on a thread of its own; `most` limits the number of labels.
/// Returns the address with the port that was chosen for port 0.
///
/// # Errors
/// [`MetricsError`] if it cannot listen at the address.
pub fn serve(address: SocketAddr, asker: Asker, most: usize) -> Result<SocketAddr, MetricsError> {
    // The monitor answers within one turn of its loop.
    metrics::serve(address, move || {
        asker.report(most).map(Snapshot).map_err(|gone| gone.to_string())
    })
}

/// The monitor's report for one request.
#[derive(Debug)]
struct Snapshot(MonitorReport);

const GAUGES: [Column<SourceStatus, Option<f64>>; 10] = [
    ("age_seconds", "Age of the freshest state", |s| s.age_ms.map(|ms| ms / 1e3)),
    ("age_uncertainty_seconds", "By how much that age may differ from the true one", |s| {
        s.age_uncertainty_ms.map(|ms| ms / 1e3)
    }),
    ("stale_topics", "Topics without a state that is fresh enough", |s| {
        Some(s.stale_topics as f64)
    }),
    ("silence_seconds", "Time since the last update", |s| Some(s.silence_s)),
    ("age_mean_seconds", "Time-average age", |s| s.age_mean_ms.map(|ms| ms / 1e3)),
    ("age_p95_seconds", "95th percentile of age", |s| s.age_p95_ms.map(|ms| ms / 1e3)),
    ("peak_age_mean_seconds", "Mean peak age", |s| s.peak_age_mean_ms.map(|ms| ms / 1e3)),
    ("updates_per_second", "Fresh updates per second", |s| Some(s.updates_per_s)),
    ("update_dscp", "Code point of the last update on arrival, 0 to 63", |s| {
        s.dscp.map(|dscp| dscp.get().into())
    }),
    ("loss_ratio", "Fraction of updates that did not arrive", |s| {
        let all = s.fresh + s.stale + s.missing;
        (all > 0).then(|| s.missing as f64 / all as f64)
    }),
];

const COUNTERS: [Column<SourceStatus, u64>; 5] = [
    ("updates_fresh", "Updates that were the freshest", |s| s.fresh),
    ("updates_stale", "Updates that arrived after a fresher one", |s| s.stale),
    ("updates_missing", "Updates that did not arrive", |s| s.missing),
    ("states_too_old", "States that were older than their maximum age upon arrival", |s| {
        s.too_old()
    }),
    ("states_replaced", "States that a newer one replaced before an output took them", |s| {
        s.replaced
    }),
];

const TOPIC_GAUGES: [Column<TopicSum, Option<f64>>; 4] = [
    ("topic_age_seconds", "Age of the freshest state; with keys, the maximum", |t| {
        t.age_ms.map(|ms| ms / 1e3)
    }),
    ("topic_age_mean_seconds", "Time-average age; with keys, the maximum", |t| {
        t.age_mean_ms.map(|ms| ms / 1e3)
    }),
    ("topic_keys", "Keys of a topic that has some", |t| t.keys.map(|keys| keys as f64)),
    ("topic_stale", "States, one per key, that are not fresh enough", |t| {
        t.stale.map(|stale| stale as f64)
    }),
];

const TOPIC_COUNTERS: [Column<TopicSum, u64>; 2] = [
    ("topic_states_too_old", "States that were older than their maximum age upon arrival", |t| {
        t.too_old
    }),
    ("topic_states_no_room", "States for which there was no room", |t| t.no_room),
];

/// Sums over all sources, including those without labels and former ones.
const SUMS: [Column<MonitorCounters, u64>; 15] = [
    ("datagrams", "Datagrams received", |c| c.datagrams),
    ("all_updates_fresh", "Updates that were the freshest of their source", |c| c.fresh),
    ("all_updates_stale", "Updates that arrived after a fresher one", |c| c.stale),
    ("all_updates_duplicate", "Updates that arrived more than once", |c| c.duplicates),
    ("all_states_too_old", "States that were older than their maximum age upon arrival", |c| {
        c.too_old
    }),
    ("records", "Records handed out", |c| c.records),
    ("record_chunks_repeated", "Parts of records that arrived again", |c| c.repeated_records),
    ("record_chunks_lost", "Parts of records that a source did not have any more", |c| {
        c.lost_records
    }),
    ("challenges", "Challenges sent", |c| c.challenged),
    ("updates_refused", "Updates refused", |c| c.refused),
    ("ignored", "Datagrams that were not meant for the monitor", |c| c.ignored),
    ("sessions_opened", "Sessions opened", |c| c.opened),
    ("sessions_closed", "Sessions closed by their sources", |c| c.closed),
    ("sessions_expired", "Sessions forgotten because they were idle", |c| c.expired),
    ("sessions_revoked", "Sessions that new credentials do not permit", |c| c.revoked),
];

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        encode(&self.0, &mut encoder)
    }
}

/// Writes all metrics of a monitor.
pub(crate) fn encode(
    report: &MonitorReport,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), std::fmt::Error> {
    let sources = report.sources.iter();
    let sources = sources.map(|source| ([("source", source.source.as_str())], source));
    gauges(encoder, &GAUGES, sources.clone())?;
    counters(encoder, &COUNTERS, sources)?;
    let sums = report.sources.iter().flat_map(|source| {
        let sums = TopicSum::of(&source.topics).into_iter();
        sums.map(|(topic, sum)| (source.source.as_str(), topic, sum))
    });
    let sums: Vec<_> = sums.collect();
    let topics =
        sums.iter().map(|(source, topic, sum)| ([("source", *source), ("topic", *topic)], sum));
    gauges(encoder, &TOPIC_GAUGES, topics.clone())?;
    counters(encoder, &TOPIC_COUNTERS, topics)?;
    let open = ConstGauge::new(report.sources_open as u64);
    total(encoder, "sources", "Sources held", &open)?;
    let stale = ConstGauge::new(report.stale_topics as u64);
    total(encoder, "all_stale_topics", "Topics without a state that is fresh enough", &stale)?;
    totals(encoder, &SUMS, &report.counters)?;
    report.refusals.encode(encoder)
}
