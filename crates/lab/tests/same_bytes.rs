//! Same seed, same bytes: in debug and in release, on any machine.

use freshline_lab::run::run;
use freshline_lab::scenario::Scenario;

const SCENARIO: &str = r#"
title = "a bit of everything"
duration = "20s"
warm_up = "2s"
runs = 2

[[link]]
name = "link"
count = 2
forward = { rate = "2mbit", delay = "5ms", jitter = "2ms", loss = 0.01, queue = "20p" }

[[flow]]
name = "steered"
count = 3
path = ["link"]
start_spread = "50ms"
updates = { law = "acp+d", payload = "300B", sizes = "exponential" }

[[flow]]
name = "random"
path = ["link"]
updates = { law = "poisson", rate = "20/s", payload = "100B" }

[[flow]]
name = "load"
path = ["link"]
reverse = true
cross_traffic = { pattern = "on-off", rate = "3mbit", size = "1000B", on = "300ms", off = "500ms" }
"#;

/// Metric, flow and value, in s but for the backlog (updates) and the throughput (bit/s).
const GOLDEN: &[(&str, &str, f64)] = &[
    ("age_mean", "steered", 0.06764694416666667),
    ("age_p95", "steered", 0.13727607466666666),
    ("source_age_mean", "steered", 0.13391983483333333),
    ("rtt_mean", "steered", 0.04181662033333333),
    ("backlog", "steered", 0.8231256998333334),
    ("age_mean", "random", 0.063618386),
    ("age_p95", "random", 0.16777216),
    ("source_age_mean", "random", 0.116566546),
    ("rtt_mean", "random", 0.041358001500000005),
    ("backlog", "random", 1.25491884725),
    ("throughput", "load", 847333.3333333333),
];

#[test]
fn the_numbers_are_the_golden_ones_to_the_last_bit() {
    let metrics = run(&Scenario::parse(SCENARIO).unwrap(), || {}).unwrap();
    let chosen = ["age_mean", "source_age_mean", "age_p95", "rtt_mean", "backlog", "throughput"];
    let ours: Vec<_> = metrics
        .iter()
        .filter(|metric| chosen.contains(&metric.name) && !metric.of.contains('@'))
        .map(|metric| (metric.name, metric.of.as_str(), metric.value))
        .collect();
    assert_eq!(ours, GOLDEN);
    // The golden numbers are plausible: no update is younger than its one-way delay.
    let (_, _, age) = ours[0];
    assert!((0.010..1.0).contains(&age), "{age} s");
}
