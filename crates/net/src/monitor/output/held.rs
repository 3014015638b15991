//! A state that outputs show: that of a source, or of one of its topics.

use freshline_core::session::{MaxAge, SessionLabel, StateAge, TopicRecord};
use freshline_core::unit::{Span, Time};

use crate::monitor::{Record, SHOWN};

/// The name of a source, or the label of its session if it has none.
pub(super) fn shown_source(name: &str, label: SessionLabel) -> String {
    if name.is_empty() { label.to_string() } else { name.to_owned() }
}

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
        shown_source(&self.record.name, self.record.label())
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
            None => self.record.payload(),
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

    /// Its age with its uncertainty, once the source has sent the clocks' offset with it, or with an older one.
    pub(super) fn bounded_age(&self, now: Time) -> Option<StateAge> {
        match self.topic {
            Some(topic) => topic.bounded_age(now),
            None => self.record.bounded_age(now),
        }
    }

    /// Until when it may be handed out, with these maximum ages; `None` if for ever.
    pub(super) fn fresh_until(&self, now: Time, rules: &[MaxAge]) -> Option<Time> {
        let limit = MaxAge::of(rules, &self.record.name, self.topic_name().unwrap_or_default())?;
        let age = self.bounded_age(now).map_or(Span::MAX, |age| age.max());
        Some(now + (limit - age))
    }

    /// Its age, once the source has sent the clocks' offset with it.
    pub(super) fn age(&self, now: Time) -> Option<Span> {
        match self.topic {
            Some(topic) => topic.state_age(now),
            None => self.record.state_age(now),
        }
    }
}
