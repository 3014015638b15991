//! What an update changes in the topics and keys of a source at its monitor.

use alloc::boxed::Box;

/// A key that is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedTopic {
    /// The number of the removal, as that of a state: greater than those of the key's states.
    pub number: u64,
    /// The topic's name.
    pub name: Box<str>,
    /// The key; empty if the topic has none.
    pub key: Box<[u8]>,
}

/// What an update has changed in a topic, or in a key.
#[derive(Debug)]
pub(super) enum Change {
    /// The topic of this number has a fresh state.
    Fresh(u16),
    /// The state that was held of it has come again.
    Repeated(u16),
    /// The age of the state that is held of it is known now; it was unknown when the state came.
    Aged(u16),
    /// The topic of this number has more whole records.
    Record(u16),
    /// This number has no record any more.
    Dropped(u16),
    /// The driver learns of it.
    Removed(Box<RemovedTopic>),
}
