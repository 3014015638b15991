//! A link that follows a trace of delivery opportunities and delays: a file, or a model.

use std::fs;

use freshline_lab::run::run;
use freshline_lab::scenario::{Scenario, Source};

const SCENARIO: &str = r#"
title = "a trace"
duration = "10s"
warm_up = "1s"

[[link]]
name = "cellular"
forward = { trace = "one-a-ms.trace", delay = "5ms", queue = "20p" }
reverse = {}

[[flow]]
name = "load"
path = ["cellular"]
cross_traffic = { pattern = "constant", rate = "20mbit", size = "1500B" }
"#;

#[test]
fn a_trace_beside_the_scenario_decides_what_a_link_carries() {
    let folder = tempfile::tempdir().unwrap();
    let beside = |name: &str| fs::read_to_string(folder.path().join(name));
    let source = Source { text: SCENARIO, read_file: &beside };
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

/// Updates each 10 ms over a link with this `trace`.
fn updates(trace: &str) -> String {
    format!(
        r#"
title = "updates over a trace"
duration = "60s"
runs = 1

[[link]]
name = "path"
forward = {{ trace = {trace}, queue = "1000p" }}
reverse = {{ delay = "1ms" }}

[[flow]]
name = "source"
path = ["path"]
updates = {{ law = "fixed", rate = "100/s", payload = "500B" }}
"#
    )
}

fn metric(scenario: &Scenario, name: &str) -> f64 {
    let metrics = run(scenario, || {}).unwrap();
    metrics.iter().find(|metric| metric.name == name).unwrap().value
}

#[test]
fn a_step_of_the_delay_is_in_the_age() {
    // An opportunity each ms; 20 ms for 9 s, then 50 ms for 1 s.
    let lines = (1..=10_000).map(|at| format!("{at}\n"));
    let mut lines: Vec<_> = std::iter::once("0 delay=20ms\n".to_owned()).chain(lines).collect();
    lines.insert(9_000, "9000 delay=50ms\n".to_owned());
    let text = updates("\"steps.trace\"");
    let source = Source { text: &text, read_file: &|_| Ok(lines.concat()) };
    let age = metric(&Scenario::parse(source).unwrap(), "age_mean");
    // The delay, up to 1 ms until the next opportunity, and half of the 10 ms between updates. A step
    // up adds 30 ms of silence, in which the age grows: to both sides 0.09 ms at most.
    let expected = 0.9 * 20.0 + 0.1 * 50.0 + 5.0;
    assert!((0.0..1.2).contains(&(age * 1e3 - expected)), "{} ms for {expected}", age * 1e3);
}

#[test]
fn a_model_generates_a_trace_of_its_own_for_each_run() {
    let text = updates(r#"{ model = "leo", mean_rate = "20mbit" }"#);
    let mut scenario = Scenario::parse(&*text).unwrap();
    let age = metric(&scenario, "age_mean");
    assert_eq!(metric(&scenario, "age_mean"), age, "the same scenario");
    // 11.2 to 26 ms on the path, half of the 10 ms between updates, and outages.
    assert!((0.016..0.036).contains(&age), "{age} s");
    scenario.seed += 1;
    assert!((metric(&scenario, "age_mean") - age).abs() > 1e-4, "another seed");
    let fixed = updates(r#"{ model = "leo", mean_rate = "20mbit", seed = 3 }"#);
    let mut scenario = Scenario::parse(&*fixed).unwrap();
    let age = metric(&scenario, "rtt_mean");
    scenario.seed += 1;
    assert!((metric(&scenario, "rtt_mean") - age).abs() < 1e-3, "the satellites of seed 3");
}

#[test]
fn a_model_that_cannot_generate_a_trace_is_refused_with_its_line() {
    for (trace, message) in [
        (
            r#"{ model = "cellular", noise = "0bit" }"#,
            "line 7: link `path`, `forward`: `trace`: `noise`",
        ),
        (r#"{ model = "geo" }"#, "unknown variant `geo`, expected `cellular` or `leo`"),
        (r#"{ model = "leo", slots = 3 }"#, "unknown field `slots`"),
        ("{ slot = \"15s\" }", "missing field `model`"),
        ("3", "expected the name of a trace file, or a table with `model`"),
    ] {
        let error = Scenario::parse(&*updates(trace)).unwrap_err().to_string();
        assert!(error.contains(message), "{trace}: {error}");
    }
}
