//! The offered load in windows of 5 s, and the shares of equal flows in the delivered load.

#[path = "common/scenarios.rs"]
mod scenarios;

use freshline_core::unit::{Span, Time};
use freshline_lab::run::Metric;
use freshline_lab::world::Flow;
use scenarios::{measured, scenario, value};

/// Updates of 1000 bytes with their headers.
const LINK: &str = r#"
    title = "Fixed rates over one link"
    duration = "20s"
    warm_up = "5s"
    [[link]]
    name = "link"
    forward = { rate = "1mbit", delay = "10ms", queue = "10p" }
    reverse = { rate = "1mbit", delay = "10ms" }
    [[flow]]
    name = "source"
    path = ["link"]
    updates = { law = "fixed", rate = "100/s", payload = "932B" }
"#;

fn near(metrics: &[Metric], name: &str, of: &str, expected: f64) {
    let found = value(metrics, name, of);
    assert!((found / expected - 1.0).abs() < 0.01, "{name} of {of}: {found}, not {expected}");
}

#[test]
fn overload_is_the_load_over_the_capacity_with_all_that_is_dropped() {
    near(&measured(LINK, &[]), "overload", "link", 0.8);
    let twice = measured(LINK, &["flow.source.updates.rate=250/s"]);
    near(&twice, "overload", "link", 2.0);
    // Acks of 84 bytes for the 125 updates/s that are delivered.
    near(&twice, "reverse_overload", "link", 0.084);
    near(&twice, "load", "link", 2.0);
    near(&twice, "reverse_load", "link", 0.084);
}

#[test]
fn the_worst_window_decides_and_capacity_is_counted_as_it_changes() {
    // Of the window from 10 s to 15 s 2.5 s have 1 Mbit/s, and 2.5 s half of it.
    let step = r#"link.link.change=[{ at = "12500ms", rate = "500kbit" }, { at = "15s", rate = "1mbit" }]"#;
    let stepped = measured(LINK, &[step]);
    near(&stepped, "overload", "link", 0.8 / 0.75);
    near(&stepped, "load", "link", 0.8 * 15.0 / 13.75);
    let short = measured(LINK, &["duration=9s"]);
    assert!(short.iter().all(|metric| metric.name != "overload"), "no window is whole");
    let unlimited = measured(LINK, &[r#"link.link.forward={ delay = "1ms" }"#]);
    assert!(unlimited.iter().all(|metric| metric.name != "overload"), "there is no capacity");
}

#[test]
fn the_capacity_of_a_trace_is_that_of_its_opportunities() {
    let opportunities = include_str!("../../../scenarios/paths/lte.trace").lines().count() as f64;
    let capacity = opportunities * 12_000.0 / 0.4;
    let there = r#"link.link.forward={ trace = "../../scenarios/paths/lte.trace" }"#;
    let found = value(&measured(LINK, &[there]), "overload", "link");
    // A window is 12.5 repetitions.
    assert!((found * capacity / 800e3 - 1.0).abs() < 0.05, "{found} of {capacity} bit/s");
}

#[test]
fn the_load_of_a_cell_is_that_of_its_stations_and_apart_that_of_its_access_point() {
    let cell = r#"
        title = "Fixed rates in a cell"
        duration = "20s"
        warm_up = "5s"
        [[cell]]
        name = "wifi"
        radio = { standard = "802.11a", rate = "12mbit" }
        [[flow]]
        name = "source"
        count = 4
        path = ["wifi"]
        updates = { law = "fixed", rate = "50/s", payload = "932B" }
    "#;
    let calm = measured(cell, &[]);
    for name in ["offered_max", "carried_max"] {
        near(&calm, name, "wifi", 4.0 * 50.0 * 8000.0);
        near(&calm, name, "wifi/ap", 4.0 * 50.0 * 84.0 * 8.0);
    }
    let full = measured(cell, &["flow.source.updates.rate=1000/s"]);
    near(&full, "offered_max", "wifi", 4000.0 * 8000.0);
    assert!(value(&full, "carried_max", "wifi") < 12e6);
}

#[test]
fn shares_are_those_of_the_updates_that_each_flow_delivers() {
    let changes = ["flow.source.count=5", "flow.source.updates.law=poisson", "runs=1"];
    let metrics = measured(LINK, &changes);
    let mut built = scenario(LINK, &changes).unwrap().build(0).unwrap();
    let [start, end] = [5, 20].map(|seconds| Time::ZERO + Span::from_secs(seconds));
    built.world.run_until(start);
    built.world.begin_measuring();
    built.world.run_until(end);
    let fresh = built.world.flows().iter().map(|routed| match &routed.flow {
        Flow::Updates(updates) => updates.outcome(end).fresh_per_s.unwrap(),
        _ => panic!("no flow of updates"),
    });
    let fresh: Vec<f64> = fresh.collect();
    let sum: f64 = fresh.iter().sum();
    let squares: f64 = fresh.iter().map(|rate| rate * rate).sum();
    let slowest = fresh.iter().copied().fold(f64::INFINITY, f64::min) / (sum / 5.0);
    assert!(slowest < 0.99, "{fresh:?}");
    near(&metrics, "slowest", "source", slowest);
    near(&metrics, "updates_jain", "source", sum * sum / 5.0 / squares);
}
