//! Captures and time series of the lab's own hops and cells agree with the lab's measurements.

use freshline_lab::capture::{Captures, Limits, Report, carrier_called, measure};
use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::Scenario;
use freshline_lab::series::{Columns, Csv, Series};
use freshline_lab::watch::watch;

/// The first link takes no time: packets leave it when they leave the hosts.
const SCENARIO: &str = r#"
title = "Updates and a stream, with losses, captured where they start"
duration = "20s"
[[link]]
name = "nic"
forward = {}
[[link]]
name = "uplink"
count = 2
forward = { rate = "10mbit", delay = "10ms", jitter = "1ms", queue = "60p", loss = 0.002 }
[[flow]]
name = "robot"
path = ["nic", "uplink"]
dscp = 46
updates = { law = "acp+d", payload = "400B" }
[[flow]]
name = "download"
path = ["nic", "uplink"]
tcp = { control = "cubic" }
[[flow]]
name = "noise"
path = ["nic"]
cross_traffic = { pattern = "poisson", rate = "100kbit", size = "200B" }
"#;

/// The report on a capture of these hops and cells, in one file.
fn capture_of(scenario: &Scenario, carriers: &[&str]) -> Report {
    let built = scenario.build(0).unwrap();
    let mut captures = Captures::new(&built);
    let carriers: Vec<_> =
        carriers.iter().map(|name| carrier_called(name, scenario, &built).unwrap()).collect();
    captures.add(&carriers, Vec::new()).unwrap();
    let (files, _) = watch(scenario, built, captures, None::<Series<Columns>>).unwrap();
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
    let report = capture_of(&scenario, &["nic", "nic/reverse"]);
    // In s, and how far they may be apart.
    let assert_near = |what: &str, captured_ms: f64, ours_s: f64, tolerance: f64| {
        let ratio = captured_ms / 1e3 / ours_s;
        assert!((ratio - 1.0).abs() < tolerance, "{what}: {captured_ms} ms, ours {ours_s} s");
    };

    let session = &report.sessions[0];
    let (rtt, at_source) = (session.rtt.unwrap(), session.age_at_source.unwrap());
    let at_monitor = session.age_at_monitor.unwrap();
    // The same samples; ages begin with the first ack and end with the last one.
    assert_near("round trip", rtt.mean_ms, value(&metrics, "rtt_mean", "robot"), 0.001);
    let source_age = value(&metrics, "source_age_mean", "robot");
    assert_near("age at the source", at_source.mean_ms, source_age, 0.01);
    // The monitor's clock is known by the source's estimate of its offset. The download keeps a queue in
    // the forward direction, of which half is taken for an offset: 2.2 ms here.
    assert_near("age", at_monitor.mean_ms, value(&metrics, "age_mean", "robot"), 0.07);

    // A delayed ack answers two segments. The sender's sample is of the older, which its timestamp
    // echoes (RFC 7323 section 4.3); the capture's is of the newer, as in An Empirical Study of
    // Ageing in the Cloud: it is shorter by the time between two segments, here some 2 of 46 ms.
    let flow = &report.flows[0];
    let rtt = flow.rtt.unwrap().mean_ms;
    assert_near("round trip of TCP", rtt, value(&metrics, "rtt_mean", "download"), 0.05);
    assert!(flow.retransmissions > 0 && flow.unseen_acks == 0 && flow.untracked == 0, "{flow:?}");
    let delivered = value(&metrics, "goodput", "download") * 20.0 / 8.0;
    let ratio = flow.acked_bytes as f64 / delivered;
    assert!((ratio - 1.0).abs() < 0.01, "{} B, ours {delivered} B", flow.acked_bytes);

    // Cross traffic is in the capture, and is kept apart.
    assert!(report.packets.other > 1_000 && report.packets.truncated == 0, "{:?}", report.packets);
}

#[test]
fn without_a_queue_in_one_direction_the_age_at_the_monitor_is_known_from_a_capture() {
    let alone = SCENARIO.replace("name = \"download\"", "name = \"download\"\ncount = 0");
    let scenario = Scenario::parse(&alone[..]).unwrap();
    let ours = value(&run(&scenario, || {}).unwrap(), "age_mean", "robot") * 1e3;
    let report = capture_of(&scenario, &["nic", "nic/reverse"]);
    let age = report.sessions[0].age_at_monitor.unwrap().mean_ms;
    // An arrival whose ack was lost is known to the capture later.
    assert!((age / ours - 1.0).abs() < 0.02, "{age} ms, ours {ours} ms");
}

#[test]
fn a_flow_that_nobody_sends_has_no_series_and_the_others_have() {
    let absent = SCENARIO.replace("name = \"robot\"", "name = \"robot\"\ncount = 0");
    let scenario = Scenario::parse(&absent[..]).unwrap();
    assert_eq!(table(&scenario, "flow-download", "10s").lines().count(), 3);
}

#[test]
fn one_direction_holds_what_goes_there_and_nothing_else() {
    let scenario = Scenario::parse(SCENARIO).unwrap();
    let there = capture_of(&scenario, &["uplink"]);
    assert!(there.sessions[0].updates > 100 && there.sessions[0].acks == 0);
    assert_eq!((there.flows[0].acked_bytes, there.packets.other), (0, 0));
}

/// The access point is between the source and its monitor, and between the stream's two ends.
const CELL: &str = r#"
title = "A robot and a download in a cell, with a wire behind it"
duration = "10s"
[[cell]]
name = "wifi"
radio = { standard = "802.11a", rate = "12mbit" }
[[link]]
name = "wire"
forward = { delay = "5ms" }
[[flow]]
name = "robot"
path = ["wifi", "wire"]
updates = { law = "fixed", rate = "50/s", payload = "500B" }
[[flow]]
name = "download"
path = ["wire", "wifi"]
tcp = { control = "cubic" }
"#;

#[test]
fn a_capture_of_a_cell_holds_both_directions_as_they_arrive() {
    let scenario = Scenario::parse(CELL).unwrap();
    let metrics = run(&scenario, || {}).unwrap();
    let report = capture_of(&scenario, &["wifi"]);
    let session = &report.sessions[0];
    let sent = value(&metrics, "updates", "robot") * 10.0;
    assert!(sent - session.updates as f64 <= 1.0, "{sent} sent, {} seen", session.updates);
    assert!(session.updates - session.acks <= 1, "{session:?}");
    // Acks show when each update reached the monitor.
    let ours = value(&metrics, "age_mean", "robot") * 1e3;
    let age = session.age_at_monitor.unwrap().mean_ms;
    assert!((age / ours - 1.0).abs() < 0.01, "{age} ms, ours {ours} ms");
    let flow = &report.flows[0];
    let delivered = value(&metrics, "goodput", "download") * 10.0 / 8.0;
    let ratio = flow.acked_bytes as f64 / delivered;
    assert!((ratio - 1.0).abs() < 0.01, "{} B, ours {delivered} B", flow.acked_bytes);
}

#[test]
fn the_series_of_a_cell_add_up_to_its_metrics() {
    let scenario = Scenario::parse(CELL).unwrap();
    let metrics = run(&scenario, || {}).unwrap();
    let table = table(&scenario, "cell-wifi", "100ms");
    let mut lines = table.lines();
    assert_eq!(
        lines.next(),
        Some("time_s,utilisation,retries,collisions,ap_queue_packets,station_queue_packets")
    );
    let rows: Vec<Vec<f64>> =
        lines.map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect()).collect();
    assert_eq!(rows.len(), 100);
    let mean = |column: usize| rows.iter().map(|row| row[column]).sum::<f64>() / 100.0;
    assert!(rows.iter().all(|row| row[1..4].iter().all(|share| (0.0..=1.0).contains(share))));
    let utilisation = value(&metrics, "utilisation", "wifi");
    assert!((mean(1) / utilisation - 1.0).abs() < 0.001, "{}, {utilisation}", mean(1));
    let retries = value(&metrics, "retries", "wifi");
    assert!((mean(2) / retries - 1.0).abs() < 0.1, "{}, {retries}", mean(2));
    // The download waits at the access point.
    assert!(mean(4) > 10.0 * mean(5), "{} packets, {}", mean(4), mean(5));
    let airtime = |of| value(&metrics, "airtime", of);
    assert!(airtime("wifi/ap") > 0.5 && airtime("robot") < 0.1);
}

#[test]
fn watching_a_run_does_not_change_it() {
    let scenario = Scenario::parse(SCENARIO).unwrap();
    let download = |every| table(&scenario, "flow-download", every);
    let (whole, sliced) = (download("20s"), download("100ms"));
    // The last line of the download: its window and its smoothed round trip.
    let end = |table: &str| -> Vec<String> {
        let last = table.lines().last().unwrap();
        last.split(',').skip(4).take(2).map(str::to_owned).collect()
    };
    assert_eq!(end(&whole), end(&sliced));
    assert_eq!((whole.lines().count(), sliced.lines().count()), (2, 201));
}

/// A time series.
fn table(scenario: &Scenario, name: &str, every: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let built = scenario.build(0).unwrap();
    let open = |table: &str, columns: &[&'static str]| {
        Csv::new(std::fs::File::create(folder.path().join(table))?, columns)
    };
    let series = Series::new(scenario, &built, every.parse().unwrap(), open).unwrap();
    let captures = Captures::<Vec<u8>>::new(&built);
    watch(scenario, built, captures, Some(series)).unwrap();
    std::fs::read_to_string(folder.path().join(name)).unwrap()
}
