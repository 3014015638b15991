//! Topics as the caller sees them.

use alloc::string::String;

use crate::unit::{Span, UpdateRate};
use crate::wire::{Opening, OpeningTooLong};

/// One of a source's topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicId(pub(in crate::session) u8);

impl TopicId {
    /// The first one, and the only one of a source without [`Source::with_topics`](super::super::Source::with_topics).
    pub const FIRST: Self = Self(0);

    /// Its place in the list that the source was made with, and its number on the wire.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// What a topic is.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicParams {
    /// Its name, as that of a source: at most [`Opening::MAX_NAME`] bytes.
    pub name: String,
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

impl TopicParams {
    /// The greatest weight.
    pub const MAX_WEIGHT: f64 = 1e9;

    /// A topic of weight 1, without limits.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
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
    /// Something has been put or sent already.
    #[error("topics are declared before a source is used")]
    TooLate,
}

/// The most topics of a source.
pub const MAX_TOPICS: usize = 256;

/// What was counted of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopicCounters {
    /// States that left whole, repeats included, and states in parts that began.
    pub sent: u64,
    /// States that the monitor is known to have.
    pub delivered: u64,
    /// States that a newer one replaced before they left.
    pub replaced: u64,
    /// States that were older than [`TopicParams::deadline`] before they left.
    pub expired: u64,
    /// Unchanged states that were left out.
    pub unchanged: u64,
    /// Bytes of states, whole or in parts, that left.
    pub payload_bytes: u64,
}
