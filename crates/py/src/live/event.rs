//! An event of a source or a monitor.

use freshline::{MonitorEvent, SourceEvent, Why};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// An event of a source or a monitor.
///
/// Kinds of a source: "opened", "silent", "closed", "unreachable", "trouble". Kinds of a monitor,
/// and of a source's return direction: "opened", "gone", "stale", "recovered".
#[pyclass(frozen, module = "freshline")]
pub(crate) struct Event {
    /// The kind of the event.
    #[pyo3(get)]
    kind: &'static str,
    /// The name of the source, of a monitor's event.
    #[pyo3(get)]
    source: Option<String>,
    /// The name of the topic that is stale or has recovered.
    #[pyo3(get)]
    topic: Option<String>,
    key: Option<Box<[u8]>>,
    /// The reason, in words.
    #[pyo3(get)]
    why: Option<String>,
    /// The maximum age of a stale topic, in s.
    #[pyo3(get)]
    max_age: Option<f64>,
}

#[pymethods]
impl Event {
    /// The key that is stale or has recovered, if the topic has keys.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.key.as_ref().map(|key| PyBytes::new(py, key))
    }

    fn __repr__(&self) -> String {
        let name = [&self.source, &self.topic].map(|part| part.as_deref().unwrap_or_default());
        let why = self.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        format!("<freshline.Event {} {}{why}>", self.kind, name.join(" ").trim())
    }
}

impl Event {
    fn new(kind: &'static str) -> Self {
        Self { kind, source: None, topic: None, key: None, why: None, max_age: None }
    }

    fn with(kind: &'static str, why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..Self::new(kind) }
    }
}

impl From<SourceEvent> for Event {
    fn from(event: SourceEvent) -> Self {
        match event {
            SourceEvent::Opened => Self::new("opened"),
            SourceEvent::Silent => Self::new("silent"),
            SourceEvent::Closed(why) => Self::with("closed", why.to_string()),
            SourceEvent::Unreachable(why) => Self::with("unreachable", why),
            SourceEvent::Trouble(why) => Self::with("trouble", why),
            _ => Self::new("other"),
        }
    }
}

impl From<MonitorEvent> for Event {
    fn from(event: MonitorEvent) -> Self {
        let of = |kind, source: Box<str>| Self { source: Some(source.into()), ..Self::new(kind) };
        match event {
            MonitorEvent::Opened { source } => of("opened", source),
            MonitorEvent::Gone { source, why } => {
                let why = match why {
                    Why::Closed => "closed",
                    Why::Displaced => "displaced",
                    Why::Idle => "idle",
                    Why::Revoked => "revoked",
                    _ => "other",
                };
                Self { why: Some(why.to_owned()), ..of("gone", source) }
            }
            MonitorEvent::Stale { source, topic, key, max_age } => {
                let max_age = Some(max_age.as_secs_f64());
                Self { topic: Some(topic.into()), key, max_age, ..of("stale", source) }
            }
            MonitorEvent::Recovered { source, topic, key } => {
                Self { topic: Some(topic.into()), key, ..of("recovered", source) }
            }
            _ => Self::new("other"),
        }
    }
}

/// Events, of whichever kind.
#[derive(Clone)]
pub(crate) enum AnyEvents {
    /// Of a source.
    Source(freshline::Events<SourceEvent>),
    /// Of a monitor, or of the return direction.
    Monitor(freshline::Events<MonitorEvent>),
}

impl AnyEvents {
    pub(super) fn try_next(&self) -> Option<Event> {
        match self {
            Self::Source(events) => events.try_next().map(Event::from),
            Self::Monitor(events) => events.try_next().map(Event::from),
        }
    }

    pub(super) fn next_within(&self, patience: std::time::Duration) -> Option<Event> {
        match self {
            Self::Source(events) => events.next_within(patience).map(Event::from),
            Self::Monitor(events) => events.next_within(patience).map(Event::from),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Source(events) => events.is_over(),
            Self::Monitor(events) => events.is_over(),
        }
    }

    /// The next event, when it occurs.
    pub(crate) async fn recv(self) -> Option<Event> {
        match self {
            Self::Source(events) => events.recv().await.map(Event::from),
            Self::Monitor(events) => events.recv().await.map(Event::from),
        }
    }

    /// Waits for the end.
    pub(crate) async fn ended(self) {
        match self {
            Self::Source(events) => events.ended().await,
            Self::Monitor(events) => events.ended().await,
        }
    }
}
