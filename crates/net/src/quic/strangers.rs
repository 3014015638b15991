//! Connections without a session so far, by their origin.
//!
//! Any host can open these, so their number is small, and a newcomer displaces the oldest
//! connection of the network that has the most: a flood from one network displaces its own
//! connections. A source needs its place for two round trips. Among networks with equal numbers,
//! the one with the oldest connection is displaced.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::network::Network;

/// The connections, with their slots.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// Slots of each network, in the order of their connections' numbers.
    by_network: HashMap<Network, BTreeMap<u64, usize>>,
    /// Networks by their number of connections, and the number of the oldest connection.
    crowds: BTreeSet<(usize, Reverse<u64>, Network)>,
    len: usize,
}

impl Strangers {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a connection; later ones have larger numbers.
    pub(super) fn insert(&mut self, network: Network, number: u64, slot: usize) {
        self.change(network, |slots| _ = slots.insert(number, slot));
    }

    /// Removes a connection, if it is there.
    pub(super) fn remove(&mut self, network: Network, number: u64) {
        self.change(network, |slots| _ = slots.remove(&number));
    }

    /// The slot to displace: the oldest of the network that has the most.
    pub(super) fn first_to_go(&self) -> Option<usize> {
        let (.., network) = self.crowds.last()?;
        self.by_network[network].values().next().copied()
    }

    fn change(&mut self, network: Network, change: impl FnOnce(&mut BTreeMap<u64, usize>)) {
        let slots = self.by_network.entry(network).or_default();
        let crowd = |slots: &BTreeMap<u64, usize>| {
            slots.keys().next().map(|oldest| (slots.len(), Reverse(*oldest), network))
        };
        let before = crowd(slots);
        change(slots);
        let after = crowd(slots);
        if let Some(before) = before {
            self.crowds.remove(&before);
            self.len -= before.0;
        }
        match after {
            Some(after) => {
                self.crowds.insert(after);
                self.len += after.0;
            }
            None => _ = self.by_network.remove(&network),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_largest_crowd_goes_first() {
        let mut strangers = Strangers::default();
        let network = |address: &str| Network::of(address.parse().unwrap());
        let (crowd, other) = (network("192.0.2.1"), network("2001:db8::1"));
        assert_eq!(strangers.first_to_go(), None);
        strangers.insert(other, 0, 10);
        for number in 1..4 {
            strangers.insert(crowd, number, number as usize);
        }
        assert_eq!((strangers.len(), strangers.first_to_go()), (4, Some(1)));
        strangers.remove(crowd, 1);
        strangers.remove(crowd, 1);
        strangers.remove(other, 1);
        assert_eq!((strangers.len(), strangers.first_to_go()), (3, Some(2)));
        strangers.remove(crowd, 2);
        strangers.remove(crowd, 3);
        assert_eq!((strangers.len(), strangers.first_to_go()), (1, Some(10)));
        strangers.insert(network("2a01::1"), 4, 4);
        strangers.insert(crowd, 5, 5);
        assert_eq!(strangers.first_to_go(), Some(10), "of three with one each, the oldest");
        strangers.remove(network("2a01::1"), 4);
        strangers.remove(crowd, 5);
        strangers.remove(other, 0);
        assert_eq!((strangers.len(), strangers.first_to_go()), (0, None));
        assert!(strangers.by_network.is_empty() && strangers.crowds.is_empty());
    }
}
