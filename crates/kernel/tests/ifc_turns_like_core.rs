//! The turns of the kernel's queue of updates compared with the core's: packet by packet the same
//! flow is replaced, refused, loses its place, or leaves.

mod common;

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use common::on_host;
use freshline_core::router::{
    Drop, DropReason, FlowKey, Header, IfilParams, Isolation, Packet, Qdisc, QdiscConfig,
};
use freshline_core::unit::{Bytes, Packets, Time};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

/// The fate of an arriving packet: `enum fate` of the program.
const JOINED: u64 = 0;
const REPLACED: u64 = 1;
const REFUSED: u64 = 2;
const EVICTED: u64 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Update {
    source: Ipv6Addr,
    port: u16,
    number: u64,
}

impl Update {
    fn row(self, what: u64) -> Vec<u64> {
        let bits = self.source.to_bits();
        vec![what, (bits >> 64) as u64, bits as u64, self.port.into()]
    }
}

impl Packet for Update {
    fn size(&self) -> Bytes {
        Bytes::new(100)
    }

    fn header(&self) -> Header {
        let flow = FlowKey { source: self.source, source_port: self.port, ..FlowKey::default() };
        Header { flow, ..Header::default() }
    }
}

/// Few hosts of both families; one host of IPv6 in three is another interface of the same network.
fn any_source(rng: &mut Pcg32, hosts: u8) -> Ipv6Addr {
    let host = rng.random_range(0..hosts);
    if host % 2 == 0 {
        return Ipv4Addr::new(10, 0, 0, host).to_ipv6_mapped();
    }
    let interface = if rng.random_range(0..3) == 0 { rng.random() } else { 1 };
    Ipv6Addr::new(0xfd00, 0, 0, host.into(), 0, 0, 0, interface)
}

fn fate(update: Update, dropped: Option<Drop<Update>>) -> Vec<u64> {
    match dropped {
        None => vec![JOINED, 0, 0, 0],
        Some(Drop { reason: DropReason::Replaced, .. }) => vec![REPLACED, 0, 0, 0],
        Some(Drop { packet, .. }) if packet == update => vec![REFUSED, 0, 0, 0],
        Some(Drop { packet, .. }) => packet.row(EVICTED),
    }
}

/// Random packets through queues of random limits: results of both.
#[track_caller]
fn assert_alike(isolate: Isolation) -> Vec<u64> {
    let mut rng = Pcg32::seed_from_u64(18);
    let (mut lines, mut expected, mut fates) = (String::new(), Vec::new(), vec![0; 4]);
    for _ in 0..300 {
        let limit = rng.random_range(1..=40);
        let (hosts, ports) = (rng.random_range(1..=12), rng.random_range(1..=30_u16));
        let arrivals = rng.random_range(2..20);
        let params = IfilParams { limit: Packets::new(limit), isolate: Some(isolate), hold: None };
        let mut queue = QdiscConfig::Ifil(params).build(&mut rng).unwrap();
        // Many flows in a chain, or few.
        let chains = rng.random_range(4..=64);
        let by_host = u8::from(isolate == Isolation::Host);
        writeln!(lines, "queue {limit} {by_host} {chains}").unwrap();
        for number in 0..400 {
            if rng.random_range(0..arrivals) > 0 {
                let source = any_source(&mut rng, hosts);
                let update = Update { source, port: rng.random_range(0..ports), number };
                let mut dropped = None;
                queue.enqueue(Time::ZERO, update, &mut |drop| {
                    assert_eq!(dropped.replace(drop), None);
                });
                let row = update.row(0);
                writeln!(lines, "come {} {} {}", row[1], row[2], row[3]).unwrap();
                let row = fate(update, dropped);
                fates[row[0] as usize] += 1;
                expected.push(row);
            } else {
                let left = queue.dequeue(Time::ZERO, &mut |drop| panic!("{drop:?}"));
                writeln!(lines, "go").unwrap();
                expected.push(left.map_or_else(|| vec![0; 4], |left| left.packet.row(1)));
            }
        }
    }
    assert_eq!(on_host("ifc_turns_on_host", &lines), expected);
    fates
}

#[test]
fn hosts_take_turns_and_lose_places_as_in_the_core() {
    let fates = assert_alike(Isolation::Host);
    assert!(fates.iter().all(|times| *times > 1000), "{fates:?}");
}

#[test]
fn flows_take_turns_as_in_the_core() {
    let fates = assert_alike(Isolation::Flow);
    assert!(fates[..EVICTED as usize].iter().all(|times| *times > 1000), "{fates:?}");
    assert_eq!(fates[EVICTED as usize], 0, "by flow none loses its place");
}

#[test]
fn a_full_chain_takes_no_other_flow_until_one_has_left() {
    const MAX_CHAIN: u64 = 32;
    for by_host in 0..=1 {
        let mut lines = format!("queue 64 {by_host} 1\n");
        // Each a host of its own, all in the one chain.
        let come = |lines: &mut String, host: u64| writeln!(lines, "come {host} 0 7").unwrap();
        let mut expected = Vec::new();
        for host in 1..=MAX_CHAIN {
            come(&mut lines, host);
            expected.push(vec![JOINED, 0, 0, 0]);
        }
        come(&mut lines, MAX_CHAIN + 1);
        come(&mut lines, 1);
        lines.push_str("go\n");
        come(&mut lines, MAX_CHAIN + 1);
        expected.extend([REFUSED, REPLACED].map(|fate| vec![fate, 0, 0, 0]));
        expected.extend([vec![1, 1, 0, 7], vec![JOINED, 0, 0, 0]]);
        assert_eq!(on_host("ifc_turns_on_host", &lines), expected);
    }
}
