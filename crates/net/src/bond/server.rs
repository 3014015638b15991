//! The server's end: QUIC connections in, TCP connections to anywhere out.

mod connect;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use freshline_core::unit::{Span, Time};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use noq_proto::{ConnectionHandle, DatagramEvent, Dir, Endpoint, FourTuple, Incoming, StreamId};
use slab::Slab;

use super::device_queue::DeviceQueues;
use super::flow::{self, Moved, PIECE, Pipe, Pumped};
use super::head::Reply;
use super::link::{Link, LinkEvent, send_by};
use super::paths::Paths;
use super::resolve::Resolver;
use super::rules::{Allow, Rules};
use super::socket::Outlet;
use super::status::{BondReport, Watcher, paths_of};
use super::{BondError, Sending, Target, config, system};
use crate::alarm::Alarm;
use crate::batch::{Address, Inbox};
use crate::clock::Clock;
use crate::quic::{Clients, Identity};
use crate::stop::Stop;

const SOCKET: Token = Token(0);
const ALARM: Token = Token(1);
const WAKER: Token = Token(2);
const FLOWS: usize = 16;

/// The most clients at a time.
const LINKS: usize = 64;

/// From so many unfinished handshakes on, newcomers must prove their addresses first (RFC 9000,
/// section 8.1.2).
const RETRY_ABOVE: usize = 8;

/// Receives before others are looked after.
const BATCHES_A_TURN: usize = 8;

/// How long a handshake, a head or a TCP connection may take.
const PATIENCE: Span = Span::from_secs(10);

/// How often those that take too long are looked for.
const SWEEP: Span = Span::from_secs(1);

/// How often the server says how it fares.
const TELL: Span = Span::from_millis(200);

/// What a server needs to run.
#[derive(Debug)]
pub struct ServerConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Who the server is.
    pub identity: Identity,
    /// Whom it takes.
    pub clients: Clients,
    /// How to send.
    pub sending: Sending,
    /// Private destinations to which it connects all the same.
    pub allow: Vec<Allow>,
}

/// Which stream of which client.
type StreamKey = (ConnectionHandle, StreamId);

/// A stream on its way to a TCP connection.
struct Flow {
    link: ConnectionHandle,
    stream: StreamId,
    step: Step,
    began_at: Time,
}

enum Step {
    /// It is being moved on.
    Gone,
    /// The head is not whole yet.
    Head(Vec<u8>),
    /// The name is being looked up; what has come after the head waits.
    Resolving(u64, Target, Bytes),
    /// TCP's handshake; what comes next if it fails.
    Connecting(TcpStream, Vec<SocketAddr>, Target, Bytes),
    Open(Pipe),
}

/// A server that is ready to run.
pub struct Server {
    clock: Clock,
    poll: Poll,
    alarm: Alarm,
    waker: Arc<Waker>,
    endpoint: Endpoint,
    sending: Sending,
    rules: Rules,
    resolver: Resolver,
    /// Names that were asked for.
    questions: u64,
    outlet: Outlet,
    links: HashMap<ConnectionHandle, (Link, Time)>,
    flows: Slab<Flow>,
    by_stream: HashMap<StreamKey, usize>,
    ready: VecDeque<usize>,
    sweep_at: Time,
    inbox: Inbox,
    scratch: Vec<u8>,
    packet: Vec<u8>,
    moved: Moved,
    queues: DeviceQueues,
    /// Streams so far, and those that came to nothing.
    streams: u64,
    refused: u64,
    began_at: Time,
    tell_at: Time,
    watcher: Watcher,
}

impl Server {
    /// Opens the socket.
    ///
    /// # Errors
    /// [`BondError`] says what is missing.
    pub fn bind(config: ServerConfig) -> Result<Self, BondError> {
        let poll = Poll::new().map_err(system("make a poll"))?;
        let mut alarm = Alarm::new().map_err(system("make a timer"))?;
        let registry = poll.registry();
        let address = config.listen;
        let failed = |error| BondError::Listen { address, error };
        let mut outlet = Outlet::listen(address).map_err(failed)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        registry
            .register(&mut outlet.socket.udp, SOCKET, both)
            .and_then(|()| registry.register(&mut alarm, ALARM, Interest::READABLE))
            .map_err(system("watch its socket"))?;
        let waker = Arc::new(Waker::new(registry, WAKER).map_err(system("make a waker"))?);
        let (endpoint, quic) = config::server(&config.identity, &config.clients, &config.sending)?;
        config.sending.scheduler.build()?;
        let clock = Clock::new();
        Ok(Self {
            clock,
            poll,
            alarm,
            resolver: Resolver::new(&waker),
            questions: 0,
            waker,
            endpoint: Endpoint::new(Arc::new(endpoint), Some(Arc::new(quic)), true),
            sending: config.sending,
            rules: Rules(config.allow),
            outlet,
            links: HashMap::new(),
            flows: Slab::new(),
            by_stream: HashMap::new(),
            ready: VecDeque::new(),
            sweep_at: Time::ZERO,
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

    /// Where it listens, with the port that was chosen for port 0.
    ///
    /// # Errors
    /// [`BondError::System`] if the system does not say.
    pub fn local_addr(&self) -> Result<SocketAddr, BondError> {
        self.outlet.socket.udp.local_addr().map_err(system("learn its own address"))
    }

    /// Runs until `stop`, or until `until` has come.
    ///
    /// # Errors
    /// [`BondError`] where it cannot go on; trouble with clients is none.
    pub fn run(&mut self, stop: &Stop, until: Option<Time>) -> Result<(), BondError> {
        stop.wakes(Arc::clone(&self.waker));
        let mut events = Events::with_capacity(256);
        loop {
            let now = self.clock.now();
            for event in &events {
                self.on_event(event.token().0, event.is_readable(), event.is_writable());
            }
            let mut busy = self.receive(now)?;
            while let Some((question, addresses)) = self.resolver.poll() {
                self.on_resolved(question, addresses);
            }
            self.on_timeout(now);
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
                (!self.flows.is_empty() || !self.links.is_empty()).then_some(self.sweep_at),
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
        let at = self.links.values().filter_map(|(link, _)| link.next_timeout(instant)).min()?;
        Some(now + at.saturating_duration_since(instant).into())
    }

    fn on_event(&mut self, token: usize, is_readable: bool, is_writable: bool) {
        if token >= FLOWS {
            let key = token - FLOWS;
            if let Some(Flow { step: Step::Open(pipe), .. }) = self.flows.get_mut(key) {
                pipe.is_readable |= is_readable;
                pipe.is_writable |= is_writable;
            }
            self.ready.push_back(key);
        } else if token == SOCKET.0 && is_writable {
            self.outlet.is_full = false;
        }
    }

    /// Takes in what has come; whether there may be more.
    fn receive(&mut self, now: Time) -> Result<bool, BondError> {
        let instant = self.clock.instant_of(now);
        let mut touched = Vec::new();
        let mut busy = true;
        for _ in 0..BATCHES_A_TURN {
            if !self.inbox.fill(&self.outlet.socket).map_err(system("receive"))? {
                busy = false;
                break;
            }
            let mut newcomers = Vec::new();
            for train in self.inbox.trains() {
                let Address { remote, local } = train.from;
                let path = FourTuple::new(remote, local);
                for datagram in train.datagrams() {
                    let mut reply = Vec::new();
                    match self.endpoint.handle(instant, path, None, datagram.into(), &mut reply) {
                        Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                            if let Some((link, _)) = self.links.get_mut(&handle) {
                                link.connection.handle_event(event);
                                link.paths.on_received(instant);
                                touched.push(handle);
                            }
                        }
                        Some(DatagramEvent::NewConnection(incoming)) => newcomers.push(incoming),
                        Some(DatagramEvent::Response(transmit)) => {
                            self.outlet.push(train.from, &reply[..transmit.size], 1);
                        }
                        None => {}
                    }
                }
            }
            for incoming in newcomers {
                self.welcome(incoming, now)?;
            }
        }
        touched.sort_unstable_by_key(|handle| handle.0);
        touched.dedup();
        for handle in touched {
            self.settle(handle);
        }
        Ok(busy)
    }

    /// Decides on a newcomer: in, prove your address, or out.
    fn welcome(&mut self, incoming: Incoming, now: Time) -> Result<(), BondError> {
        let instant = self.clock.instant_of(now);
        let mut reply = Vec::new();
        let handshakes = self.links.values().filter(|(link, _)| !link.is_ready).count();
        let answer = if self.links.len() >= LINKS {
            Some(self.endpoint.refuse(incoming, &mut reply))
        } else if handshakes >= RETRY_ABOVE && !incoming.remote_address_validated() {
            match self.endpoint.retry(incoming, &mut reply) {
                Ok(transmit) => Some(transmit),
                Err(error) => {
                    self.endpoint.ignore(error.into_incoming());
                    None
                }
            }
        } else {
            match self.endpoint.accept(incoming, instant, &mut reply, None) {
                Ok((handle, connection)) => {
                    let scheduler = self.sending.scheduler.build()?;
                    let window = self.sending.stream_window.into();
                    let paths = Paths::new(scheduler, window, instant);
                    self.links.insert(handle, (Link::new(handle, connection, paths), now));
                    self.settle(handle);
                    None
                }
                Err(error) => error.response,
            }
        };
        if let Some(transmit) = answer {
            let to = Address { remote: transmit.destination, local: transmit.src_ip };
            self.outlet.push(to, &reply[..transmit.size], 1);
        }
        Ok(())
    }

    /// Takes note of what has happened to a connection.
    fn settle(&mut self, handle: ConnectionHandle) {
        let now = self.clock.now();
        loop {
            let Some((link, _)) = self.links.get_mut(&handle) else { return };
            let is_drained = link.settle(&mut self.endpoint);
            let Some(event) = link.poll_event() else {
                if is_drained {
                    self.drop_flows(handle);
                    self.links.remove(&handle);
                }
                return;
            };
            match event {
                LinkEvent::Ready => tracing::info!(client = handle.0, "connected"),
                LinkEvent::Lost(reason) => {
                    tracing::info!(client = handle.0, "gone: {reason}");
                    self.drop_flows(handle);
                }
                LinkEvent::Opened => {
                    while let Some((link, _)) = self.links.get_mut(&handle)
                        && let Some(stream) = link.connection.streams().accept(Dir::Bi)
                    {
                        let step = Step::Head(Vec::new());
                        let key =
                            self.flows.insert(Flow { link: handle, stream, step, began_at: now });
                        self.streams += 1;
                        self.by_stream.insert((handle, stream), key);
                        self.ready.push_back(key);
                    }
                }
                LinkEvent::Stream(id) => self.ready.extend(self.by_stream.get(&(handle, id))),
                LinkEvent::Room => {}
                LinkEvent::PathUp(id) => tracing::info!(client = handle.0, path = %id, "path up"),
                LinkEvent::PathGone(id) => {
                    tracing::info!(client = handle.0, path = %id, "path down");
                }
            }
        }
    }

    fn drop_flows(&mut self, handle: ConnectionHandle) {
        self.by_stream.retain(|(link, _), _| *link != handle);
        self.flows.retain(|_, flow| {
            if flow.link == handle
                && let Step::Open(Pipe { tcp, .. }) | Step::Connecting(tcp, ..) = &flow.step
            {
                flow::abort(tcp);
            }
            flow.link != handle
        });
    }

    fn on_timeout(&mut self, now: Time) {
        let instant = self.clock.instant_of(now);
        let due: Vec<_> = self
            .links
            .iter_mut()
            .filter(|(_, (link, _))| link.connection.poll_timeout().is_some_and(|at| at <= instant))
            .map(|(handle, (link, _))| {
                link.connection.handle_timeout(instant);
                *handle
            })
            .collect();
        for handle in due {
            self.settle(handle);
        }
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + SWEEP;
        let slow = |began_at: Time| now.since(began_at) > PATIENCE;
        // Without a word: the address may well be a spoofed one.
        let stuck = self.links.iter().filter(|(_, (link, at))| !link.is_ready && slow(*at));
        let stuck: Vec<_> = stuck
            .filter(|(_, (link, _))| link.connection.is_handshaking())
            .map(|(handle, _)| *handle)
            .collect();
        for handle in stuck {
            self.endpoint.handle_event(handle, noq_proto::EndpointEvent::drained());
            self.links.remove(&handle);
        }
        let late: Vec<_> = self
            .flows
            .iter()
            .filter(|(_, flow)| !matches!(flow.step, Step::Open(_)) && slow(flow.began_at))
            .map(|(key, _)| key)
            .collect();
        for key in late {
            self.refuse(key, Reply::HostUnreachable);
        }
    }

    /// Moves bytes of the flows that can go on; whether some could go on at once.
    fn pump(&mut self) -> bool {
        for _ in 0..self.ready.len() {
            let Some(key) = self.ready.pop_front() else { break };
            let Some(flow) = self.flows.get_mut(key) else { continue };
            match &mut flow.step {
                Step::Head(_) => self.read_head(key),
                Step::Connecting(..) => self.on_connecting(key),
                Step::Open(pipe) => {
                    let Some((link, _)) = self.links.get_mut(&flow.link) else { continue };
                    let before = self.moved;
                    let pumped =
                        pipe.pump(&mut link.connection, &mut self.scratch, &mut self.moved);
                    link.paths.on_written(self.moved.up - before.up);
                    match pumped {
                        Pumped::Waits => {}
                        Pumped::Again => self.ready.push_back(key),
                        Pumped::Over => self.forget(key),
                    }
                }
                Step::Resolving(..) | Step::Gone => {}
            }
        }
        !self.ready.is_empty()
    }

    fn forget(&mut self, key: usize) {
        let flow = self.flows.remove(key);
        self.by_stream.remove(&(flow.link, flow.stream));
    }

    /// Tells the client why there is no connection, and ends the stream.
    fn refuse(&mut self, key: usize, why: Reply) {
        let Some(flow) = self.flows.get(key) else { return };
        self.refused += 1;
        if let Some((link, _)) = self.links.get_mut(&flow.link) {
            let _ = link.connection.send_stream(flow.stream).write(&[why as u8]);
            let _ = link.connection.send_stream(flow.stream).finish();
            let _ = link.connection.recv_stream(flow.stream).stop(0u8.into());
        }
        self.forget(key);
    }

    fn transmit(&mut self) {
        let now = self.now();
        if !self.outlet.is_full {
            self.outlet.flush();
        }
        let is_full = self.outlet.is_full;
        let Self { links, outlet, packet, queues, .. } = self;
        for (link, _) in links.values_mut() {
            link.transmit(
                now,
                queues,
                packet,
                |_| is_full,
                |_, to, datagram, train| {
                    send_by(Some(&mut *outlet), to, datagram, train);
                },
            );
        }
        outlet.flush();
    }

    /// Something through which other threads see how the server fares.
    pub fn watcher(&self) -> Watcher {
        self.watcher.clone()
    }

    fn tell(&mut self, now: Time) {
        if now < self.tell_at {
            return;
        }
        self.tell_at = now + TELL;
        let instant = self.clock.instant_of(now);
        let mut paths = Vec::new();
        for (link, _) in self.links.values_mut() {
            paths.extend(paths_of(link, &mut self.queues, instant));
        }
        paths.sort_by(|a, b| (a.link, &a.path).cmp(&(b.link, &b.path)));
        self.watcher.tell(BondReport {
            duration_s: now.since(self.began_at).as_secs_f64(),
            scheduler: self.sending.scheduler.name(),
            links: self.links.values().filter(|(link, _)| link.is_ready).count(),
            streams_open: self.flows.len(),
            streams: self.streams,
            streams_refused: self.refused,
            taken_bytes: self.moved.up,
            given_bytes: self.moved.down,
            paths,
        });
    }

    fn close(&mut self) {
        self.tell_at = Time::ZERO;
        self.tell(self.clock.now());
        let now = self.now();
        for (link, _) in self.links.values_mut() {
            link.close(now, "the server has ended");
        }
        self.transmit();
    }
}
