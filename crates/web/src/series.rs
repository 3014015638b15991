//! The numbers by which a browser knows series and sources.
//!
//! A series is the states of a topic of a source, or of one key. Both have 2-byte ids, which keys
//! of the gateway's topics are. An id is not given again before all others were, so that a late
//! update never names something else.

use std::collections::HashMap;
use std::hash::Hash;

use freshline::State;

/// The most series of a browser, and the most sources: with names, states and sources, below the
/// 4096 numbers of a session.
pub(crate) const MAX: usize = 1300;

/// Whose states: names of source and topic, and the key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub(crate) source: Box<str>,
    pub(crate) topic: Box<str>,
    pub(crate) key: Option<Box<[u8]>>,
}

impl Name {
    pub(crate) fn of(state: &State) -> Self {
        Self {
            source: state.source().into(),
            topic: state.topic().into(),
            key: state.key().map(Into::into),
        }
    }
}

/// Ids of at most [`MAX`] names.
#[derive(Debug)]
pub(crate) struct Ids<K> {
    ids: HashMap<K, u16>,
    used: Box<[bool]>,
    next: u16,
}

impl<K> Default for Ids<K> {
    fn default() -> Self {
        Self { ids: HashMap::new(), used: vec![false; 1 << 16].into(), next: 0 }
    }
}

/// The result of [`Ids::get`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Id {
    Known(u16),
    New(u16),
}

impl<K: Eq + Hash + Clone> Ids<K> {
    /// The id of this name, or none if there is no room.
    pub(crate) fn get(&mut self, name: &K) -> Option<Id> {
        if let Some(id) = self.ids.get(name) {
            return Some(Id::Known(*id));
        }
        if self.ids.len() >= MAX {
            return None;
        }
        while self.used[usize::from(self.next)] {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = id.wrapping_add(1);
        self.used[usize::from(id)] = true;
        self.ids.insert(name.clone(), id);
        Some(Id::New(id))
    }

    /// The id of a name that is gone.
    pub(crate) fn remove(&mut self, name: &K) -> Option<u16> {
        let id = self.ids.remove(name)?;
        self.used[usize::from(id)] = false;
        Some(id)
    }

    /// Removes the names that are not to stay, and gives their ids.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&K) -> bool) -> Vec<u16> {
        let gone: Vec<_> = self.ids.keys().filter(|name| !stays(name)).cloned().collect();
        gone.iter().filter_map(|name| self.remove(name)).collect()
    }

    pub(crate) fn contains(&self, name: &K) -> bool {
        self.ids.contains_key(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &K> {
        self.ids.keys()
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_comes_again_only_after_all_others() {
        let mut ids = Ids::default();
        assert_eq!(ids.get(&"kept"), Some(Id::New(0)));
        for id in 1..=u16::MAX {
            assert_eq!(ids.get(&"other"), Some(Id::New(id)));
            assert_eq!(ids.remove(&"other"), Some(id));
        }
        // 0 is in use.
        assert_eq!(ids.get(&"other"), Some(Id::New(1)));
        assert_eq!(ids.get(&"kept"), Some(Id::Known(0)));
    }

    #[test]
    fn there_are_no_more_than_fit_into_a_session() {
        let mut ids = Ids::default();
        let given = (0..2 * MAX).filter_map(|name| ids.get(&name)).count();
        assert_eq!((given, ids.len()), (MAX, MAX));
        assert_eq!(ids.retain(|name| *name < 10).len(), MAX - 10);
        assert!(ids.get(&5000).is_some());
    }
}
