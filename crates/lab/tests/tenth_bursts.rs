//! Losses in bursts are no full queue: they do not slow Tenth.

#[path = "common/scenarios.rs"]
mod scenarios;

use scenarios::{measured, value};

const BURSTS: &str = include_str!("../../../scenarios/fresher/loss-bursts.toml");

/// So many times the age of a rate that fills the path is no slow source; Lazy has 3.6 times of it.
const NEAR: f64 = 1.1;

#[test]
fn bursts_of_losses_leave_the_rate_as_it_is() {
    let age = |changes: &[&str]| value(&measured(BURSTS, changes), "age_mean", "source");
    let tenth = age(&[]);
    let fixed = age(&["flow.source.updates.law=fixed", "flow.source.updates.rate=1100/s"]);
    println!("tenth {:.2} ms, fixed {:.2} ms", 1e3 * tenth, 1e3 * fixed);
    assert!(tenth < NEAR * fixed, "{tenth} {fixed}");
}
