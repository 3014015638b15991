//! A driver that calls both ends of a downlink in any order that the types allow, over a network
//! that loses, duplicates and reorders, with jumps of time and clients that change their address:
//! nothing panics, memory stays bounded, and once the driver and the network are regular again, all
//! clients have joined and their packets and reports arrive.

#[path = "common/counting.rs"]
mod counting;

use counting::held;
use freshline_core::session::downlink::{
    Client, ClientEvent, ClientKey, ClientParams, PutError, ReceivedDatagram, Server, ServerEvent,
    ServerParams, Stamp,
};
use freshline_core::session::{Admission, Secret, TransportState};
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wire::{Close, CloseReason, Cookie, Join, Opening, Packet, Report, SessionId};
use freshline_core::wlan::{Aggregation, AggregationParams, Fixed};
use proptest::prelude::*;

/// Within this time orderly drivers have joined all clients again, whatever was before: the server forgets
/// a silent client after 5 s, a client notices silence after 2 s, and joins after 2.5 s at the latest.
const HEALS_WITHIN: Span = Span::from_secs(20);

/// Datagrams in flight that the network keeps.
const IN_FLIGHT: usize = 64;
const CLIENTS: usize = 2;
/// Bytes that all of this may hold: packets that are remembered, the last records of clients, events
/// with payloads, and the network.
const MAX_HELD: isize = 4 << 20;
const HEALED: [u8; 6] = *b"healed";

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    ServerTimeout,
    ServerEvent,
    ServerTransmit,
    ServerAnswer,
    Put(usize, usize),
    Pause(usize),
    Finish(usize),
    Resume(usize),
    Revoke,
    ClientTimeout(usize),
    ClientEvent(usize),
    ClientTransmit(usize),
    Transport(usize, usize),
    Move(usize),
    /// A datagram of those in flight to the server, or to the clients: it arrives, or is lost; a copy
    /// stays or does not.
    Network {
        to_server: bool,
        place: usize,
        arrives: bool,
        stays: bool,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let network = (any::<(bool, bool, bool)>(), 0..IN_FLIGHT);
    let client = || 0..CLIENTS;
    prop_oneof![
        6 => (0..50_000_000u64).prop_map(Step::Wait),
        1 => prop_oneof![9 => 0..2_000_000_000u64, 1 => 0..20_000_000_000u64].prop_map(Step::Wait),
        6 => Just(Step::ServerTimeout),
        6 => Just(Step::ServerEvent),
        6 => Just(Step::ServerTransmit),
        2 => Just(Step::ServerAnswer),
        4 => (client(), 0..1_100usize).prop_map(|(client, len)| Step::Put(client, len)),
        1 => client().prop_map(Step::Pause),
        1 => client().prop_map(Step::Finish),
        1 => client().prop_map(Step::Resume),
        1 => Just(Step::Revoke),
        6 => client().prop_map(Step::ClientTimeout),
        6 => client().prop_map(Step::ClientEvent),
        6 => client().prop_map(Step::ClientTransmit),
        2 => (client(), 0..3usize).prop_map(|(client, state)| Step::Transport(client, state)),
        1 => client().prop_map(Step::Move),
        14 => network.prop_map(|((to_server, arrives, stays), place)| {
            Step::Network { to_server, place, arrives, stays }
        }),
    ]
}

struct Host {
    client: Client,
    address: usize,
    /// Payloads that have arrived since drivers and network behave.
    healed: u32,
}

struct World {
    now: Time,
    server: Server<usize>,
    hosts: Vec<Host>,
    /// In flight to the clients and to the server, with the client's address.
    in_flight: [Vec<(usize, Vec<u8>)>; 2],
    out: Vec<u8>,
}

impl World {
    fn new() -> Self {
        let params = ServerParams { max_payload: 1_000, ..ServerParams::default() };
        let law = Box::new(Fixed::new(BitRate::from_bps(100_000)));
        let host = |address: usize| {
            let counter = Box::new(Aggregation::new(AggregationParams::default()));
            let session = SessionId(address as u64 + 7);
            let client = Client::new(ClientParams::default(), session, counter, Time::ZERO);
            Host { client: client.expect("no name"), address, healed: 0 }
        };
        Self {
            now: Time::ZERO,
            server: Server::new(params, law, Secret::new([1; 16])),
            hosts: (0..CLIENTS).map(host).collect(),
            in_flight: Default::default(),
            out: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        let now = self.now;
        match *step {
            Step::Wait(nanos) => self.now += Span::from_nanos(nanos),
            Step::ServerTimeout => self.server.handle_timeout(now),
            Step::ServerEvent => drop(self.server.poll_event()),
            Step::ServerTransmit => drop(self.serve()),
            Step::ServerAnswer => self.answer(),
            Step::Put(client, len) => {
                let Some(key) = self.key(client) else { return };
                match self.server.put(now, key, &[7; 1_100][..len]) {
                    Ok(()) | Err(PutError::Occupied) => assert!(len <= 1_000),
                    Err(PutError::TooLarge { given, max }) => assert!(given == len && len > max),
                    Err(PutError::Gone) => panic!("it is there"),
                }
            }
            Step::Pause(client) => self.key(client).into_iter().for_each(|key| {
                self.server.pause(now, key);
            }),
            Step::Finish(client) => self.key(client).into_iter().for_each(|key| {
                self.server.finish(now, key);
            }),
            Step::Resume(client) => self.key(client).into_iter().for_each(|key| {
                self.server.resume(now, key);
            }),
            Step::Revoke => drop(self.server.revoke(now, |record| record.packets % 2 == 1)),
            Step::ClientTimeout(client) => self.hosts[client].client.handle_timeout(now),
            Step::ClientEvent(client) => {
                let event = self.hosts[client].client.poll_event();
                assert!(!format!("{event:?}").is_empty());
            }
            Step::ClientTransmit(client) => drop(self.speak(client)),
            Step::Transport(client, state) => {
                let states =
                    [TransportState::Down, TransportState::Connecting, TransportState::Ready];
                self.hosts[client].client.handle_transport(now, states[state]);
            }
            Step::Move(client) => self.hosts[client].address += CLIENTS,
            Step::Network { to_server, place, arrives, stays } => {
                self.network(to_server, place, arrives, stays);
            }
        }
    }

    /// The key of one of the clients that are there.
    fn key(&self, number: usize) -> Option<ClientKey> {
        self.server.clients().nth(number).map(|(key, _)| key)
    }

    fn serve(&mut self) -> bool {
        let sent = self.server.poll_transmit(self.now, &mut self.out);
        sent.inspect(|sent| self.carry(0, sent.peer, sent.len)).is_some()
    }

    fn answer(&mut self) {
        if let Some(answer) = self.server.poll_answer(&mut self.out) {
            self.carry(0, answer.peer, answer.len);
        }
    }

    fn speak(&mut self, client: usize) -> bool {
        let Host { client, address, .. } = &mut self.hosts[client];
        let (sent, address) = (client.poll_transmit(self.now, &mut self.out), *address);
        sent.inspect(|sent| self.carry(1, address, sent.len)).is_some()
    }

    fn carry(&mut self, direction: usize, address: usize, len: usize) {
        let in_flight = &mut self.in_flight[direction];
        if in_flight.len() < IN_FLIGHT {
            in_flight.push((address, self.out[..len].to_vec()));
        }
    }

    fn network(&mut self, to_server: bool, place: usize, arrives: bool, stays: bool) {
        let in_flight = &mut self.in_flight[usize::from(to_server)];
        let Some((address, bytes)) = in_flight.get(place).cloned() else { return };
        if !stays {
            in_flight.swap_remove(place);
        }
        if !arrives {
            return;
        }
        let datagram = ReceivedDatagram::at(self.now, &bytes);
        // Useless datagrams are counted.
        if to_server {
            let _ = self.server.handle_datagram(self.now, address, datagram);
        } else if let Some(host) = self.hosts.iter_mut().find(|host| host.address == address) {
            let stamp = Stamp { at: self.now, rate: BitRate::from_mbps(100) };
            let _ = host.client.handle_stamped_datagram(self.now, stamp, datagram);
            let _ = host.client.handle_captured(self.now, stamp, &bytes);
        }
    }

    /// From now on drivers and network are regular, until each client has received packets again
    /// and the server has their reports; returns whether this happens in time.
    fn heals(&mut self) -> bool {
        let end = self.now + HEALS_WITHIN;
        let reports = self.server.counters().reports;
        for host in &mut self.hosts {
            host.healed = 0;
            host.client.handle_transport(self.now, TransportState::Ready);
        }
        while self.now < end {
            self.behave();
            let is_healed = self.hosts.iter().all(|host| host.healed > 20);
            if is_healed && self.server.counters().reports > reports + 4 {
                return true;
            }
            let clients = self.hosts.iter().map(|host| host.client.poll_timeout());
            let wakes = clients.chain([self.server.poll_timeout()]);
            let next = wakes.flatten().min().expect("a client always wants something");
            // A network's delay, where something is in flight.
            self.now = next.max(self.now + Span::from_micros(500));
        }
        false
    }

    /// One round of drivers that obey the contract.
    fn behave(&mut self) {
        for to_server in [true, false] {
            while !self.in_flight[usize::from(to_server)].is_empty() {
                self.network(to_server, 0, true, false);
            }
        }
        self.server.handle_timeout(self.now);
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::PacketWanted(client) = event {
                self.server.put(self.now, client, &HEALED).expect("it was wanted");
            }
        }
        while self.serve() {}
        for client in 0..CLIENTS {
            let host = &mut self.hosts[client];
            host.client.handle_timeout(self.now);
            while let Some(event) = host.client.poll_event() {
                if let ClientEvent::Packet(packet) = event {
                    host.healed += u32::from(packet.payload == HEALED);
                }
            }
            while self.speak(client) {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_order_of_calls_neither_panics_nor_leaves_a_client_without_packets(
        steps in prop::collection::vec(any_step(), 1..400),
    ) {
        let before = held();
        let mut world = World::new();
        // Half of the stories begin once all have joined.
        prop_assert!(steps.len() % 2 == 0 || world.heals());
        for step in &steps {
            world.step(step);
            prop_assert!(held() - before < MAX_HELD, "{} bytes", held() - before);
        }
        prop_assert!(world.heals(), "{:?}", world.hosts.iter().map(|it| it.healed).collect::<Vec<_>>());
    }
}

/// Bytes held by the endpoint that `hold` returns.
fn bytes_of<T>(hold: impl FnOnce() -> T) -> isize {
    let before = held();
    let kept = hold();
    let bytes = held() - before;
    drop(kept);
    bytes
}

#[test]
fn a_server_whose_driver_does_not_poll_holds_bounded_memory() {
    let bytes = bytes_of(|| {
        let params = ServerParams { admission: Admission::Proven, ..ServerParams::default() };
        let law = Box::new(Fixed::new(BitRate::from_mbps(1)));
        let mut server: Server<u64> = Server::new(params, law, Secret::new([1; 16]));
        let mut join = [0; 400];
        for number in 0..20_000 {
            // A client comes and goes, and comes back without having joined: it is challenged.
            let session = SessionId(number);
            let opening = Opening { cookie: Cookie::default(), name: "", token: b"" };
            let len = Join { session, opening }.write(&mut join).unwrap();
            let report = Report {
                session,
                number: 0,
                newest_seq: 0,
                newest_sent_at: Time::ZERO,
                newest_received_at: Time::ZERO,
                hold: Span::ZERO,
                received: 1,
                seen: None,
                marks: Default::default(),
                delivered: None,
                max_packets: None,
            };
            let close = Close { session, reason: CloseReason::Done };
            for datagram in [&join[..len], &close.bytes(), &report.bytes()] {
                server.handle_datagram(Time::ZERO, number, datagram).unwrap();
            }
            server.handle_timeout(Time::ZERO);
        }
        assert_eq!((server.counters().left, server.counters().challenged), (20_000, 20_000));
        server
    });
    println!("{bytes} bytes");
    assert!(bytes < MAX_HELD, "{bytes} bytes");
}

#[test]
fn a_client_whose_driver_does_not_poll_holds_bounded_memory() {
    let bytes = bytes_of(|| {
        let counter = Box::new(Aggregation::new(AggregationParams::default()));
        let session = SessionId(7);
        let mut client =
            Client::new(ClientParams::default(), session, counter, Time::ZERO).unwrap();
        let mut out = [0; 1_500];
        for seq in 0..20_000 {
            let now = Time::ZERO + Span::from_millis(seq);
            let packet = Packet {
                session,
                seq,
                sent_at: now,
                clock_offset: None,
                interval: Span::from_millis(500),
                ack_mark: None,
                payload: &[7; 1_400],
            };
            let len = packet.write(&mut out).unwrap();
            client.handle_datagram(now, &out[..len]).unwrap();
        }
        client
    });
    println!("{bytes} bytes");
    assert!(bytes < MAX_HELD, "{bytes} bytes");
}
