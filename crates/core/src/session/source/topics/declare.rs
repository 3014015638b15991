//! Which topics a source has.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::keys::Keys;
use super::records::Records;
use super::topic::Topic;
use super::{MAX_STREAMS, MAX_TOPICS, TopicError, TopicId, TopicParams, Topics};

impl Topics {
    pub(in super::super) fn new(list: Vec<TopicParams>) -> Result<Self, TopicError> {
        if list.len() > MAX_TOPICS {
            return Err(TopicError::TooMany(list.len()));
        }
        let keys = list.iter().filter_map(|params| params.kind.max_keys());
        let streams = list.len() + keys.sum::<usize>();
        let mut topics = Self::default();
        for params in list {
            topics.add(params)?;
        }
        if streams > MAX_STREAMS {
            return Err(TopicError::TooManyKeys(streams));
        }
        Ok(topics)
    }

    /// Adds a topic, under a number that no key has had: a monitor treats the number of a removed
    /// key as that of a key.
    pub(in super::super) fn add(&mut self, params: TopicParams) -> Result<TopicId, TopicError> {
        params.check()?;
        let place = self.keys.len();
        let id = u8::try_from(place).map_err(|_| TopicError::TooMany(place + 1))?;
        if self.keys_named(&params.name).is_some() {
            return Err(TopicError::Twice(params.name));
        }
        let number = self.next_number().ok_or(TopicError::TooManyKeys(MAX_STREAMS + 1))?;
        self.has_keyed |= params.kind.max_keys().is_some();
        self.has_deadline |= params.deadline.is_some();
        self.has_urgent |= params.is_urgent;
        let params = Arc::new(params);
        self.records.extend(Records::new(number, &params));
        self.occupy(number, Topic::new(number, params));
        self.keys.push(Keys::of(number));
        Ok(TopicId(id))
    }

    /// The lowest number for a key that is free.
    pub(super) fn free_number(&self) -> Option<u16> {
        self.free.first().copied().or_else(|| self.next_number())
    }

    /// The lowest number that was never used.
    fn next_number(&self) -> Option<u16> {
        let next = u16::try_from(self.list.len()).ok();
        next.filter(|next| usize::from(*next) < MAX_STREAMS)
    }

    /// A topic or a key takes a number that is free.
    pub(super) fn occupy(&mut self, number: u16, topic: Topic) {
        match self.free.remove(&number) {
            true => self.list[usize::from(number)] = topic,
            false => self.list.push(topic),
        }
    }
}
