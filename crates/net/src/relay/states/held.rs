//! The held states of a source, with their owners, and its topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use freshline_core::session::MAX_TOPICS;
use freshline_core::state::Budget;
use freshline_core::unit::{Span, Time};
use freshline_core::wire::StreamId;

use super::super::parting::Parting;
use super::{Put, State, Which};

/// Identical bytes under the same name, generated at most this much later, are the same state:
/// times of generation that went through two estimates of clock offsets differ by at most half of
/// both round trips.
const SAME: Span = Span::from_secs(1);

/// The overhead per state besides its bytes and its key: map entries and its topic's name.
pub(super) const COST: usize = 320;

/// The session that brought a held state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The name's present session brought it.
    Present,
    /// A former session brought it.
    Former,
    /// A former session brought it, and the present session has brought the same state or an older
    /// one.
    Both,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) state: State,
    pub(super) owner: Owner,
    /// Its share of the budget.
    pub(super) share: usize,
}

/// Which states of a topic count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Latest,
    Keyed,
    Every(StreamId),
}

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) kind: Kind,
    /// Whether the present session has not brought it yet.
    pub(super) is_former: bool,
    /// The value of [`Held::removals`] after the last removal of one of its keys.
    pub(super) removed_at: u64,
}

#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) states: BTreeMap<Arc<Which>, Entry>,
    pub(super) by_number: BTreeMap<u64, Arc<Which>>,
    /// All topics since the first state; at most [`MAX_TOPICS`].
    pub(super) topics: BTreeMap<Arc<str>, Topic>,
    /// The number of states per label error.
    pub(super) errors: BTreeMap<Span, usize>,
    /// The number of the newest state.
    pub(super) newest: u64,
    /// The number of removed keys.
    pub(super) removals: u64,
    pub(super) parting: Option<Parting>,
}

impl Held {
    /// The reason why no state or record of this topic can be held; otherwise adds the topic.
    pub(super) fn refuse(&mut self, name: &Arc<str>, kind: Kind) -> Option<Put> {
        let refused = self.check(name, kind);
        if refused.is_none() {
            let topic = self.topics.entry(Arc::clone(name));
            let topic = topic.or_insert(Topic { kind, is_former: false, removed_at: 0 });
            topic.is_former = false;
        }
        refused
    }

    /// Like [`Self::refuse`], without a change.
    pub(super) fn check(&self, name: &str, kind: Kind) -> Option<Put> {
        let clash = |is_former| Some(if is_former { Put::Clash } else { Put::LeftOut });
        if let Some(topic) = self.topics.get(name) {
            return if topic.kind == kind { None } else { clash(topic.is_former) };
        }
        let is_any_former = self.topics.values().any(|topic| topic.is_former);
        if self.topics.contains_key("") {
            // The source has topics although it began without.
            return Some(Put::Clash);
        }
        if name.is_empty() && !self.topics.is_empty() {
            return clash(self.topics.values().all(|topic| topic.is_former));
        }
        if self.topics.len() == MAX_TOPICS {
            return clash(is_any_former);
        }
        None
    }

    pub(super) fn put(
        &mut self,
        which: &Which,
        (generated_at, label_error): (Time, Span),
        bytes: &[u8],
        budget: &mut Budget,
    ) -> Put {
        let known = self.states.get_key_value(which).map(|(which, _)| Arc::clone(which));
        let which = known.unwrap_or_else(|| Arc::new(which.clone()));
        let mut share = 0;
        if let Some(entry) = self.states.get_mut(&which) {
            let is_own = entry.owner == Owner::Present;
            if !is_own && is_old(&entry.state, generated_at, bytes) {
                entry.owner = Owner::Both;
                return Put::Old;
            }
            share = entry.share;
        }
        // States of sources without topics are bounded by the number of sources.
        let key = which.key.as_ref().map_or(0, |key| key.len());
        let wanted = if which.topic.is_empty() { 0 } else { COST + key + bytes.len() };
        if !budget.resize(&mut share, wanted) {
            return Put::LeftOut;
        }
        let state = State { number: 0, generated_at, label_error, bytes: bytes.into() };
        self.insert(which, state, share);
        Put::New
    }

    /// Stores a state of the present session under the next number.
    pub(super) fn insert(&mut self, which: Arc<Which>, mut state: State, share: usize) {
        self.newest += 1;
        state.number = self.newest;
        self.by_number.insert(self.newest, Arc::clone(&which));
        *self.errors.entry(state.label_error).or_default() += 1;
        let entry = Entry { state, owner: Owner::Present, share };
        if let Some(former) = self.states.insert(which, entry) {
            self.forget(&former.state);
        }
    }

    pub(super) fn remove(&mut self, which: &Which, budget: &mut Budget) -> bool {
        let Some(mut entry) = self.states.remove(which) else { return false };
        budget.release(&mut entry.share);
        self.forget(&entry.state);
        if which.key.is_some()
            && let Some(topic) = self.topics.get_mut(&which.topic)
        {
            self.removals += 1;
            topic.removed_at = self.removals;
        }
        true
    }

    /// Removes a state from the index.
    pub(super) fn forget(&mut self, state: &State) {
        self.by_number.remove(&state.number);
        if let Some(count) = self.errors.get_mut(&state.label_error) {
            *count -= 1;
            if *count == 0 {
                self.errors.remove(&state.label_error);
            }
        }
    }

    pub(super) fn drop_former(&mut self, budget: &mut Budget) -> bool {
        let before = self.removals;
        let former = self.states.iter().filter(|(_, entry)| entry.owner == Owner::Former);
        let former: Vec<_> = former.map(|(which, _)| Arc::clone(which)).collect();
        for which in former {
            self.remove(&which, budget);
        }
        self.removals > before
    }
}

/// Whether a state repeats the former session's state, or is older.
fn is_old(former: &State, generated_at: Time, bytes: &[u8]) -> bool {
    generated_at <= former.generated_at
        || (generated_at <= former.generated_at + SAME && *former.bytes == *bytes)
}
