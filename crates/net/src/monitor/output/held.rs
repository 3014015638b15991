//! A state that outputs show: that of a source, or of one of its topics.

use freshline_core::session::{MaxAge, RemovedTopic, SessionLabel, StateAge, TopicRecord};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::KeyText;

use crate::monitor::which::Which;
use crate::monitor::{Record, SHOWN};

/// The name of a source, or the label of its session if it has none.
pub(super) fn shown_source(name: &str, label: SessionLabel) -> String {
    if name.is_empty() { label.to_string() } else { name.to_owned() }
}

/// A state that a monitor holds, or held until its key was removed.
#[derive(Clone, Copy)]
pub(super) struct Held<'a> {
    pub(super) record: &'a Record,
    of: Of<'a>,
}

#[derive(Clone, Copy)]
enum Of<'a> {
    /// The source, or its first topic.
    Source,
    Topic(&'a TopicRecord),
    Removed(&'a RemovedTopic),
}

impl<'a> Held<'a> {
    /// The state of a source, or of its first topic.
    pub(super) fn of(record: &'a Record) -> Self {
        Self { record, of: Of::Source }
    }

    /// The state of another topic, or of a key.
    pub(super) fn of_topic(record: &'a Record, topic: &'a TopicRecord) -> Self {
        Self { record, of: Of::Topic(topic) }
    }

    /// The removal of a key.
    pub(super) fn removed(record: &'a Record, removed: &'a RemovedTopic) -> Self {
        Self { record, of: Of::Removed(removed) }
    }

    /// The name of the source, or the label of its session if it has none.
    pub(super) fn source(&self) -> String {
        shown_source(&self.record.name, self.record.label())
    }

    pub(super) fn which(&self) -> Which {
        match self.of {
            Of::Source => Which::Topic(0),
            Of::Topic(topic) => Which::of(topic),
            Of::Removed(removed) => Which::key(&removed.name, &removed.key),
        }
    }

    /// The topic's name, if the source has topics; empty until it has arrived.
    pub(super) fn topic_name(&self) -> Option<&'a str> {
        match self.of {
            Of::Topic(topic) => Some(topic.name()),
            Of::Removed(removed) => Some(&removed.name),
            Of::Source => self.record.topic(0).map(TopicRecord::name),
        }
    }

    /// The key as text, if the topic has keys.
    pub(super) fn key(&self) -> Option<String> {
        let key = match self.of {
            Of::Topic(topic) => topic.key(),
            Of::Removed(removed) => Some(&*removed.key),
            Of::Source => None,
        };
        key.map(|key| KeyText(key).to_string())
    }

    /// Whether the key is removed.
    pub(super) fn is_removed(&self) -> bool {
        matches!(self.of, Of::Removed(_))
    }

    /// The state, if there is one.
    pub(super) fn payload(&self) -> Option<&'a [u8]> {
        match self.of {
            Of::Topic(topic) => topic.payload(),
            Of::Removed(_) => None,
            Of::Source => self.record.payload(),
        }
    }

    /// The state, if there is one and it is not longer than [`SHOWN`].
    pub(super) fn shown(&self) -> Option<&'a [u8]> {
        self.payload().filter(|payload| payload.len() <= SHOWN)
    }

    /// When it was sampled, on the source's clock; a removal is later than all states.
    pub(super) fn generated_at(&self) -> Time {
        match self.of {
            Of::Topic(topic) => topic.generated_at(),
            Of::Removed(_) => Time::MAX,
            Of::Source => self.record.generated_at,
        }
    }

    /// Its age with its uncertainty, once the source has sent the clocks' offset with it, or with an older one.
    pub(super) fn bounded_age(&self, now: Time) -> Option<StateAge> {
        match self.of {
            Of::Topic(topic) => topic.bounded_age(now),
            Of::Removed(_) => None,
            Of::Source => self.record.bounded_age(now),
        }
    }

    /// Until when it may be handed out, with these maximum ages; `None` if there is no limit.
    pub(super) fn fresh_until(&self, now: Time, rules: &[MaxAge]) -> Option<Time> {
        if self.is_removed() {
            return None;
        }
        let limit = MaxAge::of(rules, &self.record.name, self.topic_name().unwrap_or_default())?;
        let age = self.bounded_age(now).map_or(Span::MAX, |age| age.max());
        Some(now + (limit - age))
    }

    /// Its age, once the source has sent the clocks' offset with it.
    pub(super) fn age(&self, now: Time) -> Option<Span> {
        match self.of {
            Of::Topic(topic) => topic.state_age(now),
            Of::Removed(_) => None,
            Of::Source => self.record.state_age(now),
        }
    }
}
