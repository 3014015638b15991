//! A link that follows a trace of delivery opportunities.

use std::fs;

use freshline_lab::run::run;
use freshline_lab::scenario::{Scenario, Source};

const SCENARIO: &str = r#"
title = "a trace"
duration = "10s"
warm_up = "1s"

[[link]]
name = "cellular"
there = { trace = "one-a-ms.trace", delay = "5ms", queue = "20p" }
back = {}

[[flow]]
name = "load"
path = ["cellular"]
load = { pattern = "constant", rate = "20mbit", size = "1500B" }
"#;

#[test]
fn a_trace_beside_the_scenario_decides_what_a_link_carries() {
    let folder = tempfile::tempdir().unwrap();
    let beside = |name: &str| fs::read_to_string(folder.path().join(name));
    let source = Source { text: SCENARIO, beside: &beside };
    let missing = Scenario::parse(source).unwrap_err().to_string();
    assert!(
        missing.contains("line 7")
            && missing.contains("`cellular`")
            && missing.contains("one-a-ms.trace"),
        "{missing}"
    );

    // An opportunity of 1500 bytes each ms: 12 Mbit/s.
    fs::write(folder.path().join("one-a-ms.trace"), "1\n").unwrap();
    let metrics = run(&Scenario::parse(source).unwrap(), || {}).unwrap();
    let carried = metrics.iter().find(|metric| metric.name == "throughput").unwrap().value;
    assert!((carried / 12e6 - 1.0).abs() < 0.001, "{carried} bit/s");
}
