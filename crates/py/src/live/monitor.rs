//! A monitor with a thread of its own.

use std::path::PathBuf;

use freshline::MonitorBuilder;
use pyo3::prelude::*;
use pyo3::types::PyMapping;

use super::event::AnyEvents;
use super::open::{Listed, Open};
use super::source::{law_of, max_ages_of};
use super::state::State;
use super::topic::Topic;
use super::topic_params::Topics;
use crate::error;
use crate::payload::bytes_of;
use crate::time::Seconds;

/// A running monitor. It holds the freshest states of many sources until it is closed.
#[pyclass(frozen, subclass, module = "freshline._native")]
pub(crate) struct Monitor {
    open: Open<freshline::Monitor>,
    address: (String, u16),
    url: String,
    fingerprint: Option<String>,
    events: freshline::Events<freshline::MonitorEvent>,
    _listed: Listed,
}

#[pymethods]
impl Monitor {
    /// Opens the socket at `url`, and runs a monitor on a thread of its own.
    #[new]
    #[pyo3(signature = (
        url, *, name=None, topics=None, law=None, max_ages=None, max_sources=None, max_state=None, idle=None,
        state_dir=None, identity=None, client_ca_file=None, certified_names=false, credentials_file=None,
        tokens=None, insecure=false
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python calls it with names")]
    fn new(
        py: Python<'_>,
        url: &str,
        name: Option<&str>,
        topics: Option<Topics>,
        law: Option<&Bound<'_, PyAny>>,
        max_ages: Option<&Bound<'_, PyMapping>>,
        max_sources: Option<usize>,
        max_state: Option<usize>,
        idle: Option<Seconds>,
        state_dir: Option<PathBuf>,
        identity: Option<(PathBuf, PathBuf)>,
        client_ca_file: Option<PathBuf>,
        certified_names: bool,
        credentials_file: Option<PathBuf>,
        tokens: Option<Vec<Bound<'_, PyAny>>>,
        insecure: bool,
    ) -> PyResult<Self> {
        let mut builder = freshline::Monitor::builder(url);
        builder = name.into_iter().fold(builder, MonitorBuilder::name);
        builder =
            topics.into_iter().flat_map(|topics| topics.0).fold(builder, MonitorBuilder::topic);
        if let Some(law) = law {
            builder = builder.law(law_of(law)?);
        }
        for (pattern, limit) in max_ages_of(max_ages)? {
            builder = builder.max_age(&pattern, limit.0);
        }
        builder = max_sources.into_iter().fold(builder, MonitorBuilder::max_sources);
        builder = max_state.into_iter().fold(builder, MonitorBuilder::max_state);
        builder = idle.into_iter().fold(builder, |builder, idle| builder.idle(idle.0));
        builder = state_dir.into_iter().fold(builder, MonitorBuilder::state_dir);
        if let Some((cert, key)) = identity {
            builder = builder.identity_files(cert, key);
        }
        builder = client_ca_file.into_iter().fold(builder, MonitorBuilder::client_ca_file);
        if certified_names {
            builder = builder.certified_names();
        }
        builder = credentials_file.into_iter().fold(builder, MonitorBuilder::credentials_file);
        for token in tokens.into_iter().flatten() {
            builder = builder.token(bytes_of(&token)?);
        }
        if insecure {
            builder = builder.insecure();
        }
        let monitor = py.detach(|| builder.spawn()).map_err(|error| error::of(&error))?;
        Ok(Self::of(monitor))
    }

    /// Host and port that it listens on, with the actual port if the URL had port 0.
    #[getter]
    fn address(&self) -> (String, u16) {
        self.address.clone()
    }

    /// The URL for sources. For a wildcard address, replace the host with an address of this host.
    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// The fingerprint of its certificate, for `pins` of sources; None on udp://.
    #[getter]
    fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// The newest state of "source/topic", or of a source without topics; None if no state has arrived, or if it is
    /// too old.
    fn latest(&self, py: Python<'_>, name: &str) -> PyResult<Option<State>> {
        Ok(self.open.look(py, |monitor| monitor.latest(name))?.map(State))
    }

    /// The newest state of a key.
    fn latest_key(
        &self,
        py: Python<'_>,
        name: &str,
        key: &Bound<'_, PyAny>,
    ) -> PyResult<Option<State>> {
        let key = bytes_of(key)?;
        Ok(self.open.look(py, |monitor| monitor.latest_key(name, key))?.map(State))
    }

    /// The newest states of all keys of a topic, in the order of the keys.
    fn keys(&self, py: Python<'_>, name: &str) -> PyResult<Vec<State>> {
        let states = self.open.look(py, |monitor| monitor.keys(name))?;
        Ok(states.into_iter().map(State).collect())
    }

    /// Ages and counters of the sources, for `max` sources at most, as dictionaries.
    #[pyo3(signature = (max=1000))]
    fn sources<'py>(&self, py: Python<'py>, max: usize) -> PyResult<Bound<'py, PyAny>> {
        let sources = self.open.look(py, |monitor| monitor.sources(max))?;
        let sources = sources.map_err(|error| error::of(&error))?;
        Ok(pythonize::pythonize(py, &sources)?)
    }

    /// Reloads the files of credentials and authorities, and returns the number of sessions that were closed by that.
    fn reload(&self, py: Python<'_>) -> PyResult<usize> {
        self.open.look(py, freshline::Monitor::reload)?.map_err(|error| error::of(&error))
    }

    /// The handle of a topic that it sends to its sources.
    fn topic(&self, py: Python<'_>, name: &str) -> PyResult<Topic> {
        let topic = self.open.look(py, |monitor| monitor.topic(name))?;
        topic.map(Topic::new).map_err(|error| error::unknown_topic(&error))
    }

    /// Whether it was closed, or has ended because of an error, which `close` raises.
    #[getter]
    fn has_ended(&self, py: Python<'_>) -> bool {
        self.open.look(py, freshline::Monitor::has_ended).unwrap_or(true)
    }

    /// Begins to end, without waiting for that.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.open.look(py, freshline::Monitor::stop)
    }

    fn __repr__(&self) -> String {
        format!("<freshline.Monitor {}>", self.url)
    }

    /// Closes all sessions, and returns a report of the run; None if it was closed before.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(monitor) = self.open.take(py) else { return Ok(None) };
        let report = py.detach(|| monitor.close()).map_err(|error| error::of(&error))?;
        Ok(Some(pythonize::pythonize(py, &report)?))
    }
}

impl Monitor {
    fn of(monitor: freshline::Monitor) -> Self {
        let (address, url) = (monitor.address(), monitor.url());
        let fingerprint = monitor.fingerprint().map(|fingerprint| fingerprint.to_string());
        let events = monitor.events().clone();
        let (open, listed) = Open::new(monitor, |monitor| {
            monitor.stop();
            monitor.has_ended()
        });
        let address = (address.ip().to_string(), address.port());
        Self { open, address, url, fingerprint, events, _listed: listed }
    }

    pub(super) fn events(&self) -> AnyEvents {
        AnyEvents::Monitor(self.events.clone())
    }

    pub(super) fn subscription(
        &self,
        py: Python<'_>,
        pattern: &str,
    ) -> PyResult<freshline::Subscription> {
        self.open.look(py, |monitor| monitor.subscribe(pattern))
    }
}
