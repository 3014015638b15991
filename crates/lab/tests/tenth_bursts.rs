//! Losses in bursts do not indicate a full queue: they do not slow Tenth.

#[path = "common/scenarios.rs"]
mod scenarios;

use scenarios::{measured, value};

const BURSTS: &str = include_str!("../../../scenarios/fresher/loss-bursts.toml");

/// Maximum ratio to the age of a rate that fills the path; Lazy's ratio is 3.6.
const NEAR: f64 = 1.1;

#[test]
fn bursts_of_losses_leave_the_rate_as_it_is() {
    let age = |changes: &[&str]| value(&measured(BURSTS, changes), "age_mean", "source");
    let tenth = age(&[]);
    let fixed = age(&["flow.source.updates.law=fixed", "flow.source.updates.rate=1100/s"]);
    println!("tenth {:.2} ms, fixed {:.2} ms", 1e3 * tenth, 1e3 * fixed);
    assert!(tenth < NEAR * fixed, "{tenth} {fixed}");
}
