//! Scenarios in the text of a test: helpers to change and run them, and to read their metrics.

// Each test uses a part of it.
#![allow(dead_code)]

use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::{Change, Scenario};

/// The scenario with changes, or its error.
pub(crate) fn scenario(text: &str, changes: &[&str]) -> Result<Scenario, String> {
    let changes: Vec<_> = changes.iter().map(|change| Change::parse(change).unwrap()).collect();
    Scenario::parse_with(text, &changes).map_err(|error| error.to_string())
}

/// Why the scenario cannot be run.
pub(crate) fn refused(text: &str, changes: &[&str]) -> String {
    let built = scenario(text, changes)
        .and_then(|scenario| scenario.build(0).map(drop).map_err(|error| error.to_string()));
    built.unwrap_err()
}

/// The metrics of its runs.
pub(crate) fn measured(text: &str, changes: &[&str]) -> Vec<Metric> {
    run(&scenario(text, changes).unwrap(), || {}).unwrap()
}

/// The number of a flow or link.
pub(crate) fn value(metrics: &[Metric], name: &str, of: &str) -> f64 {
    let found = metrics.iter().find(|metric| metric.name == name && metric.of == of);
    found.unwrap_or_else(|| panic!("no {name} of {of}")).value
}
