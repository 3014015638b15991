//! The memory that all sources of a monitor may hold together.
//!
//! One party could use all of it. So a reserve can be kept for the others: above the limit, a party
//! may hold up to a quarter of the remaining bytes.
//!
//! | bytes used after a growth | allowed |
//! |---|---|
//! | up to `limit` | to each party |
//! | up to `limit + reserve` | to a party that holds at most a quarter of the bytes left |
//!
//! So *n* parties that take as much as they can leave `reserve · (4/5)ⁿ`, after one that has used
//! up the limit. A party never loses memory that it holds.

use alloc::collections::BTreeMap;

/// Identifies holders that count together, such as the senders of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Party(pub u64, pub u64);

/// The number of remaining bytes for each byte of the reserve that a party may hold.
const LEFT: usize = 4;

/// A bound on bytes that several holders share: half-received states, and large payloads.
///
/// It is a plain counter: it owns no memory. Each holder remembers its charged share, and changes
/// that by [`Budget::resize`] alone, before it allocates and after it has freed. A share must be
/// released before its holder is dropped. With a reserve, a share belongs to the party that has
/// [entered](Budget::enter), and no other may change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    limit: usize,
    used: usize,
    reserve: usize,
    party: Party,
    /// The bytes of each party that holds some; only with a reserve.
    by_party: BTreeMap<Party, usize>,
    /// The number of times that a share has become smaller.
    shrinks: u64,
}

impl Budget {
    /// A budget of `limit` bytes, of which none are used, without a reserve.
    pub const fn new(limit: usize) -> Self {
        let party = Party(0, 0);
        Self { limit, used: 0, reserve: 0, party, by_party: BTreeMap::new(), shrinks: 0 }
    }

    /// The same with `reserve` bytes more for parties that hold little.
    #[must_use]
    pub const fn with_reserve(self, reserve: usize) -> Self {
        // Not by `..self`, which cannot be constant.
        let mut budget = self;
        budget.reserve = reserve;
        budget
    }

    /// A budget of `limit` bytes, and a quarter more for parties that hold little, as for all
    /// memory that sources use at a monitor.
    pub const fn of_parties(limit: usize) -> Self {
        Self::new(limit).with_reserve(limit / 4)
    }

    /// Charges shares to this party from now on.
    pub fn enter(&mut self, party: Party) {
        self.party = party;
    }

    /// The bound in bytes, without the reserve.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// The bytes charged for, at most the limit with the reserve.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// The number of times that a share has become smaller: as long as it is unchanged, a refused
    /// request would be refused again.
    pub const fn shrinks(&self) -> u64 {
        self.shrinks
    }

    /// Whether this party may take `more` bytes now.
    pub fn allows(&self, party: Party, more: usize) -> bool {
        let Some(used) = self.used.checked_add(more) else { return false };
        if used <= self.limit || more == 0 {
            return true;
        }
        let left = self.limit.saturating_add(self.reserve).checked_sub(used);
        left.is_some_and(|left| self.held(party).saturating_add(more) <= left / LEFT)
    }

    /// Transfers a share of the party that has entered to another one, which may exceed its
    /// allowance by that.
    pub fn pass(&mut self, share: usize, to: Party) {
        if self.reserve == 0 || share == 0 {
            return;
        }
        let from = self.party;
        // The former party may take more now.
        self.shrinks += u64::from(from != to);
        for (party, held) in [
            (from, self.held(from).saturating_sub(share)),
            (to, self.held(to).saturating_add(share)),
        ] {
            if from != to {
                self.set_held(party, held);
            }
        }
    }

    /// Changes the share of a holder from `share` to `wanted` bytes. Returns whether there was
    /// room; otherwise nothing changes. A share can always become smaller.
    #[must_use]
    pub fn resize(&mut self, share: &mut usize, wanted: usize) -> bool {
        if !self.has_room(*share, wanted) {
            return false;
        }
        self.charge(share, wanted);
        true
    }

    /// Releases the share of a holder that has freed its memory.
    pub fn release(&mut self, share: &mut usize) {
        self.charge(share, 0);
    }

    fn has_room(&self, share: usize, wanted: usize) -> bool {
        self.allows(self.party, wanted.saturating_sub(share))
    }

    /// The bytes that a party holds.
    fn held(&self, party: Party) -> usize {
        self.by_party.get(&party).copied().unwrap_or(0)
    }

    fn set_held(&mut self, party: Party, held: usize) {
        match held {
            0 => _ = self.by_party.remove(&party),
            held => _ = self.by_party.insert(party, held),
        }
    }

    fn charge(&mut self, share: &mut usize, wanted: usize) {
        debug_assert!(*share <= self.used, "a share of another budget");
        if wanted == *share {
            return;
        }
        self.used = self.used.saturating_sub(*share).saturating_add(wanted);
        self.shrinks += u64::from(wanted < *share);
        if self.reserve > 0 {
            let held = self.held(self.party);
            debug_assert!(*share <= held, "a share of another party");
            self.set_held(self.party, held.saturating_sub(*share).saturating_add(wanted));
        }
        *share = wanted;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_together_stay_within_the_limit() {
        let mut budget = Budget::new(100);
        let (mut one, mut other) = (0, 0);
        assert!(budget.resize(&mut one, 60) && budget.resize(&mut other, 40));
        assert_eq!(budget.used(), 100);
        assert!(!budget.resize(&mut one, 61) && !budget.resize(&mut one, usize::MAX));
        assert_eq!((one, budget.used()), (60, 100));
        assert!(budget.resize(&mut one, 10) && budget.resize(&mut other, 90));
        budget.release(&mut other);
        assert_eq!((other, budget.used()), (0, 10));
    }

    /// The maximum that a party can have now.
    fn greatest(budget: &mut Budget, party: u64) -> usize {
        budget.enter(Party(0, party));
        let mut share = 0;
        (1..).find(|wanted| !budget.resize(&mut share, *wanted)).map_or(0, |refused| refused - 1)
    }

    #[test]
    fn a_party_that_takes_all_it_can_leaves_the_reserve_to_the_others() {
        let mut budget = Budget::new(4_000).with_reserve(1_000);
        assert_eq!(greatest(&mut budget, 1), 4_000, "alone it has the whole limit, and no more");
        // A fifth of the remaining bytes, each.
        let others = [2, 3, 4].map(|party| greatest(&mut budget, party));
        assert_eq!(others, [200, 160, 128]);
        assert_eq!(budget.used(), 4_488);
        let mut share = others[0];
        budget.enter(Party(0, 2));
        assert!(!budget.resize(&mut share, 201) && budget.resize(&mut share, 100));
        assert!(budget.resize(&mut share, 101), "it holds less than a quarter of the rest");
    }

    #[test]
    fn a_share_that_passes_to_another_party_counts_as_held_by_that() {
        let mut budget = Budget::new(100).with_reserve(40);
        let (one, other, mut share) = (Party(0, 1), Party(0, 2), 0);
        budget.enter(one);
        assert!(budget.resize(&mut share, 100));
        assert!(!budget.allows(one, 1) && budget.allows(other, 8) && !budget.allows(other, 9));
        budget.pass(share, other);
        assert!(budget.allows(one, 8) && !budget.allows(other, 1));
        budget.enter(other);
        budget.pass(share, other);
        budget.release(&mut share);
        assert!(budget.used() == 0 && budget.by_party.is_empty());
        assert_eq!(budget.shrinks(), 2, "each party has less once");
    }

    proptest! {
        #[test]
        fn a_growth_within_the_limit_is_never_refused_and_the_whole_is_bounded(
            steps in prop::collection::vec((0..4_u64, 0..60_usize), 0..200),
        ) {
            let (mut budget, mut plain) = (Budget::new(100).with_reserve(30), Budget::new(100));
            let mut shares = vec![(0, 0); 4];
            for (party, wanted) in steps {
                budget.enter(Party(party, 0));
                let (share, plain_share) = &mut shares[party as usize];
                let has_room = wanted <= *share || budget.used() - *share + wanted <= 100;
                prop_assert!(budget.resize(share, wanted) || !has_room);
                let _ = plain.resize(plain_share, wanted);
                prop_assert!(budget.used() <= 130 && plain.used() <= 100);
                prop_assert_eq!(budget.used(), shares.iter().map(|(share, _)| share).sum::<usize>());
            }
            for (party, (share, _)) in (0..).zip(&mut shares) {
                budget.enter(Party(party, 0));
                budget.release(share);
            }
            prop_assert!(budget.used() == 0 && budget.by_party.is_empty());
        }
    }
}
