//! The clients that are served, each with a socket of its own towards the target.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use freshline_core::unit::{Span, Time};
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use socket2::SockRef;

use super::report::FlowReport;
use super::{EmulatorConfig, FIRST_FLOW};

/// One client.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) client: SocketAddr,
    pub(super) socket: UdpSocket,
    /// Its number among the clients, from 1 to their maximum; free again when it is forgotten.
    pub(super) station: u32,
    last_active: Time,
}

/// All clients. A token names one flow and never another, so a packet that is still on the path
/// when its flow is forgotten cannot reach a stranger.
#[derive(Debug)]
pub(super) struct Flows {
    target: SocketAddr,
    max_flows: usize,
    idle_timeout: Span,
    registry: Registry,
    by_token: HashMap<Token, Flow>,
    by_client: HashMap<SocketAddr, Token>,
    next_token: Token,
    /// Of all stations that were ever taken, those that are free again.
    free_stations: Vec<u32>,
    /// When to look for idle flows.
    sweep_at: Time,
    counts: FlowReport,
}

impl Flows {
    /// A flow is forgotten at most this part of the idle timeout too late.
    const SWEEPS_A_TIMEOUT: u64 = 8;
    /// However short the timeout, it does not keep the emulator awake.
    const MIN_SWEEP: Span = Span::from_millis(1);

    pub(super) fn new(target: SocketAddr, config: &EmulatorConfig, registry: Registry) -> Self {
        Self {
            target,
            max_flows: config.max_flows,
            idle_timeout: config.idle_timeout,
            registry,
            by_token: HashMap::new(),
            by_client: HashMap::new(),
            next_token: FIRST_FLOW,
            free_stations: Vec::new(),
            sweep_at: Time::ZERO,
            counts: FlowReport::default(),
        }
    }

    /// The flow of `client`, a new one if need be, or `None` if it is refused.
    pub(super) fn of_client(&mut self, now: Time, client: SocketAddr) -> Option<Token> {
        if let Some(token) = self.by_client.get(&client) {
            return Some(*token);
        }
        let opened =
            if self.by_token.len() < self.max_flows { self.open(now, client).ok() } else { None };
        match opened {
            Some(_) => self.counts.opened += 1,
            None => self.counts.refused_packets += 1,
        }
        opened
    }

    fn open(&mut self, now: Time, client: SocketAddr) -> io::Result<Token> {
        let unspecified = match self.target {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let mut socket = bind(unspecified)?;
        socket.connect(self.target)?;
        let token = self.next_token;
        self.registry.register(&mut socket, token, Interest::READABLE)?;
        self.next_token = Token(token.0 + 1);
        // If none is free again, those of all flows are taken: there are as many as flows.
        let next = self.by_token.len() as u32 + 1;
        let station = self.free_stations.pop().unwrap_or(next);
        self.by_token.insert(token, Flow { client, socket, station, last_active: now });
        self.by_client.insert(client, token);
        Ok(token)
    }

    pub(super) fn get(&self, token: Token) -> Option<&Flow> {
        self.by_token.get(&token)
    }

    /// Notes that something came from or for the flow; its station.
    pub(super) fn touch(&mut self, now: Time, token: Token) -> Option<u32> {
        let flow = self.by_token.get_mut(&token)?;
        flow.last_active = now;
        Some(flow.station)
    }

    /// When to call [`Flows::sweep`] next.
    pub(super) fn next_event(&self) -> Option<Time> {
        (!self.by_token.is_empty()).then_some(self.sweep_at)
    }

    /// Forgets the flows that have been idle for too long.
    pub(super) fn sweep(&mut self, now: Time) {
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + (self.idle_timeout / Self::SWEEPS_A_TIMEOUT).max(Self::MIN_SWEEP);
        let Self { by_client, by_token, counts, free_stations, idle_timeout, .. } = self;
        // Closing its socket takes a flow out of the poll.
        by_token.retain(|_, flow| {
            let keep = now.since(flow.last_active) < *idle_timeout;
            if !keep {
                by_client.remove(&flow.client);
                free_stations.push(flow.station);
                counts.expired += 1;
            }
            keep
        });
    }

    pub(super) fn report(&self) -> FlowReport {
        FlowReport { active: self.by_token.len(), ..self.counts }
    }
}

/// A UDP socket with as large a receive buffer as the system grants, up to 4 MiB.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    SockRef::from(&socket).set_recv_buffer_size(4 << 20)?;
    Ok(socket)
}
