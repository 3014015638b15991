//! Delivery of states to one reader.

use std::sync::Arc;

use pyo3::prelude::*;

use super::events::Endpoint;
use super::state::State;
use super::waiting::wait;
use crate::time::Seconds;

/// Delivers the states of all topics that match a pattern, the current ones first.
///
/// A slow reader receives the newest state of each topic and key, in turn; it slows down neither the network nor other
/// readers. Records are never replaced.
#[pyclass(frozen, subclass, module = "freshline._native")]
pub(crate) struct Subscription(pub(crate) Arc<freshline::Subscription>);

#[pymethods]
impl Subscription {
    /// Subscribes to topics of a monitor, or to received topics of a source; `*` matches any
    /// characters.
    #[new]
    fn new(endpoint: Endpoint<'_>, pattern: &str) -> PyResult<Self> {
        let subscription = match endpoint {
            Endpoint::Source(source) => source.get().subscription(source.py(), pattern)?,
            Endpoint::Monitor(monitor) => monitor.get().subscription(monitor.py(), pattern)?,
        };
        Ok(Self(Arc::new(subscription)))
    }

    /// The next state, if one is pending.
    fn try_next(&self) -> Option<State> {
        self.0.try_next().map(State)
    }

    /// Waits for the next state, for `timeout` seconds at most; None after that time and after the end.
    #[pyo3(signature = (timeout=None))]
    fn next(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Option<State>> {
        let timeout = timeout.map(|timeout| timeout.0);
        let next = wait(py, timeout, |slice| self.0.next_within(slice), || self.0.is_over())?;
        Ok(next.map(State))
    }

    /// The number of states that were replaced by a newer one before they were read.
    #[getter]
    fn replaced(&self) -> u64 {
        self.0.replaced()
    }

    /// Whether the subscription has ended and all pending states were read.
    #[getter]
    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Ends the subscription: drops pending states; readers that wait for one get None. Unread records go to the
    /// next subscription.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<State>> {
        self.next(py, None)
    }
}
