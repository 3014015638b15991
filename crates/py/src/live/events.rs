//! The events of sources and monitors, for a reader.

use pyo3::prelude::*;

use super::event::{AnyEvents, Event};
use super::monitor::Monitor;
use super::source::Source;
use super::waiting::wait;
use crate::time::Seconds;

/// The events of a source or a monitor, the oldest first. At most 1024 are pending: then the oldest are dropped.
#[pyclass(frozen, subclass, module = "freshline._native")]
pub(crate) struct Events(pub(crate) AnyEvents);

/// A source or a monitor.
#[derive(FromPyObject)]
pub(crate) enum Endpoint<'py> {
    /// A source.
    Source(Bound<'py, Source>),
    /// A monitor.
    Monitor(Bound<'py, Monitor>),
}

#[pymethods]
impl Events {
    /// The events of a source or a monitor; with `received`, those of a source's return direction.
    #[new]
    #[pyo3(signature = (endpoint, *, received=false))]
    fn new(endpoint: Endpoint<'_>, received: bool) -> PyResult<Self> {
        let events = match endpoint {
            Endpoint::Source(source) if received => source.get().received_events(source.py())?,
            Endpoint::Source(source) => source.get().events(),
            Endpoint::Monitor(monitor) => monitor.get().events(),
        };
        Ok(Self(events))
    }

    /// The next event, if one is pending.
    fn try_next(&self) -> Option<Event> {
        self.0.try_next()
    }

    /// Waits for the next event, for `timeout` seconds at most; None after that time and after the end.
    #[pyo3(signature = (timeout=None))]
    fn next(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Option<Event>> {
        let timeout = timeout.map(|timeout| timeout.0);
        wait(py, timeout, |slice| self.0.next_within(slice), || self.0.is_over())
    }

    /// The number of events that were dropped.
    #[getter]
    fn dropped(&self) -> u64 {
        match &self.0 {
            AnyEvents::Source(events) => events.dropped(),
            AnyEvents::Monitor(events) => events.dropped(),
        }
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        self.next(py, None)
    }
}
