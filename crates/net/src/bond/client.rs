//! The client's end: programs' connections in, one QUIC connection over several interfaces out.

mod program;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use freshline_core::unit::{Span, Time};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use noq_proto::{
    DatagramEvent, Endpoint, EndpointConfig, FourTuple, PathId, PathStatus, StreamId, VarInt,
};
use program::{Flow, advance};
use slab::Slab;

use super::device_queue::DeviceQueues;
use super::flow::{self, Moved, PIECE, Pipe, Pumped};
use super::interfaces::Interfaces;
use super::link::{Link, LinkEvent, send_by};
use super::paths::Paths;
use super::socket::{Outlet, Via};
use super::status::{BondReport, Watcher, paths_of};
use super::{BondError, Sending, Target, config, system};
use crate::alarm::Alarm;
use crate::batch::Inbox;
use crate::clock::Clock;
use crate::quic::{Identity, LostReason, Trust};
use crate::stop::Stop;

const ALARM: Token = Token(0);
const WAKER: Token = Token(1);
const LISTENERS: usize = 16;
const SOCKETS: usize = 64;
const FLOWS: usize = 1024;

/// How often interfaces are looked at, and paths that are missing are opened.
const LOOK_AROUND: Span = Span::from_millis(250);

/// How long a handshake may take before the next interface is tried.
const DIAL_TIMEOUT: Span = Span::from_secs(3);

/// A path that was given up is tried again after this time.
const RETRY: Span = Span::from_millis(500);

/// How often the client says how it fares.
const TELL: Span = Span::from_millis(200);

/// Receives of one socket before others are looked after.
const BATCHES_A_TURN: usize = 8;

/// What a client needs to run.
#[derive(Debug)]
pub struct ClientConfig {
    /// The server.
    pub server: SocketAddr,
    /// The name that its certificate must have, unless it is pinned.
    pub server_name: String,
    /// What makes the client believe that it is the server.
    pub trust: Trust,
    /// Who the client is.
    pub identity: Identity,
    /// By what to leave this host, and where the server is on that way if not at `server`; empty: as
    /// the routes are.
    pub vias: Vec<(Via, Option<SocketAddr>)>,
    /// How to send.
    pub sending: Sending,
    /// TCP addresses to listen at, and where what comes there goes; none: as the program says by
    /// SOCKS5.
    pub listen: Vec<(SocketAddr, Option<Target>)>,
}

/// One way out of this host.
#[derive(Debug)]
struct Way {
    via: Via,
    /// Where the server is on this way.
    peer: SocketAddr,
    /// Its local address towards noq-proto: made up, so that it stays when the real one changes.
    label: IpAddr,
    outlet: Option<Outlet>,
    path: Option<PathId>,
    retry_at: Time,
}

struct Listener {
    socket: TcpListener,
    target: Option<Target>,
}

/// A client that is ready to run.
pub struct Client {
    clock: Clock,
    poll: Poll,
    alarm: Alarm,
    waker: Arc<Waker>,
    endpoint: Endpoint,
    quic: noq_proto::ClientConfig,
    server: SocketAddr,
    server_name: String,
    sending: Sending,
    link: Option<Link>,
    ways: Vec<Way>,
    /// The one by which the first path goes.
    dialled: usize,
    give_up_at: Time,
    look_at: Time,
    was_ready: bool,
    listeners: Vec<Listener>,
    flows: Slab<Flow>,
    by_stream: HashMap<StreamId, usize>,
    ready: VecDeque<usize>,
    inbox: Inbox,
    scratch: Vec<u8>,
    packet: Vec<u8>,
    moved: Moved,
    queues: DeviceQueues,
    /// Programs' connections so far, and those that came to nothing.
    streams: u64,
    refused: u64,
    began_at: Time,
    tell_at: Time,
    watcher: Watcher,
}

impl Client {
    /// Opens the sockets.
    ///
    /// # Errors
    /// [`BondError`] says what is missing.
    pub fn bind(config: ClientConfig) -> Result<Self, BondError> {
        let clock = Clock::new();
        let poll = Poll::new().map_err(system("make a poll"))?;
        let mut alarm = Alarm::new().map_err(system("make a timer"))?;
        let registry = poll.registry();
        registry
            .register(&mut alarm, ALARM, Interest::READABLE)
            .map_err(system("watch a timer"))?;
        let waker = Arc::new(Waker::new(registry, WAKER).map_err(system("make a waker"))?);
        let mut listeners = Vec::new();
        for (address, target) in config.listen {
            let failed = |error| BondError::Listen { address, error };
            let mut socket = TcpListener::bind(address).map_err(failed)?;
            let token = Token(LISTENERS + listeners.len());
            registry.register(&mut socket, token, Interest::READABLE).map_err(failed)?;
            listeners.push(Listener { socket, target });
        }
        let vias = if config.vias.is_empty() { vec![(Via::Any, None)] } else { config.vias };
        let label = |index: usize| Ipv4Addr::from(0xf000_0001 + index as u32).into();
        let ways = vias.into_iter().enumerate().map(|(index, (via, peer))| Way {
            via,
            peer: FourTuple::from_remote(peer.unwrap_or(config.server)).remote(),
            label: label(index),
            outlet: None,
            path: None,
            retry_at: Time::ZERO,
        });
        let mut endpoint = EndpointConfig::default();
        endpoint.supported_versions(vec![1]);
        config.sending.scheduler.build()?;
        Ok(Self {
            quic: config::client(&config.trust, &config.identity, &config.sending)?,
            endpoint: Endpoint::new(Arc::new(endpoint), None, true),
            clock,
            poll,
            alarm,
            waker,
            server: FourTuple::from_remote(config.server).remote(),
            server_name: config.server_name,
            sending: config.sending,
            link: None,
            ways: ways.collect(),
            dialled: 0,
            give_up_at: Time::ZERO,
            look_at: Time::ZERO,
            was_ready: false,
            listeners,
            flows: Slab::new(),
            by_stream: HashMap::new(),
            ready: VecDeque::new(),
            inbox: Inbox::new(),
            scratch: vec![0; PIECE],
            packet: Vec::new(),
            moved: Moved::default(),
            queues: DeviceQueues::new(),
            streams: 0,
            refused: 0,
            began_at: clock.now(),
            tell_at: Time::ZERO,
            watcher: Watcher::default(),
        })
    }

    /// Where it listens, with the ports that were chosen for port 0.
    ///
    /// # Errors
    /// [`BondError::System`] if the system does not say.
    pub fn local_addrs(&self) -> Result<Vec<SocketAddr>, BondError> {
        let addresses = self.listeners.iter().map(|listener| listener.socket.local_addr());
        addresses.collect::<Result<_, _>>().map_err(system("learn its own address"))
    }

    /// Runs until `stop`, or until `until` has come.
    ///
    /// # Errors
    /// [`BondError`] where it cannot go on; that no path is there is none.
    pub fn run(&mut self, stop: &Stop, until: Option<Time>) -> Result<(), BondError> {
        stop.wakes(Arc::clone(&self.waker));
        let mut events = Events::with_capacity(256);
        loop {
            let now = self.clock.now();
            for event in &events {
                self.on_event(event.token().0, event.is_readable(), event.is_writable());
            }
            let mut busy = self.receive()?;
            self.look_around(now)?;
            self.on_timeout(now)?;
            busy |= self.pump();
            self.transmit();
            self.tell(now);
            if stop.is_stopped() || until.is_some_and(|end| now >= end) {
                self.close();
                return Ok(());
            }
            let now = self.clock.now();
            let wake = Time::earliest([
                busy.then_some(now),
                self.link_timeout(now),
                Some(self.look_at),
                Some(self.tell_at),
                until,
            ]);
            let timeout = self.alarm.poll_until(now, wake).map_err(system("set a timer"))?;
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                polled => polled.map_err(system("wait for its sockets"))?,
            }
        }
    }

    fn now(&self) -> Instant {
        self.clock.instant_of(self.clock.now())
    }

    fn link_timeout(&self, now: Time) -> Option<Time> {
        let instant = self.clock.instant_of(now);
        let at = self.link.as_ref()?.next_timeout(instant)?;
        Some(now + at.saturating_duration_since(instant).into())
    }

    fn on_event(&mut self, token: usize, is_readable: bool, is_writable: bool) {
        if token >= FLOWS {
            let key = token - FLOWS;
            if let Some(Flow::Open(pipe)) = self.flows.get_mut(key) {
                pipe.is_readable |= is_readable;
                pipe.is_writable |= is_writable;
            }
            self.ready.push_back(key);
        } else if token >= SOCKETS {
            if let Some(outlet) = self.ways.get_mut(token - SOCKETS).and_then(|w| w.outlet.as_mut())
                && is_writable
            {
                outlet.is_full = false;
            }
        } else if token >= LISTENERS {
            self.accept(token - LISTENERS);
        }
    }

    /// Takes in what has come; whether there may be more.
    fn receive(&mut self) -> Result<bool, BondError> {
        let mut busy = false;
        let now = self.now();
        let Self { ways, inbox, endpoint, link, .. } = self;
        for way in ways {
            let Some(outlet) = &way.outlet else { continue };
            busy |= (0..BATCHES_A_TURN).all(|_| match inbox.fill(&outlet.socket) {
                Ok(filled) => {
                    let datagrams = inbox.trains().flat_map(|train| {
                        let from = train.from.remote;
                        train.datagrams().map(move |datagram| (from, datagram))
                    });
                    for (from, datagram) in datagrams {
                        let path = FourTuple::new(from, Some(way.label));
                        // Replies to unknown packets stay unsent.
                        let mut unsent = Vec::new();
                        let event = endpoint.handle(now, path, None, datagram.into(), &mut unsent);
                        if let (Some(DatagramEvent::ConnectionEvent(_, event)), Some(link)) =
                            (event, link.as_mut())
                        {
                            link.connection.handle_event(event);
                            link.paths.on_received(now);
                        }
                    }
                    filled
                }
                // The interface is down, perhaps; that is seen elsewhere.
                Err(_) => false,
            });
        }
        self.settle()?;
        Ok(busy)
    }

    /// Opens sockets of interfaces that have come, closes those of interfaces that have gone, and
    /// opens the paths that are missing.
    fn look_around(&mut self, now: Time) -> Result<(), BondError> {
        if now < self.look_at {
            return Ok(());
        }
        self.look_at = now + LOOK_AROUND;
        let interfaces = Interfaces::read().map_err(system("list interfaces"))?;
        let instant = self.clock.instant_of(now);
        for (index, way) in self.ways.iter_mut().enumerate() {
            let is_there = interfaces.has(&way.via, way.peer);
            if !is_there && way.outlet.is_some() {
                tracing::info!(via = %way.via, "gone");
                way.outlet = None;
                if let (Some(link), Some(path)) = (&mut self.link, way.path) {
                    // The last path stays, for when the interface comes back.
                    let _ = link.connection.close_path(instant, path, VarInt::from_u32(0));
                }
            }
            if is_there && way.outlet.is_none() {
                match Outlet::open(&way.via, way.peer) {
                    Ok(mut outlet) => {
                        self.poll
                            .registry()
                            .register(
                                &mut outlet.socket.udp,
                                Token(SOCKETS + index),
                                Interest::READABLE | Interest::WRITABLE,
                            )
                            .map_err(system("watch a socket"))?;
                        way.outlet = Some(outlet);
                        if let Some(name) = interfaces.name(&way.via) {
                            self.queues.label(way.label, name);
                        }
                    }
                    Err(error) => tracing::warn!(via = %way.via, "no socket: {error}"),
                }
            }
        }
        if self.link.is_none() {
            self.dial(now)?;
        }
        self.open_paths(now);
        Ok(())
    }

    fn dial(&mut self, now: Time) -> Result<(), BondError> {
        let count = self.ways.len();
        let next = (0..count).map(|step| (self.dialled + step) % count);
        let Some(index) = next.into_iter().find(|index| self.ways[*index].outlet.is_some()) else {
            return Ok(());
        };
        let instant = self.clock.instant_of(now);
        let server = self.ways[index].peer;
        let (handle, connection) = self
            .endpoint
            .connect(instant, self.quic.clone(), server, &self.server_name)
            .map_err(|error| BondError::Dial { server, error })?;
        let scheduler = self.sending.scheduler.build()?;
        let paths = Paths::new(scheduler, self.sending.stream_window.into(), instant);
        self.link = Some(Link::new(handle, connection, paths));
        self.dialled = index;
        self.give_up_at = now + DIAL_TIMEOUT;
        for way in &mut self.ways {
            (way.path, way.retry_at) = (None, Time::ZERO);
        }
        self.ways[index].path = Some(PathId::ZERO);
        Ok(())
    }

    fn open_paths(&mut self, now: Time) {
        let Some(link) = self.link.as_mut().filter(|link| link.is_ready) else { return };
        let instant = self.clock.instant_of(now);
        for way in &mut self.ways {
            if way.path.is_some() || way.outlet.is_none() || now < way.retry_at {
                continue;
            }
            let network = FourTuple::new(way.peer, Some(way.label));
            match link.connection.open_path(network, PathStatus::Available, instant) {
                Ok(path) => way.path = Some(path),
                // The server has not given enough connection IDs yet, or takes no more paths.
                Err(error) => {
                    tracing::debug!(via = %way.via, "no path: {error}");
                    way.retry_at = now + RETRY;
                }
            }
        }
    }

    fn on_timeout(&mut self, now: Time) -> Result<(), BondError> {
        let instant = self.clock.instant_of(now);
        let Some(link) = &mut self.link else { return Ok(()) };
        link.connection.handle_timeout(instant);
        if !link.is_ready && !link.connection.is_closed() && now >= self.give_up_at {
            link.close(instant, "no answer");
            tracing::warn!(server = %self.server, "no answer; trying again");
            self.lose();
            // By another interface, if there is one.
            self.dialled = (self.dialled + 1) % self.ways.len();
        }
        self.settle()
    }

    /// Takes note of what has happened to the connection.
    fn settle(&mut self) -> Result<(), BondError> {
        let now = self.clock.now();
        loop {
            let Some(link) = &mut self.link else { return Ok(()) };
            let is_drained = link.settle(&mut self.endpoint);
            let Some(event) = link.poll_event() else {
                if is_drained {
                    self.lose();
                }
                return Ok(());
            };
            match event {
                LinkEvent::Ready => {
                    self.was_ready = true;
                    tracing::info!(server = %self.server, "connected");
                    self.open_paths(now);
                    self.wake_all();
                }
                LinkEvent::Lost(reason) => {
                    let is_final = matches!(
                        reason,
                        LostReason::Distrusted(_)
                            | LostReason::Refused(_)
                            | LostReason::Protocol(_)
                    );
                    if is_final && !self.was_ready {
                        return Err(BondError::Refused { server: self.server, reason });
                    }
                    tracing::warn!(server = %self.server, "connection lost: {reason}");
                    self.lose();
                }
                LinkEvent::Opened => {}
                LinkEvent::Stream(id) => self.ready.extend(self.by_stream.get(&id)),
                LinkEvent::Room => self.wake_all(),
                LinkEvent::PathUp(id) => {
                    if let Some(way) = self.ways.iter().find(|way| way.path == Some(id)) {
                        tracing::info!(via = %way.via, "path up");
                    }
                    self.open_paths(now);
                }
                LinkEvent::PathGone(id) => {
                    if let Some(way) = self.ways.iter_mut().find(|way| way.path == Some(id)) {
                        tracing::info!(via = %way.via, "path down");
                        (way.path, way.retry_at) = (None, now + RETRY);
                    }
                }
            }
        }
    }

    fn wake_all(&mut self) {
        self.ready.extend(self.flows.iter().map(|(key, _)| key));
    }

    /// The connection is gone, and all streams with it.
    fn lose(&mut self) {
        if let Some(mut link) = self.link.take() {
            let drained = noq_proto::EndpointEvent::drained();
            self.endpoint.handle_event(link.handle, drained);
            while link.connection.poll_endpoint_events().is_some() {}
        }
        self.by_stream.clear();
        self.flows.retain(|_, flow| {
            let tcp = match flow {
                Flow::Waiting(..) | Flow::Greeting(..) => return true,
                Flow::Gone => return false,
                Flow::Asked(tcp, ..) => tcp,
                Flow::Open(pipe) => &pipe.tcp,
            };
            flow::abort(tcp);
            false
        });
    }

    /// Moves bytes of the flows that can go on; whether some could go on at once.
    fn pump(&mut self) -> bool {
        let Self { link, flows, by_stream, ready, scratch, moved, refused, .. } = self;
        let Some(link) = link.as_mut().filter(|link| link.is_ready) else {
            ready.clear();
            return false;
        };
        for _ in 0..ready.len() {
            let Some(key) = ready.pop_front() else { break };
            let Some(flow) = flows.get_mut(key) else { continue };
            let before = *moved;
            let was_asked = matches!(flow, Flow::Asked(..));
            let pumped = advance(flow, link, by_stream, key, scratch, moved);
            link.paths.on_written(moved.up - before.up);
            match pumped {
                Pumped::Waits => {}
                Pumped::Again => ready.push_back(key),
                Pumped::Over => {
                    *refused += u64::from(was_asked && matches!(flow, Flow::Gone));
                    if let Flow::Asked(_, stream, ..) | Flow::Open(Pipe { stream, .. }) = flow {
                        by_stream.remove(stream);
                    }
                    flows.remove(key);
                }
            }
        }
        !ready.is_empty()
    }

    fn transmit(&mut self) {
        let now = self.now();
        let Self { link, ways, packet, dialled, queues, .. } = self;
        let Some(link) = link else { return };
        for outlet in ways.iter_mut().filter_map(|way| way.outlet.as_mut()) {
            if !outlet.is_full {
                outlet.flush();
            }
        }
        let full: Vec<_> = ways
            .iter()
            .filter(|way| way.outlet.as_ref().is_none_or(|outlet| outlet.is_full))
            .map(|way| way.label)
            .collect();
        let is_full = |network: FourTuple| network.local_ip().is_some_and(|ip| full.contains(&ip));
        link.transmit(now, queues, packet, is_full, |local, mut to, datagram, train| {
            let way = ways.iter_mut().enumerate().find(|(index, way)| match local {
                Some(ip) => ip == way.label,
                None => index == dialled,
            });
            // The label is none of this host's addresses: the socket knows its own.
            to.local = None;
            send_by(way.and_then(|(_, way)| way.outlet.as_mut()), to, datagram, train);
        });
        for outlet in self.ways.iter_mut().filter_map(|way| way.outlet.as_mut()) {
            outlet.flush();
        }
    }

    /// Something through which other threads see how the client fares.
    pub fn watcher(&self) -> Watcher {
        self.watcher.clone()
    }

    fn tell(&mut self, now: Time) {
        if now < self.tell_at {
            return;
        }
        self.tell_at = now + TELL;
        let instant = self.clock.instant_of(now);
        let paths = self.link.as_mut().map(|link| paths_of(link, &mut self.queues, instant));
        self.watcher.tell(BondReport {
            duration_s: now.since(self.began_at).as_secs_f64(),
            scheduler: self.sending.scheduler.name(),
            links: self.link.iter().filter(|link| link.is_ready).count(),
            streams_open: self.flows.len(),
            streams: self.streams,
            streams_refused: self.refused,
            taken_bytes: self.moved.up,
            given_bytes: self.moved.down,
            paths: paths.unwrap_or_default(),
        });
    }

    fn close(&mut self) {
        self.tell_at = Time::ZERO;
        self.tell(self.clock.now());
        let now = self.now();
        if let Some(link) = &mut self.link {
            link.close(now, "the client has ended");
        }
        self.transmit();
        self.lose();
    }
}
