//! A state that outputs show: that of a source, or of one of its topics.

use freshline_core::session::TopicRecord;
use freshline_core::unit::{Span, Time};

use crate::monitor::{Record, SHOWN};

/// A state that a monitor holds.
#[derive(Clone, Copy)]
pub(super) struct Held<'a> {
    pub(super) record: &'a Record,
    /// Of which topic, other than the first.
    topic: Option<&'a TopicRecord>,
}

impl<'a> Held<'a> {
    /// The state of a source, or of its first topic.
    pub(super) fn of(record: &'a Record) -> Self {
        Self { record, topic: None }
    }

    /// The state of another topic.
    pub(super) fn of_topic(record: &'a Record, topic: &'a TopicRecord) -> Self {
        Self { record, topic: Some(topic) }
    }

    /// The name of the source, or the label of its session if it has none.
    pub(super) fn source(&self) -> String {
        match self.record.name.is_empty() {
            true => self.record.label().to_string(),
            false => self.record.name.to_string(),
        }
    }

    /// The topic's number.
    pub(super) fn topic(&self) -> u8 {
        self.topic.map_or(0, TopicRecord::number)
    }

    /// The topic's name, of a source that has topics; empty until it has come.
    pub(super) fn topic_name(&self) -> Option<&'a str> {
        match self.topic {
            Some(topic) => Some(topic.name()),
            None => self.record.topic(0).map(TopicRecord::name),
        }
    }

    /// The state; `None` if there is none.
    pub(super) fn payload(&self) -> Option<&'a [u8]> {
        match self.topic {
            Some(topic) => topic.payload(),
            None => self.record.has_state().then_some(&self.record.payload),
        }
    }

    /// The state, if there is one and it is not longer than [`SHOWN`].
    pub(super) fn shown(&self) -> Option<&'a [u8]> {
        self.payload().filter(|payload| payload.len() <= SHOWN)
    }

    /// When it was sampled, on the source's clock.
    pub(super) fn generated_at(&self) -> Time {
        self.topic.map_or(self.record.generated_at, TopicRecord::generated_at)
    }

    /// Its age, once the source has sent the clocks' offset with it.
    pub(super) fn age(&self, now: Time) -> Option<Span> {
        match self.topic {
            Some(topic) => topic.state_age(now),
            None => self.record.state_age(now),
        }
    }
}
