//! Topics with keys: which number a key has.

use alloc::string::String;
use alloc::sync::Arc;

use super::topic::Topic;
use super::{KeyError, TopicId, Topics};
use crate::unit::Time;
use crate::wire::TopicKey;

impl Topics {
    /// The number of a key, which is added if it is new.
    ///
    /// # Errors
    /// [`KeyError`] if the key cannot be added.
    pub(in super::super) fn number_of_key(
        &mut self,
        topic: TopicId,
        key: &[u8],
    ) -> Result<u16, KeyError> {
        let (place, max_keys) = self.keyed(topic, key)?;
        let (known, keys) = (self.keys[place].number(key), self.keys[place].live());
        let is_live = |number: u16| !self.list[usize::from(number)].is_removed();
        if let Some(number) = known.filter(|number| is_live(*number) || keys < max_keys) {
            return Ok(number);
        }
        let params = &self.list[usize::from(self.keys[place].topic())].params;
        let Some(number) = self.free_number().filter(|_| keys < max_keys) else {
            return Err(KeyError::TooMany { topic: params.name.clone(), keys });
        };
        let made = Topic::of_key(number, Arc::clone(params), key);
        self.occupy(number, made);
        self.keys[place].insert(key, number);
        Ok(number)
    }

    /// Removes a key; returns whether it existed.
    ///
    /// # Errors
    /// [`KeyError`] if the topic has no keys, or the key is invalid.
    pub(in super::super) fn remove_key(
        &mut self,
        now: Time,
        topic: TopicId,
        key: &[u8],
    ) -> Result<bool, KeyError> {
        let (place, _) = self.keyed(topic, key)?;
        let number = self.keys[place].number(key);
        let Some(number) = number.filter(|at| !self.list[usize::from(*at)].is_removed()) else {
            return Ok(false);
        };
        self.keys[place].on_removed();
        match self.list[usize::from(number)].remove(now) {
            true => self.on_news(number),
            // It was never sent: the monitor does not know it.
            false => {
                self.vacate(number);
                self.settle();
            }
        }
        Ok(true)
    }

    /// The index of a topic with keys, and its maximum number of keys.
    fn keyed(&self, topic: TopicId, key: &[u8]) -> Result<(usize, usize), KeyError> {
        let params = self.params(topic);
        let Some(max_keys) = params.and_then(|params| params.kind.max_keys()) else {
            let name = params.map_or(String::new(), |params| params.name.clone());
            return Err(KeyError::NotKeyed(name));
        };
        match key.len() {
            1..=TopicKey::MAX_LEN => Ok((topic.index(), max_keys)),
            len => Err(KeyError::Length(len)),
        }
    }
}
