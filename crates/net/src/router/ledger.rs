//! The statistics of a router's packets: per class, and of the heaviest flows.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv6Addr, SocketAddr};
use std::ops::Range;

use freshline_core::link::{DropCounts, SpanHistogram, Traffic};
use freshline_core::router::{
    AccountReport, Class, ClassReport, DropReason, FlowKey, FlowReport, RecentRate,
};
use freshline_core::unit::{Bytes, Span, Time};

/// The shortest time over which a rate is reported.
const MIN_RATE_TIME: Span = Span::from_millis(1);

/// The statistics of a class or flow.
#[derive(Debug, Default)]
struct Account {
    arrived: Traffic,
    sent: Traffic,
    /// Of the packets sent.
    marked: u64,
    drops: DropCounts,
    recent: RecentRate,
    /// Allocated at the second packet: most flows of a flood have one packet, and it takes up to
    /// 30 kB.
    sojourn: Option<SpanHistogram>,
}

impl Account {
    fn sent(&mut self, now: Time, size: Bytes, sojourn: Span, is_marked: bool) {
        self.recent.count(now, size);
        if self.sent.packets.get() > 0 {
            self.sojourn.get_or_insert_default().record(sojourn);
        }
        self.sent.count(size);
        self.marked += u64::from(is_marked);
    }

    fn report(&self, start: Time, now: Time) -> AccountReport {
        let sojourn_ms = |q: f64| Some(self.sojourn.as_ref()?.quantile(q).as_millis_f64());
        AccountReport {
            packets_in: self.arrived.packets.get(),
            bytes_in: self.arrived.bytes.get(),
            packets_out: self.sent.packets.get(),
            bytes_out: self.sent.bytes.get(),
            rate_bps: Some(self.recent.rate_bps(MIN_RATE_TIME, start, now)),
            marked: self.marked,
            replaced: self.drops.of(DropReason::Replaced).get(),
            queue_full: self.drops.of(DropReason::QueueFull).get(),
            congestion: self.drops.of(DropReason::Congestion).get(),
            sojourn_p50_ms: sojourn_ms(0.5),
            sojourn_p95_ms: sojourn_ms(0.95),
        }
    }
}

#[derive(Debug)]
struct FlowAccount {
    key: FlowKey,
    class: Class,
    first_seen: Time,
    last_seen: Time,
    account: Account,
}

/// All statistics of the packets.
#[derive(Debug)]
pub(super) struct Ledger {
    start: Time,
    classes: [Account; Class::ALL.len()],
    flows: Box<[Option<FlowAccount>]>,
    /// Seeded with a secret, so that no sender can choose which flows its own flows displace.
    hash: RandomState,
    forgotten: u64,
}

/// The flow and class to which a packet is accounted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject {
    pub(super) flow: FlowKey,
    pub(super) class: Class,
    pub(super) size: Bytes,
}

impl Ledger {
    /// Flows are kept in sets, by the hash of their key, which bounds the work of finding a flow,
    /// and of choosing the flow to replace.
    const SETS: usize = 32;
    const FLOWS_A_SET: usize = 8;
    /// A flow that has been silent for this long is replaced first.
    const SILENT: Span = Span::from_secs(30);

    pub(super) fn new(start: Time) -> Self {
        Self {
            start,
            classes: Default::default(),
            flows: (0..Self::SETS * Self::FLOWS_A_SET).map(|_| None).collect(),
            hash: RandomState::new(),
            forgotten: 0,
        }
    }

    /// A packet arrived.
    pub(super) fn arrived(&mut self, now: Time, subject: Subject) {
        self.classes[subject.class as usize].arrived.count(subject.size);
        let flow = self.admit(now, subject);
        (flow.class, flow.last_seen) = (subject.class, now);
        flow.account.arrived.count(subject.size);
    }

    /// A packet left after its time in the queue, perhaps marked there.
    pub(super) fn sent(&mut self, now: Time, subject: Subject, sojourn: Span, is_marked: bool) {
        self.classes[subject.class as usize].sent(now, subject.size, sojourn, is_marked);
        if let Some(flow) = self.known(&subject.flow) {
            flow.account.sent(now, subject.size, sojourn, is_marked);
        }
    }

    /// A packet was dropped.
    pub(super) fn dropped(&mut self, subject: Subject, reason: DropReason) {
        self.classes[subject.class as usize].drops.count(reason);
        if let Some(flow) = self.known(&subject.flow) {
            flow.account.drops.count(reason);
        }
    }

    /// The number of bytes sent.
    pub(super) fn bytes_sent(&self) -> Bytes {
        self.classes.iter().fold(Bytes::ZERO, |sum, class| sum + class.sent.bytes)
    }

    /// The AoI class's share of the bytes sent, from 0 to 1.
    pub(super) fn served_share(&self) -> Option<f64> {
        let bytes = |class: Class| self.classes[class as usize].sent.bytes.get() as f64;
        let all: f64 = Class::ALL.into_iter().map(bytes).sum();
        (all > 0.0).then(|| bytes(Class::Aoi) / all)
    }

    pub(super) fn classes(&self, now: Time) -> Vec<ClassReport> {
        let report = |class: Class| ClassReport {
            class: class.name().to_owned(),
            account: self.classes[class as usize].report(self.start, now),
        };
        Class::ALL.into_iter().map(report).collect()
    }

    /// The flows with the highest recent rates, at most `most`, highest first. A flow that began
    /// less than 250 ms ago is ranked by its bytes over that time. Silent flows follow, by their
    /// bytes.
    pub(super) fn flows(&self, now: Time, most: usize) -> Vec<FlowReport> {
        let rank = |flow: &&FlowAccount| {
            let rate = flow.account.recent.rate_bps(RecentRate::RANK_TIME, flow.first_seen, now);
            std::cmp::Reverse((rate, flow.account.arrived.bytes))
        };
        let mut flows: Vec<_> = self.flows.iter().flatten().collect();
        flows.sort_by_key(rank);
        flows.truncate(most);
        flows.into_iter().map(|flow| flow.report(now)).collect()
    }

    /// The number of flows that were replaced.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The places where a flow may be.
    fn set(&self, key: &FlowKey) -> Range<usize> {
        let first = self.hash.hash_one(key) as usize % Self::SETS * Self::FLOWS_A_SET;
        first..first + Self::FLOWS_A_SET
    }

    fn known(&mut self, key: &FlowKey) -> Option<&mut FlowAccount> {
        let set = self.set(key);
        self.flows[set].iter_mut().flatten().find(|flow| flow.key == *key)
    }

    /// The flow of a packet. A new flow takes a free place, or else replaces the lightest flow of
    /// its set: so a flood of invented flows displaces its own.
    fn admit(&mut self, now: Time, Subject { flow: key, class, .. }: Subject) -> &mut FlowAccount {
        let weight = |flow: &FlowAccount| {
            let is_silent = now.since(flow.last_seen) > Self::SILENT;
            if is_silent { Bytes::ZERO } else { flow.account.arrived.bytes }
        };
        let set = self.set(&key);
        let set = &mut self.flows[set];
        let known = set.iter().position(|place| place.as_ref().is_some_and(|flow| flow.key == key));
        let place = known.unwrap_or_else(|| {
            // A free place is lighter than any flow.
            let weights = set.iter().map(|place| place.as_ref().map(weight));
            weights.enumerate().min_by_key(|(_, weight)| *weight).map_or(0, |(place, _)| place)
        });
        let place = &mut set[place];
        if known.is_none() {
            self.forgotten += u64::from(place.take().is_some());
        }
        place.get_or_insert_with(|| FlowAccount {
            key,
            class,
            first_seen: now,
            last_seen: now,
            account: Account::default(),
        })
    }
}

impl FlowAccount {
    fn report(&self, now: Time) -> FlowReport {
        FlowReport {
            class: self.class.name().to_owned(),
            source: end(self.key.source, self.key.source_port),
            destination: end(self.key.destination, self.key.destination_port),
            protocol: self.key.protocol,
            account: self.account.report(self.first_seen, now),
        }
    }
}

/// An end of a flow, with its port if it has one.
pub(super) fn end(address: Ipv6Addr, port: u16) -> String {
    match (address.to_canonical(), port) {
        (address, 0) => address.to_string(),
        (address, port) => SocketAddr::new(address, port).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn subject(sender: u32, class: Class, size: u64) -> Subject {
        let (from, to) = (Ipv4Addr::from(sender), Ipv4Addr::new(10, 0, 0, 1));
        let mut flow = FlowKey::between(IpAddr::from(from), IpAddr::from(to), FlowKey::UDP);
        flow.destination_port = 53;
        Subject { flow, class, size: Bytes::new(size) }
    }

    #[test]
    fn classes_and_flows_tell_what_became_of_their_packets() {
        let mut ledger = Ledger::new(Time::ZERO);
        let update = subject(7, Class::Aoi, 100);
        for millis in [1, 2, 3, 4] {
            ledger.arrived(Time::from_nanos(millis), update);
        }
        ledger.dropped(update, DropReason::Replaced);
        ledger.sent(Time::from_nanos(5), update, Span::from_millis(9), true);
        ledger.sent(Time::from_nanos(5), update, Span::from_millis(5), false);
        ledger.sent(Time::from_nanos(5), subject(8, Class::DropAverse, 300), Span::ZERO, false);
        let expected = AccountReport {
            packets_in: 4,
            bytes_in: 400,
            packets_out: 2,
            bytes_out: 200,
            rate_bps: Some(200 * 8 * 1000),
            marked: 1,
            replaced: 1,
            sojourn_p50_ms: Some(5.0),
            sojourn_p95_ms: Some(5.0),
            ..AccountReport::default()
        };
        assert_eq!(ledger.classes(Time::from_nanos(5))[0].account, expected);
        let [flow] = &ledger.flows(Time::from_nanos(5), 10)[..] else {
            panic!("one flow has come")
        };
        assert_eq!((flow.source.as_str(), flow.destination.as_str()), ("0.0.0.7", "10.0.0.1:53"));
        assert_eq!(flow.account, expected);
        assert_eq!(ledger.served_share(), Some(0.4));
    }

    #[test]
    fn a_flood_of_invented_flows_pushes_out_its_own() {
        let mut ledger = Ledger::new(Time::ZERO);
        let real = subject(1, Class::DropAverse, 100_000);
        ledger.arrived(Time::ZERO, real);
        for sender in 1_000..101_000 {
            ledger.arrived(Time::ZERO, subject(sender, Class::Aoi, 1_000));
        }
        assert_eq!(ledger.flows(Time::ZERO, usize::MAX).len(), Ledger::SETS * Ledger::FLOWS_A_SET);
        assert_eq!(ledger.flows(Time::ZERO, 1)[0].source, "0.0.0.1");
        assert_eq!(ledger.classes(Time::from_nanos(5))[0].account.packets_in, 100_000);
        assert!(ledger.forgotten() > 99_000);
    }

    #[test]
    fn rates_and_ranks_are_those_of_the_last_seconds() {
        let mut ledger = Ledger::new(Time::ZERO);
        let (finished, running) =
            (subject(1, Class::DropAverse, 1_000_000), subject(2, Class::DropAverse, 2_500));
        for ms in 0..1_000 {
            let now = Time::ZERO + Span::from_millis(ms);
            ledger.arrived(now, finished);
            ledger.sent(now, finished, Span::ZERO, false);
        }
        let rate_of = |ledger: &Ledger, now, sender: &str| {
            let flows = ledger.flows(now, 10);
            flows.iter().find(|flow| flow.source == sender).unwrap().account.rate_bps.unwrap()
        };
        let now = Time::ZERO + Span::from_secs(1);
        assert_eq!(rate_of(&ledger, now, "0.0.0.1"), 8_000_000_000);
        // 2 Mbit/s, from the 70th second on.
        for ms in (70_000..80_000).step_by(10) {
            let now = Time::ZERO + Span::from_millis(ms);
            ledger.arrived(now, running);
            ledger.sent(now, running, Span::ZERO, false);
        }
        let now = Time::ZERO + Span::from_secs(80);
        assert!((1_990_000..=2_010_000).contains(&rate_of(&ledger, now, "0.0.0.2")));
        assert_eq!(rate_of(&ledger, now, "0.0.0.1"), 0);
        assert_eq!(ledger.flows(now, 1)[0].source, "0.0.0.2", "the finished one is below");
        let class = ledger.classes(now)[1].account.rate_bps.unwrap();
        assert!((1_990_000..=2_010_000).contains(&class), "{class}");
    }

    #[test]
    fn flows_of_one_packet_are_below_those_that_last() {
        let mut ledger = Ledger::new(Time::ZERO);
        let lasting = subject(1, Class::DropAverse, 2_500);
        for ms in (0..1_000).step_by(10) {
            let now = Time::ZERO + Span::from_millis(ms);
            ledger.arrived(now, lasting);
            ledger.sent(now, lasting, Span::ZERO, false);
        }
        let now = Time::ZERO + Span::from_secs(1);
        let scan = subject(2, Class::DropAverse, 1_500);
        ledger.arrived(now, scan);
        ledger.sent(now, scan, Span::ZERO, false);
        assert_eq!(ledger.flows(now, 1)[0].source, "0.0.0.1", "of 2 Mbit/s");
    }

    #[test]
    fn a_silent_flow_makes_room_however_heavy_it_was() {
        let mut ledger = Ledger::new(Time::ZERO);
        for sender in 0..10_000 {
            ledger.arrived(Time::ZERO, subject(sender, Class::DropAverse, 100_000));
        }
        let later = Time::ZERO + Ledger::SILENT + Span::from_millis(1);
        for sender in 20_000..30_000 {
            ledger.arrived(later, subject(sender, Class::Aoi, 100));
        }
        assert!(ledger.flows(Time::ZERO, usize::MAX).iter().all(|flow| flow.class == "aoi"));
    }
}
