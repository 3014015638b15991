//! The client's end: accepts connections of programs, and carries them in one QUIC connection over
//! several interfaces.

mod client_paths;
mod events;
mod program;
#[cfg(test)]
mod tests;
mod udp;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use client_paths::ClientPath;
use freshline_core::unit::{Span, Time};
use mio::net::TcpListener;
use noq_proto::{DatagramEvent, Endpoint, FourTuple, PathId, PathStatus, StreamId};
use program::{ProgramConnection, Step, advance};
use slab::Slab;
use udp::Associations;

use super::driver::{Driver, End, Watched, run};
use super::flow::{self, Pipe, Pumped};
use super::link::{Link, send_by};
use super::socket::Outlet;
use super::status::{ViaReport, Watcher};
use super::{BondError, Sending, Target, config, system};
use crate::dial::{Lookup, Remote};
use crate::quic::{Identity, Trust};
use crate::stop::Stop;
use crate::via::{self, Interfaces, Via, ViaPath};

/// How often interfaces are listed, missing paths are opened, and flows that exceed their time
/// limits are ended.
const LOOK_AROUND: Span = Span::from_millis(250);

/// The time limit for the first answer of the server to a handshake, after which the next address
/// or interface is tried; shorter if the server has several addresses. It doubles each time that
/// all attempts had no answer, up to [`MAX_DIAL_TIMEOUT`].
const DIAL_TIMEOUT: Span = Span::from_secs(3);
const SHORT_DIAL_TIMEOUT: Span = Span::from_millis(375);
const MAX_DIAL_TIMEOUT: Span = Span::from_secs(24);

/// The time until a name is looked up again after a failure.
const LOOKUP_RETRY: Span = Span::from_secs(2);

/// The maximum number of addresses per name that are tried.
const MAX_ADDRESSES: usize = 8;

/// The time limit of a handshake once the server has answered.
const HANDSHAKE_TIMEOUT: Span = Span::from_secs(30);

/// The delay before the client connects again after a refusal or a short connection. It doubles
/// each time, up to [`MAX_BACKOFF`]; a random delay of up to half as much is added, so that the
/// clients of one server do not connect at the same time.
const BACKOFF: Span = Span::from_millis(250);
const MAX_BACKOFF: Span = Span::from_secs(30);

/// A connection that has lasted for less than this is short.
const LASTING: Span = Span::from_secs(5);

/// The time until a path is tried again after it was given up.
const RETRY: Span = Span::from_millis(500);

/// The configuration of a client.
#[derive(Debug)]
pub struct ClientConfig {
    /// The server.
    pub server: Remote,
    /// The name that its certificate must have, unless it is pinned.
    pub server_name: String,
    /// How the client verifies the server.
    pub trust: Trust,
    /// The client's identity.
    pub identity: Identity,
    /// The interfaces or addresses by which to leave this host, each with the server's address on
    /// that path if it differs from `server`. Empty: the routes determine one path.
    pub vias: Vec<ViaPath>,
    /// How to send.
    pub sending: Sending,
    /// Where to listen for TCP connections.
    pub listen: Vec<ListenConfig>,
}

/// An address to listen at for TCP connections.
#[derive(Debug, Clone)]
pub struct ListenConfig {
    /// The address.
    pub address: SocketAddr,
    /// The destination of the connections; `None`: the program names it, by SOCKS5 (CONNECT, or UDP
    /// ASSOCIATE for datagrams) or by HTTP as to a proxy (CONNECT, or a request for `http://` in
    /// absolute form).
    pub target: Option<Target>,
}

struct Listener {
    socket: TcpListener,
    target: Option<Target>,
    /// Programs wait here to be accepted, but the process has no descriptors left.
    is_short: bool,
}

/// A client that is ready to run.
pub struct Client {
    driver: Driver,
    quic: noq_proto::ClientConfig,
    server: Remote,
    lookup: Lookup,
    /// The name must be looked up at this time.
    lookup_at: Option<Time>,
    /// The server's addresses, in the order in which they are tried, and the index of the current
    /// one.
    addresses: Vec<SocketAddr>,
    address: usize,
    /// The server's name has no address, and this has been reported.
    is_without_address: bool,
    server_name: String,
    link: Option<Link>,
    client_paths: Vec<ClientPath>,
    /// The index of the client path of the first path of the connection.
    dialled: usize,
    dialled_at: Time,
    /// The client does not connect before this time.
    dial_at: Time,
    /// Handshakes without an answer since the last connection.
    unanswered: u32,
    /// Refusals and short connections since the last connection that was not short.
    refusals: u32,
    ready_at: Option<Time>,
    look_at: Time,
    was_ready: bool,
    /// The server does not answer, and this has been reported.
    is_without_answer: bool,
    listeners: Vec<Listener>,
    flows: Slab<ProgramConnection>,
    by_stream: HashMap<StreamId, usize>,
    associations: Associations,
}

impl Client {
    /// Opens the sockets.
    ///
    /// # Errors
    /// [`BondError`] if an address, the identity or the scheduler cannot be used.
    pub fn bind(config: ClientConfig) -> Result<Self, BondError> {
        if config.vias.len() > config::PATHS as usize {
            return Err(BondError::TooManyVias { given: config.vias.len(), max: config::PATHS });
        }
        let quic = config::client(&config.trust, &config.identity)?;
        let endpoint = Endpoint::new(Arc::new(config::client_endpoint()), None, true);
        let driver = Driver::new(endpoint, config.sending)?;
        let mut listeners = Vec::new();
        for ListenConfig { address, target } in config.listen {
            let failed = |error| BondError::Listen { address, error };
            let mut socket = TcpListener::bind(address).map_err(failed)?;
            driver.watch(&mut socket, Watched::Listener(listeners.len())).map_err(failed)?;
            listeners.push(Listener { socket, target, is_short: false });
        }
        let vias = if config.vias.is_empty() { vec![Via::Any.into()] } else { config.vias };
        let client_paths = vias.into_iter().enumerate();
        let client_paths =
            client_paths.map(|(index, ViaPath { via, peer })| ClientPath::new(index, via, peer));
        Ok(Self {
            driver,
            quic,
            server: config.server,
            lookup: Lookup::default(),
            lookup_at: Some(Time::ZERO),
            addresses: Vec::new(),
            address: 0,
            is_without_address: false,
            server_name: config.server_name,
            link: None,
            client_paths: client_paths.collect(),
            dialled: 0,
            dialled_at: Time::ZERO,
            dial_at: Time::ZERO,
            unanswered: 0,
            refusals: 0,
            ready_at: None,
            look_at: Time::ZERO,
            was_ready: false,
            is_without_answer: false,
            listeners,
            flows: Slab::new(),
            by_stream: HashMap::new(),
            associations: Associations::default(),
        })
    }

    /// The listening addresses, with the ports that were chosen for port 0.
    ///
    /// # Errors
    /// [`BondError::System`] if the system does not report them.
    pub fn local_addrs(&self) -> Result<Vec<SocketAddr>, BondError> {
        let addresses = self.listeners.iter().map(|listener| listener.socket.local_addr());
        Ok(addresses.collect::<Result<_, _>>().map_err(system("learn its own address"))?)
    }

    /// Runs until `stop`, or until the time `until`.
    ///
    /// # Errors
    /// [`BondError`] if it cannot go on; a lack of paths is not an error.
    pub fn run(&mut self, stop: &Stop, until: Option<Time>) -> Result<(), BondError> {
        let ended = run(self, stop, until);
        self.lose();
        ended
    }

    /// A handle by which other threads read the client's reports.
    pub fn watcher(&self) -> Watcher {
        self.driver.watcher.clone()
    }

    /// Receives datagrams; returns whether there may be more.
    fn receive(&mut self) -> Result<bool, BondError> {
        let mut busy = false;
        let now = self.driver.instant();
        let Self { driver, client_paths, link, .. } = self;
        for client_path in client_paths {
            let Some(outlet) = &mut client_path.outlet else { continue };
            // Replies to unknown packets are not sent.
            let received = driver.receive(outlet, Some(client_path.label), |_, _, event, _| {
                if let (DatagramEvent::ConnectionEvent(_, event), Some(link)) =
                    (event, link.as_mut())
                {
                    link.on_received(event, now);
                }
            });
            // After an error the interface may be down, which `look_around` finds out.
            busy |= received.unwrap_or(false);
        }
        self.settle()?;
        Ok(busy)
    }

    /// Every [`LOOK_AROUND`]: opens sockets of new interfaces, closes the sockets of interfaces
    /// that are gone, connects or opens missing paths, and ends flows that exceed their time
    /// limits.
    fn look_around(&mut self, now: Time) -> Result<(), BondError> {
        if now < self.look_at {
            return Ok(());
        }
        self.look_at = now + LOOK_AROUND;
        for index in 0..self.listeners.len() {
            if self.listeners[index].is_short {
                self.accept_programs(index);
            }
        }
        self.sweep(now);
        self.look_up(now);
        if self.addresses.is_empty() {
            return Ok(());
        }
        match Interfaces::read() {
            Ok(interfaces) => {
                for index in 0..self.client_paths.len() {
                    self.check_path(index, &interfaces, now);
                }
            }
            // The process may have no descriptors left. The last list stays valid.
            Err(error) => tracing::debug!("interfaces cannot be listed: {error}"),
        }
        if self.link.is_none() {
            self.dial(now)?;
        }
        self.open_paths(now);
        Ok(())
    }

    fn dial(&mut self, now: Time) -> Result<(), BondError> {
        if now < self.dial_at {
            return Ok(());
        }
        let count = self.client_paths.len();
        let next = (0..count).map(|step| (self.dialled + step) % count);
        let Some(index) = next.into_iter().find(|index| self.client_paths[*index].outlet.is_some())
        else {
            return Ok(());
        };
        let instant = self.driver.clock.instant_of(now);
        let server = self.client_paths[index].peer;
        let paths = self.client_paths.iter();
        let payloads = paths.filter_map(|path| via::max_payload(&path.via, path.peer));
        let max_payload = payloads.max().unwrap_or(config::USUAL_PAYLOAD);
        let quic = config::next_client(&self.quic, &self.driver.sending, max_payload);
        let (handle, connection) = self
            .driver
            .endpoint
            .connect(instant, quic, server, &self.server_name)
            .map_err(|error| BondError::Dial { server, error })?;
        self.link = Some(self.driver.link(handle, connection, instant)?);
        self.dialled = index;
        self.dialled_at = now;
        for client_path in &mut self.client_paths {
            client_path.retry_at = Time::ZERO;
        }
        self.client_paths[index].path = Some(PathId::ZERO);
        Ok(())
    }

    fn open_paths(&mut self, now: Time) {
        let Some(link) = self.link.as_mut().filter(|link| link.is_ready) else { return };
        let instant = self.driver.clock.instant_of(now);
        for client_path in &mut self.client_paths {
            if client_path.path.is_some()
                || client_path.outlet.is_none()
                || now < client_path.retry_at
            {
                continue;
            }
            let network = FourTuple::new(client_path.peer, Some(client_path.label));
            match link.connection.open_path(network, PathStatus::Available, instant) {
                Ok(path) => client_path.path = Some(path),
                // The server has not provided enough connection IDs yet, or accepts no more paths.
                Err(error) => {
                    tracing::debug!(via = %client_path.via, "no path: {error}");
                    client_path.retry_at = now + RETRY;
                }
            }
        }
    }

    /// The time limit of the current handshake.
    fn patience(&self) -> Span {
        let has_answered = self.link.as_ref().is_some_and(|link| link.heard_at.is_some());
        let attempts = self.client_paths.len() * self.addresses.len();
        let rounds = self.unanswered / attempts.max(1) as u32;
        let first = if self.addresses.len() > 1 { SHORT_DIAL_TIMEOUT } else { DIAL_TIMEOUT };
        match has_answered {
            true => HANDSHAKE_TIMEOUT,
            false => (first * (1u64 << rounds.min(16))).min(MAX_DIAL_TIMEOUT),
        }
    }

    /// Delays the next handshake, unless the lost connection was not short.
    fn back_off(&mut self, now: Time) {
        let has_lasted = self.ready_at.take().is_some_and(|at| now.since(at) >= LASTING);
        self.refusals = if has_lasted { 0 } else { self.refusals + 1 };
        if let Some(doublings) = self.refusals.checked_sub(1) {
            let wait = (BACKOFF * (1u64 << doublings.min(16))).min(MAX_BACKOFF);
            // The last digits of the clock are random enough here.
            self.dial_at = now + wait + wait * (now.as_nanos() % 512) / 1024;
        }
    }

    fn handle_timeout(&mut self, now: Time) -> Result<(), BondError> {
        let give_up_at = self.dialled_at + self.patience();
        let instant = self.driver.clock.instant_of(now);
        let Some(link) = &mut self.link else { return Ok(()) };
        link.connection.handle_timeout(instant);
        if !link.is_ready && !link.connection.is_closed() && now >= give_up_at {
            link.close(instant, "no answer");
            self.unanswered += 1;
            let is_one_of_several = self.client_paths.len() > 1;
            self.client_paths[self.dialled].on_no_answer(is_one_of_several);
            if !std::mem::replace(&mut self.is_without_answer, true) {
                tracing::warn!(server = %self.server, "no answer; trying again");
            }
            // For the server the connection may be complete, so it is closed.
            self.transmit();
            self.lose();
            // The next address, and after the last one the next interface, if there are more.
            self.address += 1;
            if self.address >= self.addresses.len() {
                self.address = 0;
                self.lookup_at.get_or_insert(now);
                self.dialled = (self.dialled + 1) % self.client_paths.len();
            }
            self.look_at = now;
        }
        self.settle()
    }

    fn wake_all(&mut self) {
        self.driver.ready.extend(self.flows.iter().map(|(key, _)| key));
    }

    /// The connection is gone, and all streams with it.
    fn lose(&mut self) {
        if let Some(link) = self.link.take() {
            link.forget(&mut self.driver.endpoint);
        }
        for client_path in &mut self.client_paths {
            (client_path.path, client_path.is_up) = (None, false);
        }
        self.by_stream.clear();
        self.flows.retain(|_, flow| {
            let tcp = match &flow.step {
                Step::Waiting(..) | Step::Greeting(..) | Step::Associated(..) => return true,
                Step::Gone => return false,
                Step::Asked(program, ..) => &program.tcp,
                Step::Open(pipe) => &pipe.tcp,
            };
            flow::abort(tcp);
            false
        });
    }

    /// Ends flows whose requests exceed their time limits, surplus stuck flows, and silent
    /// half-closed ones; retries others.
    fn sweep(&mut self, now: Time) {
        self.associations.sweep(now);
        let late = self.flows.iter_mut().filter_map(|(key, flow)| flow.is_late(now).then_some(key));
        let mut over: Vec<_> = late.collect();
        self.driver.refused += over.len() as u64;
        let open = self.flows.iter_mut().filter_map(|(key, flow)| match &mut flow.step {
            Step::Open(pipe) => Some((0, key, pipe)),
            _ => None,
        });
        let swept = flow::sweep(open, self.driver.sending.max_stuck(), now);
        self.driver.ready.extend(swept.again);
        over.extend(swept.over);
        for key in over {
            if let (Some(link), Some(stream)) = (&mut self.link, self.flows[key].stream()) {
                flow::reset(&mut link.connection, stream);
            }
            if let Step::Open(pipe) = &self.flows[key].step {
                flow::abort(&pipe.tcp);
            }
            self.forget(key);
        }
    }

    fn forget(&mut self, key: usize) {
        let flow = self.flows.remove(key);
        if let Some(stream) = flow.stream() {
            self.by_stream.remove(&stream);
        }
        if let Step::Associated(_, association, _) = flow.step {
            self.associations.close(association);
        }
    }

    /// Moves bytes of flows that can make progress; returns whether some can go on at once.
    fn pump(&mut self) -> bool {
        for _ in 0..self.driver.ready.len() {
            let Self { link, flows, by_stream, driver, associations, .. } = self;
            let Some(key) = driver.ready.pop_front() else { break };
            let Some(flow) = flows.get_mut(key) else { continue };
            let link = link.as_mut().filter(|link| link.is_ready);
            let was_asked = matches!(flow.step, Step::Asked(..));
            match advance(flow, link, by_stream, key, driver, associations) {
                Pumped::Blocked => {}
                Pumped::Again => driver.ready.push_back(key),
                Pumped::Over => {
                    driver.refused += u64::from(was_asked && matches!(flow.step, Step::Gone));
                    self.forget(key);
                }
            }
        }
        let link = self.link.as_mut().filter(|link| link.is_ready);
        let is_more = self.associations.pump(link, &mut self.driver);
        is_more || !self.driver.ready.is_empty()
    }
}

impl End for Client {
    const FAREWELL: &'static str = "the client has ended";

    fn parts(&mut self) -> (&mut Driver, impl Iterator<Item = &mut Link>) {
        (&mut self.driver, self.link.iter_mut())
    }

    fn outlet(&mut self, socket: usize) -> Option<&mut Outlet> {
        self.client_paths.get_mut(socket)?.outlet.as_mut()
    }

    fn pipe(&mut self, flow: usize) -> Option<&mut Pipe> {
        match &mut self.flows.get_mut(flow)?.step {
            Step::Open(pipe) => Some(pipe),
            _ => None,
        }
    }

    fn flows(&self) -> usize {
        self.flows.len()
    }

    fn on_relay(&mut self, socket: usize) {
        self.associations.on_ready(socket);
    }

    fn udp_flows(&self) -> usize {
        self.associations.len()
    }

    fn vias(&self) -> Vec<ViaReport> {
        self.client_paths.iter().map(ClientPath::report).collect()
    }

    fn accept(&mut self, listener: usize) {
        self.accept_programs(listener);
    }

    fn turn(&mut self, now: Time) -> Result<bool, BondError> {
        let is_more_to_read = self.receive()?;
        self.look_around(now)?;
        self.handle_timeout(now)?;
        Ok(self.pump() | is_more_to_read)
    }

    fn transmit(&mut self) {
        let now = self.driver.instant();
        let Self { link, client_paths, dialled, driver, .. } = self;
        let Some(link) = link else { return };
        for outlet in client_paths.iter_mut().filter_map(|client_path| client_path.outlet.as_mut())
        {
            if !outlet.is_full {
                outlet.flush();
            }
        }
        let full: Vec<_> = client_paths
            .iter()
            .filter(|client_path| client_path.outlet.as_ref().is_none_or(|outlet| outlet.is_full))
            .map(|client_path| client_path.label)
            .collect();
        let is_full = |network: FourTuple| network.local_ip().is_some_and(|ip| full.contains(&ip));
        let Driver { queues, packet, .. } = driver;
        link.transmit(now, queues, packet, is_full, |local, mut to, parcel| {
            let client_path =
                client_paths.iter_mut().enumerate().find(|(index, client_path)| match local {
                    Some(ip) => ip == client_path.label,
                    None => index == dialled,
                });
            // The label is not an address of this host; the socket has its own address.
            to.local = None;
            send_by(
                client_path.and_then(|(_, client_path)| client_path.outlet.as_mut()),
                to,
                parcel,
            );
        });
        for outlet in
            self.client_paths.iter_mut().filter_map(|client_path| client_path.outlet.as_mut())
        {
            outlet.flush();
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.look_at)
    }
}
