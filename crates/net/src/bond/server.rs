//! The server's end: QUIC connections in, TCP connections to anywhere out.

mod connect;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use freshline_core::unit::{Span, Time};
use mio::net::TcpStream;
use noq_proto::{ConnectionHandle, DatagramEvent, Dir, Endpoint, Incoming, StreamId};
use slab::Slab;

use super::endpoint::{Driver, End, Watched, run};
use super::flow::{self, Pipe, Pumped};
use super::head::Reply;
use super::link::{Link, LinkEvent, send_by};
use super::resolve::Resolver;
use super::rules::{Allow, Rules};
use super::socket::Outlet;
use super::status::Watcher;
use super::{BondError, Sending, Target, config, system};
use crate::batch::Address;
use crate::quic::{Clients, Identity};
use crate::stop::Stop;

/// The most clients at a time.
const LINKS: usize = 64;

/// From so many unfinished handshakes on, newcomers must prove their addresses first (RFC 9000,
/// section 8.1.2).
const RETRY_ABOVE: usize = 8;

/// How long a handshake, a head or a TCP connection may take.
const PATIENCE: Span = Span::from_secs(10);

/// How often those that take too long are looked for.
const SWEEP: Span = Span::from_secs(1);

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
    driver: Driver,
    rules: Rules,
    resolver: Resolver,
    /// Names that were asked for.
    questions: u64,
    outlet: Outlet,
    links: HashMap<ConnectionHandle, (Link, Time)>,
    flows: Slab<Flow>,
    by_stream: HashMap<StreamKey, usize>,
    sweep_at: Time,
}

impl Server {
    /// Opens the socket.
    ///
    /// # Errors
    /// [`BondError`] says what is missing.
    pub fn bind(config: ServerConfig) -> Result<Self, BondError> {
        let (endpoint, quic) = config::server(&config.identity, &config.clients, &config.sending)?;
        let endpoint = Endpoint::new(Arc::new(endpoint), Some(Arc::new(quic)), true);
        let driver = Driver::new(endpoint, config.sending)?;
        let address = config.listen;
        let failed = |error| BondError::Listen { address, error };
        let mut outlet = Outlet::listen(address).map_err(failed)?;
        driver.watch(&mut outlet.socket.udp, Watched::Socket(0)).map_err(failed)?;
        Ok(Self {
            resolver: Resolver::new(&driver.waker),
            driver,
            questions: 0,
            rules: Rules(config.allow),
            outlet,
            links: HashMap::new(),
            flows: Slab::new(),
            by_stream: HashMap::new(),
            sweep_at: Time::ZERO,
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
        run(self, stop, until)
    }

    /// Something through which other threads see how the server fares.
    pub fn watcher(&self) -> Watcher {
        self.driver.watcher.clone()
    }

    /// Takes in what has come; whether there may be more.
    fn receive(&mut self, now: Time) -> Result<bool, BondError> {
        let instant = self.driver.clock.instant_of(now);
        let (mut touched, mut newcomers) = (Vec::new(), Vec::new());
        let Self { driver, outlet, links, .. } = self;
        let busy = driver.receive(outlet, None, |outlet, from, event, reply| match event {
            DatagramEvent::ConnectionEvent(handle, event) => {
                if let Some((link, _)) = links.get_mut(&handle) {
                    link.connection.handle_event(event);
                    link.paths.on_received(instant);
                    touched.push(handle);
                }
            }
            DatagramEvent::NewConnection(incoming) => newcomers.push(incoming),
            DatagramEvent::Response(transmit) => outlet.push(from, &reply[..transmit.size], 1),
        });
        for incoming in newcomers {
            self.welcome(incoming, now)?;
        }
        touched.sort_unstable_by_key(|handle| handle.0);
        touched.dedup();
        for handle in touched {
            self.settle(handle);
        }
        busy.map_err(system("receive"))
    }

    /// Decides on a newcomer: in, prove your address, or out.
    fn welcome(&mut self, incoming: Incoming, now: Time) -> Result<(), BondError> {
        let instant = self.driver.clock.instant_of(now);
        let mut reply = Vec::new();
        let handshakes = self.links.values().filter(|(link, _)| !link.is_ready).count();
        let answer = if self.links.len() >= LINKS {
            Some(self.driver.endpoint.refuse(incoming, &mut reply))
        } else if handshakes >= RETRY_ABOVE && !incoming.remote_address_validated() {
            match self.driver.endpoint.retry(incoming, &mut reply) {
                Ok(transmit) => Some(transmit),
                Err(error) => {
                    self.driver.endpoint.ignore(error.into_incoming());
                    None
                }
            }
        } else {
            match self.driver.endpoint.accept(incoming, instant, &mut reply, None) {
                Ok((handle, connection)) => {
                    let link = self.driver.link(handle, connection, instant)?;
                    self.links.insert(handle, (link, now));
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
        let now = self.driver.clock.now();
        loop {
            let Some((link, _)) = self.links.get_mut(&handle) else { return };
            let is_drained = link.settle(&mut self.driver.endpoint);
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
                        self.driver.streams += 1;
                        self.by_stream.insert((handle, stream), key);
                        self.driver.ready.push_back(key);
                    }
                }
                LinkEvent::Stream(id) => {
                    self.driver.ready.extend(self.by_stream.get(&(handle, id)));
                }
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
        let instant = self.driver.clock.instant_of(now);
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
            self.driver.endpoint.handle_event(handle, noq_proto::EndpointEvent::drained());
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
        for _ in 0..self.driver.ready.len() {
            let Some(key) = self.driver.ready.pop_front() else { break };
            let Some(flow) = self.flows.get_mut(key) else { continue };
            match &mut flow.step {
                Step::Head(_) => self.read_head(key),
                Step::Connecting(..) => self.on_connecting(key),
                Step::Open(pipe) => {
                    let Some((link, _)) = self.links.get_mut(&flow.link) else { continue };
                    match self.driver.pump(pipe, link) {
                        Pumped::Waits => {}
                        Pumped::Again => self.driver.ready.push_back(key),
                        Pumped::Over => self.forget(key),
                    }
                }
                Step::Resolving(..) | Step::Gone => {}
            }
        }
        !self.driver.ready.is_empty()
    }

    fn forget(&mut self, key: usize) {
        let flow = self.flows.remove(key);
        self.by_stream.remove(&(flow.link, flow.stream));
    }

    /// Tells the client why there is no connection, and ends the stream.
    fn refuse(&mut self, key: usize, why: Reply) {
        let Some(flow) = self.flows.get(key) else { return };
        self.driver.refused += 1;
        if let Some((link, _)) = self.links.get_mut(&flow.link) {
            let _ = link.connection.send_stream(flow.stream).write(&[why as u8]);
            let _ = link.connection.send_stream(flow.stream).finish();
            let _ = link.connection.recv_stream(flow.stream).stop(0u8.into());
        }
        self.forget(key);
    }
}

impl End for Server {
    const FAREWELL: &'static str = "the server has ended";

    fn parts(&mut self) -> (&mut Driver, impl Iterator<Item = &mut Link>) {
        (&mut self.driver, self.links.values_mut().map(|(link, _)| link))
    }

    fn outlet(&mut self, _socket: usize) -> Option<&mut Outlet> {
        Some(&mut self.outlet)
    }

    fn pipe(&mut self, flow: usize) -> Option<&mut Pipe> {
        match self.flows.get_mut(flow) {
            Some(Flow { step: Step::Open(pipe), .. }) => Some(pipe),
            _ => None,
        }
    }

    fn flows(&self) -> usize {
        self.flows.len()
    }

    // It has no listeners.
    fn accept(&mut self, _listener: usize) {}

    fn turn(&mut self, now: Time) -> Result<bool, BondError> {
        let is_more_to_read = self.receive(now)?;
        while let Some((question, addresses)) = self.resolver.poll() {
            self.on_resolved(question, addresses);
        }
        self.on_timeout(now);
        Ok(self.pump() | is_more_to_read)
    }

    fn transmit(&mut self) {
        let now = self.driver.instant();
        if !self.outlet.is_full {
            self.outlet.flush();
        }
        let is_full = self.outlet.is_full;
        let Self { links, outlet, driver, .. } = self;
        for (link, _) in links.values_mut() {
            let Driver { queues, packet, .. } = &mut *driver;
            let send = |_, to, datagram: &[u8], train| {
                send_by(Some(&mut *outlet), to, datagram, train);
            };
            link.transmit(now, queues, packet, |_| is_full, send);
        }
        outlet.flush();
    }

    fn next_timeout(&self) -> Option<Time> {
        (!self.flows.is_empty() || !self.links.is_empty()).then_some(self.sweep_at)
    }
}
