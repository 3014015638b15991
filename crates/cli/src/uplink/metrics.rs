//! Metrics of the attached programs for Prometheus.

use std::fmt;

use freshline_kernel::sorpc::{Attachment, BandReport};
use freshline_net::metrics::{Column, counters, gauges};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

/// The attachments at one moment.
#[derive(Debug)]
pub(super) struct Snapshot(pub(super) Vec<Attachment>);

const SUMS: [Column<BandReport, Option<u64>>; 3] = [
    ("uplink_packets", "Packets put into a band", |band| Some(band.sent.packets.get())),
    ("uplink_bytes", "Bytes put into a band", |band| Some(band.sent.bytes.get())),
    ("uplink_drops", "Packets dropped at a full band", |band| band.drops.map(|drops| drops.get())),
];

const GAUGES: [Column<Attachment, Option<f64>>; 3] = [
    ("uplink_rate_bytes_per_second", "Shaping rate", |at| {
        at.rate.map(|rate| rate.as_bps() as f64 / 8.0)
    }),
    ("uplink_threshold_ratio", "Fraction of the send buffer above which a stream is bulk", |at| {
        Some(at.threshold)
    }),
    ("uplink_flows", "Known streams", |at| Some(at.flows.len() as f64)),
];

const BACKLOGS: [Column<BandReport, Option<f64>>; 1] =
    [("uplink_backlog_bytes", "Bytes queued in a band", |band| {
        band.backlog.map(|bytes| bytes.get() as f64)
    })];

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self(attachments) = self;
        let devices = attachments.iter().map(|at| ([("device", at.device.as_str())], at));
        gauges(&mut encoder, &GAUGES, devices)?;
        let bands = attachments
            .iter()
            .flat_map(|at| at.bands.iter().map(move |band| (labels(at, band), band)));
        counters(&mut encoder, &SUMS, bands.clone())?;
        gauges(&mut encoder, &BACKLOGS, bands)
    }
}

fn labels<'a>(at: &'a Attachment, band: &BandReport) -> [(&'static str, &'a str); 2] {
    [("device", &at.device), ("band", band.band.name())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promtool;
    use freshline_core::unit::{BitRate, Bytes, Packets, Span};
    use freshline_kernel::sorpc::{Account, Band};
    use freshline_net::metrics::render;

    #[test]
    fn each_number_has_its_device_and_its_band() {
        let band = |band, packets| BandReport {
            band,
            sent: Account { packets: Packets::new(packets), bytes: Bytes::new(100 * packets) },
            backlog: Some(Bytes::new(3028)),
            drops: Some(Packets::new(5)),
        };
        let shaped = Attachment {
            device: "eth0".into(),
            other_namespace: false,
            pinned: Some(true),
            threshold: 0.5,
            confined: false,
            rate: Some(BitRate::from_mbps(20)),
            lower_queue: None,
            unmanaged_delay: None,
            replaced: false,
            bands: [band(Band::Urgent, 7), band(Band::Batched, 8), band(Band::Bulk, 9)],
            flows: Vec::new(),
            runs: 0,
            run_time: Span::ZERO,
        };
        let mut unshaped = Attachment { device: "eth1".into(), rate: None, ..shaped.clone() };
        for band in &mut unshaped.bands {
            (band.backlog, band.drops) = (None, None);
        }
        let text = render(Snapshot(vec![shaped, unshaped])).unwrap();
        for line in [
            "freshline_uplink_rate_bytes_per_second{device=\"eth0\"} 2500000.0",
            "freshline_uplink_threshold_ratio{device=\"eth1\"} 0.5",
            "freshline_uplink_packets_total{device=\"eth0\",band=\"bulk\"} 9",
            "freshline_uplink_bytes_total{device=\"eth1\",band=\"urgent\"} 700",
            "freshline_uplink_drops_total{device=\"eth0\",band=\"urgent\"} 5",
            "freshline_uplink_backlog_bytes{device=\"eth0\",band=\"bulk\"} 3028.0",
        ] {
            assert!(text.lines().any(|told| told == line), "no `{line}` in\n{text}");
        }
        promtool::check(&text);
        assert!(!text.contains("rate{device=\"eth1\"}"), "unknown values are left out");
    }
}
