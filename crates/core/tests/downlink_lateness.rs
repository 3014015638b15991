//! Downlinks of busy hosts: server, relay and client are stalled repeatedly, in virtual time.

use std::collections::VecDeque;

use freshline_core::session::downlink::{
    Client, ClientParams, ReceivedDatagram, Server, ServerEvent, ServerParams, Stamp,
};
use freshline_core::session::{Admission, Secret};
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wire::SessionId;
use freshline_core::wlan::{Aggregation, AggregationParams, Fixed};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// One-way delay.
const DELAY: Span = Span::from_millis(5);
/// IP packets.
const BITS: f64 = 12_000.0;
const PAYLOAD: usize = 1500 - 28 - freshline_core::wire::Packet::HEADER_LEN;

fn at(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

/// When a process has the processor: for `runs`, then not for `stalls`, in turn, both in ms and
/// drawn each time.
#[derive(Debug, Clone, Copy)]
struct Busy {
    runs: (f64, f64),
    stalls: (f64, f64),
}

const IDLE: Busy = Busy { runs: (1e9, 2e9), stalls: (0.0, 0.1) };

struct Processor {
    busy: Busy,
    rng: Pcg64,
    /// The next stall.
    from: Time,
    until: Time,
}

impl Processor {
    fn new(busy: Busy, seed: u64) -> Self {
        let rng = Pcg64::seed_from_u64(seed);
        let mut processor = Self { busy, rng, from: Time::ZERO, until: Time::ZERO };
        processor.draw();
        processor
    }

    fn draw(&mut self) {
        let Busy { runs, stalls } = self.busy;
        let mut ms = |(from, to): (f64, f64)| self.rng.random_range(from..to) / 1e3;
        let [runs, stalls] = [runs, stalls].map(&mut ms).map(Span::from_secs_f64);
        self.from = self.until + runs;
        self.until = self.from + stalls;
    }

    /// When it handles an event that is due at `due`; successive calls must not go back in time.
    fn gets_to(&mut self, due: Time) -> Time {
        while self.until <= due {
            self.draw();
        }
        if due < self.from { due } else { self.until }
    }
}

/// The path, and how busy the hosts are.
#[derive(Debug, Clone, Copy)]
struct Setup {
    law_mbps: u64,
    link_mbps: f64,
    /// In packets.
    queue: usize,
    server: Busy,
    relay: Busy,
    client: Busy,
    guard: bool,
    seed: u64,
}

#[derive(Debug)]
struct Outcome {
    /// From 10 s to 25 s, in Mbit/s.
    goodput: f64,
    /// The most sent in 5 s of these.
    worst: f64,
    /// The lowest limit in this time.
    limit: Option<f64>,
}

/// A server, a client and the relay between them, each of which may be late.
struct World {
    setup: Setup,
    server: Server<u8>,
    client: Client,
    of_server: Processor,
    of_relay: Processor,
    of_client: Processor,
    /// Each host's clock: it goes on only when the host runs.
    server_now: Time,
    client_now: Time,
    departures: VecDeque<Time>,
    to_client: VecDeque<(Time, Vec<u8>)>,
    to_server: VecDeque<(Time, Vec<u8>)>,
    /// In bits of 0.1 s, from 10 s on.
    sent: Vec<f64>,
    came: f64,
    limit: Option<f64>,
    out: Vec<u8>,
}

fn run(setup: Setup) -> Outcome {
    let (mut world, end) = (World::new(setup), at(25.0));
    loop {
        let heard = world.to_server.front().map(|(at, _)| *at);
        let server_due = Time::earliest([world.server.poll_timeout(), heard]);
        let came_at = world.to_client.front().map(|(at, _)| *at);
        let client_due = Time::earliest([came_at, world.client.poll_timeout()]).unwrap();
        if server_due.is_none_or(|due| due > client_due) {
            world.client_now = world.of_client.gets_to(client_due.max(world.client_now));
            if world.client_now >= end {
                break;
            }
            world.run_client();
        } else {
            let due = server_due.unwrap().max(world.server_now);
            world.server_now = world.of_server.gets_to(due);
            if world.server_now >= end {
                break;
            }
            world.run_server();
        }
    }
    let sums = world.sent.windows(50).map(|bins| bins.iter().sum::<f64>() / 5e6);
    Outcome { goodput: world.came / 15e6, worst: sums.fold(0.0, f64::max), limit: world.limit }
}

/// The next datagram that has arrived by `now`, with when.
fn arrived(queue: &mut VecDeque<(Time, Vec<u8>)>, now: Time) -> Option<(Time, Vec<u8>)> {
    let is_there = queue.front().is_some_and(|(received_at, _)| *received_at <= now);
    is_there.then(|| queue.pop_front()).flatten()
}

impl World {
    fn new(setup: Setup) -> Self {
        let params = ServerParams {
            admission: Admission::Proven,
            guard: setup.guard,
            ..ServerParams::default()
        };
        let law = Box::new(Fixed::new(BitRate::from_mbps(setup.law_mbps)));
        let counter = Box::new(Aggregation::new(AggregationParams::default()));
        let client = Client::new(ClientParams::default(), SessionId(5), counter, Time::ZERO);
        let processor = |busy, number| Processor::new(busy, setup.seed * 10 + number);
        Self {
            server: Server::new(params, law, Secret::new([7; 16])),
            client: client.unwrap(),
            of_server: processor(setup.server, 1),
            of_relay: processor(setup.relay, 2),
            of_client: processor(setup.client, 3),
            server_now: Time::ZERO,
            client_now: Time::ZERO,
            departures: VecDeque::new(),
            to_client: VecDeque::new(),
            to_server: VecDeque::new(),
            sent: vec![0.0; 150],
            came: 0.0,
            limit: None,
            out: Vec::new(),
            setup,
        }
    }

    fn run_client(&mut self) {
        let now = self.client_now;
        while let Some((received_at, bytes)) = arrived(&mut self.to_client, now) {
            let stamp = Stamp { at: received_at, rate: BitRate::from_mbps(390) };
            let datagram = ReceivedDatagram::at(received_at, &bytes);
            _ = self.client.handle_stamped_datagram(now, stamp, datagram);
            while self.client.poll_event().is_some() {}
            if received_at >= at(10.0) {
                self.came += BITS;
            }
        }
        self.client.handle_timeout(now);
        while let Some(transmit) = self.client.poll_transmit(now, &mut self.out) {
            self.to_server.push_back((now + DELAY, self.out[..transmit.len].to_vec()));
        }
    }

    fn run_server(&mut self) {
        let now = self.server_now;
        while let Some((received_at, bytes)) = arrived(&mut self.to_server, now) {
            let _ = self.server.handle_datagram(now, 1, ReceivedDatagram::at(received_at, &bytes));
        }
        self.server.handle_timeout(now);
        while let Some(event) = self.server.poll_event() {
            if let ServerEvent::PacketWanted(client) = event {
                self.server.put(now, client, &[7; PAYLOAD]).unwrap();
            }
        }
        let Some(transmit) = self.server.poll_transmit(now, &mut self.out) else { return };
        let key = transmit.client.expect("there are no answers where addresses are proven");
        if now >= at(10.0) {
            self.sent[(now.since(at(10.0)).as_secs_f64() * 10.0) as usize] += BITS;
            let limit = self.server.limit(key).map(|(limit, _)| limit.as_bps() as f64 / 1e6);
            self.limit = limit.map(|limit| self.limit.unwrap_or(limit).min(limit));
        }
        while self.departures.front().is_some_and(|leaves| *leaves <= now) {
            self.departures.pop_front();
        }
        if self.departures.len() <= self.setup.queue {
            let begins = self.departures.back().map_or(now, |last| (*last).max(now));
            let leaves = begins + Span::from_secs_f64(BITS / self.setup.link_mbps / 1e6);
            self.departures.push_back(leaves);
            let comes = self.of_relay.gets_to(leaves + DELAY);
            self.to_client.push_back((comes, self.out[..transmit.len].to_vec()));
        }
    }
}

/// Each runs a third of the time.
const BUSY: Busy = Busy { runs: (0.5, 25.0), stalls: (5.0, 50.0) };
/// It gets the processor for a moment now and then.
const OVERLOADED: Busy = Busy { runs: (0.05, 1.0), stalls: (5.0, 50.0) };

const PLAIN: Setup = Setup {
    law_mbps: 40,
    link_mbps: 1000.0,
    queue: 500,
    server: IDLE,
    relay: IDLE,
    client: IDLE,
    guard: true,
    seed: 0,
};

#[test]
fn busy_hosts_are_not_taken_for_a_slow_backhaul() {
    let setups = [
        Setup { server: BUSY, ..PLAIN },
        Setup { relay: BUSY, client: BUSY, ..PLAIN },
        Setup { server: BUSY, relay: BUSY, client: BUSY, ..PLAIN },
        Setup { server: OVERLOADED, relay: OVERLOADED, client: OVERLOADED, ..PLAIN },
    ];
    for (setup, seed) in setups.into_iter().flat_map(|setup| (1..4).map(move |seed| (setup, seed)))
    {
        let alone = run(Setup { guard: false, seed, ..setup });
        let guarded = run(Setup { seed, ..setup });
        println!("{seed}: {guarded:?}, {:.2} without", alone.goodput);
        assert!(guarded.goodput >= 0.95 * alone.goodput, "{guarded:?} for {alone:?}: {setup:?}");
        assert!(guarded.limit >= Some(40.0), "below the law's rate: {guarded:?}, {setup:?}");
    }
}

#[test]
fn behind_a_slow_backhaul_busy_hosts_keep_the_bound_and_use_it() {
    let all = [(BUSY, IDLE), (IDLE, BUSY), (BUSY, BUSY)];
    for (link_mbps, queue) in [(12.0, 20), (12.0, 100), (6.0, 500)] {
        for ((server, others), seed) in all.into_iter().zip(1..) {
            let [relay, client] = [others; 2];
            let setup = Setup { link_mbps, queue, server, relay, client, seed, ..PLAIN };
            let alone = run(Setup { guard: false, ..setup });
            let guarded = run(setup);
            println!("{guarded:?}, {:.2} without: {link_mbps} {queue} {seed}", alone.goodput);
            assert!(guarded.worst <= 1.1 * link_mbps, "{guarded:?}: {setup:?}");
            // A server that runs a third of the time would need three times the rate while it runs,
            // but its limit is raised only to the rate that is safe if it runs all the time.
            let least = if server.stalls.1 > 1.0 { 0.6 } else { 0.9 };
            assert!(
                guarded.goodput >= least * alone.goodput,
                "{guarded:?} for {alone:?}: {setup:?}"
            );
        }
    }
}
