//! Topics as the caller sees them.

use alloc::string::String;

use super::super::StateTooLarge;
use crate::age::AgeProcess;
use crate::unit::{Span, UpdateRate};
use crate::wire::{MAX_TOPIC, Opening, OpeningTooLong, RecordChunk, StreamId, TopicKey};

/// One of a source's topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicId(pub(in crate::session) u8);

impl TopicId {
    /// The first one, and the only one of a source without [`Source::with_topics`](super::super::Source::with_topics).
    pub const FIRST: Self = Self(0);

    /// Its place in the list that the source was made with, or among those that were added.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// Which states of a topic count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TopicKind {
    /// The newest one.
    #[default]
    Latest,
    /// The newest one of each key. A key is any 1 to [`TopicKey::MAX_LEN`] bytes, such as a frame of
    /// coordinates, the id of a message, or a sensor. Keys are made by their first state, and can be removed.
    Keyed {
        /// The most keys at a time, at least 1. All topics and keys of a source together are at most
        /// [`MAX_STREAMS`].
        max_keys: u16,
    },
    /// Each one, called a **record**: all reach the application, in order and once, over reconnections and
    /// restarts of either end ([`Source::put_record`](super::super::Source::put_record)).
    Every {
        /// The stream of the records: drawn at random, or that of the process before this one, which puts
        /// again what it has put from `first` on.
        stream: StreamId,
        /// The number of the first chunk that will be put: 0 for a new stream, at most
        /// [`RecordChunk::MAX_NUMBER`].
        first: u64,
        /// The most bytes of records that are held until the application has got them, each chunk with
        /// [`RecordChunk::COST`]; at least 1 KiB. When they are reached, no further record is taken.
        max_bytes: u32,
    },
}

impl TopicKind {
    /// With keys, at most 512 of them at a time.
    pub const KEYED: Self = Self::Keyed { max_keys: 512 };

    /// Of records, in a stream that the library draws for each source.
    pub const EVERY: Self = Self::every(StreamId(0));

    /// The bytes of records that a topic holds if nothing else is said: 1 MiB.
    pub const DEFAULT_BYTES: u32 = 1 << 20;

    /// The fewest bytes of records that a topic holds.
    pub const MIN_BYTES: u32 = 1 << 10;

    /// Of records, in a new stream of this id, of which [`TopicKind::DEFAULT_BYTES`] are held.
    pub const fn every(stream: StreamId) -> Self {
        Self::Every { stream, first: 0, max_bytes: Self::DEFAULT_BYTES }
    }

    /// Whether each record counts.
    pub const fn is_every(self) -> bool {
        matches!(self, Self::Every { .. })
    }

    /// The most keys; `None` if it has no keys.
    pub fn max_keys(self) -> Option<usize> {
        match self {
            Self::Latest | Self::Every { .. } => None,
            Self::Keyed { max_keys } => Some(max_keys.into()),
        }
    }
}

/// What a topic is. Of a topic with keys, all but name and kind holds for each key by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicParams {
    /// Its name, as that of a source: at most [`Opening::MAX_NAME`] bytes.
    pub name: String,
    /// Which of its states count.
    pub kind: TopicKind,
    /// How much its age counts beside those of other topics; above 0 and at most 10⁹. 1 by default.
    pub weight: f64,
    /// A state that is older than this is not worth sending: it is dropped.
    pub deadline: Option<Span>,
    /// States leave no faster than this.
    pub max_rate: Option<UpdateRate>,
    /// A new state that has not left for a period of this rate goes before those of other topics.
    pub min_rate: Option<UpdateRate>,
    /// Its states go before all others, ahead of the law's pace within a small burst, over all paths at once,
    /// and are repeated until they are acknowledged. One that takes several updates goes before others alone.
    pub is_urgent: bool,
}

impl From<&str> for TopicParams {
    /// [`TopicParams::new`].
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl TopicParams {
    /// The greatest weight.
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

    /// Checks what can be checked of one topic alone.
    ///
    /// # Errors
    /// [`TopicError`] says what is wrong with it.
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

/// A list of topics that a source cannot have.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TopicError {
    /// There are too many.
    #[error("{0} topics; a source has at most {max}", max = MAX_TOPICS)]
    TooMany(usize),
    /// Two have the same name.
    #[error("two topics are named {0:?}; each needs a name of its own")]
    Twice(String),
    /// The name cannot be carried.
    #[error("topic {name:?}: {error}")]
    Name {
        /// The name.
        name: String,
        /// Why.
        error: OpeningTooLong,
    },
    /// The name could not be used as a file name and a label.
    #[error(
        "topic {0:?}: a name has ASCII letters, digits and . _ : / @ + -, begins with a letter or a \
         digit, and has no part `..`"
    )]
    NotPlain(String),
    /// The weight is no weight.
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
    /// It could not have a single key.
    #[error("topic {0:?}: it must have room for 1 key at least")]
    NoKeys(String),
    /// The topic is of records, and has a setting that is of states alone.
    #[error("topic {name:?}: {setting} is for states; each record of this topic counts")]
    NotOfRecords {
        /// The topic.
        name: String,
        /// What it has.
        setting: &'static str,
    },
    /// The number of the first chunk of a record is too great.
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
        /// What a chunk of a record takes, with the topic's name, in bytes.
        needed: usize,
        /// What there is.
        room: usize,
    },
    /// All topics and keys together are too many.
    #[error("{0} topics and keys; a source has at most {MAX_STREAMS}: lower the numbers of keys")]
    TooManyKeys(usize),
    /// Something has been put or sent already, by a source without topics.
    #[error("topics are declared before a source is used")]
    TooLate,
}

/// The most topics of a source.
pub const MAX_TOPICS: usize = 256;

/// The most topics and keys of a source.
pub const MAX_STREAMS: usize = MAX_TOPIC as usize + 1;

/// A state of a key that a source cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The topic has no keys, or there is no such topic.
    #[error("topic {0:?} has no keys")]
    NotKeyed(String),
    /// The key is empty or too long.
    #[error("a key of {0} bytes; it must have 1 to {max}", max = TopicKey::MAX_LEN)]
    Length(usize),
    /// The topic has as many keys as it may have, or has removed so many that the monitor does not know of
    /// yet that no number is free.
    #[error(
        "topic {topic:?} has {keys} keys and no room for another one; remove some, or allow more"
    )]
    TooMany {
        /// The topic.
        topic: String,
        /// Its keys.
        keys: usize,
    },
    /// The state is too long.
    #[error(transparent)]
    TooLarge(#[from] StateTooLarge),
}

/// A record that a source cannot take.
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
    /// The buffer is full: the application at the monitor has not got the records before yet. Nothing was
    /// taken, and nothing of what was taken before is lost.
    #[error(
        "topic {topic:?} holds {bytes} bytes of records that have not arrived yet, and has no room for this one"
    )]
    Full {
        /// The topic.
        topic: String,
        /// What it holds, in bytes.
        bytes: usize,
    },
}

/// The records of a topic, as a source sees them. Numbers are of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordsView {
    /// Their stream.
    pub stream: StreamId,
    /// The next record that is put has this number.
    pub next: u64,
    /// All chunks below are with the application.
    pub done: u64,
    /// Bytes that are held, each chunk with [`RecordChunk::COST`].
    pub bytes: usize,
    /// The most of these.
    pub max_bytes: usize,
    /// Chunks that left once more, because they were lost or the session was opened again.
    pub repeated: u64,
}

/// A key of a topic, as a source sees it.
#[derive(Debug, Clone, Copy)]
pub struct KeyView<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its age at the monitor as acks report it: an upper bound, as an ack takes time.
    pub age: &'a AgeProcess,
    /// What was counted of it.
    pub counters: &'a TopicCounters,
}

/// What was counted of a topic, of all its keys together, or of one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopicCounters {
    /// States that left whole, repeats included, and states in parts that began; records whose end left.
    pub sent: u64,
    /// States that the monitor is known to have; records that the application there has got.
    pub delivered: u64,
    /// States that a newer one replaced before they left.
    pub replaced: u64,
    /// States that were older than [`TopicParams::deadline`] before they left.
    pub expired: u64,
    /// Unchanged states that were left out.
    pub unchanged: u64,
    /// Bytes of states, whole or in parts, and of records, that left.
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
