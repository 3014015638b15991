//! The client's end: programs' connections in, one QUIC connection over several interfaces out.

mod program;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use freshline_core::unit::{Span, Time};
use mio::net::TcpListener;
use noq_proto::{
    DatagramEvent, Endpoint, EndpointConfig, FourTuple, PathId, PathStatus, StreamId, VarInt,
};
use program::{Flow, Step, advance};
use slab::Slab;

use super::driver::{Driver, End, Watched, run};
use super::flow::{self, Pipe, Pumped};
use super::link::{Link, LinkEvent, send_by};
use super::socket::Outlet;
use super::status::Watcher;
use super::{BondError, Sending, Target, config, system};
use crate::quic::{Identity, LostReason, Trust};
use crate::stop::Stop;
use crate::via::{Interfaces, Via};

/// How often interfaces are looked at, paths that are missing are opened, and flows that take too
/// long are ended.
const LOOK_AROUND: Span = Span::from_millis(250);

/// How long a handshake may take before the next interface is tried.
const DIAL_TIMEOUT: Span = Span::from_secs(3);

/// A path that was given up is tried again after this time.
const RETRY: Span = Span::from_millis(500);

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
    /// SOCKS5 or HTTP's CONNECT.
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
    /// The number of the interface that it is bound to.
    device: Option<u32>,
    /// There was no socket to be had, which was said.
    is_in_trouble: bool,
    path: Option<PathId>,
    retry_at: Time,
}

struct Listener {
    socket: TcpListener,
    target: Option<Target>,
    /// The system has no descriptors left for who waits there.
    is_short: bool,
}

/// A client that is ready to run.
pub struct Client {
    driver: Driver,
    quic: noq_proto::ClientConfig,
    server: SocketAddr,
    server_name: String,
    link: Option<Link>,
    ways: Vec<Way>,
    /// The one by which the first path goes.
    dialled: usize,
    give_up_at: Time,
    look_at: Time,
    was_ready: bool,
    /// The server does not answer, which was said.
    is_without_answer: bool,
    listeners: Vec<Listener>,
    flows: Slab<Flow>,
    by_stream: HashMap<StreamId, usize>,
}

impl Client {
    /// Opens the sockets.
    ///
    /// # Errors
    /// [`BondError`] says what is missing.
    pub fn bind(config: ClientConfig) -> Result<Self, BondError> {
        let quic = config::client(&config.trust, &config.identity, &config.sending)?;
        let mut endpoint = EndpointConfig::default();
        endpoint.supported_versions(vec![1]);
        let endpoint = Endpoint::new(Arc::new(endpoint), None, true);
        let driver = Driver::new(endpoint, config.sending)?;
        let mut listeners = Vec::new();
        for (address, target) in config.listen {
            let failed = |error| BondError::Listen { address, error };
            let mut socket = TcpListener::bind(address).map_err(failed)?;
            driver.watch(&mut socket, Watched::Listener(listeners.len())).map_err(failed)?;
            listeners.push(Listener { socket, target, is_short: false });
        }
        let vias = if config.vias.is_empty() { vec![(Via::Any, None)] } else { config.vias };
        let label = |index: usize| Ipv4Addr::from(0xf000_0001 + index as u32).into();
        let ways = vias.into_iter().enumerate().map(|(index, (via, peer))| Way {
            via,
            peer: FourTuple::from_remote(peer.unwrap_or(config.server)).remote(),
            label: label(index),
            outlet: None,
            device: None,
            is_in_trouble: false,
            path: None,
            retry_at: Time::ZERO,
        });
        Ok(Self {
            driver,
            quic,
            server: FourTuple::from_remote(config.server).remote(),
            server_name: config.server_name,
            link: None,
            ways: ways.collect(),
            dialled: 0,
            give_up_at: Time::ZERO,
            look_at: Time::ZERO,
            was_ready: false,
            is_without_answer: false,
            listeners,
            flows: Slab::new(),
            by_stream: HashMap::new(),
        })
    }

    /// Where it listens, with the ports that were chosen for port 0.
    ///
    /// # Errors
    /// [`BondError::System`] if the system does not say.
    pub fn local_addrs(&self) -> Result<Vec<SocketAddr>, BondError> {
        let addresses = self.listeners.iter().map(|listener| listener.socket.local_addr());
        Ok(addresses.collect::<Result<_, _>>().map_err(system("learn its own address"))?)
    }

    /// Runs until `stop`, or until `until` has come.
    ///
    /// # Errors
    /// [`BondError`] where it cannot go on; that no path is there is none.
    pub fn run(&mut self, stop: &Stop, until: Option<Time>) -> Result<(), BondError> {
        let ended = run(self, stop, until);
        self.lose();
        ended
    }

    /// Something through which other threads see how the client fares.
    pub fn watcher(&self) -> Watcher {
        self.driver.watcher.clone()
    }

    /// Takes in what has come; whether there may be more.
    fn receive(&mut self) -> Result<bool, BondError> {
        let mut busy = false;
        let now = self.driver.instant();
        let Self { driver, ways, link, .. } = self;
        for way in ways {
            let Some(outlet) = &mut way.outlet else { continue };
            // Replies to unknown packets stay unsent.
            let received = driver.receive(outlet, Some(way.label), |_, _, event, _| {
                if let (DatagramEvent::ConnectionEvent(_, event), Some(link)) =
                    (event, link.as_mut())
                {
                    link.connection.handle_event(event);
                    link.paths.on_received(now);
                }
            });
            // An error: the interface is down, perhaps; that is seen elsewhere.
            busy |= received.unwrap_or(false);
        }
        self.settle()?;
        Ok(busy)
    }

    /// Now and then: opens sockets of interfaces that have come, closes those of interfaces that have
    /// gone, opens the paths that are missing, and ends what takes too long.
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
        match Interfaces::read() {
            Ok(interfaces) => {
                for index in 0..self.ways.len() {
                    self.look_at_way(index, &interfaces, now);
                }
            }
            // No descriptors are left, perhaps; what was known still holds.
            Err(error) => tracing::debug!("interfaces cannot be listed: {error}"),
        }
        if self.link.is_none() {
            self.dial(now)?;
        }
        self.open_paths(now);
        Ok(())
    }

    fn look_at_way(&mut self, index: usize, interfaces: &Interfaces, now: Time) {
        let Self { driver, ways, link, .. } = self;
        let way = &mut ways[index];
        let is_there = interfaces.has(&way.via, way.peer);
        // A new interface with an old name is none that the socket is bound to.
        let device = is_there.then(|| interfaces.index(&way.via)).flatten();
        if way.outlet.is_some() && (!is_there || device != way.device) {
            tracing::info!(via = %way.via, "gone");
            way.outlet = None;
            if let (Some(link), Some(path)) = (link, way.path) {
                // The last path stays, for when the interface comes back.
                let instant = driver.clock.instant_of(now);
                let _ = link.connection.close_path(instant, path, VarInt::from_u32(0));
            }
        }
        if !is_there || way.outlet.is_some() {
            return;
        }
        let opened = Outlet::open(&way.via, way.peer).and_then(|mut outlet| {
            driver.watch(&mut outlet.socket.udp, Watched::Socket(index))?;
            Ok(outlet)
        });
        match opened {
            Ok(outlet) => {
                (way.outlet, way.device, way.is_in_trouble) = (Some(outlet), device, false);
                if let Some(name) = interfaces.name(&way.via) {
                    driver.queues.label(way.label, name);
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut way.is_in_trouble, true) {
                    tracing::warn!(via = %way.via, "no socket: {error}");
                }
            }
        }
    }

    fn dial(&mut self, now: Time) -> Result<(), BondError> {
        let count = self.ways.len();
        let next = (0..count).map(|step| (self.dialled + step) % count);
        let Some(index) = next.into_iter().find(|index| self.ways[*index].outlet.is_some()) else {
            return Ok(());
        };
        let instant = self.driver.clock.instant_of(now);
        let server = self.ways[index].peer;
        let (handle, connection) = self
            .driver
            .endpoint
            .connect(instant, self.quic.clone(), server, &self.server_name)
            .map_err(|error| BondError::Dial { server, error })?;
        self.link = Some(self.driver.link(handle, connection, instant)?);
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
        let instant = self.driver.clock.instant_of(now);
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
        let instant = self.driver.clock.instant_of(now);
        let Some(link) = &mut self.link else { return Ok(()) };
        link.connection.handle_timeout(instant);
        if !link.is_ready && !link.connection.is_closed() && now >= self.give_up_at {
            link.close(instant, "no answer");
            if !std::mem::replace(&mut self.is_without_answer, true) {
                tracing::warn!(server = %self.server, "no answer; trying again");
            }
            // The server may think that it is connected.
            self.transmit();
            self.lose();
            // By another interface, if there is one.
            self.dialled = (self.dialled + 1) % self.ways.len();
        }
        self.settle()
    }

    /// Takes note of what has happened to the connection.
    fn settle(&mut self) -> Result<(), BondError> {
        let now = self.driver.clock.now();
        loop {
            let Some(link) = &mut self.link else { return Ok(()) };
            let is_drained = link.settle(&mut self.driver.endpoint);
            let Some(event) = link.poll_event() else {
                if is_drained {
                    self.lose();
                }
                return Ok(());
            };
            match event {
                LinkEvent::Ready => {
                    (self.was_ready, self.is_without_answer) = (true, false);
                    tracing::info!(server = %self.server, "connected");
                    self.open_paths(now);
                    self.wake_all();
                }
                LinkEvent::Lost(reason) => {
                    // Where we have ended it, the server does not know yet.
                    self.transmit();
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
                LinkEvent::Stream(id) => self.driver.ready.extend(self.by_stream.get(&id)),
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
        self.driver.ready.extend(self.flows.iter().map(|(key, _)| key));
    }

    /// The connection is gone, and all streams with it.
    fn lose(&mut self) {
        if let Some(link) = self.link.take() {
            link.forget(&mut self.driver.endpoint);
        }
        self.by_stream.clear();
        self.flows.retain(|_, flow| {
            let tcp = match &flow.step {
                Step::Waiting(..) | Step::Greeting(..) => return true,
                Step::Gone => return false,
                Step::Asked(program, ..) => &program.tcp,
                Step::Open(pipe) => &pipe.tcp,
            };
            flow::abort(tcp);
            false
        });
    }

    /// Ends flows that wait for too long, and those of whom nothing is to be expected.
    fn sweep(&mut self, now: Time) {
        let late = self.flows.iter_mut().filter_map(|(key, flow)| flow.is_late(now).then_some(key));
        let mut over: Vec<_> = late.collect();
        self.driver.refused += over.len() as u64;
        let open = self.flows.iter_mut().filter_map(|(key, flow)| match &mut flow.step {
            Step::Open(pipe) => Some((0, key, pipe)),
            _ => None,
        });
        let swept = flow::sweep(open, self.driver.sending.most_stuck(), now);
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
        if let Some(stream) = self.flows.remove(key).stream() {
            self.by_stream.remove(&stream);
        }
    }

    /// Moves bytes of the flows that can go on; whether some could go on at once.
    fn pump(&mut self) -> bool {
        for _ in 0..self.driver.ready.len() {
            let Self { link, flows, by_stream, driver, .. } = self;
            let Some(key) = driver.ready.pop_front() else { break };
            let Some(flow) = flows.get_mut(key) else { continue };
            let link = link.as_mut().filter(|link| link.is_ready);
            let was_asked = matches!(flow.step, Step::Asked(..));
            match advance(flow, link, by_stream, key, driver) {
                Pumped::Waits => {}
                Pumped::Again => driver.ready.push_back(key),
                Pumped::Over => {
                    driver.refused += u64::from(was_asked && matches!(flow.step, Step::Gone));
                    self.forget(key);
                }
            }
        }
        !self.driver.ready.is_empty()
    }
}

impl End for Client {
    const FAREWELL: &'static str = "the client has ended";

    fn parts(&mut self) -> (&mut Driver, impl Iterator<Item = &mut Link>) {
        (&mut self.driver, self.link.iter_mut())
    }

    fn outlet(&mut self, socket: usize) -> Option<&mut Outlet> {
        self.ways.get_mut(socket)?.outlet.as_mut()
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

    fn accept(&mut self, listener: usize) {
        self.accept_programs(listener);
    }

    fn turn(&mut self, now: Time) -> Result<bool, BondError> {
        let is_more_to_read = self.receive()?;
        self.look_around(now)?;
        self.on_timeout(now)?;
        Ok(self.pump() | is_more_to_read)
    }

    fn transmit(&mut self) {
        let now = self.driver.instant();
        let Self { link, ways, dialled, driver, .. } = self;
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
        let Driver { queues, packet, .. } = driver;
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

    fn next_timeout(&self) -> Option<Time> {
        Some(self.look_at)
    }
}
