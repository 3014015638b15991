//! The congestion control and its connections, as metrics for Prometheus.

use std::{fmt, iter};

use freshline_core::unit::Span;
use freshline_kernel::dtpa::{Attachment, Connection, Counters};
use freshline_net::metrics::{Column, counters, family, gauges};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::gauge::ConstGauge;

const COUNTERS: [Column<Counters, u64>; 4] = [
    ("mesh_connections", "Connections opened with the congestion control", |c| {
        c.connections_opened
    }),
    ("mesh_segments", "Segments with data, with retransmissions", |c| c.segments),
    ("mesh_timeouts", "Timeouts", |c| c.timeouts),
    ("mesh_fast_retransmits", "Fast retransmits", |c| c.fast_retransmits),
];

const GAUGES: [Column<Connection, f64>; 4] = [
    ("mesh_connection_loss_ratio", "Timeouts and fast retransmits over segments", Connection::loss),
    ("mesh_connection_rtt_seconds", "Smoothed round trip", |c| {
        c.round_trip.map_or(f64::NAN, Span::as_secs_f64)
    }),
    ("mesh_connection_period_seconds", "Time between two windows", |c| c.period.as_secs_f64()),
    ("mesh_connection_window_segments", "The congestion window", |c| c.window as f64),
];

/// The registration at one moment, if any.
#[derive(Debug)]
pub(super) struct Snapshot(pub(super) Option<Attachment>);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(attachment) = &self.0 else { return Ok(()) };
        let share = f64::from(attachment.settings.share.per_1000_s()) / 1e3;
        let values = iter::once((Labels::new(), ConstGauge::new(share)));
        family(
            &mut encoder,
            "mesh_share_segments_per_second",
            "Share of every node, segments/s",
            values,
        )?;
        let all = iter::once((Labels::new(), &attachment.counters));
        counters(&mut encoder, &COUNTERS, all)?;
        let connections = attachment.connections.iter();
        gauges(&mut encoder, &GAUGES, connections.map(|one| (labels(one), one)))
    }
}

type Labels = Vec<(&'static str, String)>;

fn labels(connection: &Connection) -> Labels {
    let Connection { remote, local_port, .. } = connection;
    vec![("remote", remote.to_string()), ("local_port", local_port.to_string())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promtool;
    use freshline_core::mesh::{DtpaParams, Share};
    use freshline_core::unit::Bytes;
    use freshline_kernel::dtpa::Settings;
    use freshline_net::metrics::render;

    #[test]
    fn connections_are_told_apart_by_labels() {
        let connection = Connection {
            remote: "192.0.2.7:443".parse().unwrap(),
            local_port: 5000,
            window: 4,
            segment: Bytes::new(500),
            segments: 200,
            timeouts: 3,
            fast_retransmits: 1,
            round_trip: Some(Span::from_millis(250)),
            period: Span::from_millis(1500),
        };
        let share = Share::per_second(2.5).unwrap();
        let attachment = Attachment {
            pinned: Some(true),
            settings: Settings { share, params: DtpaParams::default() },
            counters: Counters {
                connections_opened: 7,
                segments: 900,
                timeouts: 5,
                fast_retransmits: 6,
            },
            connections: vec![connection],
        };
        let text = render(Snapshot(Some(attachment))).unwrap();
        let of = "{remote=\"192.0.2.7:443\",local_port=\"5000\"}";
        for line in [
            "freshline_mesh_share_segments_per_second{} 2.5".to_owned(),
            "freshline_mesh_connections_total{} 7".to_owned(),
            "freshline_mesh_fast_retransmits_total{} 6".to_owned(),
            format!("freshline_mesh_connection_loss_ratio{of} 0.02"),
            format!("freshline_mesh_connection_rtt_seconds{of} 0.25"),
            format!("freshline_mesh_connection_period_seconds{of} 1.5"),
        ] {
            assert!(text.lines().any(|told| told == line), "no `{line}` in\n{text}");
        }
        promtool::check(&text);
        assert_eq!(render(Snapshot(None)).unwrap(), "");
    }
}
