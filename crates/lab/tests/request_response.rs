//! A client and its server in a scenario: the duration of responses, and their view in a capture.

use freshline_core::unit::Time;
use freshline_lab::capture::{Captures, Limits, carrier_called, measure};
use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::{Change, Scenario};
use freshline_lab::series::{Csv, Series};
use freshline_lab::watch::watch;
use freshline_lab::world::Flow;

/// The first link takes no time: packets leave it when they leave the hosts.
const SCENARIO: &str = r#"
title = "A client asks a server, beside a download or not"
duration = "21s"
warm_up = "1s"
[[link]]
name = "nic"
forward = {}
[[link]]
name = "uplink"
forward = { rate = "10mbit", delay = "20ms", queue = "100p" }
[[flow]]
name = "client"
path = ["nic", "uplink"]
tcp = { control = "cubic", request = "200B", response = "10kB", think = "100ms" }
[[flow]]
name = "download"
count = 0
path = ["nic", "uplink"]
reverse = true
tcp = { control = "cubic" }
"#;

fn scenario(changes: &[&str]) -> Result<Scenario, String> {
    let changes: Vec<_> = changes.iter().map(|change| Change::parse(change).unwrap()).collect();
    Scenario::parse_with(SCENARIO, &changes).map_err(|error| error.to_string())
}

fn metrics(changes: &[&str]) -> Vec<Metric> {
    run(&scenario(changes).unwrap(), || {}).unwrap()
}

fn value(metrics: &[Metric], name: &str) -> f64 {
    let found = metrics.iter().find(|metric| metric.name == name && metric.of == "client");
    found.unwrap_or_else(|| panic!("no {name}")).value
}

/// The base RTT, and 200 and 10 000 bytes at 10 Mbit/s with 1 and 7 times 52 of headers.
const ALONE: f64 = 0.040 + (252.0 + 10_364.0) * 8.0 / 10e6;

#[test]
fn a_response_takes_the_round_trip_and_its_transmission() {
    let metrics = metrics(&[]);
    let (mean, p95) = (value(&metrics, "response_mean"), value(&metrics, "response_p95"));
    assert!((mean / ALONE - 1.0).abs() < 0.01, "{mean} s, in theory {ALONE} s");
    assert!((p95 / ALONE - 1.0).abs() < 0.02, "{p95} s, in theory {ALONE} s");
    // The next request comes 100 ms behind a response.
    let rate = value(&metrics, "responses") * (0.1 + ALONE);
    assert!((rate - 1.0).abs() < 0.02, "{rate}");
    let goodput = value(&metrics, "responses") * 80_000.0;
    assert!((value(&metrics, "goodput") / goodput - 1.0).abs() < 0.02);
}

#[test]
fn after_a_long_thought_a_large_response_takes_several_round_trips() {
    let think = |think| {
        let sizes = ["flow.client.tcp.response=100kB", "link.uplink.forward.rate=1gbit"];
        value(&metrics(&[&sizes[..], &[think]].concat()), "response_mean")
    };
    // Restarted after idle with 10 segments, doubled each time: 10 + 20 + 40 of 70.
    let restarted = think("flow.client.tcp.think=3s");
    assert!((0.119..0.130).contains(&restarted), "{restarted} s");
    // The window is still as large as it became.
    let open = think("flow.client.tcp.think=100ms");
    assert!((0.040..0.045).contains(&open), "{open} s");
}

#[test]
fn a_request_larger_than_the_send_buffer_is_sent_all_the_same() {
    let metrics = metrics(&["flow.client.tcp.request=1MB"]);
    assert!(value(&metrics, "responses") > 0.8, "{metrics:?}");
}

#[test]
fn beside_a_download_responses_wait_in_its_queue() {
    let beside = metrics(&["flow.download.count=1"]);
    // 100 packets of 1500 bytes are 120 ms, of which cubic keeps most.
    let mean = value(&beside, "response_mean");
    assert!(mean > ALONE + 0.060 && mean < value(&beside, "response_p95"), "{mean} s");
}

#[test]
fn a_request_without_an_answer_counts_with_its_time_so_far() {
    // From 11 s on, nothing arrives before the end.
    let stuck = metrics(&[r#"link.uplink.forward.change=[{ at = "11s", delay = "60s" }]"#]);
    let all = value(&metrics(&[]), "responses");
    let mean = (10.0 * all * ALONE + 10.0) / (10.0 * all + 1.0);
    let stuck = value(&stuck, "response_mean");
    assert!((stuck / mean - 1.0).abs() < 0.05, "{stuck} s, in theory {mean} s");
}

#[test]
fn after_its_stop_a_client_asks_no_more() {
    let half = value(&metrics(&["flow.client.stop=11s"]), "responses");
    let whole = value(&metrics(&[]), "responses");
    // A rate is of the time until the stop.
    assert!((half / whole - 1.0).abs() < 0.01, "{half}/s, {whole}/s");
    let mut built = scenario(&["flow.client.stop=11s"]).unwrap().build(0).unwrap();
    let mut responses = |until: &str| {
        built.world.run_until(Time::ZERO + until.parse().unwrap());
        let Flow::Exchange(exchange) = &built.world.flows()[0].flow else { panic!("no exchange") };
        exchange.response_times().0
    };
    // The one that was asked for before the stop still comes.
    let (by_stop, at_end) = (responses("11s"), responses("21s"));
    assert!(by_stop > 50 && at_end <= by_stop + 1, "{by_stop}, then {at_end}");
}

#[test]
fn a_capture_shows_a_stream_each_way_and_a_series_the_times() {
    let scenario = scenario(&[]).unwrap();
    let built = scenario.build(0).unwrap();
    let mut captures = Captures::new(&built);
    let hops = ["nic", "nic/reverse"].map(|name| carrier_called(name, &scenario, &built).unwrap());
    captures.add(&hops, Vec::new()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let open = |table: &str, columns: &[&'static str]| {
        Csv::new(std::fs::File::create(folder.path().join(table))?, columns)
    };
    let series = Series::new(&scenario, &built, "1s".parse().unwrap(), open).unwrap();
    let (files, _) = watch(&scenario, built, captures, Some(series)).unwrap();

    let report = measure(&files[0][..], Limits::default()).report;
    let mut acked: Vec<_> = report.flows.iter().map(|flow| flow.acked_bytes).collect();
    acked.retain(|bytes| *bytes > 0);
    acked.sort_unstable();
    let [requests, responses] = acked[..] else { panic!("{:?}", report.flows) };
    assert_eq!((requests % 200, requests / 200), (0, responses / 10_000));

    let table = std::fs::read_to_string(folder.path().join("flow-client")).unwrap();
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("time_s,number,responses_per_s,response_s,goodput_bps"));
    let last: Vec<f64> =
        lines.last().unwrap().split(',').map(|value| value.parse().unwrap()).collect();
    assert_eq!((last[0], last[1]), (21.0, 0.0));
    assert!((last[3] / ALONE - 1.0).abs() < 0.01, "{last:?}");
}

#[test]
fn sizes_that_make_no_sense_are_refused_with_a_remedy() {
    let both = "give the sizes of both `request` and `response`, above zero";
    for (changes, remedy) in [
        (&["flow.client.tcp.request=0B"][..], both),
        (&["flow.download.count=1", "flow.download.tcp.response=1kB"], both),
        (
            &["flow.client.tcp.rate=1mbit"],
            "exclude `rate`, `updates`, `newest`, `block` and `file`",
        ),
        (
            &["flow.download.count=1", "flow.download.tcp.think=1s"],
            "`think` needs a `request` and a `response`",
        ),
    ] {
        let refused = scenario(changes).err().unwrap_or_default();
        assert!(refused.contains(remedy), "{changes:?}: {refused}");
    }
}
