//! A server and its clients in virtual time, with a Wi-Fi cell and hops between them, and faults.

use std::collections::BTreeMap;

use freshline_core::link::{
    Airborne, Conditions, ConditionsConfig, Direction, Passage, SpanHistogram,
};
use freshline_core::router::Packet;
use freshline_core::session::Secret;
use freshline_core::session::downlink::{
    Client, ClientEvent, ClientParams, ReceivedDatagram, Server, ServerEvent, ServerParams, Stamp,
};
use freshline_core::unit::{BitRate, Bytes, Span, Time};
use freshline_core::wire::SessionId;
use freshline_core::wlan::mac::Received;
use freshline_core::wlan::{Aggregation, AggregationParams, DownlinkLawConfig};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// IPv4 and UDP.
const HEADERS: u64 = 28;
/// With the headers 1200 bytes.
pub(crate) const PAYLOAD: usize =
    1200 - HEADERS as usize - freshline_core::wire::Packet::HEADER_LEN;

#[derive(Debug, Clone)]
struct Datagram {
    bytes: Vec<u8>,
    station: u32,
    /// The address that it claims as its source, or its destination.
    address: u32,
    number: u64,
}

impl Packet for Datagram {
    fn size(&self) -> Bytes {
        Bytes::new(self.bytes.len() as u64 + HEADERS)
    }
}

impl Airborne for Datagram {
    fn station(&self) -> u32 {
        self.station
    }
}

/// With which probability which harm comes to a datagram.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) loss: f64,
    pub(crate) copy: f64,
    pub(crate) damage: f64,
}

/// One bit of one datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit {
    /// The type of the message, byte 3 of it.
    pub(crate) message: u8,
    /// Datagrams of that type that leave unharmed before.
    pub(crate) after: u32,
    /// The bit, counted from the least significant bit of the first byte.
    pub(crate) bit: usize,
}

/// A client at a station, with a clock of its own.
pub(crate) struct Host {
    pub(crate) client: Client,
    /// How far its clock is ahead.
    clock_ahead: Span,
    pub(crate) address: u32,
    pub(crate) delays: SpanHistogram,
    /// The maximum difference between the reported and the true delay.
    pub(crate) delay_error: Span,
    /// Numbers of the packets of its present server that have come.
    pub(crate) seen: BTreeMap<u64, u32>,
    pub(crate) events: Vec<String>,
    pub(crate) payload_bytes: u64,
    /// Nothing comes in or out.
    pub(crate) is_cut: bool,
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) server: Server<u32>,
    pub(crate) hosts: Vec<Host>,
    /// Bytes of payload offered to a client at a time; 0: nothing to send.
    pub(crate) payload: usize,
    pub(crate) faults: Faults,
    pub(crate) server_is_cut: bool,
    /// A datagram that is damaged.
    pub(crate) hit: Option<Hit>,
    law: DownlinkLawConfig,
    conditions: Conditions<Datagram>,
    frames: BTreeMap<u64, Received>,
    rng: Pcg64,
    sent: u64,
    lives: u8,
}

/// 390 Mbit/s between the access point and each station, and 0.5 ms of backhaul in each direction.
const CELL: &str = "
    [[forward.hop]]
    delay = '0.5ms'
    [[reverse.hop]]
    delay = '0.5ms'
    [wlan]
    standard = '802.11ac'
    rate = 'mcs9'
    width = '80MHz'
    queue = '500p'
";

pub(crate) fn law(text: &str) -> DownlinkLawConfig {
    #[derive(serde::Deserialize)]
    struct File {
        law: DownlinkLawConfig,
    }
    toml::from_str::<File>(&format!("law = {text}")).unwrap().law
}

fn server(law: &DownlinkLawConfig, life: u8) -> Server<u32> {
    let params = ServerParams { interval: law.downlink().interval, ..ServerParams::default() };
    Server::new(params, law.build().unwrap(), Secret::new([life; 16]))
}

impl World {
    pub(crate) fn new(clients: u32, law: DownlinkLawConfig, seed: u64) -> Self {
        let now = Time::ZERO + Span::from_secs(1);
        let rng = &mut Pcg64::seed_from_u64(seed);
        let hosts = (1..=clients).map(|station| {
            let params = ClientParams { name: format!("tv-{station}"), ..ClientParams::default() };
            let counter = Box::new(Aggregation::new(AggregationParams::default()));
            let clock_ahead = Span::from_millis(rng.random_range(0..100_000));
            Host {
                client: Client::new(params, SessionId(rng.random()), counter, now + clock_ahead)
                    .unwrap(),
                clock_ahead,
                address: station,
                delays: SpanHistogram::default(),
                delay_error: Span::ZERO,
                seen: BTreeMap::new(),
                events: Vec::new(),
                payload_bytes: 0,
                is_cut: false,
            }
        });
        Self {
            now,
            hosts: hosts.collect(),
            server: server(&law, 1),
            payload: PAYLOAD,
            faults: Faults::default(),
            server_is_cut: false,
            hit: None,
            law,
            conditions: toml::from_str::<ConditionsConfig>(CELL)
                .unwrap()
                .build(seed, clients as usize)
                .unwrap(),
            frames: BTreeMap::new(),
            rng: Pcg64::seed_from_u64(seed ^ 1),
            sent: 0,
            lives: 1,
        }
    }

    /// Another process takes the server's place; it knows no clients.
    pub(crate) fn restart_server(&mut self) {
        self.lives += 1;
        self.server = server(&self.law, self.lives);
        for host in &mut self.hosts {
            host.seen.clear();
        }
    }

    /// Clears the measurements.
    pub(crate) fn begin_measuring(&mut self) {
        for host in &mut self.hosts {
            host.delays = SpanHistogram::default();
            host.delay_error = Span::ZERO;
            host.payload_bytes = 0;
        }
    }

    /// A datagram of a stranger, or of a client in the name of another address.
    pub(crate) fn inject(&mut self, station: u32, address: u32, bytes: &[u8]) {
        self.send(Direction::Forward, station, address, bytes.to_vec());
    }

    pub(crate) fn run(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            self.deliver();
            self.step_server();
            self.step_clients();
            let clients = self.hosts.iter().filter_map(|host| {
                let at = host.client.poll_timeout()?;
                Some(Time::ZERO + (at.since(Time::ZERO) - host.clock_ahead))
            });
            let next = clients
                .chain(self.conditions.poll_timeout())
                .chain(self.server.poll_timeout())
                .min();
            match next.filter(|next| *next < end) {
                Some(next) => self.now = self.now.max(next),
                None => break,
            }
        }
        self.now = end;
    }

    fn step_server(&mut self) {
        let mut out = Vec::new();
        loop {
            self.server.handle_timeout(self.now);
            while let Some(event) = self.server.poll_event() {
                let ServerEvent::PacketWanted(client) = event else { continue };
                if self.payload == 0 {
                    self.server.pause(self.now, client);
                } else {
                    self.server.put(self.now, client, &[7; 1400][..self.payload]).unwrap();
                }
            }
            while let Some(transmit) = self.server.poll_transmit(self.now, &mut out) {
                let (address, bytes) = (transmit.peer, out[..transmit.len].to_vec());
                self.send(Direction::Reverse, address % 100, address, bytes);
            }
            if self.server.poll_timeout().is_none_or(|at| at > self.now) {
                return;
            }
        }
    }

    fn step_clients(&mut self) {
        let mut out = Vec::new();
        for index in 0..self.hosts.len() {
            let host = &mut self.hosts[index];
            let now = self.now + host.clock_ahead;
            host.client.handle_timeout(now);
            while let Some(event) = host.client.poll_event() {
                host.events.push(format!("{event:?}"));
            }
            if let Some(transmit) = host.client.poll_transmit(now, &mut out) {
                let (address, bytes) = (host.address, out[..transmit.len].to_vec());
                self.send(Direction::Forward, index as u32 + 1, address, bytes);
            }
        }
    }

    fn send(&mut self, way: Direction, station: u32, address: u32, mut bytes: Vec<u8>) {
        let is_cut = self.server_is_cut || self.hosts[station as usize - 1].is_cut;
        if is_cut || self.rng.random_bool(self.faults.loss) {
            return;
        }
        if self.rng.random_bool(self.faults.damage) {
            let at = self.rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << self.rng.random_range(0..8);
        }
        if let Some(hit) = self.hit.as_mut().filter(|hit| bytes.get(3) == Some(&hit.message)) {
            if hit.after > 0 {
                hit.after -= 1;
            } else {
                if let Some(byte) = bytes.get_mut(hit.bit / 8) {
                    *byte ^= 1 << (hit.bit % 8);
                }
                self.hit = None;
            }
        }
        let copies = 1 + usize::from(self.rng.random_bool(self.faults.copy));
        for _ in 0..copies {
            let number = self.sent;
            self.sent += 1;
            let datagram = Datagram { bytes: bytes.clone(), station, address, number };
            self.conditions.enqueue(self.now, way, datagram, &mut |_| {});
        }
    }

    fn deliver(&mut self) {
        let Self { conditions, frames, now, .. } = self;
        conditions.advance(*now, &mut |_| {}, &mut |passage| {
            if let Passage::Air(come) = passage {
                frames.insert(come.packet.number, come.frame);
            }
        });
        while let Some(come) = self.conditions.poll(self.now, Direction::Reverse, &mut |_| {}) {
            self.reach_client(come.at, &come.packet);
        }
        while let Some(come) = self.conditions.poll(self.now, Direction::Forward, &mut |_| {}) {
            self.reach_server(come.at, &come.packet);
        }
    }

    fn reach_client(&mut self, at: Time, datagram: &Datagram) {
        let frame = self.frames.remove(&datagram.number);
        let host = &mut self.hosts[datagram.station as usize - 1];
        if host.is_cut || host.address != datagram.address {
            return;
        }
        let ahead = host.clock_ahead;
        let now = self.now + ahead;
        let rate = frame.map_or(BitRate::from_mbps(1), |frame| frame.rate);
        let stamp = Stamp { at: frame.map_or(at, |frame| frame.at), rate };
        let received = ReceivedDatagram::at(at + ahead, &datagram.bytes);
        let _ = host.client.handle_stamped_datagram(now, stamp, received);
        while let Some(event) = host.client.poll_event() {
            let ClientEvent::Packet(packet) = event else {
                host.events.push(format!("{event:?}"));
                continue;
            };
            *host.seen.entry(packet.seq).or_default() += 1;
            host.payload_bytes += packet.payload.len() as u64;
            let truth = at.since(packet.sent_at);
            host.delays.record(truth);
            if let Some(delay) = packet.delay {
                let error = (delay - truth).max(truth - delay);
                host.delay_error = host.delay_error.max(error);
            }
        }
    }

    fn reach_server(&mut self, at: Time, datagram: &Datagram) {
        self.frames.remove(&datagram.number);
        if self.server_is_cut {
            return;
        }
        let (address, len) = (datagram.address, datagram.bytes.len());
        let received = ReceivedDatagram::at(at, &datagram.bytes);
        let _ = self.server.handle_datagram(self.now, address, received);
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Joined { client, .. } => {
                    assert_eq!(self.server.client(client).unwrap().peer, address);
                }
                // It is asked for again below.
                ServerEvent::PacketWanted(client) => self.server.resume(self.now, client),
                _ => {}
            }
        }
        let mut out = Vec::new();
        while let Some(answer) = self.server.poll_answer(&mut out) {
            assert!(answer.len <= len, "an answer longer than its question");
            assert_eq!(answer.peer, address);
            self.send(Direction::Reverse, address % 100, address, out[..answer.len].to_vec());
        }
    }
}
