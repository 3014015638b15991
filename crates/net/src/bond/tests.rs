//! Both ends of a connection over two paths, in virtual time, without sockets.

mod path_mtu;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use freshline_core::path::{self, Choice, PathState, Scheduler, SendState};
use freshline_core::unit::Time;
use noq_proto::{DatagramEvent, Dir, Endpoint, EndpointConfig, FourTuple, PathStatus, StreamId};

use super::fairness::Bottleneck;
use super::flooded::Devices;
use super::incoming::{Incoming, read};
use super::link::{Link, LinkEvent};
use super::paths::Paths;
use super::{Sending, config};
use crate::clock::Clock;
use crate::quic::{Clients, Identity, Trust};

pub(super) const SERVER: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 3775);
const DELAYS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(30)];

/// The client's address on each path.
fn home(path: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, path as u8, 1).into()
}

/// The number of a path of the client.
pub(super) fn path_of(network: FourTuple) -> usize {
    usize::from(network.local_ip() == Some(home(1)))
}

/// Always chooses the same path, or no path.
#[derive(Debug)]
struct Only(Option<u8>);

impl Scheduler for Only {
    fn name(&self) -> &'static str {
        "only"
    }

    fn choose(&mut self, _now: Time, _flow: &SendState, paths: &[PathState]) -> Choice {
        let wanted = paths.iter().find(|state| Some(state.id.0) == self.0 && state.has_room());
        wanted.map_or(Choice::Wait, |state| Choice::Send(state.id))
    }
}

struct SentPacket {
    at: Instant,
    path: usize,
    size: usize,
    gated: Option<usize>,
    train: usize,
}

/// Datagrams in flight, by arrival time and serial number: the path and the bytes.
type Air = BTreeMap<(Instant, usize), (usize, Vec<u8>)>;

pub(super) struct World {
    pub(super) now: Instant,
    quic: noq_proto::ClientConfig,
    sending: Sending,
    ends: [(Endpoint, Option<Link>); 2],
    /// Datagrams in flight to the client, and to the server.
    air: [Air; 2],
    serial: usize,
    /// Paths that carry nothing.
    cut: [bool; 2],
    /// An end that does nothing, like a stopped process.
    pub(super) paused: Option<usize>,
    /// The one-way delay per path.
    pub(super) delays: [Duration; 2],
    /// The largest UDP payload per path, in bytes.
    payloads: [usize; 2],
    /// The client's packets pass this, on either path.
    pub(super) bottleneck: Option<Rc<RefCell<Bottleneck>>>,
    /// The client's devices; without them its packets leave at once, and queues are unknown.
    pub(super) devices: Option<Devices>,
    sent: Vec<SentPacket>,
    events: VecDeque<(usize, LinkEvent)>,
    schedulers: [Option<Box<dyn Scheduler>>; 2],
}

pub(super) const CLIENT: usize = 0;
const FAR: usize = 1;

impl World {
    /// Two connected ends, with two paths that can carry data.
    fn new(client: Box<dyn Scheduler>, server: Box<dyn Scheduler>) -> Self {
        Self::with(client, server, Sending::default())
    }

    fn with(client: Box<dyn Scheduler>, server: Box<dyn Scheduler>, sending: Sending) -> Self {
        Self::paths(2, client, server, sending)
    }

    /// With one or two paths.
    pub(super) fn paths(
        count: usize,
        client: Box<dyn Scheduler>,
        server: Box<dyn Scheduler>,
        sending: Sending,
    ) -> Self {
        Self::carrying(config::USUAL_PAYLOAD, count, client, server, sending)
    }

    /// The same, with client devices that accept packets of this UDP payload.
    fn carrying(
        max_payload: u16,
        count: usize,
        client: Box<dyn Scheduler>,
        server: Box<dyn Scheduler>,
        sending: Sending,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ours = Identity::from_state_dir(&dir.path().join("c")).unwrap();
        let theirs = Identity::from_state_dir(&dir.path().join("s")).unwrap();
        let clients = Clients::Pinned(vec![ours.fingerprint()]);
        let (endpoint, quic) = config::server(&theirs, &clients, &sending).unwrap();
        let far = Endpoint::new(Arc::new(endpoint), Some(Arc::new(quic)), true);
        let mut near = Endpoint::new(Arc::new(EndpointConfig::default()), None, true);
        let trust = Trust::Pinned(theirs.fingerprint());
        let quic = config::client(&trust, &ours).unwrap();
        let quic = config::next_client(&quic, &sending, max_payload);
        let clock = Clock::new();
        let now = clock.instant_of(clock.now());
        let (handle, connection) = near.connect(now, quic.clone(), SERVER, "far").unwrap();
        let paths = Paths::new(client, &sending, now);
        let mut world = Self {
            now,
            quic,
            sending,
            ends: [(near, Some(Link::new(handle, connection, paths, &sending))), (far, None)],
            air: Default::default(),
            serial: 0,
            cut: [false; 2],
            paused: None,
            delays: DELAYS,
            payloads: [max_payload.into(), config::USUAL_PAYLOAD.into()],
            bottleneck: None,
            devices: None,
            sent: Vec::new(),
            events: VecDeque::new(),
            schedulers: [None, Some(server)],
        };
        world.run(Duration::from_millis(300));
        assert!(world.link(CLIENT).is_ready);
        if count == 1 {
            return world;
        }
        let network = FourTuple::new(SERVER, Some(home(1)));
        let now = world.now;
        let link = world.link(CLIENT);
        link.connection.open_path(network, PathStatus::Available, now).unwrap();
        world.run(Duration::from_millis(300));
        for end in [CLIENT, FAR] {
            let up = world.link(end).paths.all().iter().filter(|path| path.is_established);
            assert_eq!(up.count(), 2);
        }
        world.sent.clear();
        world
    }

    pub(super) fn link(&mut self, end: usize) -> &mut Link {
        self.ends[end].1.as_mut().unwrap()
    }

    pub(super) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            for end in [CLIENT, FAR] {
                self.turn(end);
            }
            let paused = self.paused;
            let runs = move |end: &usize| paused != Some(*end);
            let ends = || [CLIENT, FAR].into_iter().filter(runs);
            let air = ends().filter_map(|end| Some(self.air[end].keys().next()?.0));
            let links = ends().filter_map(|end| self.ends[end].1.as_ref());
            let timers = links.filter_map(|link| link.poll_timeout(self.now));
            let next = air.chain(timers).min().unwrap_or(end);
            if next > end {
                self.now = end;
                return;
            }
            // Events that are due now are handled in the next round; time always passes in between.
            self.now = next.max(self.now + Duration::from_micros(10));
            for end in [CLIENT, FAR] {
                self.deliver(end);
            }
        }
    }

    fn deliver(&mut self, end: usize) {
        while self.paused != Some(end)
            && let Some(entry) = self.air[end].first_entry()
            && entry.key().0 <= self.now
        {
            let (path, bytes) = entry.remove();
            let network = match end {
                CLIENT => FourTuple::new(SERVER, Some(home(path))),
                _ => FourTuple::new((home(path), 4000).into(), None),
            };
            let (endpoint, link) = &mut self.ends[end];
            let mut reply = Vec::new();
            match endpoint.handle(self.now, network, None, bytes[..].into(), &mut reply) {
                Some(DatagramEvent::ConnectionEvent(_, event)) => {
                    let link = link.as_mut().unwrap();
                    link.on_received(event, self.now);
                }
                Some(DatagramEvent::NewConnection(incoming)) => {
                    let (handle, connection) =
                        endpoint.accept(incoming, self.now, &mut reply, None).unwrap();
                    let scheduler = self.schedulers[end].take().unwrap();
                    *link = Some(Link::new(
                        handle,
                        connection,
                        Paths::new(scheduler, &self.sending, self.now),
                        &self.sending,
                    ));
                }
                other => assert!(other.is_none()),
            }
        }
    }

    fn turn(&mut self, end: usize) {
        if self.paused == Some(end) {
            return;
        }
        let now = self.now;
        let (endpoint, Some(link)) = &mut self.ends[end] else { return };
        link.connection.handle_timeout(now);
        link.settle(endpoint);
        while let Some(event) = link.poll_event() {
            self.events.push_back((end, event));
            link.settle(endpoint);
        }
        match &mut self.devices {
            Some(devices) if end == CLIENT => link.begin(devices, now),
            _ => link.begin(&mut (), now),
        }
        let mut buf = Vec::new();
        while let Some(leaving) = {
            buf.clear();
            link.paths.poll_transmit(&mut link.connection, now, &mut buf)
        } {
            let transmit = leaving.transmit;
            let path = match (end, transmit.src_ip) {
                (CLIENT, Some(ip)) => usize::from(ip == home(1)),
                (CLIENT, None) => 0,
                (_, _) => usize::from(transmit.destination.ip() == home(1)),
            };
            let of = |id| link.connection.network_path(id).unwrap();
            let gated = leaving.gated.map(|id| match end {
                CLIENT => usize::from(of(id).local_ip() == Some(home(1))),
                _ => usize::from(of(id).remote().ip() == home(1)),
            });
            let (size, train) = (transmit.size, leaving.train);
            self.sent.push(SentPacket { at: now, path, size, gated, train });
            let bottleneck = self.bottleneck.as_ref().filter(|_| end == CLIENT);
            let passed = match (&mut self.devices, bottleneck) {
                (Some(devices), _) if end == CLIENT => devices.pass(now, path, transmit.size),
                (_, Some(bottleneck)) => bottleneck.borrow_mut().pass(now, transmit.size),
                _ => Some(now),
            };
            let is_carried = !self.cut[path] && transmit.size <= self.payloads[path];
            if let Some(at) = passed.filter(|_| is_carried) {
                self.serial += 1;
                let bytes = buf[..transmit.size].to_vec();
                self.air[1 - end].insert((at + self.delays[path], self.serial), (path, bytes));
            }
        }
    }

    /// Writes this many bytes to a new stream of the client; returns how many of them the far end
    /// has read `within` the time.
    fn upload(&mut self, bytes: usize, within: Duration) -> usize {
        let stream = self.link(CLIENT).connection.streams().open(Dir::Bi).unwrap();
        let (mut written, mut got) = (0, 0);
        let data = vec![7; bytes];
        let end = self.now + within;
        while self.now < end && got < bytes {
            let link = self.link(CLIENT);
            if let Ok(taken) = link.connection.send_stream(stream).write(&data[written..]) {
                written += taken;
                link.paths.on_written(taken as u64);
            }
            self.run(Duration::from_millis(1));
            got += self.drain(stream);
        }
        got
    }

    pub(super) fn drain(&mut self, stream: StreamId) -> usize {
        let mut got = 0;
        self.read(stream, |bytes| got += bytes.len());
        got
    }

    /// Reads the bytes of a stream that have arrived at the far end, in order.
    pub(super) fn read(&mut self, stream: StreamId, mut on_bytes: impl FnMut(&[u8])) {
        let link = self.link(FAR);
        // A stream exists at the far end once some of its data has arrived.
        while link.connection.streams().accept(Dir::Bi).is_some() {}
        while let Incoming::Bytes(bytes) = read(&mut link.connection, stream, 1 << 16) {
            on_bytes(&bytes);
        }
    }
}

fn only(path: Option<u8>) -> Box<dyn Scheduler> {
    Box::new(Only(path))
}

#[test]
fn no_data_leaves_by_the_wrong_path() {
    for chosen in 0..2 {
        let mut world = World::new(only(Some(chosen)), only(Some(0)));
        assert_eq!(world.upload(2_000_000, Duration::from_secs(60)), 2_000_000);
        let began_at = world.sent[0].at;
        let lasted = world.now - began_at;
        let wrong = world.sent.iter().filter(|sent| sent.path != usize::from(chosen));
        // Without a choice of the scheduler, the client sends a datagram on a path every 250 ms.
        // Path MTU probes, pings, and the far end's acks need no gate.
        let full: Vec<_> = wrong.filter(|sent| sent.size > 300 && sent.gated.is_some()).collect();
        let looks = lasted.as_millis() / 250 + 1;
        assert!(full.len() as u128 <= looks, "{} full datagrams in {lasted:?}", full.len());
        // Few full datagrams leave without a gate: loss probes, which may carry data, and MTU
        // probes.
        let unasked = |sent: &&SentPacket| sent.path != usize::from(chosen) && sent.gated.is_none();
        let unasked = world.sent.iter().filter(unasked).filter(|sent| sent.size > 300).count();
        assert!(unasked <= 10, "{unasked} full datagrams left without an open gate");
        for sent in world.sent.iter().filter(|sent| sent.size > 1000) {
            let is_as_chosen = sent.gated.is_none_or(|gated| gated == sent.path);
            assert!(is_as_chosen, "{} bytes for {:?} by {}", sent.size, sent.gated, sent.path);
        }
    }
}

#[test]
fn packets_become_as_large_as_each_path_carries() {
    let sending = Sending::default();
    let mut world = World::carrying(u16::MAX, 2, only(Some(0)), only(Some(0)), sending);
    world.run(Duration::from_secs(20));
    let paths = world.link(CLIENT).paths.all();
    let ids: Vec<_> = paths.iter().map(|path| path.id).collect();
    let connection = &mut world.link(CLIENT).connection;
    let mtus = ids.iter().map(|id| connection.path_stats(*id).unwrap().current_mtu);
    let mtus: Vec<_> = mtus.collect();
    assert!(mtus[0] == 16 * 1024 && (1400..=1452).contains(&mtus[1]), "{mtus:?}");
    world.sent.clear();
    assert_eq!(world.upload(4_000_000, Duration::from_secs(20)), 4_000_000);
    let packets = world.sent.iter().filter(|sent| sent.size > 1000).count();
    assert!(packets < 2 * 4_000_000 / (16 * 1024), "{packets}");
}

#[test]
fn all_gates_closed_is_waiting_and_acks_go_all_the_same() {
    // The client has data, but its scheduler chooses no path. The far end sends, and needs the
    // client's acks.
    let mut world = World::new(only(None), only(Some(0)));
    let stream = world.link(CLIENT).connection.streams().open(Dir::Bi).unwrap();
    world.link(CLIENT).connection.send_stream(stream).write(&[1; 100_000]).unwrap();
    world.run(Duration::from_secs(2));
    let full = world.sent.iter().filter(|sent| sent.size > 1000 && sent.gated.is_some()).count();
    // One datagram per path every 250 ms.
    assert!(full <= 18, "{full} datagrams");
    assert!(world.drain(stream) < 100_000);
    assert_eq!(world.link(FAR).connection.send_stream(stream).write(&[2; 400_000]), Ok(400_000));
    let mut got = 0;
    for _ in 0..3000 {
        world.run(Duration::from_millis(1));
        let link = world.link(CLIENT);
        while let Incoming::Bytes(bytes) = read(&mut link.connection, stream, 1 << 16) {
            got += bytes.len();
        }
    }
    assert_eq!(got, 400_000);
}

#[test]
fn a_path_that_is_cut_costs_a_stream_nothing_but_time() {
    let scheduler = || Sending::default().scheduler.build().unwrap();
    let mut world = World::new(scheduler(), scheduler());
    assert_eq!(world.upload(500_000, Duration::from_secs(20)), 500_000);
    for cut in [1, 0] {
        world.cut[cut] = true;
        // Without a pause, as fast as the remaining path allows.
        assert_eq!(world.upload(500_000, Duration::from_secs(4)), 500_000, "path {cut}");
        world.run(Duration::from_secs(3));
        let gone = world.events.iter().any(|(_, event)| matches!(event, LinkEvent::PathGone(_)));
        assert!(gone, "path {cut} is cut, but is not reported as gone");
        world.cut[cut] = false;
        let network = FourTuple::new(SERVER, Some(home(cut)));
        let now = world.now;
        let opened = world.link(CLIENT).connection.open_path(network, PathStatus::Available, now);
        assert!(opened.is_ok(), "{opened:?}");
        world.run(Duration::from_secs(1));
        world.events.clear();
        let up = world.link(CLIENT).paths.all().iter().filter(|path| path.is_established);
        assert_eq!(up.count(), 2);
    }
}

#[test]
fn a_connection_that_has_ended_is_not_ended_in_the_place_of_the_next() {
    let mut world = World::new(only(Some(0)), only(Some(0)));
    let (endpoint, link) = &mut world.ends[CLIENT];
    let mut link = link.take().unwrap();
    let later = world.now + Duration::from_secs(60);
    link.connection.handle_timeout(later);
    assert!(link.settle(endpoint), "it was silent for longer than the idle timeout");
    assert_eq!(endpoint.open_connections(), 0);
    endpoint.connect(later, world.quic, SERVER, "far").unwrap();
    link.forget(endpoint);
    assert_eq!(endpoint.open_connections(), 1, "the next connection still exists");
    // A connection that has not ended is removed.
    let mut world = World::new(only(Some(0)), only(Some(0)));
    let (endpoint, link) = &mut world.ends[CLIENT];
    link.take().unwrap().forget(endpoint);
    assert_eq!(endpoint.open_connections(), 0);
}

#[test]
fn a_peer_has_an_end_hold_no_more_than_its_memory_whatever_its_streams() {
    let sending = Sending { stream_window: 200_000, memory: 1_000_000, ..Sending::default() };
    let mut world = World::with(only(Some(0)), only(Some(0)), sending);
    let streams: Vec<_> =
        (0..50).map(|_| world.link(CLIENT).connection.streams().open(Dir::Bi).unwrap()).collect();
    // The far end does not read.
    let mut taken = 0;
    for _ in 0..500 {
        for stream in &streams {
            let mut stream = world.link(CLIENT).connection.send_stream(*stream);
            taken += stream.write(&[7; 10_000]).unwrap_or(0);
        }
        world.run(Duration::from_millis(10));
    }
    let got: usize = streams.iter().map(|stream| world.drain(*stream)).sum();
    // The whole memory, except for the message with the first limit, which has its own stream.
    assert_eq!((taken, got), (999_984, 999_984));
}

#[test]
fn after_an_outage_of_all_paths_data_flows_again_within_a_second_or_so() {
    let scheduler = || Sending::default().scheduler.build().unwrap();
    let mut world = World::new(scheduler(), scheduler());
    let stream = world.link(CLIENT).connection.streams().open(Dir::Bi).unwrap();
    let offer = |world: &mut World, span| {
        let link = world.link(CLIENT);
        let taken = link.connection.send_stream(stream).write(&[7; 20_000]).unwrap_or(0);
        link.paths.on_written(taken as u64);
        world.run(span);
        world.drain(stream)
    };
    for _ in 0..200 {
        offer(&mut world, Duration::from_millis(5));
    }
    world.cut = [true; 2];
    for _ in 0..200 {
        offer(&mut world, Duration::from_millis(100));
    }
    world.cut = [false; 2];
    let mut waited = Duration::ZERO;
    while offer(&mut world, Duration::from_millis(10)) == 0 {
        waited += Duration::from_millis(10);
    }
    assert!(waited < Duration::from_millis(1_300), "{waited:?}");
}

#[test]
fn a_pause_of_either_end_closes_no_path() {
    for paused in [CLIENT, FAR] {
        let mut world = World::new(only(Some(1)), only(Some(0)));
        assert_eq!(world.upload(200_000, Duration::from_secs(20)), 200_000);
        // Data is in flight on one path; no answer is outstanding on the other.
        let stream = world.link(CLIENT).connection.streams().open(Dir::Bi).unwrap();
        let link = world.link(CLIENT);
        let taken = link.connection.send_stream(stream).write(&[7; 100_000]).unwrap_or(0);
        link.paths.on_written(taken as u64);
        world.run(Duration::from_millis(10));
        world.events.clear();
        world.paused = Some(paused);
        world.run(Duration::from_secs(6));
        // As after a suspend of the host: datagrams that arrived meanwhile are lost.
        world.air[paused].clear();
        world.paused = None;
        world.run(Duration::from_secs(2));
        let gone = world.events.iter().filter(|(_, it)| matches!(it, LinkEvent::PathGone(_)));
        assert_eq!(gone.count(), 0, "{paused} was paused");
    }
}

/// Records the maximum of the remaining window.
#[derive(Debug)]
struct Windows(Arc<AtomicU64>, Box<dyn Scheduler>);

impl Scheduler for Windows {
    fn name(&self) -> &'static str {
        "windows"
    }

    fn choose(&mut self, now: Time, flow: &SendState, paths: &[PathState]) -> Choice {
        self.0.fetch_max(flow.window_left.get(), Ordering::Relaxed);
        self.1.choose(now, flow, paths)
    }
}

#[test]
fn the_window_that_is_left_is_that_of_all_streams() {
    let seen = Arc::new(AtomicU64::new(0));
    let inner = || Sending::default().scheduler.build().unwrap();
    let sending = Sending { stream_window: 500_000, memory: 3_000_000, ..Sending::default() };
    let mut world = World::with(Box::new(Windows(Arc::clone(&seen), inner())), inner(), sending);
    for (streams, window) in [(1, 500_000), (2, 1_000_000), (8, 1_500_000)] {
        seen.store(0, Ordering::Relaxed);
        let open = |world: &mut World| world.link(CLIENT).connection.streams().open(Dir::Bi);
        let streams: Vec<_> = (0..streams).map(|_| open(&mut world).unwrap()).collect();
        for stream in &streams {
            let link = world.link(CLIENT);
            let taken = link.connection.send_stream(*stream).write(&[7; 20_000]).unwrap_or(0);
            link.paths.on_written(taken as u64);
        }
        world.run(Duration::from_millis(500));
        for stream in streams {
            world.drain(stream);
            let _ = world.link(CLIENT).connection.send_stream(stream).finish();
        }
        world.run(Duration::from_millis(500));
        let seen = seen.load(Ordering::Relaxed);
        assert!((window - 50_000..=window).contains(&seen), "{seen} of {window}");
    }
}

/// Counts the reports of a full receive window.
#[derive(Debug)]
struct Blocked(Arc<AtomicU64>, Box<dyn Scheduler>);

impl Scheduler for Blocked {
    fn name(&self) -> &'static str {
        "blocked"
    }

    fn choose(&mut self, now: Time, flow: &SendState, paths: &[PathState]) -> Choice {
        assert!(flow.window >= flow.window_left, "{flow:?}");
        self.1.choose(now, flow, paths)
    }

    fn on_blocked(&mut self, _now: Time, _path: path::PathId) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn schedulers_are_told_when_the_receive_window_is_full() {
    let inner = || Sending::default().scheduler.build().unwrap();
    let blocked = |sending| {
        let count = Arc::new(AtomicU64::new(0));
        let client = Box::new(Blocked(Arc::clone(&count), inner()));
        let mut world = World::with(client, inner(), sending);
        assert_eq!(world.upload(200_000, Duration::from_secs(20)), 200_000);
        count.load(Ordering::Relaxed)
    };
    assert_eq!(blocked(Sending::default()), 0);
    assert!(blocked(Sending { stream_window: 10_000, ..Sending::default() }) > 0);
}

#[test]
fn an_idle_connection_is_kept_alive_less_often() {
    let scheduler = || Sending::default().scheduler.build().unwrap();
    let mut world = World::new(scheduler(), scheduler());
    assert_eq!(world.upload(100_000, Duration::from_secs(20)), 100_000);
    world.run(Duration::from_secs(15));
    world.sent.clear();
    // Each end sends a ping and an answer per path: 8 datagrams in 15 s.
    world.run(Duration::from_secs(150));
    assert!(world.sent.len() <= 100, "{} datagrams in 150 s", world.sent.len());
    let up = world.link(CLIENT).paths.all().iter().filter(|path| path.is_established);
    assert_eq!(up.count(), 2);
}
