//! Metrics of the attached programs for Prometheus.

use std::fmt;

use freshline_core::receiver::QueueOwner;
use freshline_kernel::receiver::{Attachment, Counters, Peer, Place, Settings, Target};
use freshline_net::metrics::{Column, counters, family, gauges};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::gauge::ConstGauge;

const COUNTERS: [Column<Counters, u64>; 7] = [
    ("receiver_segments", "Outgoing segments inspected", |c| c.segments),
    ("receiver_round_trips", "Round trips measured", |c| c.round_trips),
    ("receiver_windows_set", "Windows set", |c| c.windows_set),
    ("receiver_windows_refused", "Windows that the kernel refused to set", |c| c.windows_refused),
    ("receiver_connections", "New connections under control", |c| c.connections),
    ("receiver_connections_adopted", "Existing connections adopted", |c| c.connections_adopted),
    (
        "receiver_uncontrolled_segments",
        "Incoming segments of connections without control: older than it, or without timestamps",
        |c| c.uncontrolled_segments,
    ),
];

const GAUGES: [Column<Peer, f64>; 5] = [
    ("receiver_peer_rtt_seconds", "Smoothed round trip", |p| p.rtt.as_secs_f64()),
    ("receiver_peer_rtt_min_seconds", "Minimum RTT", |p| p.min_rtt.as_secs_f64()),
    ("receiver_peer_rate_bytes_per_second", "Rate at which data arrives", |p| {
        p.rate.as_bps() as f64 / 8.0
    }),
    ("receiver_peer_queue_bytes", "Estimated queue in the network", |p| p.queue.get() as f64),
    ("receiver_peer_window_bytes", "Advertised window", |p| p.window.get() as f64),
];

const SETTINGS: [Column<Settings, f64>; 2] = [
    ("receiver_theta", "RTAC: target of the round trip, in multiples of the minimum RTT", |s| {
        s.theta
    }),
    ("receiver_delta_seconds", "RTAC: added to the minimum RTT; 0 if it is learnt", |s| {
        s.delta.fixed().as_secs_f64()
    }),
];

const SLOPE: [Column<Peer, Option<f64>>; 1] =
    [("receiver_peer_slope", "RTAC: K of the window, per packet", |p| p.slope)];

const OWNER: &str = "receiver_peer_queue_owner";
const OWNER_HELP: &str =
    "RTAC: 1 for the owner of the queue: none, own, competing, testing or unknown";

/// The attachments at one moment.
#[derive(Debug)]
pub(super) struct Snapshot(pub(super) Vec<Attachment>);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self(attachments) = self;
        let labelled: Vec<_> = attachments.iter().map(|one| (labels(one), one)).collect();
        let all = labelled.iter().map(|(labels, one)| (labels.clone(), &one.counters));
        counters(&mut encoder, &COUNTERS, all)?;
        let peers = labelled.iter().flat_map(|(labels, one)| {
            one.peers.iter().map(move |peer| {
                let mut labels = labels.clone();
                labels.push(("address", peer.address.to_string()));
                (labels, peer)
            })
        });
        gauges(&mut encoder, &GAUGES, peers.clone())?;
        let settings = labelled
            .iter()
            .filter_map(|(labels, one)| Some((labels.clone(), one.settings.as_ref()?)));
        gauges(&mut encoder, &SETTINGS, settings)?;
        gauges(&mut encoder, &SLOPE, peers.clone())?;
        let owners = peers.filter_map(|(mut labels, peer)| {
            labels.push(("owner", peer.queue_owner.map(QueueOwner::name)?.to_owned()));
            Some((labels, ConstGauge::new(1.0)))
        });
        family(&mut encoder, OWNER, OWNER_HELP, owners)
    }
}

type Labels = Vec<(&'static str, String)>;

/// The place as the user would name it, or else its number in the kernel.
fn labels(attachment: &Attachment) -> Labels {
    let place = match (attachment.place.target(), attachment.place) {
        (Some(Target::Cgroup(path)), _) => ("cgroup", path.display().to_string()),
        (Some(Target::Device(name)), _) => ("device", name),
        (None, Place::Cgroup { id }) => ("cgroup", format!("{id}")),
        (None, Place::Device { netns, index }) => ("device", format!("{netns}-{index}")),
    };
    vec![place, ("law", attachment.law.to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promtool;
    use freshline_core::receiver::Delta;
    use freshline_core::unit::{BitRate, Bytes, Span};
    use freshline_net::metrics::render;

    #[test]
    fn places_and_addresses_are_told_apart_by_labels() {
        let peer = Peer {
            address: "192.0.2.7".parse().unwrap(),
            min_rtt: Span::from_millis(20),
            delta: Some(Span::from_millis(8)),
            rtt: Span::from_millis(30),
            rate: BitRate::from_mbps(5),
            queue: Bytes::new(4800),
            window: Bytes::new(16_500),
            rounds: 9,
            slope: Some(15e-5),
            queue_owner: Some(QueueOwner::Competing),
        };
        let attachment = Attachment {
            place: Place::Device { netns: 0, index: 3 },
            law: "rtac",
            settings: Some(Settings {
                delta: Delta::Fixed(Span::from_millis(8)),
                ..Settings::default()
            }),
            pinned: Some(true),
            counters: Counters { segments: 7, uncontrolled_segments: 2, ..Counters::default() },
            runs: 0,
            run_time: Span::ZERO,
            peers: vec![peer],
        };
        let text = render(Snapshot(vec![attachment])).unwrap();
        for line in [
            "freshline_receiver_segments_total{device=\"0-3\",law=\"rtac\"} 7",
            "freshline_receiver_uncontrolled_segments_total{device=\"0-3\",law=\"rtac\"} 2",
            "freshline_receiver_peer_rtt_seconds{device=\"0-3\",law=\"rtac\",address=\"192.0.2.7\"} 0.03",
            "freshline_receiver_theta{device=\"0-3\",law=\"rtac\"} 1.38",
            "freshline_receiver_delta_seconds{device=\"0-3\",law=\"rtac\"} 0.008",
            "freshline_receiver_peer_slope{device=\"0-3\",law=\"rtac\",address=\"192.0.2.7\"} 0.00015",
            "freshline_receiver_peer_queue_owner{device=\"0-3\",law=\"rtac\",address=\"192.0.2.7\",owner=\"competing\"} 1.0",
            "freshline_receiver_peer_window_bytes{device=\"0-3\",law=\"rtac\",address=\"192.0.2.7\"} 16500.0",
        ] {
            assert!(text.lines().any(|told| told == line), "no `{line}` in\n{text}");
        }
        promtool::check(&text);
    }

    #[test]
    fn nothing_attached_is_nothing_to_tell() {
        assert_eq!(render(Snapshot(Vec::new())).unwrap(), "");
    }
}
