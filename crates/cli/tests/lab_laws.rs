//! `freshline lab reproduce` of contests and safety sweeps as a user meets it.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

const BASE: &str = r#"title = "Sources on one link"
duration = "16s"
warm_up = "10s"

[[link]]
name = "path"
forward = { rate = "200kbit", delay = "10ms", queue = "20p" }

[[flow]]
name = "source"
path = ["path"]
updates = { law = "tenth", payload = "500B" }

[[flow]]
name = "download"
count = 0
path = ["path"]
tcp = { control = "cubic" }

[reproduce]
of = "laws"
"#;

const CASES: &str = r#"
contest = { flows = ["source"], from = "1/s", to = "2/s", steps = 3, laws = ["lazy", "acp+"] }
[[reproduce.case]]
name = "alone"
title = "A lone source"
half = "training"
rates = ["10/s", "40/s"]
[[reproduce.case]]
name = "tcp"
title = "A source and a stream"
half = "held-out"
rates = ["0.5/s", "100/s"]
set = { duration = "30s", "link.path.forward.rate" = "1mbit", "flow.download.count" = 1, "reproduce.contest.tcp" = "download" }
"#;

const SAFETY: &str = r#"
[reproduce.safety]
seed = 1
laws = ["lazy", "fixed"]
flow = "source"
link = "path"
[[reproduce.safety.category]]
name = "wired"
points = 4
sources = [2, 6]
rtt = ["10ms", "20ms"]
rate = ["100kbit", "200kbit"]
queue = ["20p", "30p"]
payload = ["500B", "500B"]
"#;

fn reproduce(scenario: &str, args: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("s.toml"), BASE.to_owned() + scenario).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.current_dir(&folder).args(["lab", "reproduce", "s.toml"]).args(args);
    command.output().expect("freshline starts")
}

fn succeeds(scenario: &str, args: &[&str]) -> String {
    let done = reproduce(scenario, args);
    assert_eq!(done.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("UTF-8")
}

fn json(scenario: &str, args: &[&str]) -> Value {
    let args = [args, &["--json"]].concat();
    serde_json::from_str(&succeeds(scenario, &args)).expect("one JSON document")
}

#[test]
fn a_case_is_a_contest_of_its_own_and_a_half_is_those_that_belong_to_it() {
    let both = json(CASES, &[]);
    let names: Vec<_> = both.as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["s.toml/alone", "s.toml/tcp"]);
    assert_eq!(both[0]["contest"]["title"], "A lone source");
    let one = json(CASES, &["--half", "held-out"]);
    assert_eq!((&one["name"], &one["contest"]), (&names[1].clone(), &both[1]["contest"]));
    assert_eq!(json(CASES, &["--case", "alone"])["contest"], both[0]["contest"]);
}

#[test]
fn alongside_tcp_the_polite_rate_leaves_it_what_lazy_leaves_it() {
    let contest = &json(CASES, &["--case", "tcp"])["contest"];
    let lazy = contest["laws"][0]["tcp"].as_f64().unwrap();
    assert!(contest["polite"]["tcp"].as_f64().unwrap() >= 0.99 * lazy, "{contest}");
    let age = |entry: &Value| entry["age_mean"].as_f64().unwrap();
    assert!(age(&contest["best"]) <= age(&contest["polite"]), "{contest}");
    let said = succeeds(CASES, &[]);
    for part in ["goodput of TCP", "lazy, training: 1 families", "lazy, held-out: 1 families"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_sweep_has_a_row_per_violation_and_counts_them_by_law() {
    // 200 updates/s of each source are far more than any of the points carries.
    let fixed = ["--set", "flow.source.updates.law=fixed"];
    let rate = [&fixed[..], &["--set", "flow.source.updates.rate=200/s"]].concat();
    let both = reproduce(SAFETY, &rate);
    assert_eq!(both.status.code(), Some(2), "lazy has no rate");
    let fixed = [&rate[..], &["--set", r#"reproduce.safety.laws=["fixed"]"#]].concat();
    let sweep = &json(SAFETY, &fixed)["safety"];
    assert_eq!((&sweep["seed"], sweep["points"].as_array().unwrap().len()), (&1.into(), 4));
    for point in sweep["points"].as_array().unwrap() {
        let fixed = &point["laws"][0];
        let bits = 200.0 * 568.0 * 8.0 * point["sources"].as_f64().unwrap();
        let overload = bits / point["rate"].as_f64().unwrap();
        assert!((fixed["overload"].as_f64().unwrap() / overload - 1.0).abs() < 0.02, "{point}");
        assert_eq!(fixed["violations"][0], "overload");
        assert!((fixed["load"].as_f64().unwrap() / overload - 1.0).abs() < 0.02, "{point}");
    }
    let said = succeeds(SAFETY, &fixed);
    let rows = |word: &str| said.lines().filter(|line| line.contains(word)).count();
    assert_eq!((rows(" overload "), rows("seed 1, 4 points")), (5, 1), "and the head: {said}");
    assert_eq!(rows("load > 1.1"), 1, "and the last column: {said}");
}

#[test]
fn a_half_of_a_sweep_and_a_point_of_it_are_chosen_by_flags() {
    let lazy = ["--set", r#"reproduce.safety.laws=["lazy"]"#];
    let half = json(SAFETY, &[&lazy[..], &["--half", "training"]].concat());
    let points = half["safety"]["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    assert!(points.iter().all(|point| point["half"] == "training"), "{half}");
    let one = json(SAFETY, &[&lazy[..], &["--point", "3"]].concat());
    assert_eq!(one["safety"]["points"].as_array().unwrap().len(), 1);
    assert_eq!(one["safety"]["points"][0]["number"], 3);
}
