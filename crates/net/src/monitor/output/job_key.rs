//! The key of a command's pending job.

use crate::monitor::which::Which;

/// The index of a source, and one of its topics or keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) source: usize,
    pub(super) which: Which,
}

impl Key {
    /// The key of the first topic of a source, which is before its others.
    pub(super) fn first(source: usize) -> Self {
        Self { source, which: Which::Topic(0) }
    }

    /// The key of an alarm of a topic, which has a number here as a source has.
    pub(super) fn of_alarm(topic: usize, is_stale: bool) -> Self {
        Self { source: topic, which: Which::Topic(u16::from(!is_stale)) }
    }
}
