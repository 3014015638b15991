//! The public types of topics.

use alloc::string::String;

use super::super::StateTooLarge;
use crate::age::AgeProcess;
use crate::unit::{Span, UpdateRate};
use crate::wire::{MAX_TOPIC, Opening, OpeningTooLong, RecordChunk, StreamId, TopicKey};

/// One of a source's topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicId(pub(in crate::session) u8);

impl TopicId {
    /// The first one, and the only one of a source without
    /// [`Source::with_topics`](super::super::Source::with_topics).
    pub const FIRST: Self = Self(0);

    /// Its index in the list of topics at construction, followed by added topics.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// The kind of a topic: which of its states matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TopicKind {
    /// The newest one.
    #[default]
    Latest,
    /// The newest one of each key. A key is any 1 to [`TopicKey::MAX_LEN`] bytes, such as a
    /// coordinate frame, the id of a message, or a sensor. Keys are created by their first state,
    /// and can be removed.
    Keyed {
        /// The maximum number of keys at a time, at least 1. A source has at most [`MAX_STREAMS`]
        /// topics and keys together.
        max_keys: u16,
    },
    /// Each one, called a **record**: all reach the application, in order and exactly once, across
    /// reconnections and restarts of either end
    /// ([`Source::put_record`](super::super::Source::put_record)).
    Every {
        /// The stream of the records: random, or that of the previous process, to continue from
        /// `first` on.
        stream: StreamId,
        /// The number of the first chunk: 0 for a new stream, at most [`RecordChunk::MAX_NUMBER`].
        first: u64,
        /// The maximum number of bytes of records held until the application has received them,
        /// each chunk with [`RecordChunk::COST`]; at least 1 KiB. At the maximum, further records
        /// are refused.
        max_bytes: u32,
    },
}

impl TopicKind {
    /// With keys, at most 512 at a time.
    pub const KEYED: Self = Self::Keyed { max_keys: 512 };

    /// Records, in a stream that the library draws at random for each source.
    pub const EVERY: Self = Self::every(StreamId(0));

    /// The default of `max_bytes`: 1 MiB.
    pub const DEFAULT_BYTES: u32 = 1 << 20;

    /// The minimum of `max_bytes`.
    pub const MIN_BYTES: u32 = 1 << 10;

    /// Records, in a new stream with this id, with a buffer of [`TopicKind::DEFAULT_BYTES`].
    pub const fn every(stream: StreamId) -> Self {
        Self::Every { stream, first: 0, max_bytes: Self::DEFAULT_BYTES }
    }

    /// Whether it is a topic of records.
    pub const fn is_every(self) -> bool {
        matches!(self, Self::Every { .. })
    }

    /// The maximum number of keys; `None` if it has no keys.
    pub fn max_keys(self) -> Option<usize> {
        match self {
            Self::Latest | Self::Every { .. } => None,
            Self::Keyed { max_keys } => Some(max_keys.into()),
        }
    }
}

/// The parameters of a topic. In a topic with keys, all except name and kind apply per key.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicParams {
    /// Its name, as that of a source: at most [`Opening::MAX_NAME`] bytes.
    pub name: String,
    /// Which of its states matter.
    pub kind: TopicKind,
    /// The weight of its age relative to other topics; above 0 and at most 10⁹. Default: 1.
    pub weight: f64,
    /// States older than this are dropped instead of sent.
    pub deadline: Option<Span>,
    /// The maximum rate of its states.
    pub max_rate: Option<UpdateRate>,
    /// The minimum rate: after a period of this rate, a new state takes precedence over other
    /// topics.
    pub min_rate: Option<UpdateRate>,
    /// Its states take precedence over all others, are sent ahead of the law's pace within a small
    /// burst, over all paths at once, and are repeated until acknowledged. A state in several
    /// updates only takes precedence.
    pub is_urgent: bool,
}

impl From<&str> for TopicParams {
    /// [`TopicParams::new`].
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl TopicParams {
    /// The maximum weight.
    pub const MAX_WEIGHT: f64 = 1e9;

    /// A topic of weight 1, without limits.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind: TopicKind::Latest,
            weight: 1.0,
            deadline: None,
            max_rate: None,
            min_rate: None,
            is_urgent: false,
        }
    }

    /// Checks the parameters of a single topic.
    ///
    /// # Errors
    /// [`TopicError`] if a parameter is invalid.
    pub fn check(&self) -> Result<(), TopicError> {
        let name = || self.name.clone();
        let opening = Opening { cookie: Default::default(), name: &self.name, token: &[] };
        opening.check().map_err(|error| TopicError::Name { name: name(), error })?;
        if self.name.is_empty() || !Opening::is_plain_name(&self.name) {
            return Err(TopicError::NotPlain(name()));
        }
        if !(self.weight > 0.0 && self.weight <= Self::MAX_WEIGHT) {
            return Err(TopicError::Weight { name: name(), weight: self.weight });
        }
        if let (Some(min), Some(max)) = (self.min_rate, self.max_rate)
            && min > max
        {
            return Err(TopicError::Rates { name: name(), min, max });
        }
        if self.kind.max_keys() == Some(0) {
            return Err(TopicError::NoKeys(name()));
        }
        if let TopicKind::Every { first, max_bytes, .. } = self.kind {
            let setting = match self {
                Self { deadline: Some(_), .. } => Some("a deadline"),
                Self { min_rate: Some(_), .. } => Some("a lowest rate"),
                _ => None,
            };
            if let Some(setting) = setting {
                return Err(TopicError::NotOfRecords { name: name(), setting });
            }
            if first > RecordChunk::MAX_NUMBER {
                return Err(TopicError::FirstRecord { name: name(), first });
            }
            if max_bytes < TopicKind::MIN_BYTES {
                return Err(TopicError::TooFewBytes { name: name(), max_bytes });
            }
        }
        Ok(())
    }
}

/// Why a source cannot have these topics.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TopicError {
    /// There are too many.
    #[error("{0} topics; a source has at most {max}", max = MAX_TOPICS)]
    TooMany(usize),
    /// Two have the same name.
    #[error("two topics are named {0:?}; each needs a name of its own")]
    Twice(String),
    /// The name is too long.
    #[error("topic {name:?}: {error}")]
    Name {
        /// The name.
        name: String,
        /// The reason.
        error: OpeningTooLong,
    },
    /// The name could not be used as a file name and a label.
    #[error(
        "topic {0:?}: a name has ASCII letters, digits and . _ : / @ + -, begins with a letter or a \
         digit, and has no part `..`"
    )]
    NotPlain(String),
    /// The weight is out of range.
    #[error("topic {name:?}: weight {weight}; it must be above 0 and at most {max}", max = TopicParams::MAX_WEIGHT)]
    Weight {
        /// The topic.
        name: String,
        /// Its weight.
        weight: f64,
    },
    /// The lowest rate is above the highest.
    #[error("topic {name:?}: its lowest rate, {min}, is above its highest, {max}")]
    Rates {
        /// The topic.
        name: String,
        /// Its lowest rate.
        min: UpdateRate,
        /// Its highest rate.
        max: UpdateRate,
    },
    /// A maximum of zero keys.
    #[error("topic {0:?}: it must have room for 1 key at least")]
    NoKeys(String),
    /// The topic is of records, and has a setting that applies to states only.
    #[error("topic {name:?}: {setting} is for states; each record of this topic counts")]
    NotOfRecords {
        /// The topic.
        name: String,
        /// The setting.
        setting: &'static str,
    },
    /// The number of the first chunk is too large.
    #[error("topic {name:?}: its first record has the number {first}; at most {max} is possible", max = RecordChunk::MAX_NUMBER)]
    FirstRecord {
        /// The topic.
        name: String,
        /// The number.
        first: u64,
    },
    /// The buffer of a topic of records is too small.
    #[error("topic {name:?}: {max_bytes} bytes for records; it needs at least {min}", min = TopicKind::MIN_BYTES)]
    TooFewBytes {
        /// The topic.
        name: String,
        /// The size of its buffer.
        max_bytes: u32,
    },
    /// The source's datagrams are too short for a chunk of a record.
    #[error(
        "topic {name:?}: records need {needed} bytes in a datagram with name and token of the source, and there are {room}"
    )]
    NoRoomForRecords {
        /// The topic.
        name: String,
        /// The size of a chunk of a record, with the topic's name, in bytes.
        needed: usize,
        /// The available room, in bytes.
        room: usize,
    },
    /// All topics and keys together are too many.
    #[error("{0} topics and keys; a source has at most {MAX_STREAMS}: lower the numbers of keys")]
    TooManyKeys(usize),
    /// A source without topics has already put or sent states.
    #[error("topics are declared before a source is used")]
    TooLate,
}

/// The maximum number of topics of a source.
pub const MAX_TOPICS: usize = 256;

/// The maximum number of topics and keys of a source.
pub const MAX_STREAMS: usize = MAX_TOPIC as usize + 1;

/// Why a source cannot take a state of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The topic has no keys, or there is no such topic.
    #[error("topic {0:?} has no keys")]
    NotKeyed(String),
    /// The key is empty or too long.
    #[error("a key of {0} bytes; it must have 1 to {max}", max = TopicKey::MAX_LEN)]
    Length(usize),
    /// The topic has its maximum number of keys, or no number is free because the monitor does not
    /// know of removed keys yet.
    #[error(
        "topic {topic:?} has {keys} keys and no room for another one; remove some, or allow more"
    )]
    TooMany {
        /// The topic.
        topic: String,
        /// The number of its keys.
        keys: usize,
    },
    /// The state is too long.
    #[error(transparent)]
    TooLarge(#[from] StateTooLarge),
}

/// Why a source cannot take a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The topic is not of records, or there is no such topic.
    #[error("topic {0:?} is not of the kind whose every record counts")]
    NotEvery(String),
    /// The record is longer than [`RecordChunk::MAX_RECORD`], or than the topic's buffer.
    #[error("a record of {given} bytes; at most {max} are possible")]
    TooLong {
        /// Its length in bytes.
        given: usize,
        /// The longest record of the topic.
        max: usize,
    },
    /// The buffer is full: the application at the monitor has not received earlier records yet. The
    /// record was not taken; earlier records are not lost.
    #[error(
        "topic {topic:?} holds {bytes} bytes of records that have not arrived yet, and has no room for this one"
    )]
    Full {
        /// The topic.
        topic: String,
        /// The bytes in its buffer.
        bytes: usize,
    },
}

/// The records of a topic at its source. Numbers are those of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordsView {
    /// Their stream.
    pub stream: StreamId,
    /// The number of the next record.
    pub next: u64,
    /// The application has received all chunks below this number.
    pub done: u64,
    /// Bytes held, each chunk with [`RecordChunk::COST`].
    pub bytes: usize,
    /// The maximum of `bytes`.
    pub max_bytes: usize,
    /// Chunks that were sent again, because they were lost or the session was reopened.
    pub repeated: u64,
}

/// A key of a topic at its source.
#[derive(Debug, Clone, Copy)]
pub struct KeyView<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its age at the monitor as reported by acks: an upper bound, as an ack takes time.
    pub age: &'a AgeProcess,
    /// Its counters.
    pub counters: &'a TopicCounters,
}

/// The counters of a topic, of all its keys together, or of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopicCounters {
    /// States sent whole, repeats included, and states in parts that began; records whose last
    /// chunk was sent.
    pub sent: u64,
    /// States that the monitor is known to have; records that the application there has received.
    pub delivered: u64,
    /// States that a newer one replaced before they were sent.
    pub replaced: u64,
    /// States that were older than [`TopicParams::deadline`] before they were sent.
    pub expired: u64,
    /// Unchanged states that were left out.
    pub unchanged: u64,
    /// Bytes of states, whole or in parts, and of records, that were sent.
    pub payload_bytes: u64,
    /// Keys that were removed.
    pub removed: u64,
}

impl TopicCounters {
    pub(super) fn add(&mut self, other: &Self) {
        let Self { sent, delivered, replaced, expired, unchanged, payload_bytes, removed } = other;
        self.sent += sent;
        self.delivered += delivered;
        self.replaced += replaced;
        self.expired += expired;
        self.unchanged += unchanged;
        self.payload_bytes += payload_bytes;
        self.removed += removed;
    }
}
