//! Limits the rate of QUIC handshakes: each costs a signature, and a monitor has one thread.
//!
//! 1. Each address, each network and the total have a rate and a burst ([`Rates`]). Since one
//!    network cannot use up the total, newcomers of other networks are accepted at once during its
//!    flood.
//! 2. A newcomer whose address is not proven is accepted only while half of the total's burst is
//!    left, and within separate rates, as any host may forge the address. Otherwise it must prove
//!    its address by a Retry, which costs no signature and no memory.
//! 3. A Retry token is bound to an address and port, is valid for [`TOKEN_LIFETIME`], and can be
//!    used once.
//!
//! 4. In a crowd, an address and its network also have a rate of first packets, [`PACKETS`] times
//!    that of handshakes, beyond which these are dropped unread: reading one costs a derivation of
//!    keys.
//!
//! Handshakes beyond a rate are dropped without an answer: the peer's QUIC repeats its first
//! packet, so an honest peer is accepted a little later.
//!
//! Rates of parties are held in a table of constant size. Each party has two cells of it, by a
//! keyed hash, and is accepted if one of them has room, so that it shares its rate with a flood
//! only if both its cells do.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::network::{Host, Network};
use crate::refusal::Refusal;

/// A rate in handshakes per second, and the burst accepted at once after a pause. Each is at
/// least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Handshakes per second.
    pub per_second: u32,
    /// Handshakes at once.
    pub burst: u32,
}

/// The rates at which handshakes are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// For all together.
    pub total: Rate,
    /// For one network: 24 bits of IPv4, 48 of IPv6.
    pub network: Rate,
    /// For one address: 64 bits of IPv6.
    pub address: Rate,
}

impl Default for Rates {
    /// 1000 in total, a third of the capacity of one core. 200 per network, so that four flooding
    /// networks leave a share to others, and 100 per address; bursts of 600 and 500, for fleets
    /// behind one address whose monitor was restarted.
    fn default() -> Self {
        Self {
            total: Rate { per_second: 1000, burst: 1000 },
            network: Rate { per_second: 200, burst: 600 },
            address: Rate { per_second: 100, burst: 500 },
        }
    }
}

/// The decision on a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Accept the handshake.
    In,
    /// Require proof of its address first.
    Prove,
    /// Drop it.
    Out(Refusal),
}

/// How long a Retry token is valid, and so how long it is remembered: some round trips of the
/// slowest links.
pub(crate) const TOKEN_LIFETIME: Duration = Duration::from_secs(15);

/// Packets by which a handshake begins: the first one and the one with a Retry token, each sent
/// again if it or its answer is lost, and the acknowledgements of the server's packets.
const PACKETS: u32 = 8;

/// The cells of an address or a network, and its rate.
type Party = ([usize; 2], Rate);

/// Cells of the table, of 8 bytes.
const CELLS: usize = 4096;

/// Decides whether to accept handshakes.
#[derive(Debug)]
pub(crate) struct Handshakes {
    rates: Rates,
    start: Instant,
    total: Cell,
    cells: Box<[Cell]>,
    keys: RandomState,
    used: UsedTokens,
}

impl Handshakes {
    pub(crate) fn new(rates: Rates, now: Instant) -> Self {
        Self {
            rates,
            start: now,
            total: Cell::default(),
            cells: vec![Cell::default(); CELLS].into(),
            keys: RandomState::new(),
            used: UsedTokens::default(),
        }
    }

    /// Decides on a newcomer from this address; `token` identifies the Retry token that has proven
    /// the address, if there is one.
    pub(crate) fn decide(&mut self, now: Instant, from: IpAddr, token: Option<impl Hash>) -> Entry {
        let now_ns = now.saturating_duration_since(self.start).as_nanos() as u64;
        let is_proven = token.is_some();
        if !is_proven && self.total.backlog(now_ns) > self.rates.total.span() / 2 {
            return Entry::Prove;
        }
        if !self.total.has_room(now_ns, self.rates.total) {
            return Entry::Out(Refusal::HandshakeRateTotal);
        }
        let parties = [
            (self.cells_of((is_proven, Host::of(from))), self.rates.address),
            (self.cells_of((is_proven, Network::of(from))), self.rates.network),
        ];
        if !self.are_open(&parties, now_ns) {
            return if is_proven { Entry::Out(Refusal::HandshakeRate) } else { Entry::Prove };
        }
        if let Some(token) = token
            && !self.used.insert(now, self.keys.hash_one(token))
        {
            return Entry::Out(Refusal::TokenReplayed);
        }
        self.total.take(now_ns, self.rates.total);
        self.take_of(&parties, now_ns);
        Entry::In
    }

    /// Whether the first packets of a newcomer from this address, one of them now, are processed in
    /// a crowd.
    pub(crate) fn may_ask(&mut self, now: Instant, from: IpAddr) -> bool {
        let now_ns = now.saturating_duration_since(self.start).as_nanos() as u64;
        let parties = [
            (self.cells_of(("asks", Host::of(from))), self.rates.address.times(PACKETS)),
            (self.cells_of(("asks", Network::of(from))), self.rates.network.times(PACKETS)),
        ];
        let is_open = self.are_open(&parties, now_ns);
        if is_open {
            self.take_of(&parties, now_ns);
        }
        is_open
    }

    fn are_open(&self, parties: &[Party], now_ns: u64) -> bool {
        parties
            .iter()
            .all(|(cells, rate)| cells.iter().any(|cell| self.cells[*cell].has_room(now_ns, *rate)))
    }

    fn take_of(&mut self, parties: &[Party], now_ns: u64) {
        for (cells, rate) in parties {
            cells.iter().for_each(|cell| self.cells[*cell].take(now_ns, *rate));
        }
    }

    fn cells_of(&self, party: impl Hash) -> [usize; 2] {
        let hash = self.keys.hash_one((std::any::type_name_of_val(&party), &party));
        [hash as usize % CELLS, (hash >> 32) as usize % CELLS]
    }
}

impl Rate {
    /// The time that pays for one handshake, in ns.
    fn step(self) -> u64 {
        1_000_000_000 / u64::from(self.per_second.max(1))
    }

    fn times(self, factor: u32) -> Self {
        let times = |count: u32| count.saturating_mul(factor);
        Self { per_second: times(self.per_second), burst: times(self.burst) }
    }

    /// The time of a burst, in ns.
    fn span(self) -> u64 {
        self.step() * u64::from(self.burst.max(1))
    }
}

/// The state of a rate, by the generic cell rate algorithm (ITU-T I.371, Annex A): the time at
/// which all accepted handshakes will have been paid for, in ns.
#[derive(Debug, Clone, Copy, Default)]
struct Cell(u64);

impl Cell {
    /// The time for accepted handshakes that are not paid for yet, in ns.
    fn backlog(self, now: u64) -> u64 {
        self.0.saturating_sub(now)
    }

    fn has_room(self, now: u64, rate: Rate) -> bool {
        self.backlog(now) + rate.step() <= rate.span()
    }

    /// Accepts one handshake, even without room: the backlog is at most the burst.
    fn take(&mut self, now: u64, rate: Rate) {
        self.0 = now + (self.backlog(now) + rate.step()).min(rate.span());
    }
}

/// Recently used tokens: no more than the total rate allows.
#[derive(Debug, Default)]
struct UsedTokens {
    /// The tokens of this period of [`TOKEN_LIFETIME`], and of the previous one.
    periods: [HashSet<u64>; 2],
    until: Option<Instant>,
}

impl UsedTokens {
    /// Adds a token; returns whether it is new.
    fn insert(&mut self, now: Instant, token: u64) -> bool {
        if self.until.is_none_or(|until| until <= now) {
            let is_long_ago = self.until.is_none_or(|until| until + TOKEN_LIFETIME <= now);
            let [current, before] = &mut self.periods;
            *before = if is_long_ago { Default::default() } else { std::mem::take(current) };
            current.clear();
            self.until = Some(now + TOKEN_LIFETIME);
        }
        let [current, before] = &mut self.periods;
        !before.contains(&token) && current.insert(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const RATES: Rates = Rates {
        total: Rate { per_second: 100, burst: 100 },
        network: Rate { per_second: 20, burst: 60 },
        address: Rate { per_second: 10, burst: 50 },
    };

    struct World {
        now: Instant,
        handshakes: Handshakes,
        tokens: u32,
    }

    impl World {
        fn new() -> Self {
            let clock = Clock::new();
            let now = clock.instant_of(clock.now());
            Self { now, handshakes: Handshakes::new(RATES, now), tokens: 0 }
        }

        fn prove(&mut self, from: [u8; 4]) -> Entry {
            self.tokens += 1;
            self.handshakes.decide(self.now, from.into(), Some(self.tokens))
        }

        /// The number of accepted handshakes of a thousand per second, over ten seconds.
        fn flood(&mut self, from: impl Fn(u32) -> [u8; 4]) -> u32 {
            let mut taken = 0;
            for number in 0..10_000 {
                self.now += Duration::from_millis(1);
                taken += u32::from(self.prove(from(number)) == Entry::In);
            }
            taken
        }
    }

    #[test]
    fn a_flood_gets_its_rate_and_a_newcomer_of_another_network_gets_in_at_once() {
        let mut world = World::new();
        let taken = world.flood(|_| [192, 0, 2, 1]);
        assert!((140..=150).contains(&taken), "{taken}");
        assert_eq!(world.prove([198, 51, 100, 7]), Entry::In);
        assert_eq!(world.prove([192, 0, 2, 77]), Entry::In, "its own network, another address");
    }

    #[test]
    fn a_network_of_many_addresses_gets_its_rate_and_all_together_the_total() {
        let mut world = World::new();
        let network = world.flood(|number| [192, 0, 2, number as u8]);
        assert!((250..=260).contains(&network), "{network}");
        assert_eq!(world.prove([198, 51, 100, 7]), Entry::In);
        let many = world.flood(|number| [10, (number >> 8) as u8, number as u8, 1]);
        assert!((900..=1_100).contains(&many), "{many}");
        assert_eq!(world.prove([192, 0, 2, 1]), Entry::Out(Refusal::HandshakeRateTotal));
    }

    #[test]
    fn addresses_are_proven_first_once_half_of_a_burst_is_used_up() {
        let mut world = World::new();
        let unproven = |world: &mut World, from: [u8; 4]| {
            world.handshakes.decide(world.now, from.into(), None::<u32>)
        };
        for _ in 0..50 {
            assert_eq!(unproven(&mut world, [192, 0, 2, 1]), Entry::In);
        }
        assert_eq!(unproven(&mut world, [192, 0, 2, 1]), Entry::Prove);
        assert_eq!(unproven(&mut world, [10, 0, 0, 1]), Entry::In);
        assert_eq!(unproven(&mut world, [10, 0, 0, 1]), Entry::Prove, "half is used up");
        assert_eq!(
            world.prove([192, 0, 2, 1]),
            Entry::In,
            "a forged address takes nothing from it"
        );
        world.now += Duration::from_secs(1);
        assert_eq!(unproven(&mut world, [192, 0, 2, 1]), Entry::In);
    }

    #[test]
    fn first_packets_of_a_flood_have_a_rate_and_others_are_looked_at() {
        let mut world = World::new();
        let mut taken = 0;
        for _ in 0..100_000 {
            world.now += Duration::from_micros(100);
            taken += u32::from(world.handshakes.may_ask(world.now, [192, 0, 2, 1].into()));
        }
        // A burst, and ten seconds of the rate.
        assert!((1_190..=1_200).contains(&taken), "{taken}");
        assert!(world.handshakes.may_ask(world.now, [198, 51, 100, 7].into()));
        assert!(world.handshakes.may_ask(world.now, [192, 0, 2, 77].into()), "of its network");
        assert_eq!(world.prove([192, 0, 2, 1]), Entry::In, "handshakes have a rate of their own");
    }

    #[test]
    fn a_token_is_good_once() {
        let mut world = World::new();
        let show = |world: &mut World, token| {
            world.handshakes.decide(world.now, [192, 0, 2, 1].into(), Some(token))
        };
        assert_eq!(show(&mut world, 7), Entry::In);
        for _ in 0..5 {
            assert_eq!(show(&mut world, 7), Entry::Out(Refusal::TokenReplayed));
            world.now += TOKEN_LIFETIME / 5;
        }
        assert_eq!(show(&mut world, 8), Entry::In);
        assert_eq!(show(&mut world, 7), Entry::Out(Refusal::TokenReplayed));
        for token in 0..1_000 {
            world.now += TOKEN_LIFETIME;
            assert_eq!(show(&mut world, 1_000 + token), Entry::In);
        }
        assert!(world.handshakes.used.periods.iter().all(|used| used.len() <= 2));
    }
}
