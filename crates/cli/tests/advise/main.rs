//! `freshline advise` names the stop at which prepared networks lose time.

mod cases;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/hosts.rs"]
mod hosts;
#[path = "../common/orphans.rs"]
mod orphans;
mod traffic;
mod world;

use std::thread;

use serde_json::Value;

use cases::{FAULTS, HELD_OUT, NO_FAULTS};
use world::Case;

/// Runs cases at the same time, and returns whether each was named right.
fn judged(cases: &[Case]) -> Vec<bool> {
    let reports = thread::scope(|scope| {
        let running: Vec<_> = cases.iter().map(|case| scope.spawn(|| case.run())).collect();
        running.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
    });
    cases.iter().zip(&reports).map(|(case, report)| is_right(case, report)).collect()
}

fn is_right(case: &Case, report: &Value) -> bool {
    let first = &report["findings"][0];
    let found = (first["stop"].as_str(), first["direction"].as_str());
    let is_right = match case.expected {
        None => report["stop"].is_null() && report["findings"].as_array().unwrap().is_empty(),
        Some((stop, direction)) => found == (Some(stop), Some(direction)),
    };
    let command = first["recommendation"]["command"].as_str().unwrap_or("-");
    let ratio = first["recommendation"]["gain"]["ratio"].as_f64().unwrap_or_default();
    let verdict = if is_right { "right" } else { "WRONG" };
    println!(
        "{verdict} {:<44} {:<9} {:<5} {:<16} {ratio:>6.2} {command}",
        case.name,
        found.0.unwrap_or("-"),
        found.1.unwrap_or("-"),
        first["fault"].as_str().unwrap_or("-"),
    );
    if !is_right {
        println!("{report:#}");
    }
    for finding in report["findings"].as_array().unwrap() {
        assert_no_harm(case, finding);
    }
    is_right
}

/// Nothing is recommended that the lab found worse, or whose gain is unknown.
fn assert_no_harm(case: &Case, finding: &Value) {
    let recommended = &finding["recommendation"];
    let others = finding["alternatives"].as_array().unwrap();
    for remedy in others.iter().chain(Some(recommended).filter(|it| !it.is_null())) {
        let gain = &remedy["gain"];
        assert!(gain["ratio"].as_f64().unwrap() >= 1.1, "{}: {remedy:#}", case.name);
        if let Some(guard) = gain["guard"]["ratio"].as_f64() {
            assert!(guard >= 0.8, "{}: {remedy:#}", case.name);
        }
    }
}

fn can_run() -> bool {
    common::can_run_with(&["/dev/net/tun"])
}

#[test]
fn the_stop_is_named_in_18_of_20_faults_and_without_a_fault_nothing_is_recommended() {
    if !can_run() {
        return;
    }
    let mut right = 0;
    for wave in FAULTS.chunks(FAULTS.len().div_ceil(2)) {
        right += judged(wave).into_iter().filter(|it| *it).count();
    }
    assert!(right >= 18, "{right} of {} are right", FAULTS.len());
    let healthy = judged(NO_FAULTS);
    assert!(healthy.iter().all(|it| *it), "a fault was found where there is none");
}

#[test]
#[ignore = "long: faults with other numbers, that no rule was made with"]
fn held_out_faults() {
    if !can_run() {
        return;
    }
    let right = judged(HELD_OUT).into_iter().filter(|it| *it).count();
    println!("{right} of {} held-out faults are right", HELD_OUT.len());
    assert!(right + 1 >= HELD_OUT.len());
}
