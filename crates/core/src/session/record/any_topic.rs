//! Access to a record's topics and keys by number, the first topic included.

use super::Record;
use crate::session::held::{BOUNDED, Since, WITHHELD};
use crate::session::latest::StateAge;
use crate::session::topic_record::TopicRecord;
use crate::unit::Time;

impl<P> Record<P> {
    /// The bounded age of a topic's newest state.
    pub(in crate::session) fn age_of(&self, topic: u16, now: Time) -> Option<StateAge> {
        match topic {
            0 => self.bounded_age(now),
            topic => self.topic(topic)?.bounded_age(now),
        }
    }

    pub(in crate::session) fn is_topic_withheld(&self, topic: u16) -> bool {
        match topic {
            0 => self.is_withheld(),
            topic => self.topic(topic).is_some_and(TopicRecord::is_withheld),
        }
    }

    /// The bound of the age of the newest state of a topic.
    pub(in crate::session) fn since_of(&self, topic: u16) -> Option<Since> {
        match topic {
            0 => (self.packed & BOUNDED != 0).then_some(self.since),
            topic => self.topic(topic)?.since(),
        }
    }

    /// Withholds the newest state of a topic, or not.
    pub(in crate::session) fn withhold(&mut self, topic: u16, is_withheld: bool) {
        let flags = match topic {
            0 => Some(&mut self.packed),
            topic => self.more.as_mut().and_then(|more| more.topics.flags_mut(topic)),
        };
        if let Some(flags) = flags {
            *flags = (*flags & !WITHHELD) | if is_withheld { WITHHELD } else { 0 };
        }
    }
}
