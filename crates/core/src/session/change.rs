//! The changes that an update makes in the topics and keys of a source at its monitor.

use alloc::boxed::Box;

/// A key that is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedTopic {
    /// The number of the removal, in the sequence of states: greater than those of the key's
    /// states.
    pub number: u64,
    /// The topic's name.
    pub name: Box<str>,
    /// The key; empty if the topic has none.
    pub key: Box<[u8]>,
}

/// A change by an update in a topic, or in a key.
#[derive(Debug)]
pub(super) enum Change {
    /// The topic of this number has a fresh state.
    Fresh(u16),
    /// The held state of this topic has arrived again.
    Repeated(u16),
    /// The age of its held state is known now; it was unknown on arrival.
    Aged(u16),
    /// The topic of this number has more complete records.
    Record(u16),
    /// The record of this number was dropped.
    Dropped(u16),
    /// A key was removed, which is reported to the driver.
    Removed(Box<RemovedTopic>),
}
