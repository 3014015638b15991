//! The numbers of a topic and of its keys.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use super::types::TopicCounters;

/// The keys of one topic, which has none if it is of another kind.
#[derive(Debug)]
pub(super) struct Keys {
    /// The number of the topic itself.
    topic: u16,
    /// The keys' numbers. Removed keys stay until the monitor knows of the removal; if put again
    /// before, they keep their number.
    numbers: BTreeMap<Box<[u8]>, u16>,
    /// The number of keys that are not removed.
    live: usize,
    /// The counters of keys that are gone.
    pub(super) past: TopicCounters,
}

impl Keys {
    /// The keys of the topic with this number.
    pub(super) fn of(topic: u16) -> Self {
        Self { topic, numbers: BTreeMap::new(), live: 0, past: TopicCounters::default() }
    }

    pub(super) fn topic(&self) -> u16 {
        self.topic
    }

    pub(super) fn number(&self, key: &[u8]) -> Option<u16> {
        self.numbers.get(key).copied()
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u16> {
        self.numbers.values().copied()
    }

    /// The number of keys that are not removed.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// A new key has this number.
    pub(super) fn insert(&mut self, key: &[u8], number: u16) {
        self.numbers.insert(key.into(), number);
        self.live += 1;
    }

    /// A removed key was put again.
    pub(super) fn revive(&mut self) {
        self.live += 1;
    }

    /// A key is removed.
    pub(super) fn on_removed(&mut self) {
        self.live -= 1;
        self.past.removed += 1;
    }

    /// The number of a removed key is free.
    pub(super) fn forget(&mut self, key: &[u8], counters: &TopicCounters) {
        self.numbers.remove(key);
        self.past.add(counters);
    }
}
