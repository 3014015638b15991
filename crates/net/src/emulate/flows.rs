//! The clients that are served, each with its own socket towards the target.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use freshline_core::unit::{Span, Time};
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use socket2::SockRef;

use super::report::FlowReport;
use super::{EmulatorConfig, FIRST_FLOW};
use crate::received::ask_for_dscp;

/// One client.
#[derive(Debug)]
pub(super) struct ClientFlow {
    pub(super) client: SocketAddr,
    /// The address of this host that the client sends to, if there may be several.
    pub(super) local: Option<IpAddr>,
    pub(super) socket: UdpSocket,
    /// Its number among the clients, from 1 to their maximum; free again when the client is
    /// forgotten.
    pub(super) station: u32,
    last_active: Time,
}

/// All clients. A token names one flow and is never reused, so a packet that is still on the path
/// when its flow is forgotten cannot reach another client.
#[derive(Debug)]
pub(super) struct Flows {
    target: SocketAddr,
    max_flows: usize,
    idle_timeout: Span,
    rest: Span,
    registry: Registry,
    by_token: HashMap<Token, ClientFlow>,
    by_client: HashMap<(SocketAddr, Option<IpAddr>), Token>,
    next_token: Token,
    /// Released station numbers, free to be used again.
    free_stations: Vec<u32>,
    /// When to look for idle flows.
    sweep_at: Time,
    counts: FlowReport,
}

impl Flows {
    /// An idle flow is forgotten late by at most this fraction (1/8) of the idle timeout.
    const SWEEPS_A_TIMEOUT: u64 = 8;
    /// The minimum interval, so that a short timeout does not keep the emulator awake.
    const MIN_SWEEP: Span = Span::from_millis(1);

    pub(super) fn new(target: SocketAddr, config: &EmulatorConfig, registry: Registry) -> Self {
        Self {
            target,
            max_flows: config.max_flows,
            idle_timeout: config.idle_timeout,
            rest: config.rest,
            registry,
            by_token: HashMap::new(),
            by_client: HashMap::new(),
            next_token: FIRST_FLOW,
            free_stations: Vec::new(),
            sweep_at: Time::ZERO,
            counts: FlowReport::default(),
        }
    }

    pub(super) fn target(&self) -> SocketAddr {
        self.target
    }

    /// The flow of `client`, which sends to `local`; a new one if needed, or `None` if it is
    /// refused.
    pub(super) fn of_client(
        &mut self,
        now: Time,
        client: SocketAddr,
        local: Option<IpAddr>,
    ) -> Option<Token> {
        if let Some(token) = self.by_client.get(&(client, local)) {
            return Some(*token);
        }
        if self.by_token.len() >= self.max_flows {
            self.make_room(now);
        }
        let has_room = self.by_token.len() < self.max_flows;
        let opened = if has_room { self.open(now, client, local).ok() } else { None };
        match opened {
            Some(_) => self.counts.opened += 1,
            None => self.counts.refused_packets += 1,
        }
        opened
    }

    /// Forgets the flow that has been silent for the longest time, if that is at least the rest.
    fn make_room(&mut self, now: Time) {
        let longest = self.by_token.iter().min_by_key(|(_, flow)| flow.last_active);
        let Some((&token, flow)) = longest else { return };
        if now.since(flow.last_active) < self.rest {
            return;
        }
        if let Some(flow) = self.by_token.remove(&token) {
            self.by_client.remove(&(flow.client, flow.local));
            self.free_stations.push(flow.station);
            self.counts.expired += 1;
        }
    }

    fn open(&mut self, now: Time, client: SocketAddr, local: Option<IpAddr>) -> io::Result<Token> {
        let unspecified = match self.target {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let mut socket = bind(unspecified)?;
        socket.connect(self.target)?;
        ask_for_dscp(&socket)?;
        let token = self.next_token;
        self.registry.register(&mut socket, token, Interest::READABLE)?;
        self.next_token = Token(token.0 + 1);
        // If none was released, the active flows have exactly the numbers 1 to the number of flows.
        let next = self.by_token.len() as u32 + 1;
        let station = self.free_stations.pop().unwrap_or(next);
        self.by_token
            .insert(token, ClientFlow { client, local, socket, station, last_active: now });
        self.by_client.insert((client, local), token);
        Ok(token)
    }

    pub(super) fn get(&self, token: Token) -> Option<&ClientFlow> {
        self.by_token.get(&token)
    }

    /// Notes that a packet came from or for the flow.
    pub(super) fn touch(&mut self, now: Time, token: Token) -> Option<&ClientFlow> {
        let flow = self.by_token.get_mut(&token)?;
        flow.last_active = now;
        Some(flow)
    }

    /// When to call [`Flows::sweep`] next.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        (!self.by_token.is_empty()).then_some(self.sweep_at)
    }

    /// Forgets the flows that have been idle for too long.
    pub(super) fn sweep(&mut self, now: Time) {
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + (self.idle_timeout / Self::SWEEPS_A_TIMEOUT).max(Self::MIN_SWEEP);
        let Self { by_client, by_token, counts, free_stations, idle_timeout, .. } = self;
        // Closing its socket removes a flow from the poll.
        by_token.retain(|_, flow| {
            let keep = now.since(flow.last_active) < *idle_timeout;
            if !keep {
                by_client.remove(&(flow.client, flow.local));
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
