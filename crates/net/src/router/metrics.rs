//! A router's metrics for Prometheus.

use std::fmt;
use std::iter;
use std::net::SocketAddr;

use freshline_core::router::{AccountReport, RouterReport};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::metrics::{self, Column, MetricsError, counters, family, gauges};

/// Serves `http://ADDRESS/metrics` on its own thread; each request calls `report` and serves its
/// result, or its error. Returns the address with the port that the system chose for port 0.
///
/// # Errors
/// [`MetricsError`] if it cannot listen at the address.
pub fn serve(
    address: SocketAddr,
    report: impl Fn() -> Result<RouterReport, String> + Send + Sync + 'static,
) -> Result<SocketAddr, MetricsError> {
    metrics::serve(address, move || report().map(Snapshot))
}

/// A router's report for one request.
#[derive(Debug)]
pub struct Snapshot(pub RouterReport);

const COUNTERS: [Column<AccountReport, u64>; 8] = [
    ("packets_in", "Packets that came", |a| a.packets_in),
    ("bytes_in", "Bytes that came", |a| a.bytes_in),
    ("packets_out", "Packets that left", |a| a.packets_out),
    ("bytes_out", "Bytes that left", |a| a.bytes_out),
    ("marked", "Packets that an AQM marked", |a| a.marked),
    ("replaced", "Packets of which a newer one took the place", |a| a.replaced),
    ("queue_full", "Packets that met a queue at its limit", |a| a.queue_full),
    ("congestion", "Packets that an AQM dropped", |a| a.congestion),
];

const SOJOURNS: [Column<AccountReport, Option<f64>>; 2] = [
    ("sojourn_p50_seconds", "Median time in the queue", |a| a.sojourn_p50_ms),
    ("sojourn_p95_seconds", "95th percentile of the time in the queue", |a| a.sojourn_p95_ms),
];

const GAUGES: [Column<RouterReport, Option<f64>>; 5] = [
    ("router_rate_bytes_per_second", "Rate to which is shaped", |r| {
        r.rate_bps.map(|bps| bps as f64 / 8.0)
    }),
    ("router_aoi_share_ratio", "Share that the AoI class is to have", |r| r.aoi_share),
    ("router_served_share_ratio", "Share of the bytes sent that the AoI class had", |r| {
        r.served_share
    }),
    ("router_backlog_packets", "Packets that wait", |r| Some(r.backlog.packets as f64)),
    ("router_backlog_bytes", "Bytes that wait", |r| Some(r.backlog.bytes as f64)),
];

const SUMS: [Column<RouterReport, u64>; 7] = [
    ("router_kernel_drops_queue_full", "Packets that the kernel's queue did not take", |r| {
        r.kernel_drops.queue_full
    }),
    ("router_kernel_drops_unread", "Packets that came faster than they were read", |r| {
        r.kernel_drops.unread
    }),
    ("router_kernel_drops_flushed", "Packets that the kernel dropped while they waited", |r| {
        r.kernel_drops.flushed
    }),
    ("router_kernel_overruns", "Times that the kernel told of unread packets", |r| {
        r.kernel_drops.overruns
    }),
    ("router_flows_evicted", "Flows that made room for others", |r| r.flows_evicted),
    ("router_failures", "Failures to read packets or to give them back", |r| r.failures),
    ("router_unshaped_intervals", "Times in which packets passed without the router", |r| {
        r.unshaped.count
    }),
];

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self(report) = self;
        let device = ("device", report.device.as_str());
        let whole = iter::once(([device], report));
        gauges(&mut encoder, &GAUGES, whole.clone())?;
        counters(&mut encoder, &SUMS, whole)?;
        let unshaped = ConstCounter::new(report.unshaped.duration_s);
        let help = "How long packets passed without the router, in all";
        family(&mut encoder, "router_unshaped_seconds", help, iter::once(([device], unshaped)))?;
        let classes: Vec<_> = report
            .classes
            .iter()
            .map(|class| (vec![device, ("class", class.class.as_str())], &class.account))
            .collect();
        accounts(&mut encoder, "router_class", &classes)?;
        let flows: Vec<_> = report
            .flows
            .iter()
            .map(|flow| {
                let protocol = flow.protocol.to_string();
                (
                    flow.class.as_str(),
                    flow.source.as_str(),
                    flow.destination.as_str(),
                    protocol,
                    &flow.account,
                )
            })
            .collect();
        let flows: Vec<_> = flows
            .iter()
            .map(|(class, source, destination, protocol, account)| {
                let labels = vec![
                    device,
                    ("class", *class),
                    ("source", *source),
                    ("destination", *destination),
                    ("protocol", protocol.as_str()),
                ];
                (labels, *account)
            })
            .collect();
        accounts(&mut encoder, "router_flow", &flows)
    }
}

/// The labels of a class or flow, and its statistics.
type Labelled<'a> = (Vec<(&'a str, &'a str)>, &'a AccountReport);

fn accounts(
    encoder: &mut DescriptorEncoder<'_>,
    of: &str,
    accounts: &[Labelled<'_>],
) -> Result<(), fmt::Error> {
    for (name, help, value) in COUNTERS {
        let values = accounts
            .iter()
            .map(|(labels, account)| (labels.as_slice(), ConstCounter::new(value(account))));
        family(encoder, &format!("{of}_{name}"), help, values)?;
    }
    for (name, help, value) in SOJOURNS {
        let values = accounts.iter().filter_map(|(labels, account)| {
            Some((labels.as_slice(), ConstGauge::new(value(account)? / 1e3)))
        });
        family(encoder, &format!("{of}_{name}"), help, values)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promtool;
    use freshline_core::router::{
        BacklogReport, ClassReport, FlowReport, KernelDropsReport, UnshapedReport,
    };

    #[test]
    fn classes_and_flows_are_told_apart_by_labels() {
        let account = AccountReport {
            packets_in: 7,
            replaced: 2,
            sojourn_p50_ms: Some(1.5),
            ..AccountReport::default()
        };
        let report = RouterReport {
            device: "eth1".into(),
            duration_s: 1.0,
            queue: "ifc".into(),
            rate_bps: Some(20_000_000),
            aoi_share: Some(0.5),
            served_share: None,
            super_packets: "whole".into(),
            backlog: BacklogReport { packets: 1, bytes: 2, limit: None },
            classes: vec![ClassReport { class: "aoi".into(), account }],
            flows: vec![FlowReport {
                class: "aoi".into(),
                source: "10.0.0.1:5".into(),
                destination: "10.0.0.2:6".into(),
                protocol: 17,
                account,
            }],
            flows_evicted: 3,
            kernel_drops: KernelDropsReport::default(),
            failures: 0,
            unshaped: UnshapedReport { count: 2, duration_s: 1.5 },
        };
        let text = metrics::render(Snapshot(report)).unwrap();
        for line in [
            "freshline_router_rate_bytes_per_second{device=\"eth1\"} 2500000.0",
            "freshline_router_flows_evicted_total{device=\"eth1\"} 3",
            "freshline_router_unshaped_intervals_total{device=\"eth1\"} 2",
            "freshline_router_unshaped_seconds_total{device=\"eth1\"} 1.5",
            "freshline_router_class_packets_in_total{device=\"eth1\",class=\"aoi\"} 7",
            "freshline_router_class_sojourn_p50_seconds{device=\"eth1\",class=\"aoi\"} 0.0015",
            "freshline_router_flow_replaced_total{device=\"eth1\",class=\"aoi\",\
             source=\"10.0.0.1:5\",destination=\"10.0.0.2:6\",protocol=\"17\"} 2",
        ] {
            assert!(text.lines().any(|told| told == line), "no `{line}` in\n{text}");
        }
        promtool::check(&text);
        assert!(!text.contains("served_share"), "unknown values are left out");
    }
}
