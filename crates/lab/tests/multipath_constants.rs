//! The initial window and the minimum timeout of a stream over several paths.

#[path = "common/scenarios.rs"]
mod scenarios;

use scenarios::{measured, refused, value};

/// Ten segments over a base RTT of 100 ms; the wire takes 0.1 ms for them.
const FILE: &str = r#"
title = "A file of ten segments"
duration = "20s"

[[link]]
name = "wire"
forward = { rate = "1gbit", delay = "50ms" }

[[flow]]
name = "file"

[flow.multipath]
paths = [["wire"]]
scheduler = "min_srtt"
control = "reno"
handler = false
file = "14280B"
"#;

fn round_trips(changes: &[&str]) -> f64 {
    value(&measured(FILE, changes), "completion", "file") / 0.1
}

/// Slow start from 1 sends 1, 2, 4 and 3 segments, a round trip each, behind that of the handshake; the
/// last arrives after half of one.
#[test]
fn slow_start_begins_with_the_initial_window() {
    let ten = round_trips(&[]);
    assert!((1.4..1.6).contains(&ten), "{ten}");
    let one = round_trips(&["flow.file.multipath.initial_window=1p"]);
    assert!((4.4..4.6).contains(&one), "{one}");
    let none = refused(FILE, &["flow.file.multipath.initial_window=0p"]);
    assert!(none.contains("`initial_window` is 0p"), "{none}");
}

/// Three packets in ten are lost. A loss that a timeout of 200 ms repairs waits, with 5 s, for a
/// tail loss probe or the timeout.
#[test]
fn a_minimum_timeout_delays_the_repair_of_losses() {
    let lossy = "link.wire.forward.loss=0.3";
    let short = round_trips(&[lossy]);
    let long = round_trips(&[lossy, "flow.file.multipath.min_rto=5s"]);
    assert!(long > short + 5.0, "{short} {long}");
}
