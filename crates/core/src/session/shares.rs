//! A fair division of a table's places among parties: which place is freed for a newcomer when the
//! table is full.
//!
//! A party is an address within a network within an owner (a token or a certificate): see
//! [`Origin`]. The rule, from the owners down to the addresses:
//!
//! 1. Compare the largest owner with the newcomer's owner. If the largest holds at least two more
//!    places, it gives one up: from its largest network, and in that from the largest address.
//! 2. Otherwise compare the networks of the newcomer's own owner, and then the addresses of its
//!    network, in the same way.
//! 3. If that ends at the newcomer's own address, no place is freed: the newcomer is refused.
//!
//! So a party that takes all places loses only its own places when others arrive. Within an
//! address, the place that was silent for the longest time is freed, among [`LOOKS`] places that
//! are examined in turn: a bounded number of steps, instead of a list that each update would have
//! to reorder. A newcomer costs O(log n) steps.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use slab::Slab;

use crate::state::Party;

/// The party of a place: numbers that identify an owner (a token or a certificate), a network, and
/// an address in it. 0 if the transport does not know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Origin {
    /// The token or the certificate.
    pub owner: u64,
    /// The network: a range of addresses that a single party can often use.
    pub network: u64,
    /// The address.
    pub address: u64,
}

impl Origin {
    /// The same with the credential of a session:
    /// [`Record::credential`](super::Record::credential).
    #[must_use]
    pub fn with_credential(self, credential: u64) -> Self {
        Self { owner: self.owner ^ credential, ..self }
    }

    /// The party to which a monitor's memory is charged: all addresses of a network with the same
    /// owner.
    pub fn party(&self) -> Party {
        Party(self.owner, self.network)
    }

    /// The owner of the streams of records of a source without a name: its token or certificate,
    /// independent of its address; without one, its network.
    pub(super) fn keeper(&self) -> Party {
        match self.owner {
            0 => Party(0, self.network),
            owner => Party(owner, 0),
        }
    }

    fn levels(&self) -> [u64; 3] {
        [self.owner, self.network, self.address]
    }
}

/// The number of places examined to find one that was silent for a long time.
const LOOKS: usize = 8;

/// No node, or no place.
const NONE: u32 = u32::MAX;

/// How many places each party holds.
#[derive(Debug, Default)]
pub struct Shares {
    /// By place.
    links: Vec<Link>,
    nodes: Slab<Node>,
    /// Nodes by their parent and key; the parent of owners is [`NONE`].
    by_key: BTreeMap<(u32, u64), u32>,
    /// Parent, count and node: the children of one parent by their size.
    by_count: BTreeSet<(u32, u32, u32)>,
    len: usize,
}

/// A place in the ring of its address.
#[derive(Debug, Clone, Copy)]
struct Link {
    node: u32,
    before: u32,
    after: u32,
}

#[derive(Debug)]
struct Node {
    key: u64,
    parent: u32,
    count: u32,
    /// For an address, the place that is examined next.
    first: u32,
}

impl Shares {
    /// The number of held places.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no place is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The party that holds this place, if it is held.
    pub(super) fn origin(&self, place: u32) -> Option<Origin> {
        let link = self.links.get(place as usize).filter(|link| link.node != NONE)?;
        let address = &self.nodes[link.node as usize];
        let network = &self.nodes[address.parent as usize];
        let owner = &self.nodes[network.parent as usize];
        Some(Origin { owner: owner.key, network: network.key, address: address.key })
    }

    /// The number of places that the address of `origin` holds, under its owner.
    pub fn held(&self, origin: &Origin) -> usize {
        let mut node = NONE;
        for key in origin.levels() {
            let Some(child) = self.by_key.get(&(node, key)) else { return 0 };
            node = *child;
        }
        self.nodes[node as usize].count as usize
    }

    /// Gives a place to this party, which replaces any former holder.
    pub fn insert(&mut self, place: u32, origin: &Origin) {
        self.remove(place);
        let mut parent = NONE;
        for key in origin.levels() {
            let node = *self.by_key.entry((parent, key)).or_insert_with(|| {
                let node = Node { key, parent, count: 0, first: NONE };
                self.nodes.insert(node) as u32
            });
            self.count(node, 1);
            parent = node;
        }
        self.reserve(place);
        let first = &mut self.nodes[parent as usize].first;
        let link = match *first {
            NONE => {
                *first = place;
                Link { node: parent, before: place, after: place }
            }
            // Behind all others.
            first => Link { node: parent, before: self.links[first as usize].before, after: first },
        };
        self.links[place as usize] = link;
        self.links[link.before as usize].after = place;
        self.links[link.after as usize].before = place;
        self.len += 1;
    }

    /// Frees a place; has no effect on a free one.
    pub fn remove(&mut self, place: u32) {
        let Some(link) = self.links.get_mut(place as usize).filter(|link| link.node != NONE) else {
            return;
        };
        let Link { node, before, after } = *link;
        link.node = NONE;
        self.links[before as usize].after = after;
        self.links[after as usize].before = before;
        let first = &mut self.nodes[node as usize].first;
        if *first == place {
            *first = if after == place { NONE } else { after };
        }
        let mut node = node;
        while node != NONE {
            let parent = self.nodes[node as usize].parent;
            self.count(node, -1);
            node = parent;
        }
        self.len -= 1;
    }

    /// The place to free for a newcomer, if there is one; `heard` returns when a place was last
    /// active. The caller removes it.
    pub fn gives_way<T: Ord>(
        &mut self,
        newcomer: &Origin,
        heard: impl Fn(u32) -> T,
    ) -> Option<u32> {
        let mut parent = NONE;
        for key in newcomer.levels() {
            let (most, largest) = self.largest(parent)?;
            let own = self.by_key.get(&(parent, key)).copied();
            let held = own.map_or(0, |own| self.nodes[own as usize].count);
            if most > held + 1 {
                return Some(self.quietest(largest, heard));
            }
            parent = own?;
        }
        None
    }

    /// The least recently taken or examined place of the largest holder.
    pub fn first_to_go(&self) -> Option<u32> {
        let (_, owner) = self.largest(NONE)?;
        Some(self.nodes[self.address_of(owner) as usize].first)
    }

    fn largest(&self, parent: u32) -> Option<(u32, u32)> {
        let children = self.by_count.range((parent, 0, 0)..=(parent, u32::MAX, u32::MAX));
        children.last().map(|(_, count, node)| (*count, *node))
    }

    /// The largest address below a node.
    fn address_of(&self, mut node: u32) -> u32 {
        while let Some((_, child)) = self.largest(node) {
            node = child;
        }
        node
    }

    fn quietest<T: Ord>(&mut self, node: u32, heard: impl Fn(u32) -> T) -> u32 {
        let node = self.address_of(node) as usize;
        let (mut at, mut found) = (self.nodes[node].first, self.nodes[node].first);
        for _ in 1..LOOKS {
            at = self.links[at as usize].after;
            if heard(at) < heard(found) {
                found = at;
            }
        }
        // The other places are examined before these are again.
        self.nodes[node].first = self.links[at as usize].after;
        found
    }

    fn count(&mut self, node: u32, by: i32) {
        let Node { key, parent, count, .. } = &mut self.nodes[node as usize];
        let (key, parent, before) = (*key, *parent, *count);
        *count = before.saturating_add_signed(by);
        let after = *count;
        self.by_count.remove(&(parent, before, node));
        if after > 0 {
            self.by_count.insert((parent, after, node));
        } else {
            self.by_key.remove(&(parent, key));
            self.nodes.remove(node as usize);
        }
    }

    /// Grows by a sixteenth, as the monitor's records do.
    fn reserve(&mut self, place: u32) {
        let wanted = place as usize + 1;
        if wanted > self.links.len() {
            if wanted > self.links.capacity() {
                self.links.reserve_exact((wanted - self.links.len()).max(wanted / 16));
            }
            self.links.resize(wanted, Link { node: NONE, before: NONE, after: NONE });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn origin(owner: u64, network: u64, address: u64) -> Origin {
        Origin { owner, network, address }
    }

    #[test]
    fn the_largest_owner_gives_way_and_of_it_the_largest_network_and_address() {
        let mut shares = Shares::default();
        let places = [(1, 1, 1), (1, 1, 2), (1, 2, 1), (1, 2, 1), (1, 2, 1), (2, 9, 9)];
        for (place, (owner, network, address)) in (0..).zip(places) {
            shares.insert(place, &origin(owner, network, address));
        }
        // Places are heard in the order of their numbers: the first of owner 1, network 2,
        // address 1.
        for newcomer in [origin(3, 1, 1), origin(2, 1, 1), origin(1, 3, 1)] {
            let way = shares.gives_way(&newcomer, |place| place);
            assert!(matches!(way, Some(2..=4)), "{newcomer:?}: {way:?}");
        }
        assert_eq!(shares.gives_way(&origin(1, 2, 1), |place| place), None, "it holds most itself");
        assert_eq!(shares.gives_way(&origin(1, 1, 1), |place| place), None, "as many are left");
        assert_eq!(shares.held(&origin(1, 2, 1)), 3);
    }

    #[test]
    fn no_place_gives_way_where_all_hold_as_many() {
        let mut shares = Shares::default();
        for place in 0..10 {
            shares.insert(place, &origin(0, u64::from(place), 0));
        }
        for network in [3, 77] {
            assert_eq!(shares.gives_way(&origin(0, network, 0), |place| place), None);
        }
    }

    #[test]
    fn a_place_that_is_heard_stays_among_a_thousand_silent_ones() {
        let mut shares = Shares::default();
        let crowd = Origin::default();
        for place in 0..1_000 {
            shares.insert(place, &crowd);
        }
        let heard = |place: u32| if place == 500 { u32::MAX } else { place };
        for other in 1..900 {
            let place = shares.gives_way(&origin(0, other, 0), heard).expect("the crowd is larger");
            assert_ne!(place, 500);
            shares.remove(place);
        }
        assert_eq!(shares.held(&crowd), 101);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_places(steps in prop::collection::vec((0..40u32, 0..3u64, 0..3u64, 0..3u64), 0..300)) {
            let mut shares = Shares::default();
            let mut model = BTreeMap::new();
            for (place, owner, network, address) in steps {
                if model.remove(&place).is_some() {
                    shares.remove(place);
                } else {
                    shares.insert(place, &origin(owner, network, address));
                    model.insert(place, (owner, network, address));
                }
                prop_assert_eq!(shares.len(), model.len());
                prop_assert_eq!(shares.origin(place).is_some(), model.contains_key(&place));
                for (place, (owner, network, address)) in &model {
                    prop_assert_eq!(shares.origin(*place), Some(origin(*owner, *network, *address)));
                    let held = model.values().filter(|one| **one == (*owner, *network, *address));
                    prop_assert_eq!(shares.held(&origin(*owner, *network, *address)), held.count());
                }
                let way = shares.gives_way(&origin(9, 9, 9), |place| place);
                prop_assert!(way.is_none_or(|place| model.contains_key(&place)));
                prop_assert_eq!(shares.first_to_go().is_some(), !model.is_empty());
            }
            for place in model.into_keys() {
                shares.remove(place);
            }
            prop_assert!(shares.is_empty() && shares.nodes.is_empty());
            prop_assert!(shares.by_key.is_empty() && shares.by_count.is_empty());
        }
    }
}
