//! A scenario that is ready to run.

use std::path::PathBuf;

use freshline_core::unit::Span;
use freshline_lab::capture::{Captures, carrier_called};
use freshline_lab::record::{RecordOptions, record};
use freshline_lab::run::{Metric, Number, Point, metrics_of, points, run_one};
use freshline_lab::scenario::Scenario;
use freshline_lab::series::{Columns as Recorded, Series};
use freshline_lab::watch::watch;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use toml::Value;

use super::law::PyLaws;
use super::parallel::in_parallel;
use super::recording::Recording;
use super::text::{changes_of, text_of};
use crate::error;
use crate::table::{Columns, Table};

/// A scenario with changes, read and checked, at all points of its sweep.
#[pyclass(frozen, module = "freshline._native")]
pub(crate) struct Prepared {
    name: String,
    points: Vec<Point>,
}

/// One run.
#[derive(Debug, Clone, Copy)]
struct Job {
    point: usize,
    seed: u64,
    run: u32,
}

#[pymethods]
impl Prepared {
    /// The scenario `name`: a file, or one that comes with the package; or `text`, which names
    /// files relative to `folder`. `set` has changes to it, by keys such as
    /// "flow.robot.updates.law".
    #[new]
    #[pyo3(signature = (name, text=None, folder=None, set=None))]
    fn new(
        name: &str,
        text: Option<String>,
        folder: Option<PathBuf>,
        set: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let text = text_of(name, text, folder)?;
        let changes = set.map(changes_of).transpose()?.unwrap_or_default();
        let points = points(text.source(), &changes)
            .map_err(|error| error::of_scenario(&text.name, &error))?;
        Ok(Self { name: text.name, points })
    }

    /// The scenario's title.
    #[getter]
    fn title(&self) -> &str {
        &self.points[0].scenario.title
    }

    /// The number of independent runs.
    #[getter]
    fn runs(&self) -> u32 {
        self.points[0].scenario.runs
    }

    /// The seed of all randomness.
    #[getter]
    fn seed(&self) -> u64 {
        self.points[0].scenario.seed
    }

    /// The settings of each point of the sweep; one point without a sweep.
    #[getter]
    fn points<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let sets = self.points.iter().map(|point| Ok(pythonize::pythonize(py, &point.set)?));
        sets.collect()
    }

    /// Runs all points: their metrics, and the numbers of each run, both with the point's settings
    /// in front. With `seeds` a point has one run for each seed. `laws` has a callable for each
    /// flow, by its name, which makes the law of a source. `progress` is called with the number of
    /// finished runs.
    #[pyo3(signature = (seeds=None, laws=None, threads=None, progress=None))]
    fn run(
        &self,
        py: Python<'_>,
        seeds: Option<Vec<u64>>,
        laws: Option<&Bound<'_, PyDict>>,
        threads: Option<usize>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(Table, Table)> {
        let laws = PyLaws::of(laws, &self.points[0].scenario)?;
        let jobs = self.jobs(seeds.as_deref());
        if jobs.is_empty() {
            return Err(PyValueError::new_err("`seeds` is empty; give at least one"));
        }
        let runs = in_parallel(py, jobs.len(), threads, progress, laws.stopping(), |at| {
            let Job { point, seed, run } = jobs[at];
            let seeded = Scenario { seed, ..self.points[point].scenario.clone() };
            let numbers = run_one(&seeded, run, &laws);
            numbers.map_err(|error| error::of_scenario(&self.name, &error))
        });
        laws.check()?;
        let runs = runs?;
        let numbers = self.table_of_runs(&jobs, &runs)?;
        Ok((self.table_of_metrics(&jobs, runs)?, numbers))
    }

    /// Runs one run of a point again, and records its events: series with a line per `every`
    /// seconds, ages, packets.
    #[pyo3(signature = (point, seed, run, laws=None, every=None, ages=false, packets=false))]
    #[expect(clippy::too_many_arguments, reason = "Python calls it with names")]
    fn record(
        &self,
        py: Python<'_>,
        point: usize,
        seed: u64,
        run: u32,
        laws: Option<&Bound<'_, PyDict>>,
        every: Option<crate::time::Seconds>,
        ages: bool,
        packets: bool,
    ) -> PyResult<Recording> {
        let scenario = self.scenario(point)?;
        let laws = PyLaws::of(laws, scenario)?;
        let every = every.map(|every| Span::from(every.0));
        if every.is_some_and(|every| every.is_zero()) {
            return Err(PyValueError::new_err("`every` is zero; give an interval such as 0.1 s"));
        }
        let recorded = in_parallel(py, 1, Some(1), None, laws.stopping(), |_| {
            let seeded = Scenario { seed, ..scenario.clone() };
            let recorded = record(&seeded, run, &laws, RecordOptions { every, ages, packets });
            recorded.map_err(|error| error::of_scenario(&self.name, &error))
        });
        laws.check()?;
        Ok(Recording::of(recorded?.into_iter().next()))
    }

    /// Runs one run of a point again, and returns a capture (pcap) of packets leaving hops and
    /// cells: LINK, LINK/reverse, or CELL, as `--pcap` of `freshline lab run` has it.
    #[pyo3(signature = (point, seed, run, carriers, laws=None))]
    fn capture<'py>(
        &self,
        py: Python<'py>,
        point: usize,
        seed: u64,
        run: u32,
        carriers: Vec<String>,
        laws: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let scenario = self.scenario(point)?;
        let laws = PyLaws::of(laws, scenario)?;
        let captured = in_parallel(py, 1, Some(1), None, laws.stopping(), |_| {
            let seeded = Scenario { seed, ..scenario.clone() };
            let captured = capture_of(&seeded, run, &carriers, &laws);
            captured.map_err(|error| error::of_scenario(&self.name, &error))
        });
        laws.check()?;
        Ok(PyBytes::new(py, captured?.first().map_or(&[], Vec::as_slice)))
    }
}

/// A capture of these carriers.
fn capture_of(
    scenario: &Scenario,
    run: u32,
    carriers: &[String],
    laws: &PyLaws,
) -> Result<Vec<u8>, String> {
    let built = scenario.build_with_laws(run, laws).map_err(|error| error.to_string())?;
    let carriers: Result<Vec<_>, _> =
        carriers.iter().map(|name| carrier_called(name, scenario, &built)).collect();
    let carriers = carriers.map_err(|error| error.to_string())?;
    let mut captures = Captures::new(&built);
    let begun = captures.add(&carriers, Vec::new());
    let watched = begun.and_then(|()| watch(scenario, built, captures, None::<Series<Recorded>>));
    let (captured, _) = watched.map_err(|error| error.to_string())?;
    Ok(captured.into_iter().flatten().collect())
}

impl Prepared {
    fn scenario(&self, point: usize) -> PyResult<&Scenario> {
        let points = self.points.len();
        let found = self.points.get(point).map(|point| &point.scenario);
        found.ok_or_else(|| PyIndexError::new_err(format!("point {point} of {points}")))
    }

    /// All runs of all points.
    fn jobs(&self, seeds: Option<&[u64]>) -> Vec<Job> {
        let of_point = |(point, Point { scenario, .. }): (usize, &Point)| -> Vec<Job> {
            let own = |run| Job { point, seed: scenario.seed, run };
            match seeds {
                Some(seeds) => seeds.iter().map(|&seed| Job { point, seed, run: 0 }).collect(),
                None => (0..scenario.runs).map(own).collect(),
            }
        };
        self.points.iter().enumerate().flat_map(of_point).collect()
    }

    /// The columns of points' settings, for rows of these points: numbers if all values are, else
    /// texts.
    fn set_columns(&self, rows: &[usize]) -> Columns {
        let number = |value: &Value| value.as_float().or_else(|| Some(value.as_integer()? as f64));
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut columns = Columns::default();
        for key in self.points[0].set.keys() {
            let values = rows.iter().map(|&point| &self.points[point].set[key]);
            let numbers: Option<Vec<f64>> = values.clone().map(number).collect();
            columns = match numbers {
                Some(numbers) => columns.numbers(key, numbers),
                None => columns.texts(key, values.map(text)),
            };
        }
        columns
    }

    fn table_of_metrics(&self, jobs: &[Job], runs: Vec<Vec<Number>>) -> PyResult<Table> {
        let mut of_points: Vec<Vec<Vec<Number>>> = self.points.iter().map(|_| Vec::new()).collect();
        for (job, run) in jobs.iter().zip(runs) {
            of_points[job.point].push(run);
        }
        let each = of_points.into_iter().map(metrics_of).enumerate();
        let rows: Vec<(usize, Metric)> =
            each.flat_map(|(point, all)| all.into_iter().map(move |one| (point, one))).collect();
        let points: Vec<usize> = rows.iter().map(|(point, _)| *point).collect();
        self.set_columns(&points)
            .texts("of", rows.iter().map(|(_, metric)| &metric.of))
            .texts("name", rows.iter().map(|(_, metric)| metric.name))
            .numbers("value", rows.iter().map(|(_, metric)| metric.value).collect())
            .texts("unit", rows.iter().map(|(_, metric)| metric.unit))
            .options("ci95", rows.iter().map(|(_, metric)| metric.ci95))
            .table()
    }

    fn table_of_runs(&self, jobs: &[Job], runs: &[Vec<Number>]) -> PyResult<Table> {
        let each =
            || jobs.iter().zip(runs).flat_map(|(job, run)| run.iter().map(move |one| (job, one)));
        let points: Vec<usize> = each().map(|(job, _)| job.point).collect();
        self.set_columns(&points)
            .long_counts("seed", each().map(|(job, _)| job.seed).collect())
            .counts("run", each().map(|(job, _)| job.run).collect())
            .texts("of", each().map(|(_, number)| &number.of))
            .texts("name", each().map(|(_, number)| number.name))
            .numbers("value", each().map(|(_, number)| number.value).collect())
            .texts("unit", each().map(|(_, number)| number.unit))
            .table()
    }
}
