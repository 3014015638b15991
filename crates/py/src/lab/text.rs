//! Scenarios as text and as dictionaries.

use std::io;
use std::path::PathBuf;

use freshline_lab::library::{self, Text};
use freshline_lab::scenario::{Change, Scenario};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error;

/// The scenarios that come with the package: name, title, and the figure that one reproduces.
#[pyfunction]
pub(crate) fn scenarios() -> PyResult<Vec<(String, String, Option<String>)>> {
    let listed = library::all().into_iter().map(|text| {
        let scenario = Scenario::parse(text.source())
            .map_err(|error| error::of_scenario(&text.name, &error))?;
        let reproduces = scenario.reproduce.map(|reproduction| reproduction.of);
        Ok((text.name, scenario.title, reproduces))
    });
    listed.collect()
}

/// The text (TOML) of a scenario: a file, or one that comes with the package.
#[pyfunction]
pub(crate) fn scenario_text(name: &str) -> PyResult<String> {
    Ok(found(name)?.text)
}

/// A scenario as TOML.
#[pyfunction]
pub(crate) fn toml_of(scenario: &Bound<'_, PyDict>) -> PyResult<String> {
    let table: toml::Table = pythonize::depythonize(scenario)
        .map_err(|error| error::of_scenario("the scenario", &error))?;
    toml::to_string(&table).map_err(|error| error::of_scenario("the scenario", &error))
}

/// The dictionary of a TOML document.
#[pyfunction]
pub(crate) fn dict_of<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let table: toml::Table =
        text.parse().map_err(|error| error::of_scenario("the scenario", &error))?;
    Ok(pythonize::pythonize(py, &table)?)
}

/// A scenario with this text, which names files relative to `folder`. Without a text, it is the scenario called `name`.
pub(crate) fn text_of(name: &str, text: Option<String>, folder: Option<PathBuf>) -> PyResult<Text> {
    let Some(text) = text else { return found(name) };
    if folder.is_none()
        && let Some(known) = library::all().into_iter().find(|known| known.name == name)
        && known.text == text
    {
        return Ok(known);
    }
    Ok(Text::of(name, text, folder))
}

fn found(name: &str) -> PyResult<Text> {
    library::find(name).map_err(|error| {
        let what = format!(
            "cannot read the scenario {name}: {}; freshline.lab.scenarios() lists the bundled ones",
            error.source
        );
        PyErr::from(io::Error::new(error.source.kind(), what))
    })
}

/// Changes of a scenario, by keys such as `flow.robot.updates.law`.
pub(crate) fn changes_of(set: &Bound<'_, PyDict>) -> PyResult<Vec<Change>> {
    let change = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let key: String = key.extract()?;
        let value: toml::Value =
            pythonize::depythonize(&value).map_err(|error| error::of_scenario(&key, &error))?;
        Ok(Change::new(key, value))
    };
    set.iter().map(change).collect()
}
