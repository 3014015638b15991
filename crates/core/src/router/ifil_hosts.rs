//! IFIL with host isolation: source hosts take turns, and the flows of a host share its turns.
//!
//! [`Ifil`](super::Ifil) holds the newest packet of each flow and serves flows in the order in
//! which they joined. A host that sends one stream over many 5-tuples then has as many places as it
//! has 5-tuples. Here the update class serves hosts in turn, as CAKE's host isolation does
//! (Høiland-Jørgensen, Täht, Morton, "Piece of CAKE", section III-B), so that all flows of a host
//! together get as much as one flow of another host could get.
//!
//! ```text
//! packet ─► its flow has a place: replaces the older packet there
//!           else: last of the flows of its host; a host that had none joins the end of the turns
//!
//! host at the front: its first flow is sent; it goes to the end, or leaves if that was its only one
//! ```
//!
//! A host is a source address: of IPv4 all of it, of IPv6 the first 64 bits, since a host chooses
//! the others by itself (RFC 4291 section 2.5.1, RFC 8981). Turns are of one packet, as those of
//! flows are in IFIL: if each host has one flow, this queue is `Ifil`, packet by packet. Turns by
//! bytes could not have both: a host with one flow leaves after each packet and has no deficit, and
//! one with two flows would pay for each.
//!
//! # At the limit
//!
//! A new flow takes the place of the oldest flow of the host with the most flows, if that host has
//! at least two more than its own; else it is dropped on arrival. So a flood of invented flows from
//! one address takes no place from a host that has fewer than its share. A flood of invented
//! addresses can: no table can tell those from hosts.
//!
//! # Cost
//!
//! An arrival costs two hashes and less than four comparisons on average, a departure one turn.
//! There are no more hosts than flows, so `limit` bounds both tables. Hosts with equally many flows
//! are linked, so that no flood makes the search for the largest long.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use core::mem;
use core::net::Ipv6Addr;

use rand::Rng;
use slab::Slab;

use super::flow_hash::{FlowHash, FlowWords};
use super::{Backlog, Dequeued, Drop, DropReason, Drops, IfilParams, Packet, Qdisc, QdiscError};
use crate::unit::{Bytes, Packets, Time};

/// The end of a list.
const NONE: usize = usize::MAX;

/// The queue that keeps the newest packet of each flow, and serves hosts in turn.
#[derive(Debug)]
pub struct IfilHosts<P> {
    limit: usize,
    hash: FlowHash,
    places: Slab<Place<P>>,
    /// The first place in each bucket of flows; the length is a power of two.
    flow_buckets: Box<[usize]>,
    hosts: Slab<Host>,
    /// The first host in each bucket of hosts; as long.
    host_buckets: Box<[usize]>,
    /// The hosts with a place, the next one to serve first.
    turns: VecDeque<usize>,
    /// The first of the hosts with this number of places.
    with_places: Box<[usize]>,
    /// The maximum number of places of a host.
    max_places: usize,
    bytes: Bytes,
}

#[derive(Debug)]
struct Place<P> {
    packet: P,
    arrived: Time,
    hash: u32,
    /// The next place in the bucket.
    in_bucket: usize,
    /// The next place of the same host in the order of joining.
    behind: usize,
}

#[derive(Debug)]
struct Host {
    address: u128,
    hash: u32,
    /// The next host in the bucket.
    in_bucket: usize,
    first: usize,
    last: usize,
    places: usize,
    /// The neighbours among the hosts with the same number of places.
    before: usize,
    after: usize,
}

/// The address by which hosts are distinguished: IPv4 (mapped) as it is, IPv6 without its interface
/// identifier.
fn host_of(source: Ipv6Addr) -> u128 {
    let bits = source.to_bits();
    if source.to_ipv4_mapped().is_some() { bits } else { bits >> 64 << 64 }
}

impl<P: Packet> IfilHosts<P> {
    /// An empty queue. The secret of its hash comes from `rng`.
    ///
    /// # Errors
    /// [`QdiscError::ZeroLimit`] and [`QdiscError::TooManyFlows`].
    pub fn new(params: IfilParams, rng: &mut impl Rng) -> Result<Self, QdiscError> {
        let limit = params.checked()?.limit.get() as usize;
        let buckets = || vec![NONE; limit.next_power_of_two()].into_boxed_slice();
        Ok(Self {
            limit,
            hash: FlowHash::draw(rng),
            places: Slab::with_capacity(limit),
            flow_buckets: buckets(),
            hosts: Slab::with_capacity(limit),
            host_buckets: buckets(),
            turns: VecDeque::with_capacity(limit),
            with_places: vec![NONE; limit + 1].into_boxed_slice(),
            max_places: 0,
            bytes: Bytes::ZERO,
        })
    }

    fn bucket(&self, hash: u32) -> usize {
        hash as usize & (self.flow_buckets.len() - 1)
    }

    fn place_of(&self, hash: u32, flow: FlowWords) -> Option<usize> {
        let mut at = self.flow_buckets[self.bucket(hash)];
        while at != NONE {
            let place = &self.places[at];
            if place.hash == hash && FlowWords::from(place.packet.header().flow).is(flow) {
                return Some(at);
            }
            at = place.in_bucket;
        }
        None
    }

    fn host(&self, hash: u32, address: u128) -> Option<usize> {
        let mut at = self.host_buckets[self.bucket(hash)];
        while at != NONE {
            let host = &self.hosts[at];
            if host.address == address {
                return Some(at);
            }
            at = host.in_bucket;
        }
        None
    }

    /// Adds a host without places, at the end of the turns.
    fn join(&mut self, hash: u32, address: u128) -> usize {
        let bucket = self.bucket(hash);
        let at = self.hosts.insert(Host {
            address,
            hash,
            in_bucket: self.host_buckets[bucket],
            first: NONE,
            last: NONE,
            places: 0,
            before: NONE,
            after: NONE,
        });
        self.host_buckets[bucket] = at;
        self.turns.push_back(at);
        at
    }

    /// Removes a host without places, which has no turn any more.
    fn leave(&mut self, at: usize) {
        let Host { hash, in_bucket, .. } = self.hosts.remove(at);
        let bucket = self.bucket(hash);
        let mut before = self.host_buckets[bucket];
        if before == at {
            self.host_buckets[bucket] = in_bucket;
            return;
        }
        while self.hosts[before].in_bucket != at {
            before = self.hosts[before].in_bucket;
        }
        self.hosts[before].in_bucket = in_bucket;
    }

    /// Adds a host to the list for this number of places.
    fn count(&mut self, at: usize, places: usize) {
        let Host { places: old, before, after, .. } = self.hosts[at];
        if old > 0 {
            match before {
                NONE => self.with_places[old] = after,
                before => self.hosts[before].after = after,
            }
            if after != NONE {
                self.hosts[after].before = before;
            }
        }
        let host = &mut self.hosts[at];
        (host.places, host.before) = (places, NONE);
        if places > 0 {
            let after = mem::replace(&mut self.with_places[places], at);
            self.hosts[at].after = after;
            if after != NONE {
                self.hosts[after].before = at;
            }
        }
        self.max_places = self.max_places.max(places);
        if self.max_places > 0 && self.with_places[self.max_places] == NONE {
            self.max_places -= 1;
        }
    }

    /// Takes the first place of a host that has one.
    fn take_first(&mut self, at: usize) -> (P, Time) {
        let first = self.hosts[at].first;
        let Place { packet, arrived, hash, in_bucket, behind, .. } = self.places.remove(first);
        let bucket = self.bucket(hash);
        let mut before = self.flow_buckets[bucket];
        if before == first {
            self.flow_buckets[bucket] = in_bucket;
        } else {
            while self.places[before].in_bucket != first {
                before = self.places[before].in_bucket;
            }
            self.places[before].in_bucket = in_bucket;
        }
        self.hosts[at].first = behind;
        self.count(at, self.hosts[at].places - 1);
        self.bytes = self.bytes - packet.size();
        (packet, arrived)
    }

    /// Puts a packet of a flow without a place behind the others of its host.
    fn settle(&mut self, now: Time, packet: P, hash: u32, host: usize) {
        self.bytes += packet.size();
        let bucket = self.bucket(hash);
        let in_bucket = self.flow_buckets[bucket];
        let place = Place { packet, arrived: now, hash, in_bucket, behind: NONE };
        let at = self.places.insert(place);
        self.flow_buckets[bucket] = at;
        let Host { last, places, .. } = self.hosts[host];
        if places > 0 {
            self.places[last].behind = at;
        } else {
            self.hosts[host].first = at;
        }
        self.hosts[host].last = at;
        self.count(host, places + 1);
    }
}

impl<P: Packet> Qdisc<P> for IfilHosts<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>) {
        let flow = packet.header().flow;
        let words = FlowWords::from(flow);
        let hash = self.hash.hash(words);
        if let Some(at) = self.place_of(hash, words) {
            let place = &mut self.places[at];
            place.arrived = now;
            self.bytes += packet.size();
            let old = mem::replace(&mut place.packet, packet);
            self.bytes = self.bytes - old.size();
            drops(Drop { packet: old, reason: DropReason::Replaced });
            return;
        }
        let address = host_of(flow.source);
        let host_hash = self.hash.hash(FlowWords::of_host(address));
        let known = self.host(host_hash, address);
        if self.places.len() >= self.limit {
            let places = known.map_or(0, |at| self.hosts[at].places);
            if self.max_places < places + 2 {
                drops(Drop { packet, reason: DropReason::QueueFull });
                return;
            }
            let (packet, _) = self.take_first(self.with_places[self.max_places]);
            drops(Drop { packet, reason: DropReason::QueueFull });
        }
        let host = known.unwrap_or_else(|| self.join(host_hash, address));
        self.settle(now, packet, hash, host);
    }

    fn dequeue(&mut self, now: Time, _: &mut Drops<'_, P>) -> Option<Dequeued<P>> {
        let at = self.turns.pop_front()?;
        let (packet, arrived) = self.take_first(at);
        match self.hosts[at].places {
            0 => self.leave(at),
            _ => self.turns.push_back(at),
        }
        Some(Dequeued { packet, sojourn: now.since(arrived) })
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: Packets::new(self.places.len() as u64), bytes: self.bytes }
    }

    fn each_queued(&self, see: &mut dyn FnMut(&P)) {
        self.places.iter().for_each(|(_, place)| see(&place.packet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::{FlowKey, Header, Ifil};
    use crate::unit::Span;
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Update {
        host: u8,
        port: u16,
        size: u64,
    }

    impl Packet for Update {
        fn size(&self) -> Bytes {
            Bytes::new(self.size)
        }

        fn header(&self) -> Header {
            let source = Ipv4Addr::new(10, 0, 0, self.host).to_ipv6_mapped();
            let flow = FlowKey { source, source_port: self.port, ..FlowKey::default() };
            Header { flow, ..Header::default() }
        }
    }

    fn params(limit: u64) -> IfilParams {
        IfilParams { limit: Packets::new(limit), ..IfilParams::default() }
    }

    fn queue(limit: u64) -> IfilHosts<Update> {
        IfilHosts::new(params(limit), &mut Pcg64::seed_from_u64(7)).unwrap()
    }

    fn offer(queue: &mut impl Qdisc<Update>, at: Time, update: Update) -> Option<Drop<Update>> {
        let mut dropped = None;
        queue.enqueue(at, update, &mut |drop| assert_eq!(dropped.replace(drop), None));
        dropped
    }

    fn serve(queue: &mut impl Qdisc<Update>, at: Time) -> Option<Dequeued<Update>> {
        queue.dequeue(at, &mut |drop| panic!("{drop:?}"))
    }

    #[test]
    fn a_host_of_ipv6_is_its_first_64_bits_and_one_of_ipv4_its_address() {
        let of = |text: &str| host_of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_ne!(of("::ffff:10.0.0.1"), of("::ffff:10.0.0.2"));
    }

    #[test]
    fn a_host_with_many_flows_and_one_with_a_single_flow_take_turns() {
        let mut queue = queue(100);
        for port in 0..40 {
            offer(&mut queue, Time::ZERO, Update { host: 1, port, size: 1500 });
        }
        for _ in 0..10 {
            offer(&mut queue, Time::ZERO, Update { host: 2, port: 0, size: 228 });
            assert_eq!(serve(&mut queue, Time::ZERO).unwrap().packet.host, 1);
            assert_eq!(serve(&mut queue, Time::ZERO).unwrap().packet.host, 2);
        }
    }

    #[test]
    fn at_the_limit_a_host_with_fewer_flows_is_let_in_and_a_flood_of_flows_is_not() {
        let mut queue = queue(10);
        for port in 0..10 {
            offer(&mut queue, Time::ZERO, Update { host: 1, port, size: 100 });
        }
        let flood = Update { host: 1, port: 99, size: 100 };
        let refused = Drop { packet: flood, reason: DropReason::QueueFull };
        assert_eq!(offer(&mut queue, Time::ZERO, flood), Some(refused));
        for port in 0..5 {
            let dropped = offer(&mut queue, Time::ZERO, Update { host: 2, port, size: 100 });
            assert_eq!(dropped.unwrap().packet, Update { host: 1, port, size: 100 });
        }
        let dropped = offer(&mut queue, Time::ZERO, Update { host: 2, port: 5, size: 100 });
        assert_eq!(dropped.unwrap().packet.host, 2, "both have half");
        assert_eq!(queue.backlog().packets, Packets::new(10));
    }

    /// A packet of `host` arrives, or one leaves.
    fn steps(ports: u16) -> impl Strategy<Value = Vec<Option<Update>>> {
        let arrival = (0u8..12, 0..ports, 1u64..70_000)
            .prop_map(|(host, port, size)| Some(Update { host, port, size }));
        prop::collection::vec(prop_oneof![3 => arrival, 2 => Just(None)], 0..400)
    }

    proptest! {
        #[test]
        fn with_one_flow_for_each_host_it_is_ifil(steps in steps(1), limit in 1u64..16) {
            let mut hosts = queue(limit);
            let mut flows: Ifil<Update> =
                Ifil::new(params(limit), &mut Pcg64::seed_from_u64(8)).unwrap();
            for (ms, step) in (0..).zip(steps) {
                let now = Time::ZERO + Span::from_millis(ms);
                match step {
                    Some(update) => {
                        prop_assert_eq!(offer(&mut hosts, now, update), offer(&mut flows, now, update));
                    }
                    None => prop_assert_eq!(serve(&mut hosts, now), serve(&mut flows, now)),
                }
                prop_assert_eq!(hosts.backlog(), Qdisc::<Update>::backlog(&flows));
            }
        }

        /// Compared with a plain count of the packets of every host and flow.
        #[test]
        fn each_flow_has_one_place_and_no_host_gains_by_the_number_of_its_flows(
            steps in steps(20), limit in 1u64..40,
        ) {
            let mut queue = queue(limit);
            let mut held: Vec<Update> = Vec::new();
            let places = |held: &[Update], host| held.iter().filter(|one| one.host == host).count();
            for step in steps {
                if let Some(update) = step {
                    let before = held.clone();
                    let same = |one: &Update| (one.host, one.port) == (update.host, update.port);
                    match offer(&mut queue, Time::ZERO, update) {
                        Some(Drop { reason: DropReason::Replaced, packet }) => {
                            prop_assert!(same(&packet));
                        }
                        Some(Drop { packet, .. }) if packet == update && !held.contains(&update) => {
                            prop_assert_eq!(held.len() as u64, limit);
                            let own = places(&held, update.host);
                            prop_assert!((0..12).all(|host| places(&held, host) < own + 2));
                        }
                        Some(Drop { packet, .. }) => {
                            prop_assert!(held.contains(&packet));
                            let [most, own] = [packet, update].map(|one| places(&held, one.host));
                            prop_assert!(most >= own + 2);
                            prop_assert!((0..12).all(|host| places(&held, host) <= most));
                        }
                        None => prop_assert!((held.len() as u64) < limit && !held.iter().any(same)),
                    }
                    held = queue.places.iter().map(|(_, place)| place.packet).collect();
                    prop_assert!(held.len() >= before.len());
                } else {
                    let next = serve(&mut queue, Time::ZERO);
                    prop_assert_eq!(next.is_none(), held.is_empty());
                    if let Some(next) = next {
                        prop_assert!(held.contains(&next.packet));
                        held.retain(|one| *one != next.packet);
                    }
                }
                let bytes = held.iter().map(|one| one.size).sum();
                let packets = Packets::new(held.len() as u64);
                prop_assert_eq!(queue.backlog(), Backlog { packets, bytes: Bytes::new(bytes) });
                let most = (0..12).map(|host| places(&held, host)).max().unwrap();
                prop_assert_eq!(queue.max_places, most);
                prop_assert_eq!(queue.hosts.len(), queue.turns.len());
            }
        }

        #[test]
        fn hosts_that_always_send_get_as_many_packets_whatever_their_flows_and_sizes(
            flows in prop::collection::vec(1u16..8, 2..6), size in 60u64..70_000,
        ) {
            let mut queue = queue(100);
            let mut sent = vec![0u32; flows.len()];
            for _ in 0..150 {
                for (host, flows) in (0..).zip(&flows) {
                    for port in 0..*flows {
                        offer(&mut queue, Time::ZERO, Update { host, port, size });
                    }
                }
                sent[usize::from(serve(&mut queue, Time::ZERO).unwrap().packet.host)] += 1;
            }
            let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", sent);
        }
    }
}
