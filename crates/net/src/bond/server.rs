//! The server's end: accepts QUIC connections, and opens TCP connections to destinations.

mod admission;
mod connect;
mod udp;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use connect::{Attempts, Families};
use freshline_core::session::Shares;
use freshline_core::unit::{Span, Time};
use noq_proto::{ConnectionHandle, DatagramEvent, Dir, Endpoint, StreamId};
use slab::Slab;

use super::driver::{Driver, End, run};
use super::flow::{self, Pipe, Pumped};
use super::head::Reply;
use super::link::{Link, LinkEvent, TOO_MANY, send_by};
use super::resolve::Resolver;
use super::rules::{Allow, Rules};
use super::socket::{Outlet, Parcel};
use super::status::Watcher;
use super::{BondError, Sending, Target, config, system};
use crate::handshakes::{Handshakes, Rates};
use crate::quic::{Clients, Identity};
use crate::refusal::Refusal;
use crate::stop::Stop;

/// Maximum number of clients at a time.
const LINKS: usize = 64;

/// Time limit of a handshake: some round trips on the slowest links.
const HANDSHAKE: Span = Span::from_secs(30);

/// Time limit from a stream's head to its TCP connection.
const PATIENCE: Span = Span::from_secs(10);

/// How often handshakes and streams are checked for their time limits.
const SWEEP: Span = Span::from_secs(1);

/// The configuration of a server.
#[derive(Debug)]
pub struct ServerConfig {
    /// The address to listen at.
    pub listen: SocketAddr,
    /// The server's identity.
    pub identity: Identity,
    /// The clients that it accepts.
    pub clients: Clients,
    /// How to send.
    pub sending: Sending,
    /// Private destinations that are allowed.
    pub allow: Vec<Allow>,
}

/// A stream of a client.
type StreamKey = (ConnectionHandle, StreamId);

/// A client's stream, up to and including its TCP connection.
struct ServerStream {
    link: ConnectionHandle,
    stream: StreamId,
    step: Step,
    began_at: Time,
}

enum Step {
    /// Taken out, to be moved to the next step.
    Gone,
    /// The head is incomplete.
    Head(Vec<u8>),
    /// The name is being looked up, by the question with this number.
    Resolving(u64, Wish),
    /// TCP's handshakes with the addresses of the destination.
    Connecting(Attempts),
    Open(Pipe),
}

/// The target that a head asks for, and the bytes received after the head.
struct Wish {
    target: Target,
    rest: Bytes,
}

/// A server that is ready to run.
pub struct Server {
    driver: Driver,
    quic: Arc<noq_proto::ServerConfig>,
    max_links: usize,
    rules: Rules,
    resolver: Resolver,
    /// The number of names looked up so far.
    questions: u64,
    outlet: Outlet,
    links: HashMap<ConnectionHandle, (Link, Time)>,
    /// The places of clients, by their numbers.
    shares: Shares,
    rates: Handshakes,
    flows: Slab<ServerStream>,
    by_stream: HashMap<StreamKey, usize>,
    udp: udp::Flows,
    families: Families,
    /// When the next address of a name is tried.
    next_attempt_at: Option<Time>,
    sweep_at: Time,
}

impl Server {
    /// Opens the socket.
    ///
    /// # Errors
    /// [`BondError`] if the address, the identity or the scheduler cannot be used.
    pub fn bind(config: ServerConfig) -> Result<Self, BondError> {
        let (endpoint, quic) = config::server(&config.identity, &config.clients, &config.sending)?;
        let quic = Arc::new(quic);
        let endpoint = Endpoint::new(Arc::new(endpoint), Some(Arc::clone(&quic)), true);
        let driver = Driver::new(endpoint, config.sending)?;
        let now = driver.instant();
        let address = config.listen;
        let failed = |error| BondError::Listen { address, error };
        let mut outlet = Outlet::listen(address).map_err(failed)?;
        driver.watch_outlet(&mut outlet, 0).map_err(failed)?;
        Ok(Self {
            resolver: Resolver::new(&driver.sleeper.waker()),
            driver,
            questions: 0,
            quic,
            max_links: LINKS,
            rules: Rules(config.allow),
            outlet,
            links: HashMap::new(),
            shares: Shares::default(),
            rates: Handshakes::new(Rates::default(), now),
            flows: Slab::new(),
            by_stream: HashMap::new(),
            udp: udp::Flows::default(),
            families: Families::default(),
            next_attempt_at: None,
            sweep_at: Time::ZERO,
        })
    }

    /// The listening address, with the port that was chosen for port 0.
    ///
    /// # Errors
    /// [`BondError::System`] if the system does not report it.
    pub fn local_addr(&self) -> Result<SocketAddr, BondError> {
        Ok(self.outlet.socket.udp.local_addr().map_err(system("learn its own address"))?)
    }

    /// Runs until `stop`, or until the time `until`.
    ///
    /// # Errors
    /// [`BondError`] if it cannot go on; errors of single clients do not end it.
    pub fn run(&mut self, stop: &Stop, until: Option<Time>) -> Result<(), BondError> {
        let ended = run(self, stop, until);
        // By a reset: a normal end would tell destinations that all data has arrived.
        for handle in self.links.keys().copied().collect::<Vec<_>>() {
            self.drop_flows(handle);
        }
        ended
    }

    /// A handle by which other threads read the server's reports.
    pub fn watcher(&self) -> Watcher {
        self.driver.watcher.clone()
    }

    /// Receives datagrams; returns whether there may be more.
    fn receive(&mut self, now: Time) -> Result<bool, BondError> {
        let instant = self.driver.clock.instant_of(now);
        let (mut touched, mut newcomers) = (Vec::new(), Vec::new());
        let Self { driver, outlet, links, .. } = self;
        let busy = driver.receive(outlet, None, |outlet, from, event, reply| match event {
            DatagramEvent::ConnectionEvent(handle, event) => {
                if let Some((link, _)) = links.get_mut(&handle) {
                    link.on_received(event, instant);
                    touched.push(handle);
                }
            }
            DatagramEvent::NewConnection(incoming) => newcomers.push(incoming),
            DatagramEvent::Response(transmit) => {
                outlet.push(from, Parcel::alone(&reply[..transmit.size]));
            }
        });
        for incoming in newcomers {
            self.welcome(incoming, now)?;
        }
        touched.sort_unstable_by_key(|handle| handle.0);
        touched.dedup();
        for handle in touched {
            self.settle(handle);
        }
        Ok(busy.map_err(system("receive"))?)
    }

    /// Handles the events of a connection.
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
                LinkEvent::Ready if self.clients() > self.max_links => {
                    self.make_room(handle, now);
                }
                LinkEvent::Ready => {
                    let origin = self.origin(handle);
                    self.shares.insert(handle.0 as u32, &origin);
                    tracing::info!(client = handle.0, "connected");
                }
                // Only a server can be full.
                LinkEvent::Full => self.drop_flows(handle),
                LinkEvent::Lost(reason) => {
                    tracing::info!(client = handle.0, "gone: {reason}");
                    self.drop_flows(handle);
                }
                LinkEvent::Opened => self.accept_streams(handle, now),
                LinkEvent::Stream(id) => {
                    self.driver.ready.extend(self.by_stream.get(&(handle, id)));
                }
                LinkEvent::Limit(id, limit) => {
                    if let Some(&key) = self.by_stream.get(&(handle, id))
                        && let Some(pipe) = self.pipe(key)
                    {
                        pipe.on_limit(limit);
                        self.driver.ready.push_back(key);
                    }
                }
                LinkEvent::Datagrams => self.on_frames(handle, now),
                LinkEvent::Room => {}
                LinkEvent::PathUp(id) => tracing::info!(client = handle.0, path = %id, "path up"),
                LinkEvent::PathGone(id) => {
                    tracing::info!(client = handle.0, path = %id, "path down");
                }
            }
        }
    }

    /// There is one client too many: closes this connection or another one.
    fn make_room(&mut self, handle: ConnectionHandle, now: Time) {
        let instant = self.driver.clock.instant_of(now);
        let newcomer = self.origin(handle);
        let out = self.gone(instant).filter(|out| *out != handle);
        let out = out.or_else(|| self.gives_way(&newcomer)).unwrap_or(handle);
        let reason = if out == handle { Refusal::Connections } else { Refusal::Displaced };
        self.driver.refusals.count(reason);
        self.shares.remove(out.0 as u32);
        if out != handle {
            self.shares.insert(handle.0 as u32, &newcomer);
        }
        if out != handle {
            tracing::info!(client = out.0, "closed to make room: it is silent, or one of many");
            self.drop_flows(out);
        }
        if let Some((link, _)) = self.links.get_mut(&out) {
            link.is_ready = false;
            link.close(instant, TOO_MANY);
        }
    }

    fn accept_streams(&mut self, handle: ConnectionHandle, now: Time) {
        while let Some((link, _)) = self.links.get_mut(&handle)
            && let Some(stream) = link.connection.streams().accept(Dir::Bi)
        {
            let step = Step::Head(Vec::new());
            let key = self.flows.insert(ServerStream { link: handle, stream, step, began_at: now });
            self.driver.streams += 1;
            self.by_stream.insert((handle, stream), key);
            self.driver.ready.push_back(key);
        }
    }

    fn drop_flows(&mut self, handle: ConnectionHandle) {
        self.shares.remove(handle.0 as u32);
        self.by_stream.retain(|(link, _), _| *link != handle);
        for _ in 0..self.udp.drop_client(handle) {
            self.driver.datagrams.count_down(false);
        }
        self.flows.retain(|_, flow| {
            match &flow.step {
                Step::Open(Pipe { tcp, .. }) if flow.link == handle => flow::abort(tcp),
                Step::Connecting(attempts) if flow.link == handle => {
                    attempts.tcps.iter().for_each(flow::abort);
                }
                _ => {}
            }
            flow.link != handle
        });
    }

    fn handle_timeout(&mut self, now: Time) {
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
        let is_slow = |began_at: Time| now.since(began_at) > PATIENCE;
        let stuck = self.links.iter().filter(|(_, (link, began_at))| {
            link.connection.is_handshaking() && now.since(*began_at) > HANDSHAKE
        });
        for handle in stuck.map(|(handle, _)| *handle).collect::<Vec<_>>() {
            self.driver.refusals.count(Refusal::NoSession);
            self.drop_handshake(handle);
        }
        let waiting = self.flows.iter().filter(|(_, flow)| !matches!(flow.step, Step::Open(_)));
        let late = waiting.filter(|(_, flow)| is_slow(flow.began_at)).map(|(key, _)| key);
        for key in late.collect::<Vec<_>>() {
            self.refuse(key, Reply::TimedOut);
        }
        self.udp.sweep(now);
        self.sweep_open(now);
    }

    /// Ends stuck flows and silent half-closed ones, and retries others.
    fn sweep_open(&mut self, now: Time) {
        let open = self.flows.iter_mut().filter_map(|(key, flow)| match &mut flow.step {
            Step::Open(pipe) => Some((flow.link.0, key, pipe)),
            _ => None,
        });
        let swept = flow::sweep(open, self.driver.sending.max_stuck(), now);
        self.driver.ready.extend(swept.again);
        for key in swept.over {
            let flow = &self.flows[key];
            if let (Step::Open(pipe), Some((link, _))) =
                (&flow.step, self.links.get_mut(&flow.link))
            {
                pipe.give_up(&mut link.connection);
            }
            self.forget(key);
        }
    }

    /// Moves bytes of flows that can make progress; returns whether some can go on at once.
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
                        Pumped::Blocked => {}
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

    /// Sends the client the reason why there is no connection, and ends the stream.
    fn refuse(&mut self, key: usize, why: Reply) {
        let Some(flow) = self.flows.get(key) else { return };
        self.driver.refused += 1;
        self.driver.refusals.count(Refusal::Destination);
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
            Some(ServerStream { step: Step::Open(pipe), .. }) => Some(pipe),
            _ => None,
        }
    }

    fn on_relay(&mut self, socket: usize) {
        self.udp.on_ready(socket);
    }

    fn udp_flows(&self) -> usize {
        self.udp.len()
    }

    fn flows(&self) -> usize {
        self.flows.len()
    }

    // A server has no such listeners.
    fn accept(&mut self, _listener: usize) {}

    fn turn(&mut self, now: Time) -> Result<bool, BondError> {
        let is_more_to_read = self.receive(now)?;
        while let Some((asker, addresses)) = self.resolver.poll() {
            self.on_resolved(asker, addresses);
        }
        self.handle_timeout(now);
        self.attempt_others(now);
        Ok(self.pump() | self.pump_datagrams(now) | is_more_to_read)
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
            let send = |_, to, parcel: Parcel<'_>| send_by(Some(&mut *outlet), to, parcel);
            link.transmit(now, queues, packet, |_| is_full, send);
        }
        outlet.flush();
    }

    fn poll_timeout(&self) -> Option<Time> {
        let sweep = (!self.flows.is_empty() || !self.links.is_empty()).then_some(self.sweep_at);
        Time::earliest([sweep, self.next_attempt_at])
    }
}

#[cfg(test)]
mod tests;
