//! A source with a thread of its own.

use std::path::PathBuf;
use std::time::Duration;

use freshline::{LawConfig, SourceBuilder, SourceReport};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMapping, PyString};

use super::event::AnyEvents;
use super::open::{Listed, Open};
use super::state::State;
use super::topic::Topic;
use super::topic_params::Topics;
use super::waiting::wait;
use crate::error;
use crate::payload::bytes_of;
use crate::time::{Bandwidth, Rate, Seconds, parsed};

/// A running source. It keeps a monitor fresh until it is closed.
#[pyclass(frozen, subclass, module = "freshline._native")]
pub(crate) struct Source {
    open: Open<freshline::Source>,
    /// Name and URL, for people.
    label: String,
    first: Topic,
    events: freshline::Events<freshline::SourceEvent>,
    _listed: Listed,
}

/// Maximum ages by patterns of topics; the first that matches applies.
pub(crate) fn max_ages_of(
    given: Option<&Bound<'_, PyMapping>>,
) -> PyResult<Vec<(String, Seconds)>> {
    given.map_or(Ok(Vec::new()), |given| given.items()?.extract())
}

#[pymethods]
impl Source {
    /// Opens the sockets, and runs a source for the monitor at `url` on a thread of its own.
    #[new]
    #[pyo3(signature = (
        url, *, name="", topics=None, law=None, max_rate=None, max_bandwidth=None, max_state=None, keep_alive=None,
        on_change=false, pins=None, ca_file=None, identity=None, token=None, via=None, scheduler=None,
        receive=false, max_ages=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python calls it with names")]
    fn new(
        py: Python<'_>,
        url: &str,
        name: &str,
        topics: Option<Topics>,
        law: Option<&Bound<'_, PyAny>>,
        max_rate: Option<Rate>,
        max_bandwidth: Option<Bandwidth>,
        max_state: Option<usize>,
        keep_alive: Option<Seconds>,
        on_change: bool,
        pins: Option<Vec<String>>,
        ca_file: Option<PathBuf>,
        identity: Option<(PathBuf, PathBuf)>,
        token: Option<&Bound<'_, PyAny>>,
        via: Option<Vec<String>>,
        scheduler: Option<&str>,
        receive: bool,
        max_ages: Option<&Bound<'_, PyMapping>>,
    ) -> PyResult<Self> {
        let mut builder = freshline::Source::builder(url).name(name).on_change(on_change);
        builder =
            topics.into_iter().flat_map(|topics| topics.0).fold(builder, SourceBuilder::topic);
        if let Some(law) = law {
            builder = builder.law(law_of(law)?);
        }
        builder = max_rate.into_iter().fold(builder, |builder, rate| builder.max_rate(rate.0));
        let limit = |builder: SourceBuilder, rate: Bandwidth| builder.max_bandwidth(rate.0);
        builder = max_bandwidth.into_iter().fold(builder, limit);
        builder = max_state.into_iter().fold(builder, SourceBuilder::max_state);
        builder = keep_alive.into_iter().fold(builder, |builder, it| builder.keep_alive(it.0));
        for pin in pins.into_iter().flatten() {
            builder = builder.pin(parsed(&pin)?);
        }
        builder = ca_file.into_iter().fold(builder, SourceBuilder::ca_file);
        if let Some((cert, key)) = identity {
            builder = builder.identity_files(cert, key);
        }
        if let Some(token) = token {
            builder = builder.token(bytes_of(token)?);
        }
        for path in via.into_iter().flatten() {
            builder = builder.via(parsed(&path)?);
        }
        if let Some(scheduler) = scheduler {
            builder = builder.scheduler(parsed(scheduler)?);
        }
        if receive {
            builder = builder.receive();
        }
        for (pattern, limit) in max_ages_of(max_ages)? {
            builder = builder.max_age(&pattern, limit.0);
        }
        // A name may have to be resolved.
        let source = py.detach(|| builder.spawn()).map_err(|error| error::of(&error))?;
        Ok(Self::of(source, format!("{name:?} to {url}")))
    }

    /// The handle of a topic that was named when the source was built.
    fn topic(&self, py: Python<'_>, name: &str) -> PyResult<Topic> {
        let topic = self.open.look(py, |source| source.topic(name))?;
        topic.map(Topic::new).map_err(|error| error::unknown_topic(&error))
    }

    /// `Topic.put` of the first topic, or of a source without topics.
    #[pyo3(signature = (state, *, age=None))]
    fn put<'py>(
        &self,
        state: &Bound<'py, PyAny>,
        age: Option<Seconds>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.first.set(state.py(), bytes_of(state)?, age)
    }

    /// The age of the newest acknowledged state in s: an upper bound of the age at the monitor. None before the first
    /// ack.
    #[getter]
    fn age(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.open.look(py, |source| source.age().map(|age| age.as_secs_f64()))
    }

    /// The current rate of the law, in updates per second.
    #[getter]
    fn rate(&self, py: Python<'_>) -> PyResult<f64> {
        self.open.look(py, freshline::Source::rate)
    }

    /// Whether the session is open.
    #[getter]
    fn is_open(&self, py: Python<'_>) -> bool {
        self.open.look(py, freshline::Source::is_open).unwrap_or(false)
    }

    /// Whether it was closed, or has ended because of an error, which `close` raises.
    #[getter]
    fn has_ended(&self, py: Python<'_>) -> bool {
        self.open.look(py, freshline::Source::has_ended).unwrap_or(true)
    }

    /// The newest state of a topic that the monitor sends, such as "monitor/cmd"; None without `receive`.
    fn latest(&self, py: Python<'_>, name: &str) -> PyResult<Option<State>> {
        Ok(self.open.look(py, |source| source.latest(name))?.map(State))
    }

    fn __repr__(&self) -> String {
        format!("<freshline.Source {}>", self.label)
    }

    /// Accepts no further states, and ends by itself once the monitor has everything.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        self.open.look(py, freshline::Source::drain)
    }

    /// Begins to end, without waiting for that.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.open.look(py, freshline::Source::stop)
    }

    /// Waits until the monitor has the newest state of each topic and all records, for `patience` seconds at most, then
    /// closes the session and returns a report of the run. Raises UndeliveredError if the monitor does not have them.
    fn finish<'py>(&self, py: Python<'py>, patience: Seconds) -> PyResult<Bound<'py, PyAny>> {
        self.open.look(py, freshline::Source::drain)?;
        // In slices, so that Ctrl-C ends the wait; the source is then still open.
        let wait_for_end =
            |slice| self.open.see(|source| source.wait(slice)).unwrap_or(true).then_some(());
        wait(py, Some(patience.0), wait_for_end, || false)?;
        let source = self.open.take(py).ok_or_else(error::closed)?;
        report(py, py.detach(|| source.finish(Duration::ZERO)))
    }

    /// Closes the session, and returns a report of the run; None if it was closed before. Unsent states and undelivered
    /// records are lost; see `finish`.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.open.take(py) {
            Some(source) => report(py, py.detach(|| source.close())).map(Some),
            None => Ok(None),
        }
    }
}

impl Source {
    fn of(source: freshline::Source, label: String) -> Self {
        let events = source.events().clone();
        let first = Topic::new(source.first_topic());
        let (open, listed) = Open::new(source, |source| {
            source.stop();
            source.has_ended()
        });
        Self { open, label, first, events, _listed: listed }
    }

    pub(super) fn events(&self) -> AnyEvents {
        AnyEvents::Source(self.events.clone())
    }

    pub(super) fn received_events(&self, py: Python<'_>) -> PyResult<AnyEvents> {
        let events = self.open.look(py, |source| source.received_events().cloned())?;
        let none = || error::setting("this source receives nothing; set `receive` or `max_ages`");
        events.map(AnyEvents::Monitor).ok_or_else(none)
    }

    pub(super) fn subscription(
        &self,
        py: Python<'_>,
        pattern: &str,
    ) -> PyResult<freshline::Subscription> {
        self.open.look(py, |source| source.subscribe(pattern))
    }
}

/// A law by its name, such as "tenth", or with its settings: `{"law": "fixed", "params": {"rate": "50/s"}}`.
pub(crate) fn law_of(law: &Bound<'_, PyAny>) -> PyResult<LawConfig> {
    match law.cast::<PyString>() {
        Ok(name) => parsed(name.to_str()?),
        Err(_) => {
            pythonize::depythonize(law).map_err(|error| error::setting(format!("law: {error}")))
        }
    }
}

/// A report as a dictionary; `docs/json.md` describes each key.
fn report(
    py: Python<'_>,
    report: Result<SourceReport, freshline::Error>,
) -> PyResult<Bound<'_, PyAny>> {
    let report = report.map_err(|error| error::of(&error))?;
    Ok(pythonize::pythonize(py, &report)?)
}
