//! The results of a scenario, as `freshline lab run --json` prints it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Metric, Point};

/// The results of all points of a scenario's sweep as one JSON document. `docs/lab.md` describes
/// each key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Document {
    scenario: String,
    title: String,
    version: &'static str,
    seed: u64,
    runs: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<Vec<Metric>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    points: Option<Vec<PointResult>>,
}

/// The results of one point of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PointResult {
    /// The swept values, by key.
    pub set: BTreeMap<String, toml::Value>,
    /// The measurements.
    pub metrics: Vec<Metric>,
}

impl Document {
    /// The document of the scenario with this name, with one result per point, in the order of
    /// `points`.
    ///
    /// # Panics
    /// If there is no point: [`points`](super::points()) gives at least one.
    pub fn new(name: &str, points: &[Point], mut results: Vec<PointResult>) -> Self {
        let scenario = &points[0].scenario;
        let (seed, runs) = (scenario.seed, scenario.runs);
        let (title, version) = (scenario.title.clone(), env!("CARGO_PKG_VERSION"));
        let (metrics, points) = match results.len() {
            1 if results[0].set.is_empty() => (results.pop().map(|only| only.metrics), None),
            _ => (None, Some(results)),
        };
        Self { scenario: name.to_owned(), title, version, seed, runs, metrics, points }
    }
}
