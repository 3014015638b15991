//! States over one TCP stream whose application writes the newest one as soon as the previous one
//! has left.

use freshline_lab::run::run;
use freshline_lab::scenario::{Change, Scenario};

const SCENARIO: &str = r#"
title = "100 kB over one TCP stream"
duration = "60s"
warm_up = "10s"
[[link]]
name = "path"
forward = { rate = "10mbit", delay = "20ms", queue = "20p" }
reverse = { rate = "10mbit", delay = "20ms", queue = "100p" }
[[flow]]
name = "tcp"
path = ["path"]
tcp = { control = "cubic", newest = true, block = "100kB" }
"#;

fn scenario(change: &str) -> Result<Scenario, String> {
    let change = Change::parse(change).expect("it is a change");
    Scenario::parse_with(SCENARIO, &[change]).map_err(|error| error.to_string())
}

fn metric(change: &str, name: &str) -> f64 {
    let metrics = run(&scenario(change).expect("it is legal"), || {}).expect("it runs");
    let found = metrics.iter().find(|metric| metric.name == name && metric.of == "tcp");
    found.unwrap_or_else(|| panic!("no {name}")).value
}

/// How long the link carries 100 kB in 70 segments with 52 bytes of headers each, in s.
const STATE: f64 = (100e3 + 70.0 * 52.0) * 8.0 / 10e6;
/// How long the queue holds a segment at most.
const QUEUE: f64 = 20.0 * 1500.0 * 8.0 / 10e6;

#[test]
fn a_state_is_as_new_as_can_be_when_it_leaves() {
    let seed = "flow.tcp.start=0s";
    let age = metric(seed, "age_mean");
    // A state is sampled as its first segment leaves, and is complete one state and one one-way
    // delay later; the next one follows a state later. The mean is the one-way delay and one and a
    // half states, and the queueing delay.
    let least = 0.020 + 1.5 * STATE;
    assert!((least..least + QUEUE).contains(&age), "{age} s, in theory from {least} s");
    // The stream always has a state to send; it is idle only where CUBIC's window is below the
    // path's.
    let goodput = metric(seed, "goodput");
    assert!(goodput > 0.85 * 100e3 * 8.0 / STATE, "{goodput} bit/s");
}

#[test]
fn a_longer_state_than_the_send_buffer_is_written_in_parts() {
    let age = metric("flow.tcp.tcp.send_buffer=[\"16kB\",\"64kB\"]", "age_mean");
    let least = 0.020 + 1.5 * STATE;
    assert!((least..2.0 * least).contains(&age), "{age} s");
}

#[test]
fn a_lost_segment_holds_up_what_comes_behind_it() {
    let ages =
        ["0", "0.01"].map(|loss| metric(&format!("link.path.forward.loss={loss}"), "age_mean"));
    assert!(ages[1] > 1.5 * ages[0], "{ages:?} s");
}

#[test]
fn the_newest_state_excludes_other_applications() {
    for change in ["rate=\"1mbit\"", "updates=true", "file=\"1MB\"", "block=\"0B\""] {
        let refused = scenario(&format!("flow.tcp.tcp.{change}")).expect_err(change);
        assert!(refused.contains("`newest`") || refused.contains("`block`"), "{refused}");
    }
    let refused = scenario("flow.tcp.tcp.request=\"1kB\"").expect_err("they exclude each other");
    assert!(refused.contains("`newest`"), "{refused}");
}
