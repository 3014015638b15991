//! Happy Eyeballs (RFC 8305): the next address of a name to try, and when.
//!
//! ```text
//!   addresses ──► families alternate, the last winner first ──► one attempt each 250 ms,
//!                                                               at once after a failure
//! ```
//!
//! A pure state machine, without sockets and clocks. The driver asks [`Race::begin`] for the
//! address to try, reports failures by [`Race::on_failed`], and drops the race when an attempt has
//! succeeded.

use std::collections::VecDeque;
use std::net::SocketAddr;

use freshline_core::unit::{Span, Time};

/// The time between two attempts: RFC 8305 section 8, "Connection Attempt Delay".
pub(crate) const ATTEMPT_DELAY: Span = Span::from_millis(250);

/// The maximum number of addresses tried per name, so that a hostile answer costs a bounded number
/// of sockets.
pub(crate) const MAX_ADDRESSES: usize = 8;

/// Attempts to reach one peer under several addresses.
#[derive(Debug, Clone)]
pub(crate) struct Race {
    /// Not started yet, in order.
    pending: VecDeque<SocketAddr>,
    /// Started or pending.
    known: Vec<SocketAddr>,
    /// When the next attempt starts.
    next_at: Time,
}

impl Race {
    /// A race over `addresses`, in the resolver's order of preference, which starts `now`. The
    /// `favourite`, the address that answered last time, goes first if it is among them.
    pub(crate) fn new(addresses: &[SocketAddr], favourite: Option<SocketAddr>, now: Time) -> Self {
        let mut known = interleave(addresses, favourite);
        known.truncate(MAX_ADDRESSES);
        Self { pending: known.iter().copied().collect(), known, next_at: now }
    }

    /// A race in which the attempt at `first` has just started; others follow.
    pub(crate) fn begun(first: SocketAddr, addresses: &[SocketAddr], now: Time) -> Self {
        let mut race = Self::new(addresses, Some(first), now);
        race.pending.retain(|address| *address != first);
        if !race.known.contains(&first) {
            race.known.push(first);
        }
        race.next_at = now + ATTEMPT_DELAY;
        race
    }

    /// The resolver has answered again: new addresses are tried after the others.
    pub(crate) fn add(&mut self, addresses: &[SocketAddr]) {
        for address in interleave(addresses, None) {
            if self.known.len() < 2 * MAX_ADDRESSES && !self.known.contains(&address) {
                self.known.push(address);
                self.pending.push_back(address);
            }
        }
    }

    /// The address of the attempt to start now, if one is due. Call it until it returns `None`.
    pub(crate) fn begin(&mut self, now: Time) -> Option<SocketAddr> {
        if now < self.next_at {
            return None;
        }
        let address = self.pending.pop_front()?;
        self.next_at = now + ATTEMPT_DELAY;
        Some(address)
    }

    /// An attempt has failed: the next one starts now.
    pub(crate) fn on_failed(&mut self, now: Time) {
        self.next_at = self.next_at.min(now);
    }

    /// When [`Race::begin`] returns the next address; `None` when all attempts have started.
    pub(crate) fn next_at(&self) -> Option<Time> {
        (!self.pending.is_empty()).then_some(self.next_at)
    }
}

/// RFC 8305 section 4: families alternate, beginning with the first address's; within a family the
/// order is kept. The `favourite` goes before all others.
pub(crate) fn interleave(
    addresses: &[SocketAddr],
    favourite: Option<SocketAddr>,
) -> Vec<SocketAddr> {
    let favourite = favourite.filter(|address| addresses.contains(address));
    let mut sorted: Vec<SocketAddr> = favourite.into_iter().collect();
    let mut rest: VecDeque<SocketAddr> = VecDeque::new();
    for address in addresses {
        if !sorted.contains(address) && !rest.contains(address) {
            rest.push_back(*address);
        }
    }
    while !rest.is_empty() {
        let other = sorted.last().map(|last| !last.is_ipv4());
        let next = rest.iter().position(|address| other.is_none_or(|v4| address.is_ipv4() == v4));
        sorted.extend(rest.remove(next.unwrap_or(0)));
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn families_alternate_and_the_last_winner_goes_first() {
        let found = addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "10.0.0.1:1", "10.0.0.2:1"]);
        let order = addresses(&["[::1]:1", "10.0.0.1:1", "[::2]:1", "10.0.0.2:1", "[::3]:1"]);
        assert_eq!(interleave(&found, None), order);
        let order = addresses(&["10.0.0.2:1", "[::1]:1", "10.0.0.1:1", "[::2]:1", "[::3]:1"]);
        assert_eq!(interleave(&found, Some(found[4])), order);
        assert_eq!(interleave(&found[..1], Some(found[4])), &found[..1], "it has moved away");
    }

    #[test]
    fn an_attempt_begins_each_250_ms_or_at_once_after_a_failure() {
        let found = addresses(&["[::1]:1", "10.0.0.1:1", "10.0.0.2:1"]);
        let mut race = Race::new(&found, None, at(1_000));
        assert_eq!(race.begin(at(1_000)), Some(found[0]));
        assert_eq!((race.begin(at(1_249)), race.next_at()), (None, Some(at(1_250))));
        assert_eq!(race.begin(at(1_250)), Some(found[1]));
        race.on_failed(at(1_300));
        assert_eq!(race.next_at(), Some(at(1_300)));
        assert_eq!(race.begin(at(1_300)), Some(found[2]));
        assert_eq!((race.begin(at(9_000)), race.next_at()), (None, None));
    }

    #[test]
    fn addresses_of_a_later_answer_are_tried_too() {
        let found = addresses(&["[::1]:1", "10.0.0.1:1"]);
        let mut race = Race::begun(found[0], &found[..1], at(0));
        assert_eq!(race.next_at(), None);
        race.add(&found);
        assert_eq!(race.begin(at(249)), None);
        assert_eq!(race.begin(at(250)), Some(found[1]));
        assert_eq!(race.begin(at(999)), None);
    }

    proptest! {
        #[test]
        fn each_address_is_tried_once(ips in proptest::collection::vec((any::<bool>(), 0u8..6), 0..20)) {
            let found: Vec<SocketAddr> = ips
                .iter()
                .map(|(v4, last)| if *v4 { format!("10.0.0.{last}:1") } else { format!("[::{last}]:1") })
                .map(|text| text.parse().expect("an address"))
                .collect();
            let mut wanted = found.clone();
            wanted.sort_unstable();
            wanted.dedup();
            let mut sorted = interleave(&found, found.last().copied());
            let (v4, v6): (Vec<SocketAddr>, Vec<SocketAddr>) = sorted.iter().copied().partition(SocketAddr::is_ipv4);
            let alternating = 2 * v4.len().min(v6.len());
            prop_assert!(sorted[..alternating].windows(2).all(|two| two[0].is_ipv4() != two[1].is_ipv4()));
            sorted.sort_unstable();
            prop_assert_eq!(sorted, wanted);
        }
    }
}
