//! Both ends of a connection over two paths, in virtual time, without sockets.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshline_core::path::{Choice, Flow, PathState, Scheduler};
use freshline_core::unit::Time;
use noq_proto::{DatagramEvent, Dir, Endpoint, EndpointConfig, FourTuple, PathStatus, StreamId};

use super::flow::{Incoming, read};
use super::link::{Link, LinkEvent};
use super::paths::Paths;
use super::{Sending, config};
use crate::clock::Clock;
use crate::quic::{Clients, Identity, Trust};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 3775);
const DELAYS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(30)];

/// The client's address on either path.
fn home(path: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, path as u8, 1).into()
}

/// Always the same path, or none.
#[derive(Debug)]
struct Only(Option<u8>);

impl Scheduler for Only {
    fn name(&self) -> &'static str {
        "only"
    }

    fn choose(&mut self, _now: Time, _flow: &Flow, paths: &[PathState]) -> Choice {
        let wanted = paths.iter().find(|state| Some(state.id.0) == self.0 && state.has_room());
        wanted.map_or(Choice::Wait, |state| Choice::Send(state.id))
    }
}

struct Sent {
    at: Instant,
    path: usize,
    size: usize,
    gated: Option<usize>,
}

/// When, and which in order of sending: over which path, and what.
type Air = BTreeMap<(Instant, usize), (usize, Vec<u8>)>;

struct World {
    now: Instant,
    quic: noq_proto::ClientConfig,
    ends: [(Endpoint, Option<Link>); 2],
    /// Towards the client, and towards the server.
    air: [Air; 2],
    serial: usize,
    /// Paths that carry nothing.
    cut: [bool; 2],
    sent: Vec<Sent>,
    events: VecDeque<(usize, LinkEvent)>,
    schedulers: [Option<Box<dyn Scheduler>>; 2],
}

const CLIENT: usize = 0;
const FAR: usize = 1;

impl World {
    /// Connected, with two paths, which can carry data.
    fn new(client: Box<dyn Scheduler>, server: Box<dyn Scheduler>) -> Self {
        Self::with(client, server, Sending::default())
    }

    fn with(client: Box<dyn Scheduler>, server: Box<dyn Scheduler>, sending: Sending) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ours = Identity::from_state_dir(&dir.path().join("c")).unwrap();
        let theirs = Identity::from_state_dir(&dir.path().join("s")).unwrap();
        let clients = Clients::Pinned(vec![ours.fingerprint()]);
        let (endpoint, quic) = config::server(&theirs, &clients, &sending).unwrap();
        let far = Endpoint::new(Arc::new(endpoint), Some(Arc::new(quic)), true);
        let mut near = Endpoint::new(Arc::new(EndpointConfig::default()), None, true);
        let trust = Trust::Pinned(theirs.fingerprint());
        let quic = config::client(&trust, &ours, &sending).unwrap();
        let clock = Clock::new();
        let now = clock.instant_of(clock.now());
        let (handle, connection) = near.connect(now, quic.clone(), SERVER, "far").unwrap();
        let paths = Paths::new(client, sending.stream_window.into(), now);
        let mut world = Self {
            now,
            quic,
            ends: [(near, Some(Link::new(handle, connection, paths))), (far, None)],
            air: Default::default(),
            serial: 0,
            cut: [false; 2],
            sent: Vec::new(),
            events: VecDeque::new(),
            schedulers: [None, Some(server)],
        };
        world.run(Duration::from_millis(300));
        assert!(world.link(CLIENT).is_ready);
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

    fn link(&mut self, end: usize) -> &mut Link {
        self.ends[end].1.as_mut().unwrap()
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            for end in [CLIENT, FAR] {
                self.turn(end);
            }
            let air = self.air.iter().filter_map(|air| Some(air.keys().next()?.0));
            let links = self.ends.iter().filter_map(|(_, link)| link.as_ref());
            let timers = links.filter_map(|link| link.next_timeout(self.now));
            let next = air.chain(timers).min().unwrap_or(end);
            if next > end {
                self.now = end;
                return;
            }
            // What is due at once is done in the next round, in which time has passed.
            self.now = next.max(self.now + Duration::from_micros(10));
            for end in [CLIENT, FAR] {
                self.deliver(end);
            }
        }
    }

    fn deliver(&mut self, end: usize) {
        while let Some(entry) = self.air[end].first_entry()
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
                    link.connection.handle_event(event);
                    link.paths.on_received(self.now);
                }
                Some(DatagramEvent::NewConnection(incoming)) => {
                    let (handle, connection) =
                        endpoint.accept(incoming, self.now, &mut reply, None).unwrap();
                    let scheduler = self.schedulers[end].take().unwrap();
                    *link = Some(Link::new(
                        handle,
                        connection,
                        Paths::new(scheduler, 1 << 20, self.now),
                    ));
                }
                other => assert!(other.is_none()),
            }
        }
    }

    fn turn(&mut self, end: usize) {
        let now = self.now;
        let (endpoint, Some(link)) = &mut self.ends[end] else { return };
        link.connection.handle_timeout(now);
        link.settle(endpoint);
        while let Some(event) = link.poll_event() {
            self.events.push_back((end, event));
            link.settle(endpoint);
        }
        link.begin(&mut (), now);
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
            self.sent.push(Sent { at: now, path, size: transmit.size, gated });
            if !self.cut[path] {
                self.serial += 1;
                let bytes = buf[..transmit.size].to_vec();
                self.air[1 - end].insert((now + DELAYS[path], self.serial), (path, bytes));
            }
        }
    }

    /// Offers so many bytes on a stream of the client's, and has the far end read them.
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

    fn drain(&mut self, stream: StreamId) -> usize {
        let link = self.link(FAR);
        let mut got = 0;
        // It is there as soon as anything of it has come.
        while link.connection.streams().accept(Dir::Bi).is_some() {}
        while let Incoming::Bytes(bytes) = read(&mut link.connection, stream, 1 << 16) {
            got += bytes.len();
        }
        got
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
        // What the client lets through unasked: a look at the path now and then. And probes for the
        // path's MTU, pings, and the far end's acks, which need no gate.
        let full: Vec<_> = wrong.filter(|sent| sent.size > 300 && sent.gated.is_some()).collect();
        let looks = lasted.as_millis() / 250 + 1;
        assert!(full.len() as u128 <= looks, "{} full datagrams in {lasted:?}", full.len());
        // And few that nothing chose: loss probes may take data along, MTU probes have none.
        let unasked = |sent: &&Sent| sent.path != usize::from(chosen) && sent.gated.is_none();
        let unasked = world.sent.iter().filter(unasked).filter(|sent| sent.size > 300).count();
        assert!(unasked <= 10, "{unasked} full datagrams that no gate was opened for");
        for sent in world.sent.iter().filter(|sent| sent.size > 1000) {
            let is_as_chosen = sent.gated.is_none_or(|gated| gated == sent.path);
            assert!(is_as_chosen, "{} bytes for {:?} by {}", sent.size, sent.gated, sent.path);
        }
    }
}

#[test]
fn all_gates_closed_is_waiting_and_acks_go_all_the_same() {
    // The client would send and may not; the far end sends, and needs the client's acks.
    let mut world = World::new(only(None), only(Some(0)));
    let stream = world.link(CLIENT).connection.streams().open(Dir::Bi).unwrap();
    world.link(CLIENT).connection.send_stream(stream).write(&[1; 100_000]).unwrap();
    world.run(Duration::from_secs(2));
    let full = world.sent.iter().filter(|sent| sent.size > 1000 && sent.gated.is_some()).count();
    // One look at each path every 250 ms.
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
        // At once, as far as the path that is left allows.
        assert_eq!(world.upload(500_000, Duration::from_secs(4)), 500_000, "path {cut}");
        world.run(Duration::from_secs(3));
        let gone = world.events.iter().any(|(_, event)| matches!(event, LinkEvent::PathGone(_)));
        assert!(gone, "path {cut} is cut, and nobody has noticed");
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
    assert!(link.settle(endpoint), "it was silent for longer than may be");
    assert_eq!(endpoint.open_connections(), 0);
    endpoint.connect(later, world.quic, SERVER, "far").unwrap();
    link.forget(endpoint);
    assert_eq!(endpoint.open_connections(), 1, "the next one is still there");
    // And one that has not is.
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
    // Nobody reads.
    let mut taken = 0;
    for _ in 0..500 {
        for stream in &streams {
            let mut stream = world.link(CLIENT).connection.send_stream(*stream);
            taken += stream.write(&[7; 10_000]).unwrap_or(0);
        }
        world.run(Duration::from_millis(10));
    }
    let got: usize = streams.iter().map(|stream| world.drain(*stream)).sum();
    assert_eq!((taken, got), (1_000_000, 1_000_000));
}
