//! DTPA over the lab's mesh: distant nodes get more, without a configured share.

use freshline_lab::run::{self, Metric};
use freshline_lab::scenario::{Change, Scenario};

const TEN: &str = include_str!("../../../scenarios/dtpa/ten-nodes.toml");

fn metrics(set: &[&str]) -> Vec<Metric> {
    let short = ["runs=2", "duration=600s"];
    let changes = short.iter().chain(set).map(|text| Change::parse(text).unwrap());
    let changes: Vec<_> = changes.collect();
    run::run(&Scenario::parse_with(TEN, &changes).unwrap(), || {}).unwrap()
}

fn number(metrics: &[Metric], name: &str, of: &str) -> f64 {
    metrics.iter().find(|metric| metric.name == name && metric.of == of).unwrap().value
}

const LISTENING: [&str; 3] = [
    "mesh.office.header=23B",
    "flow.node.tcp.control=dtpa",
    "flow.node.tcp.dtpa={ law = { max_window = 8 } }",
];

#[test]
fn listening_makes_shares_alike_and_costs_at_most_a_quarter() {
    let (reno, dtpa) = (metrics(&[]), metrics(&LISTENING));
    let [before, after] = [&reno, &dtpa].map(|of| number(of, "goodput_jain", "node"));
    assert!(after > before + 0.1, "{before} and {after}");
    let [before, after] = [&reno, &dtpa].map(|of| number(of, "goodput_sum", "node"));
    assert!(after > 0.75 * before, "{before} and {after}");
    let [near, far] = ["node/1", "node/6"].map(|of| number(&dtpa, "period_mean", of));
    assert!(near > 2.0 * far, "the near node waits: {near} and {far} s");
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    assert_eq!(metrics(&LISTENING), metrics(&LISTENING));
    assert_ne!(metrics(&LISTENING), metrics(&[&LISTENING[..], &["seed=2"]].concat()));
}

#[test]
fn a_flow_says_at_which_node_it_begins() {
    let refused = |set: &[&str]| {
        let changes: Vec<_> = set.iter().map(|text| Change::parse(text).unwrap()).collect();
        Scenario::parse_with(TEN, &changes).unwrap_err().to_string()
    };
    assert!(refused(&["flow.node.each_node=false"]).contains("`node` from 1 to 10"));
    assert!(refused(&["flow.node.path=[\"wire\"]"]).contains("begins with a mesh"));
    assert!(refused(&["mesh.office.range=5.0"]).contains("does not hear its parent 0"));
    assert!(refused(&["flow.node.tcp.dtpa={ share = 0.5 }"]).contains("control = \"dtpa\""));
}
