//! Identifies a state of a source.

use freshline_core::session::TopicRecord;

/// Identifies a state of a source for outputs: a key stays the same under whatever number it
/// arrives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Which {
    /// The state of the topic with this number. 0 is the least of all.
    Topic(u16),
    /// The state of a key: the topic's name, and the key.
    Key(Box<str>, Box<[u8]>),
    /// A record, in the order in which they were handed out.
    Record(u64),
}

impl Which {
    pub(super) fn of(topic: &TopicRecord) -> Self {
        match topic.key() {
            Some(key) => Self::key(topic.name(), key),
            None => Self::Topic(topic.number()),
        }
    }

    pub(super) fn key(topic: &str, key: &[u8]) -> Self {
        Self::Key(topic.into(), key.into())
    }
}
