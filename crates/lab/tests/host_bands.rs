//! Bands of a host in the lab: which flows are bulk, where that counts, and the benefit.

use std::collections::HashSet;

use freshline_core::host::Band;
use freshline_core::link::Direction;
use freshline_core::router::Packet;
use freshline_core::unit::{Span, Time};
use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::{Change, Scenario};
use freshline_lab::world::Carrier;

/// A phone whose uplink of 10 Mbit/s an upload fills from the start, and the other flows of its
/// user.
const PHONE: &str = r#"
title = "A phone that uploads"
duration = "20s"
warm_up = "10s"

[[link]]
name = "uplink"
forward = { rate = "10mbit", delay = "25ms", queue = "dual" }
reverse = { rate = "50mbit", delay = "25ms", queue = "2000p" }

[[link]]
name = "core"
forward = { rate = "1gbit" }

[[flow]]
name = "upload"
path = ["uplink", "core"]
start_interval = "10s"
tcp = { control = "cubic", host = "sorpc" }

[[flow]]
name = "messenger"
path = ["uplink", "core"]
start = "1s"
tcp = { control = "cubic", request = "200B", response = "200B", think = "100ms", host = "sorpc" }

[[flow]]
name = "call"
path = ["uplink", "core"]
start = "1s"
updates = { law = "fixed", rate = "50/s", payload = "160B" }

[[flow]]
name = "download"
count = 0
path = ["uplink", "core"]
reverse = true
start = "10s"
tcp = { control = "cubic" }
"#;

const ONE_QUEUE: &str = "link.uplink.forward.queue=2000p";
const TWO_FIFOS: &str =
    r#"link.uplink.forward.queue={discipline="dual",urgent="2000p",bulk="2000p"}"#;

fn scenario(changes: &[&str]) -> Scenario {
    let changes: Vec<_> = changes.iter().map(|change| Change::parse(change).unwrap()).collect();
    Scenario::parse_with(PHONE, &changes).unwrap()
}

fn measured(changes: &[&str]) -> impl Fn(&str, &str) -> Option<f64> + use<> {
    let metrics = run(&scenario(changes), || {}).unwrap();
    move |name, of| {
        let is_meant = |metric: &&Metric| metric.name == name && metric.of == of;
        metrics.iter().find(is_meant).map(|metric| metric.value)
    }
}

fn value(metrics: &impl Fn(&str, &str) -> Option<f64>, name: &str, of: &str) -> f64 {
    metrics(name, of).unwrap_or_else(|| panic!("no {name} of {of}"))
}

/// The flows, by name, of which bulk packets leave a hop in the first seconds.
fn bulk_of(changes: &[&str], link: usize) -> HashSet<(String, Direction)> {
    let scenario = scenario(changes);
    let mut built = scenario.build(0).unwrap();
    let hops = [&built.links[link].forward, &built.links[link].reverse].map(|hops| hops[0]);
    let ranges = built.flows.clone();
    let mut seen = HashSet::new();
    built.world.run_watched(Time::ZERO + Span::from_secs(12), |left| {
        let Carrier::Hop(hop) = left.carrier else { return };
        if hops.contains(&hop) && left.parcel.header().band == Band::Bulk {
            let flow = ranges.iter().position(|range| range.contains(&(left.parcel.flow as usize)));
            seen.insert((scenario.flows[flow.unwrap()].name.clone(), left.parcel.direction));
        }
    });
    seen
}

#[test]
fn only_data_from_a_filled_send_buffer_is_bulk_and_only_in_its_own_host() {
    let both = ["flow.download.count=1", "flow.download.tcp.host=sorpc"];
    let upload = ("upload".to_owned(), Direction::Forward);
    assert_eq!(bulk_of(&["flow.download.count=1"], 0), HashSet::from([upload.clone()]));
    assert_eq!(bulk_of(&["flow.upload.tcp.host=single"], 0), HashSet::new());
    // Behind the first link of a flow's path no packet is bulk; the download's first link is the
    // core's.
    assert_eq!(bulk_of(&both, 0), HashSet::from([upload]));
    let download = ("download".to_owned(), Direction::Forward);
    assert_eq!(bulk_of(&both, 1), HashSet::from([download]));
}

#[test]
fn what_a_user_does_no_longer_waits_behind_an_upload_which_loses_nothing() {
    let alone = measured(&["flow.upload.count=0"]);
    let single = measured(&[ONE_QUEUE]);
    for queue in ["link.uplink.forward.queue=dual", TWO_FIFOS] {
        let sorpc = measured(&[queue]);
        for (metric, flow) in [("response_p95", "messenger"), ("rtt_mean", "call")] {
            let times = [&alone, &single, &sorpc].map(|of| of(metric, flow).unwrap());
            assert!(times[1] > 10.0 * times[0], "{flow} waited in one queue: {times:?}");
            assert!(times[2] < 1.06 * times[0], "{flow} is as without upload: {times:?}");
        }
        let [before, after] = [&single, &sorpc].map(|of| of("goodput", "upload").unwrap());
        assert!(after >= 0.97 * before, "{before} to {after} with {queue}");
    }
}

#[test]
fn a_download_beside_an_upload_has_most_of_its_rate_again() {
    let with = |changes: &[&str]| {
        let metrics = measured(&[&["flow.download.count=1"], changes].concat());
        [value(&metrics, "goodput", "download"), metrics("goodput", "upload").unwrap_or(0.0)]
    };
    let [alone, _] = with(&["flow.upload.count=0"]);
    let [single, _] = with(&[ONE_QUEUE]);
    assert!(single < 0.3 * alone, "its acks waited: {single} of {alone}");
    for queue in ["link.uplink.forward.queue=dual", TWO_FIFOS] {
        let [download, upload] = with(&[queue]);
        assert!(download > 0.8 * alone, "{download} of {alone} with {queue}");
        // A tenth of the uplink carries acks.
        assert!(upload > 8e6, "{upload} with {queue}");
    }
}

#[test]
fn a_late_upload_has_its_share_at_once_with_fair_service_in_the_bulk_band() {
    let two = |queue: &str| {
        let metrics = measured(&["flow.upload.count=2", queue]);
        ["goodput_jain", "goodput_sum"].map(|name| value(&metrics, name, "upload"))
    };
    let [fifo_jain, fifo_sum] = two(TWO_FIFOS);
    let [fair_jain, fair_sum] = two("link.uplink.forward.queue=dual");
    assert!(fifo_jain < 0.7, "the late one waits behind the other: {fifo_jain}");
    assert!(fair_jain > 0.99, "{fair_jain}");
    assert!(fair_sum > 0.97 * fifo_sum, "{fifo_sum} to {fair_sum}");
}

#[test]
fn the_metrics_tell_files_from_text() {
    let metrics = measured(&[]);
    let of_upload = |name| value(&metrics, name, "upload");
    assert!(of_upload("occupancy_mean") > 0.99 && of_upload("bulk") == 1.0);
    assert!(of_upload("queue_per_window") > 1.0, "more than a window is there");
    let after = of_upload("bulk_after");
    assert!(
        (0.05..0.06).contains(&after),
        "as its first data leaves, behind the handshake: {after}"
    );
    let of_text = |name| value(&metrics, name, "messenger");
    assert!(of_text("occupancy_mean") < 0.05 && of_text("queue_per_window") < 1.0);
    assert_eq!((of_text("bulk"), metrics("bulk_after", "messenger")), (0.0, None));
}

#[test]
fn a_law_of_the_bands_that_cannot_be_is_refused_with_its_place() {
    for (host, expected) in [
        ("{law=\"sorpc\",threshold=0.0}", "flow `upload`: `host`: `threshold` is 0, which is not"),
        ("sorpic", "`sorpic` is no law of the bands; write `single` or `sorpc`"),
    ] {
        let change = Change::parse(&format!("flow.upload.tcp.host={host}")).unwrap();
        let message = Scenario::parse_with(PHONE, &[change]).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}
