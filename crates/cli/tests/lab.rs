//! `freshline lab` as a user meets it.

use std::process::{Command, Output};

use serde_json::Value;

fn torture(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(["lab", "torture"]).args(args).output().expect("freshline starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_few_seeds_are_tortured_without_a_breach() {
    let output = torture(&["--seeds", "4", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!((&report["seeds"], &report["failures"]), (&4.into(), &Value::Array(Vec::new())));
    assert!(report["updates_fresh"].as_u64() > Some(1_000), "{report}");
    assert_eq!(report.get("details"), None, "only of one seed");
}

#[test]
fn a_seed_is_replayed_with_its_plan_and_its_last_events() {
    let output = torture(&["--seed", "17", "--verbose"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    for part in ["seed 17", "source 0: ", "a monitor starts", "the last events:", "is fresh"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert_eq!(told, text(&torture(&["--seed", "17", "--verbose"]).stdout), "the same again");
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    for args in [&["--seeds", "0"][..], &["--seeds", "2", "--seed", "1"], &["--verbose"]] {
        assert_eq!(torture(args).status.code(), Some(2), "{args:?}");
    }
}
