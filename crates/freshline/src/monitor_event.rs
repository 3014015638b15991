//! Events of monitors.

use std::time::Duration;

use freshline_core::session::{Alarm, End};
use freshline_core::unit::Span;

/// An event of a monitor, or of the return direction of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MonitorEvent {
    /// A source has opened a session.
    Opened {
        /// Its name, or the label of its session if it has none.
        source: Box<str>,
    },
    /// The session of a source has ended, and the monitor has dropped its states.
    Gone {
        /// Its name, as in [`MonitorEvent::Opened`].
        source: Box<str>,
        /// Why.
        why: Why,
    },
    /// All states of a topic are older than its maximum age.
    Stale {
        /// The name of its source.
        source: Box<str>,
        /// Its name.
        topic: Box<str>,
        /// The key, if it has keys.
        key: Option<Box<[u8]>>,
        /// The maximum age.
        max_age: Duration,
    },
    /// The topic has a state younger than its maximum age again.
    Recovered {
        /// The name of its source.
        source: Box<str>,
        /// Its name.
        topic: Box<str>,
        /// The key, if it has keys.
        key: Option<Box<[u8]>>,
    },
}

/// Why a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// Its source has closed it.
    Closed,
    /// Another source took its place.
    Displaced,
    /// No update arrived for the idle timeout.
    Idle,
    /// The credentials do not permit it any more.
    Revoked,
}

impl Why {
    pub(crate) fn of(end: End) -> Self {
        match end {
            End::Closed => Self::Closed,
            End::Displaced => Self::Displaced,
            End::Idle => Self::Idle,
            End::Revoked => Self::Revoked,
        }
    }
}

impl MonitorEvent {
    pub(crate) fn of(alarm: &Alarm) -> Self {
        let source = match &*alarm.name {
            "" => alarm.label.to_string().into(),
            _ => alarm.name.clone(),
        };
        let topic = alarm.topic.clone();
        let key = Some(alarm.key.clone()).filter(|key| !key.is_empty());
        let max_age = Duration::from(alarm.max_age.min(Span::MAX));
        match alarm.is_stale {
            true => Self::Stale { source, topic, key, max_age },
            false => Self::Recovered { source, topic, key },
        }
    }
}
