//! The state of a bond: a table while it runs, metrics, and the summary.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use freshline_core::unit::Span;
use freshline_net::bond::{BondReport, PathReport, ViaReport, ViaState, Watcher};
use freshline_net::metrics::{Column, counters, gauges, serve, total, totals};
use freshline_net::via::QueueingDelaySource;
use freshline_system::privileges::Privilege;
use miette::IntoDiagnostic;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::gauge::ConstGauge;

use crate::failure::Failure;
use crate::output::{ms, print_json, printed};
use crate::privileges::Needs;

/// The outputs of a run.
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// Print a table of the paths this often, such as 1s.
    #[arg(long, value_name = "TIME", help_heading = "Output")]
    every: Option<Span>,
    /// Serve metrics for Prometheus at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR", help_heading = "Output")]
    metrics: Option<SocketAddr>,
    /// Print the summary as one JSON document on standard output.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

impl Show {
    /// The privileges that the outputs need.
    pub(super) fn needs(&self, privileges: &[Privilege]) -> Needs {
        Needs::new(privileges).listens(self.metrics)
    }

    /// Starts the outputs.
    pub(super) fn start(&self, watcher: &Watcher) -> Result<(), Failure> {
        if let Some(address) = self.metrics {
            let watcher = watcher.clone();
            let address = serve(address, move || Ok(Metrics(watcher.report())))
                .into_diagnostic()
                .map_err(Failure::Runtime)?;
            say!("metrics at http://{address}/metrics");
        }
        if let Some(every) = self.every {
            let watcher = watcher.clone();
            let every = Duration::from(every.max(Span::from_millis(200)));
            std::thread::spawn(move || {
                let mut before = BondReport::default();
                loop {
                    std::thread::sleep(every);
                    let report = watcher.report();
                    if table(&report, &before).is_err() {
                        return;
                    }
                    before = report;
                }
            });
        }
        Ok(())
    }

    /// Prints the summary at the end.
    pub(super) fn end(&self, watcher: &Watcher) -> Result<(), Failure> {
        let report = watcher.report();
        if self.json {
            return print_json(&report);
        }
        printed(writeln!(
            crate::said::Stderr,
            "{:.1} s: {} connections carried, {} failed; {} bytes accepted, {} delivered",
            report.duration_s,
            report.streams - report.streams_refused,
            report.streams_refused,
            report.streams_sent_bytes,
            report.streams_received_bytes,
        ))
    }
}

/// Prints the counts of each path since `before`.
fn table(report: &BondReport, before: &BondReport) -> io::Result<()> {
    let span = report.duration_s - before.duration_s;
    let mut err = crate::said::Stderr;
    for via in report.vias.iter().filter(|via| via.state != ViaState::Up) {
        let why = match via.state {
            ViaState::Missing => "no such interface or address, or it is down",
            ViaState::NoSocket => "no socket",
            ViaState::Unanswered => "no answer",
            ViaState::Opening | ViaState::Up => "opening",
        };
        writeln!(err, "{:<10} {} {why}, {} failed attempts", via.via, via.remote, via.failures)?;
    }
    if report.paths.is_empty() {
        return writeln!(err, "no path");
    }
    let since = |path: &PathReport, count: fn(&PathReport) -> u64| {
        let same = |one: &&PathReport| one.link == path.link && one.path == path.path;
        let old = before.paths.iter().find(same).map_or(0, count);
        count(path).saturating_sub(old)
    };
    let both =
        |path: &PathReport| since(path, |p| p.sent_bytes) + since(path, |p| p.received_bytes);
    let all: u64 = report.paths.iter().map(both).sum();
    let mbps = |bytes: u64| if span > 0.0 { bytes as f64 * 8e-6 / span } else { 0.0 };
    for path in &report.paths {
        writeln!(
            err,
            "{:<10} {} out {:8.2} in {:8.2} Mbit/s  srtt {:>9}  window {:>8}  share {:3.0} %  {}{}",
            path.interface.as_deref().unwrap_or("?"),
            path.remote,
            mbps(since(path, |path| path.sent_bytes)),
            mbps(since(path, |path| path.received_bytes)),
            ms(path.srtt_ms),
            path.window_bytes,
            if all > 0 { 100.0 * both(path) as f64 / all as f64 } else { 0.0 },
            path.queue,
            if path.is_up { "" } else { "  (not up)" },
        )?;
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    link: String,
    path: String,
    interface: String,
}

fn labels(path: &PathReport) -> Labels {
    Labels {
        link: path.link.to_string(),
        path: path.path.clone(),
        interface: path.interface.clone().unwrap_or_default(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ViaLabels {
    /// Two paths can have the same interface, to different addresses of the server.
    index: String,
    via: String,
}

fn vias(report: &BondReport) -> impl Iterator<Item = (ViaLabels, &ViaReport)> + Clone {
    let vias = report.vias.iter().enumerate();
    vias.map(|(index, via)| (ViaLabels { index: index.to_string(), via: via.via.clone() }, via))
}

#[derive(Debug)]
struct Metrics(BondReport);

const TOTALS: &[Column<BondReport, u64>] = &[
    ("bond_streams", "TCP connections so far.", |report| report.streams),
    ("bond_streams_refused", "TCP connections that failed.", |report| report.streams_refused),
    ("bond_streams_sent_bytes", "Bytes from TCP that QUIC has accepted.", |report| {
        report.streams_sent_bytes
    }),
    ("bond_streams_received_bytes", "Bytes from QUIC that TCP has accepted.", |report| {
        report.streams_received_bytes
    }),
    ("bond_datagrams_sent", "UDP datagrams that QUIC has accepted.", |report| {
        report.datagrams_sent
    }),
    ("bond_datagrams_received", "UDP datagrams delivered to programs or destinations.", |report| {
        report.datagrams_received
    }),
    ("bond_datagrams_dropped", "UDP datagrams that were dropped.", |report| {
        report.datagrams_dropped
    }),
];

const COUNTERS: &[Column<PathReport, u64>] = &[
    ("bond_path_sent_bytes", "UDP payload sent on a path.", |path| path.sent_bytes),
    ("bond_path_received_bytes", "UDP payload received on a path.", |path| path.received_bytes),
    ("bond_path_lost_packets", "QUIC packets lost on a path.", |path| path.lost_packets),
];

const GAUGES: &[Column<PathReport, Option<f64>>] = &[
    ("bond_path_up", "Whether a path carries data.", |path| Some(path.is_up.into())),
    ("bond_path_srtt_seconds", "The smoothed round trip.", |path| {
        path.srtt_ms.map(|srtt| srtt / 1e3)
    }),
    ("bond_path_window_bytes", "The congestion window.", |path| Some(path.window_bytes as f64)),
    ("bond_path_inflight_bytes", "Bytes in flight.", |path| Some(path.inflight_bytes as f64)),
    ("bond_path_queue_visible", "Whether the queue of a path's device is visible.", |path| {
        Some(path.queue.queue_source.is_some().into())
    }),
    ("bond_path_queue_packets", "Packets in the device's queue.", |path| {
        path.queue.queue_packets.map(|packets| packets as f64)
    }),
    (
        "bond_path_queue_rate_packets_per_second",
        "Packets that leave the device's queue per second while it is not empty.",
        |path| path.queue.queue_rate_pps,
    ),
    (
        "bond_path_queueing_delay_seconds",
        "The queueing delay of a packet that is sent now.",
        |path| path.queue.queueing_delay_ms.map(|wait| wait / 1e3),
    ),
    (
        "bond_path_queueing_delay_stamped",
        "Whether the kernel's timestamps show when packets left the device.",
        |path| Some((path.queue.queueing_delay_source == Some(QueueingDelaySource::Stamps)).into()),
    ),
    (
        "bond_path_stamped_queueing_delay_seconds",
        "The last queueing delay by such a timestamp.",
        |path| path.queue.stamped_queueing_delay_ms.map(|wait| wait / 1e3),
    ),
    ("bond_path_service_time_seconds", "The estimated time from the device to the ack.", |path| {
        path.queue.service_time_ms.map(|service| service / 1e3)
    }),
];

const VIA_COUNTERS: &[Column<ViaReport, u64>] = &[(
    "bond_via_failures",
    "Unanswered attempts to open a path by this interface or address.",
    |via| via.failures,
)];

const VIA_GAUGES: &[Column<ViaReport, Option<f64>>] =
    &[("bond_via_up", "Whether there is a path by this interface or address.", |via| {
        Some((via.state == ViaState::Up).into())
    })];

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let report = &self.0;
        totals(&mut encoder, TOTALS, report)?;
        report.refusals.encode(&mut encoder)?;
        let open = ConstGauge::new(report.streams_open as f64);
        total(&mut encoder, "bond_streams_open", "Open TCP connections.", &open)?;
        let flows = ConstGauge::new(report.udp_flows_open as f64);
        total(&mut encoder, "bond_udp_flows_open", "Open UDP flows.", &flows)?;
        counters(&mut encoder, VIA_COUNTERS, vias(report))?;
        gauges(&mut encoder, VIA_GAUGES, vias(report))?;
        let paths = report.paths.iter().map(|path| (labels(path), path));
        counters(&mut encoder, COUNTERS, paths.clone())?;
        gauges(&mut encoder, GAUGES, paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promtool;
    use freshline_net::metrics::render;
    use freshline_net::via::{QueueReport, SeenBy};

    #[test]
    fn each_path_has_its_own_labels() {
        let path = PathReport {
            link: 0,
            path: "1".into(),
            interface: Some("wlan0".into()),
            remote: "192.0.2.7:443".into(),
            is_up: true,
            srtt_ms: Some(20.0),
            window_bytes: 30_000,
            inflight_bytes: 1200,
            queue: QueueReport {
                queue_source: Some(SeenBy::Stations),
                queue_packets: Some(3),
                queue_rate_pps: Some(500.0),
                queueing_delay_ms: Some(6.0),
                queueing_delay_source: Some(QueueingDelaySource::Stamps),
                stamped_queueing_delay_ms: Some(7.0),
                service_time_ms: None,
            },
            sent_bytes: 500,
            received_bytes: 700,
            lost_packets: 2,
        };
        // Two paths by one interface, to two addresses of the server.
        let vias = ["192.0.2.7:443", "192.0.2.8:443"].map(|remote| ViaReport {
            via: "wlan0".into(),
            remote: remote.into(),
            state: ViaState::Up,
            failures: 3,
        });
        let report = BondReport { paths: vec![path], vias: vias.to_vec(), ..BondReport::default() };
        let text = render(Metrics(report)).unwrap();
        for line in [
            "freshline_bond_streams_total 0",
            "freshline_refused_total{reason=\"handshake_rate\"} 0",
            "freshline_bond_via_up{index=\"0\",via=\"wlan0\"} 1.0",
            "freshline_bond_via_failures_total{index=\"1\",via=\"wlan0\"} 3",
            "freshline_bond_path_queue_visible{link=\"0\",path=\"1\",interface=\"wlan0\"} 1.0",
            "freshline_bond_path_queue_rate_packets_per_second{link=\"0\",path=\"1\",interface=\"wlan0\"} 500.0",
            "freshline_bond_path_queueing_delay_seconds{link=\"0\",path=\"1\",interface=\"wlan0\"} 0.006",
            "freshline_bond_path_queueing_delay_stamped{link=\"0\",path=\"1\",interface=\"wlan0\"} 1.0",
            "freshline_bond_path_stamped_queueing_delay_seconds{link=\"0\",path=\"1\",interface=\"wlan0\"} 0.007",
            "freshline_bond_path_lost_packets_total{link=\"0\",path=\"1\",interface=\"wlan0\"} 2",
        ] {
            assert!(text.lines().any(|told| told == line), "no `{line}` in\n{text}");
        }
        promtool::check(&text);
    }
}
