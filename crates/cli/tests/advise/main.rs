//! `freshline advise` names the stop at which prepared networks lose time.

mod cases;
#[allow(dead_code, reason = "shared with tests that attach programs")]
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

/// How many cases run at the same time: a busy machine emulates no more paths in time.
const AT_ONCE: usize = 4;

/// The cases with a wrong result. Runs several at the same time, and the wrong ones once more: on a
/// busy machine the emulated path is not the intended one.
fn wrong(cases: &'static [Case]) -> Vec<&'static Case> {
    let all: Vec<_> = cases.iter().collect();
    let first = tried(&all);
    println!("{} of {} are right at the first try", cases.len() - first.len(), cases.len());
    tried(&first)
}

fn tried(cases: &[&'static Case]) -> Vec<&'static Case> {
    let wave = |some: &[&'static Case]| {
        let reports = thread::scope(|scope| {
            let running: Vec<_> = some.iter().map(|case| scope.spawn(|| case.run())).collect();
            running.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
        });
        let judged = some.iter().zip(&reports).filter(|(case, report)| !is_right(case, report));
        judged.map(|(case, _)| *case).collect::<Vec<_>>()
    };
    cases.chunks(AT_ONCE).flat_map(wave).collect()
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
fn the_stop_is_named_in_18_of_20_faults() {
    if !can_run() {
        return;
    }
    let wrong = wrong(FAULTS).len();
    assert!(wrong <= 2, "{wrong} of {} are wrong", FAULTS.len());
}

#[test]
fn without_a_fault_nothing_is_recommended() {
    if !can_run() {
        return;
    }
    let wrong = wrong(NO_FAULTS);
    assert!(wrong.is_empty(), "a fault was found in a network without one: {wrong:?}");
}

#[test]
#[ignore = "long: faults with other numbers, which the rules were not made with"]
fn held_out_faults() {
    if !can_run() {
        return;
    }
    let wrong = wrong(HELD_OUT).len();
    assert!(wrong <= 1, "{wrong} of {} are wrong", HELD_OUT.len());
}
