//! The provider of states.

use std::fmt;
use std::sync::Arc;

use freshline::{Monitor, SourceStatus, Subscription};

/// The states behind a gateway: a [`Monitor`], or another provider.
pub trait Hub: Send + Sync + 'static {
    /// The states of all topics that match the pattern, from the current ones on, as [`Monitor::observe`] gives them.
    fn observe(&self, pattern: &str) -> Subscription;

    /// Ages and counters of at most `max` sources. It may block for some milliseconds.
    ///
    /// # Errors
    /// [`HubError`] once there are no more states.
    fn sources(&self, max: usize) -> Result<Vec<SourceStatus>, HubError>;

    /// The topics that browsers may put states into, which go to the sources.
    fn commands(&self) -> Vec<String> {
        Vec::new()
    }

    /// Puts a state into such a topic.
    ///
    /// # Errors
    /// [`HubError`] says why it was not put.
    fn command(&self, topic: &str, _state: Vec<u8>) -> Result<(), HubError> {
        Err(HubError::new(format!("there is no topic {topic:?} for commands")))
    }
}

/// The error of a [`Hub`].
#[derive(Debug, Clone)]
pub struct HubError(Box<str>);

impl HubError {
    /// For this reason.
    pub fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string().into())
    }
}

impl fmt::Display for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HubError {}

impl Hub for Monitor {
    fn observe(&self, pattern: &str) -> Subscription {
        Self::observe(self, pattern)
    }

    fn sources(&self, max: usize) -> Result<Vec<SourceStatus>, HubError> {
        Self::sources(self, max).map_err(HubError::new)
    }
}

impl<H: Hub> Hub for Arc<H> {
    fn observe(&self, pattern: &str) -> Subscription {
        H::observe(self, pattern)
    }

    fn sources(&self, max: usize) -> Result<Vec<SourceStatus>, HubError> {
        H::sources(self, max)
    }

    fn commands(&self) -> Vec<String> {
        H::commands(self)
    }

    fn command(&self, topic: &str, state: Vec<u8>) -> Result<(), HubError> {
        H::command(self, topic, state)
    }
}
