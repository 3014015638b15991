//! Which of the states of a source one is.

use freshline_core::session::TopicRecord;

/// Which of the states of a source, as outputs tell them apart: a key is the same one under whatever number it
/// comes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Which {
    /// That of a topic of this number. 0 is the least of all.
    Topic(u16),
    /// That of a key: the topic's name, and the key.
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
