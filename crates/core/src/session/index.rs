//! An index of a slab: finds places by a key that is part of the entry.

use alloc::boxed::Box;
use core::hash::{BuildHasher, Hash};
use core::mem;

use hashbrown::HashTable;

use super::cookie::TableHasher;

/// A table of places by a key that untrusted peers may choose. The keys stay in the slab, so each
/// call takes a function that finds them there.
///
/// A full table moves its places to a larger one, a few at each insertion: for a million places the
/// hashes of all take half a second, as each key is elsewhere in memory.
#[derive(Debug)]
pub(super) struct Index {
    places: HashTable<u32>,
    /// The table that was full, as long as some places are still there.
    former: Option<Box<Former>>,
    hasher: TableHasher,
}

#[derive(Debug)]
struct Former {
    places: HashTable<u32>,
    /// Its first bucket that may have one.
    next: usize,
}

/// Buckets of the former table that are emptied at each insertion: all, before the larger table is full, unless most
/// of its insertions are of places that are removed again.
const BUCKETS: usize = 8;

impl Index {
    pub(super) fn new(hasher: TableHasher) -> Self {
        Self { places: HashTable::new(), former: None, hasher }
    }

    pub(super) fn find<'a, K: Eq + Hash + ?Sized + 'a>(
        &self,
        key: &K,
        key_at: impl Fn(u32) -> &'a K,
    ) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let is_it = |place: &u32| key_at(*place) == key;
        let in_former = || self.former.as_ref()?.places.find(hash, is_it);
        self.places.find(hash, is_it).or_else(in_former).copied()
    }

    /// Adds a place whose key is not in the table.
    pub(super) fn insert<'a, K: Hash + ?Sized + 'a>(
        &mut self,
        place: u32,
        key_at: impl Fn(u32) -> &'a K,
    ) {
        self.empty_former(BUCKETS, &key_at);
        if self.places.len() == self.places.capacity() {
            self.empty_former(usize::MAX, &key_at);
            // The next power of two: twice as many.
            let larger = HashTable::with_capacity(self.places.len() + 1);
            let places = mem::replace(&mut self.places, larger);
            self.former = Some(Box::new(Former { places, next: 0 }));
        }
        let Self { places, hasher, .. } = self;
        let hash = |place: &u32| hasher.hash_one(key_at(*place));
        places.insert_unique(hash(&place), place, hash);
    }

    /// Moves the places in the next buckets of the former table.
    fn empty_former<'a, K: Hash + ?Sized + 'a>(
        &mut self,
        buckets: usize,
        key_at: &impl Fn(u32) -> &'a K,
    ) {
        let Self { places, former: Some(former), hasher } = self else { return };
        let hash = |place: &u32| hasher.hash_one(key_at(*place));
        let end = former.next.saturating_add(buckets).min(former.places.num_buckets());
        while former.next < end && !former.places.is_empty() {
            if let Ok(entry) = former.places.get_bucket_entry(former.next) {
                let (place, _) = entry.remove();
                places.insert_unique(hash(&place), place, hash);
            }
            former.next += 1;
        }
        if former.places.is_empty() {
            self.former = None;
        }
    }

    /// Forgets a place, if it is there under this key.
    pub(super) fn remove<K: Hash + ?Sized>(&mut self, place: u32, key: &K) {
        let hash = self.hasher.hash_one(key);
        let former = self.former.as_deref_mut().map(|former| &mut former.places);
        for table in [Some(&mut self.places), former].into_iter().flatten() {
            if let Ok(entry) = table.find_entry(hash, |found| *found == place) {
                entry.remove();
                return;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len() + self.former.as_ref().map_or(0, |former| former.places.len())
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use super::super::cookie::Secret;
    use super::*;

    fn index() -> Index {
        Index::new(Secret::new([5; 16]).table_hasher())
    }

    #[test]
    fn no_insertion_waits_for_all_others() {
        const PLACES: u32 = 100_000;
        let keys: Vec<u64> = (0..PLACES).map(|place| u64::from(place) * 3).collect();
        let (mut index, looks) = (index(), Cell::new(0));
        let key_at = |place: u32| {
            looks.set(looks.get() + 1);
            &keys[place as usize]
        };
        let mut most = 0;
        for place in 0..PLACES {
            looks.set(0);
            index.insert(place, key_at);
            most = looks.get().max(most);
        }
        assert!(most <= BUCKETS + 1, "{most}");
        assert_eq!(index.len(), PLACES as usize);
        for (place, key) in (0..).zip(&keys) {
            assert_eq!(index.find(key, key_at), Some(place));
            assert_eq!(index.find(&(key + 1), key_at), None);
        }
    }

    #[test]
    fn a_full_table_doubles() {
        let (mut index, keys) = (index(), Vec::from_iter(0..10_000_u64));
        let mut capacity = 0;
        for place in 0..10_000 {
            index.insert(place, |place| &keys[place as usize]);
            let grown = index.places.capacity();
            assert!(capacity < 28 || grown <= 2 * capacity, "{grown} after {capacity}");
            capacity = grown;
        }
    }

    #[test]
    fn places_come_and_go_while_it_grows_and_it_does_not_grow_by_that() {
        // Some thousand at a time, and ten times as many over time.
        let keys: Vec<u64> = (0..100_000).map(|place| place * 7).collect();
        let key_at = |place: u32| &keys[place as usize];
        let (mut index, mut held) = (index(), BTreeSet::new());
        for place in 0..keys.len() as u32 {
            index.insert(place, key_at);
            held.insert(place);
            let drop = (u64::from(place) * 2_654_435_761 % (u64::from(place) + 1)) as u32;
            for drop in [Some(drop), place.checked_sub(3_000)].into_iter().flatten() {
                index.remove(drop, key_at(drop));
                held.remove(&drop);
            }
            assert_eq!(index.len(), held.len());
            if place % 1_000 == 0 {
                for place in 0..=place {
                    let is_there = held.contains(&place).then_some(place);
                    assert_eq!(index.find(key_at(place), key_at), is_there);
                }
            }
        }
        let former = index.former.as_ref().map_or(0, |former| former.places.num_buckets());
        let buckets = index.places.num_buckets() + former;
        assert!(buckets <= 3 * 8_192, "{buckets}");
        index.remove(99_999, &1);
        assert_eq!(index.len(), held.len(), "it is not there under that key");
    }
}
