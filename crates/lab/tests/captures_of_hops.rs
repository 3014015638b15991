//! Captures of the lab's own hops tell what the lab itself has measured.

use freshline_lab::capture::{HopCaptures, Limits, Report, hop_called, measure};
use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::Scenario;
use freshline_lab::series::Series;
use freshline_lab::watch::watch;

/// The first link takes no time, so that what leaves it is what leaves the hosts.
const SCENARIO: &str = r#"
title = "Updates and a stream, with losses, captured where they start"
duration = "20s"
[[link]]
name = "nic"
there = {}
[[link]]
name = "uplink"
count = 2
there = { rate = "10mbit", delay = "10ms", jitter = "1ms", queue = "60p", loss = 0.002 }
[[flow]]
name = "robot"
path = ["nic", "uplink"]
dscp = 46
updates = { law = "acp+", payload = "400B" }
[[flow]]
name = "download"
path = ["nic", "uplink"]
tcp = { control = "cubic" }
[[flow]]
name = "noise"
path = ["nic"]
load = { pattern = "poisson", rate = "100kbit", size = "200B" }
"#;

/// What captures of these hops, in one file, tell.
fn capture_of(scenario: &Scenario, hops: &[&str]) -> Report {
    let built = scenario.build(0).unwrap();
    let mut captures = HopCaptures::new(&built);
    let hops: Vec<_> =
        hops.iter().map(|name| hop_called(name, scenario, &built).unwrap()).collect();
    captures.add(&hops, Vec::new()).unwrap();
    let files = watch(scenario, built, captures, None::<Series<Vec<u8>>>).unwrap();
    let measured = measure(&files[0][..], Limits::default());
    assert!(measured.error.is_none(), "{:?}", measured.error);
    measured.report
}

fn value(metrics: &[Metric], name: &str, of: &str) -> f64 {
    let found = metrics.iter().find(|metric| metric.name == name && metric.of == of);
    found.unwrap_or_else(|| panic!("no {name} of {of}")).value
}

#[test]
fn a_capture_agrees_with_what_the_lab_has_measured() {
    let scenario = Scenario::parse(SCENARIO).unwrap();
    let metrics = run(&scenario, || {}).unwrap();
    let report = capture_of(&scenario, &["nic", "nic/back"]);
    // In s, and how far they may be apart.
    let assert_near = |what: &str, captured_ms: f64, ours_s: f64, tolerance: f64| {
        let ratio = captured_ms / 1e3 / ours_s;
        assert!((ratio - 1.0).abs() < tolerance, "{what}: {captured_ms} ms, ours {ours_s} s");
    };

    let session = &report.sessions[0];
    let (rtt, at_source) = (session.rtt.unwrap(), session.age_at_source.unwrap());
    let at_monitor = session.age_at_monitor.unwrap();
    // The same samples; ages end with the last ack instead of the run.
    assert_near("round trip", rtt.mean_ms, value(&metrics, "rtt_mean", "robot"), 0.001);
    let source_age = value(&metrics, "source_age_mean", "robot");
    assert_near("age at the source", at_source.mean_ms, source_age, 0.01);
    assert_near("age", at_monitor.mean_ms, value(&metrics, "age_mean", "robot"), 0.01);

    // A delayed ack answers two segments. The sender's sample is of the older, which its timestamp
    // echoes (RFC 7323 section 4.3); the capture's of the newer, as in 001: shorter by what lies
    // between two segments, here some 2 of 46 ms.
    let flow = &report.flows[0];
    let rtt = flow.rtt.unwrap().mean_ms;
    assert_near("round trip of TCP", rtt, value(&metrics, "rtt_mean", "download"), 0.05);
    assert!(flow.resent > 0 && flow.unseen_acks == 0 && flow.untracked == 0, "{flow:?}");
    let delivered = value(&metrics, "goodput", "download") * 20.0 / 8.0;
    let ratio = flow.acked_bytes as f64 / delivered;
    assert!((ratio - 1.0).abs() < 0.01, "{} B, ours {delivered} B", flow.acked_bytes);

    // Cross traffic is in it, and is told apart.
    assert!(report.packets.other > 1_000 && report.packets.cut == 0, "{:?}", report.packets);
}

#[test]
fn a_flow_that_nobody_sends_has_no_series_and_the_others_have() {
    let absent = SCENARIO.replace("name = \"robot\"", "name = \"robot\"\ncount = 0");
    let scenario = Scenario::parse(&absent[..]).unwrap();
    assert_eq!(tables(&scenario, "10s").lines().count(), 3);
}

#[test]
fn one_direction_holds_what_goes_there_and_nothing_else() {
    let scenario = Scenario::parse(SCENARIO).unwrap();
    let there = capture_of(&scenario, &["uplink"]);
    assert!(there.sessions[0].updates > 100 && there.sessions[0].acks == 0);
    assert_eq!((there.flows[0].acked_bytes, there.packets.other), (0, 0));
}

#[test]
fn watching_a_run_does_not_change_it() {
    let scenario = Scenario::parse(SCENARIO).unwrap();
    let (whole, sliced) = (tables(&scenario, "20s"), tables(&scenario, "100ms"));
    // The last line of the download: its window and its smoothed round trip.
    let end = |table: &str| -> Vec<String> {
        let last = table.lines().last().unwrap();
        last.split(',').skip(4).take(2).map(str::to_owned).collect()
    };
    assert_eq!(end(&whole), end(&sliced));
    assert_eq!((whole.lines().count(), sliced.lines().count()), (2, 201));
}

/// The time series of the download.
fn tables(scenario: &Scenario, every: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let built = scenario.build(0).unwrap();
    let open = |table: &str| std::fs::File::create(folder.path().join(table));
    let series = Series::new(scenario, &built, every.parse().unwrap(), open).unwrap();
    let captures = HopCaptures::<Vec<u8>>::new(scenario, &built);
    watch(scenario, built, captures, Some(series)).unwrap();
    std::fs::read_to_string(folder.path().join("flow-download")).unwrap()
}
