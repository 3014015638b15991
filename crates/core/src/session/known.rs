//! Names that sources held for some time, so that such a source gets a place when it returns.

use slab::Slab;

use super::cookie::TableHasher;
use super::index::Index;
use super::shares::{Origin, Shares};

/// Digests of names with their owners, at most `max`. Beyond that, the oldest digest of the party
/// with the most digests is dropped.
#[derive(Debug)]
pub(super) struct Known {
    max: usize,
    digests: Slab<u64>,
    by_digest: Index,
    shares: Shares,
}

impl Known {
    pub(super) fn new(max: usize, hasher: TableHasher) -> Self {
        let (digests, shares) = (Slab::new(), Shares::default());
        Self { max, digests, by_digest: Index::new(hasher), shares }
    }

    pub(super) fn insert(&mut self, digest: u64, origin: &Origin) {
        if self.max == 0 || self.contains(digest) {
            return;
        }
        if self.digests.len() >= self.max
            && let Some(place) = self.shares.first_to_go()
        {
            self.forget(place);
        }
        let place = self.digests.insert(digest) as u32;
        let digests = &self.digests;
        self.by_digest.insert(place, |place| &digests[place as usize]);
        self.shares.insert(place, origin);
    }

    pub(super) fn contains(&self, digest: u64) -> bool {
        self.find(digest).is_some()
    }

    /// Removes a digest; returns whether it was present.
    pub(super) fn remove(&mut self, digest: u64) -> bool {
        let place = self.find(digest);
        place.into_iter().for_each(|place| self.forget(place));
        place.is_some()
    }

    fn find(&self, digest: u64) -> Option<u32> {
        self.by_digest.find(&digest, |place| &self.digests[place as usize])
    }

    fn forget(&mut self, place: u32) {
        let digest = self.digests.remove(place as usize);
        self.by_digest.remove(place, &digest);
        self.shares.remove(place);
    }
}

#[cfg(test)]
mod tests {
    use super::super::cookie::Secret;
    use super::*;

    #[test]
    fn a_party_with_many_names_makes_the_monitor_forget_its_own_alone() {
        let mut known = Known::new(10, Secret::new([3; 16]).table_hasher());
        let party = |network| Origin { network, ..Origin::default() };
        known.insert(1, &party(1));
        for digest in 2..1_000 {
            known.insert(digest, &party(2));
        }
        assert!(known.contains(1) && known.contains(999) && !known.contains(500));
        assert_eq!((known.digests.len(), known.by_digest.len(), known.shares.len()), (10, 10, 10));
        assert!(known.remove(1) && !known.remove(1));
    }
}
