//! Figures of papers next to ours.

use freshline_lab::reproduce::{Compared, Options, reproduce_with};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::law::PyLaws;
use super::parallel::while_looking;
use super::text::{changes_of, text_of};
use crate::error;
use crate::table::{Columns, Table};

/// Runs a scenario that reproduces a figure of a paper: each number or trend of the paper next to ours, with a verdict.
/// With `null`, each new law is replaced by its baseline; with `full`, runs and durations are those of the paper.
#[pyfunction]
#[pyo3(signature = (name, set=None, *, null=false, full=false))]
pub(crate) fn reproduce(
    py: Python<'_>,
    name: &str,
    set: Option<&Bound<'_, PyDict>>,
    null: bool,
    full: bool,
) -> PyResult<Table> {
    let text = text_of(name, None, None)?;
    let changes = set.map(changes_of).transpose()?.unwrap_or_default();
    let options = Options { null, full, sample: None };
    let laws = PyLaws::default();
    let work = || reproduce_with(text.source(), &changes, options, &laws, |_| {});
    let rows = while_looking(py, laws.stopping(), || Ok(()), work)?
        .map_err(|error| error::of_scenario(&text.name, &error))?;
    table_of(&rows)
}

fn table_of(rows: &[Compared]) -> PyResult<Table> {
    let named = |value: &dyn erased::Named| value.name();
    Columns::default()
        .texts("kind", rows.iter().map(|row| named(&row.kind)))
        .texts("what", rows.iter().map(|row| &row.what))
        .texts("source", rows.iter().map(|row| named(&row.source)))
        .texts("unit", rows.iter().map(|row| &row.unit))
        .options("expected", rows.iter().map(|row| row.expected))
        .options("ours", rows.iter().map(|row| row.ours))
        .options("ci95", rows.iter().map(|row| row.ci95))
        .options("tolerance", rows.iter().map(|row| row.tolerance))
        .numbers("base", rows.iter().map(|row| row.base).collect())
        .options("at_least", rows.iter().map(|row| row.at_least))
        .options("at_most", rows.iter().map(|row| row.at_most))
        .flags("calibrated", rows.iter().map(|row| row.calibrated).collect())
        .optional_texts("quote", rows.iter().map(|row| row.quote.as_ref()))
        .optional_texts("why", rows.iter().map(|row| row.why.as_ref()))
        .texts("verdict", rows.iter().map(|row| named(&row.verdict)))
        .table()
}

/// Values that serialise as one word.
mod erased {
    use serde::Serialize;

    pub(super) trait Named {
        fn name(&self) -> String;
    }

    impl<T: Serialize> Named for T {
        fn name(&self) -> String {
            let value = toml::Value::try_from(self).ok();
            value.as_ref().and_then(|value| value.as_str()).unwrap_or_default().to_owned()
        }
    }
}
