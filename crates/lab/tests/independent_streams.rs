//! Constant bit rate over independent streams, one per path, and blocks that find no room.

#[path = "common/scenarios.rs"]
mod scenarios;

use freshline_lab::run::Metric;
use scenarios::{refused, value};

/// Two wires of 10 and 5 Mbit/s, and sockets of 131072 bytes.
const WIRES: &str = r#"
    title = "two wires"
    duration = "20s"
    warm_up = "5s"

    [[link]]
    name = "a"
    forward = { rate = "10mbit", delay = "5ms", queue = "200p" }

    [[link]]
    name = "b"
    forward = { rate = "5mbit", delay = "5ms", queue = "200p" }

    [[flow]]
    name = "mptcp"
    [flow.multipath]
    paths = [["a"], ["b"]]
    scheduler = "qaware"
    control = "reno"
    handler = false
    independent = true
    drop = true
    send_buffer = ["233017B", "233017B"]
    receive_buffer = ["262144B", "262144B"]
    rate = "13mbit"
"#;

fn measured(changes: &[&str]) -> Vec<Metric> {
    scenarios::measured(WIRES, changes)
}

/// Of 1468 bytes on the wire, and the timestamps' 12, 1428 are payload.
const EFFICIENCY: f64 = 1428.0 / 1480.0;

#[test]
fn qaware_delivers_what_both_paths_carry_where_the_shortest_round_trip_leaves_one_idle() {
    let metrics = measured(&[]);
    let all = value(&metrics, "goodput", "mptcp");
    assert!(all > 0.99 * 13e6, "{all}");
    assert!(value(&metrics, "blocks_dropped", "mptcp") == 0.0);
    let other = measured(&["flow.mptcp.multipath.scheduler=min_srtt"]);
    let min_srtt = value(&other, "goodput", "mptcp");
    println!("13 Mbit/s: qaware {all}, min_srtt {min_srtt}");
    assert!(min_srtt < 0.95 * all, "{min_srtt}");
    assert!(value(&other, "blocks_dropped", "mptcp") > 0.0, "its sockets were full");
    // Its slow path is left with a round trip that was long once, and is never measured again.
    let [run, others] = [&metrics, &other].map(|metrics| value(metrics, "max_run", "mptcp/1"));
    assert!(others > 5.0 * run, "{run} {others}");
}

#[test]
fn above_what_both_paths_carry_each_is_full_and_the_rest_is_refused() {
    for scheduler in ["qaware", "min_srtt", "ecf", "blest", "round_robin", "linger", "earliest"] {
        let scheduler = format!("flow.mptcp.multipath.scheduler={scheduler}");
        let metrics = measured(&["flow.mptcp.multipath.rate=30mbit", &scheduler]);
        let all = value(&metrics, "goodput", "mptcp");
        assert!(all <= 1.001 * 15e6 * EFFICIENCY, "{scheduler}: {all}");
        assert!(value(&metrics, "blocks_dropped", "mptcp") > 1_000.0, "{scheduler}");
    }
}

#[test]
fn one_stream_over_all_paths_loses_blocks_only_if_it_is_to() {
    let one = ["flow.mptcp.multipath.independent=false", "flow.mptcp.multipath.rate=20mbit"];
    let metrics = measured(&one);
    assert!(value(&metrics, "blocks_dropped", "mptcp") > 1_000.0);
    let delays = [&one[..], &["flow.mptcp.multipath.drop=false"]].concat();
    assert_eq!(value(&measured(&delays), "blocks_dropped", "mptcp"), 0.0);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let [independent, drop] = ["independent", "drop"].map(|key| format!("mptcp.multipath.{key}"));
    let off = |key: &str| format!("flow.{key}=false");
    let why = refused(WIRES, &[&off(&drop)]);
    assert!(why.contains("`independent` needs a `rate` and `drop = true`"), "{why}");
    let file = WIRES.replace("rate = \"13mbit\"\n", "file = \"1MB\"\n");
    let why = refused(&file, &[&off(&independent)]);
    assert!(why.contains("`drop` needs a `rate`"), "{why}");
}
