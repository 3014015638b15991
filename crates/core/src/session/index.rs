//! An index of a slab: finds places by a key that is part of the entry.

use core::hash::{BuildHasher, Hash};

use hashbrown::HashTable;

use super::cookie::TableHasher;

/// A table of places by a key that untrusted peers may choose. The keys stay in the slab, so each
/// call takes a function that finds them there.
#[derive(Debug)]
pub(super) struct Index {
    places: HashTable<u32>,
    hasher: TableHasher,
}

impl Index {
    pub(super) fn new(hasher: TableHasher) -> Self {
        Self { places: HashTable::new(), hasher }
    }

    pub(super) fn find<'a, K: Eq + Hash + ?Sized + 'a>(
        &self,
        key: &K,
        key_at: impl Fn(u32) -> &'a K,
    ) -> Option<u32> {
        self.places.find(self.hasher.hash_one(key), |place| key_at(*place) == key).copied()
    }

    /// Adds a place whose key is not in the table.
    pub(super) fn insert<'a, K: Hash + ?Sized + 'a>(
        &mut self,
        place: u32,
        key_at: impl Fn(u32) -> &'a K,
    ) {
        let Self { places, hasher } = self;
        let hash = |place: &u32| hasher.hash_one(key_at(*place));
        places.insert_unique(hash(&place), place, hash);
    }

    /// Forgets a place, if it is there under this key.
    pub(super) fn remove<K: Hash + ?Sized>(&mut self, place: u32, key: &K) {
        let hash = self.hasher.hash_one(key);
        if let Ok(entry) = self.places.find_entry(hash, |found| *found == place) {
            entry.remove();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}
