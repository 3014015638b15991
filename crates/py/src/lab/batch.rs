//! Many short runs at once, for sweeps.

use std::path::PathBuf;

use freshline_lab::run::run_one;
use freshline_lab::scenario::Scenario;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::law::PyLaws;
use super::parallel::in_parallel;
use super::text::{changes_of, text_of};
use crate::error;
use crate::table::{Columns, Table};

/// Runs a scenario once for each seed of each job; a job is its changes to the scenario and its
/// seeds. The rows (job, seed, of, name, value, unit) are in the order of jobs and seeds, and do
/// not depend on the number of threads.
#[pyfunction]
#[pyo3(signature = (name, text, folder, jobs, threads=None, progress=None))]
pub(crate) fn run_batch(
    py: Python<'_>,
    name: &str,
    text: Option<String>,
    folder: Option<PathBuf>,
    jobs: Vec<(Bound<'_, PyDict>, Vec<u64>)>,
    threads: Option<usize>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Table> {
    let text = text_of(name, text, folder)?;
    let mut scenarios = Vec::new();
    let mut runs = Vec::new();
    for (job, (set, seeds)) in jobs.iter().enumerate() {
        let scenario = Scenario::parse_with(text.source(), &changes_of(set)?)
            .map_err(|error| error::of_scenario(&text.name, &error))?;
        scenarios.push(scenario);
        runs.extend(seeds.iter().map(|seed| (job, *seed)));
    }
    let laws = PyLaws::default();
    let results = in_parallel(py, runs.len(), threads, progress, laws.stopping(), |at| {
        let (job, seed) = runs[at];
        let seeded = Scenario { seed, ..scenarios[job].clone() };
        run_one(&seeded, 0, &laws).map_err(|error| error::of_scenario(&text.name, &error))
    })?;
    let each = || {
        let rows = runs.iter().zip(&results);
        rows.flat_map(|(run, numbers)| numbers.iter().map(move |number| (run, number)))
    };
    Columns::default()
        .counts("job", each().map(|((job, _), _)| *job as u32).collect())
        .long_counts("seed", each().map(|((_, seed), _)| *seed).collect())
        .texts("of", each().map(|(_, number)| &number.of))
        .texts("name", each().map(|(_, number)| number.name))
        .numbers("value", each().map(|(_, number)| number.value).collect())
        .texts("unit", each().map(|(_, number)| number.unit))
        .table()
}
