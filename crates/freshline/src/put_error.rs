//! Why a topic does not accept a state.

/// Why a state was not accepted. The topic keeps its previous state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// Its source or monitor has ended.
    #[error("topic {0:?}: its source or monitor has ended; make another one")]
    Closed(Box<str>),
    /// The state is longer than the source sends.
    #[error(
        "topic {topic:?}: {given} bytes are more than the limit of {max} bytes: send less, or raise the limit \
         (`max_state` at both ends; a record has at most 64 KiB)"
    )]
    TooLarge {
        /// The topic.
        topic: Box<str>,
        /// The length in bytes.
        given: usize,
        /// The limit.
        max: usize,
    },
    /// The state is older than the clock of this process can show, which is a year before its start.
    #[error("topic {topic:?}: the state is {} days old, and at most a year is possible", age.as_secs() / 86_400)]
    TooOld {
        /// The topic.
        topic: Box<str>,
        /// The age of the state.
        age: std::time::Duration,
    },
    /// The topic already holds unsent states of the maximum number of keys ([`TopicKind::Keyed`](crate::TopicKind::Keyed)).
    #[error(
        "topic {topic:?}: it holds unsent states of {max} keys, which is its maximum; try again later"
    )]
    TooManyKeys {
        /// The topic.
        topic: Box<str>,
        /// The limit.
        max: usize,
    },
    /// A key has 1 to 64 bytes.
    #[error("topic {topic:?}: a key has 1 to 64 bytes, not {given}")]
    Key {
        /// The topic.
        topic: Box<str>,
        /// The length of the key in bytes.
        given: usize,
    },
    /// The topic's buffer ([`TopicKind::Every`](crate::TopicKind::Every)) is full of unsent records. Try again later.
    #[error("topic {topic:?}: the buffer is full of unsent records; try again later")]
    Full {
        /// The topic.
        topic: Box<str>,
        /// The record, so that the caller can try again.
        record: Vec<u8>,
    },
    /// The topic is of another kind.
    #[error("topic {topic:?}: it is of kind {kind}, for which there is `{instead}`")]
    Kind {
        /// The topic.
        topic: Box<str>,
        /// Its kind.
        kind: &'static str,
        /// The method for it.
        instead: &'static str,
    },
}
