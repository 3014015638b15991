//! Connections by which no session has come yet, by where they are from.
//!
//! Anybody may make these, so they are few, and the oldest of the network that has the most gives way
//! to a newcomer: who floods drives out itself. A source needs its place for two round trips.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// Where a peer is from: an IPv4 network of 24 bits, or an IPv6 one of 48. Whoever has one address of
/// it may have all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Network([u8; 6]);

impl Network {
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                // No IPv6 network that is routed begins so.
                Self([0, 0, 0, a, b, c])
            }
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, ..] = address.octets();
                Self([a, b, c, d, e, f])
            }
        }
    }
}

/// The connections, with their slots.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// Slots of each network, in the order of their connections' numbers.
    by_network: HashMap<Network, BTreeMap<u64, usize>>,
    /// Networks by how many they have.
    crowds: BTreeSet<(usize, Network)>,
    len: usize,
}

impl Strangers {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a connection; numbers grow.
    pub(super) fn insert(&mut self, network: Network, number: u64, slot: usize) {
        let slots = self.by_network.entry(network).or_default();
        let before = slots.len();
        if slots.insert(number, slot).is_none() {
            self.crowds.remove(&(before, network));
            self.crowds.insert((before + 1, network));
            self.len += 1;
        }
    }

    /// Takes one out, if it is there.
    pub(super) fn remove(&mut self, network: Network, number: u64) {
        let Some(slots) = self.by_network.get_mut(&network) else { return };
        let before = slots.len();
        if slots.remove(&number).is_none() {
            return;
        }
        self.len -= 1;
        self.crowds.remove(&(before, network));
        if before > 1 {
            self.crowds.insert((before - 1, network));
        } else {
            self.by_network.remove(&network);
        }
    }

    /// The slot that gives way: the oldest of the network that has the most.
    pub(super) fn first_to_go(&self) -> Option<usize> {
        let (_, network) = self.crowds.last()?;
        self.by_network[network].values().next().copied()
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
        assert_eq!(network("192.0.2.200"), crowd);
        assert_eq!(network("::ffff:192.0.2.9"), crowd, "the same, over a socket of IPv6");
        assert_eq!(network("2001:db8:0:ffff::2"), other);
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
        strangers.remove(other, 0);
        assert_eq!((strangers.len(), strangers.first_to_go()), (0, None));
        assert!(strangers.by_network.is_empty() && strangers.crowds.is_empty());
    }
}
