//! What carries a source's datagrams: a UDP socket, or a QUIC connection over one.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use freshline_core::unit::Time;
use mio::net::UdpSocket;
use mio::{Interest, Registry};

use super::{SOCKET, SourceError, system};
use crate::clock::Clock;
use crate::quic::{self, Client, ClientEvent, LostReason, SendOutcome};

/// How datagrams are carried.
#[derive(Debug, Clone)]
pub enum Transport {
    /// Plain UDP: for laboratories and trusted links.
    Udp,
    /// QUIC DATAGRAM frames over TLS 1.3.
    Quic {
        /// Trust and identity.
        config: quic::ClientConfig,
        /// The name that the monitor's certificate must have, unless it is pinned.
        server_name: String,
    },
}

/// What happens to a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// QUIC's handshake is done: datagrams can be sent.
    Ready,
    /// The QUIC connection is gone.
    Lost(LostReason),
    /// The host of the monitor says that nobody listens there.
    Unreachable,
}

/// What became of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// It left, or will with the next chance.
    Gone,
    /// It takes the place of one that had not left yet, or was itself dropped by a full socket.
    Replaced,
}

pub(super) struct Link {
    clock: Clock,
    monitor: SocketAddr,
    socket: UdpSocket,
    quic: Option<Quic>,
    events: VecDeque<LinkEvent>,
    /// Received bytes: of the socket, and of QUIC's last datagram.
    buffer: Vec<u8>,
}

struct Quic {
    client: Client,
    state: State,
    /// An outgoing packet, kept while the socket is full.
    packet: Vec<u8>,
    unsent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Dialling,
    Ready,
    Down,
}

/// The longest UDP payload over IPv4; IPv6 has 20 bytes more, which nobody should use.
const MAX_UDP_PAYLOAD: usize = 65_507;

impl Link {
    pub(super) fn open(
        transport: Transport,
        monitor: SocketAddr,
        registry: &Registry,
        clock: Clock,
    ) -> Result<Self, SourceError> {
        let quic = match transport {
            Transport::Udp => None,
            Transport::Quic { config, server_name } => {
                let now = clock.instant_of(clock.now());
                let client = Client::new(&config, monitor, &server_name, now)?;
                Some(Quic { client, state: State::Dialling, packet: Vec::new(), unsent: false })
            }
        };
        let socket = connect(monitor, registry)?;
        let buffer = vec![0; MAX_UDP_PAYLOAD];
        let mut link = Self { clock, monitor, socket, quic, events: VecDeque::new(), buffer };
        link.flush(clock.now())?;
        Ok(link)
    }

    /// The longest datagram that [`Link::send`] takes.
    pub(super) fn max_datagram(&self) -> usize {
        if self.quic.is_some() { quic::MAX_DATAGRAM } else { MAX_UDP_PAYLOAD }
    }

    pub(super) fn hint_for_more(&self) -> &'static str {
        if self.quic.is_some() { ", or use udp:// on a trusted link" } else { "" }
    }

    pub(super) fn is_dialling(&self) -> bool {
        self.quic.as_ref().is_some_and(|quic| quic.state == State::Dialling)
    }

    pub(super) fn is_down(&self) -> bool {
        self.quic.as_ref().is_some_and(|quic| quic.state == State::Down)
    }

    /// The next datagram of the protocol that has come.
    pub(super) fn receive(&mut self, now: Time) -> Result<Option<&[u8]>, SourceError> {
        loop {
            if let Some(quic) = &mut self.quic
                && let Some(datagram) = quic.client.recv()
            {
                self.buffer[..datagram.len()].copy_from_slice(&datagram);
                return Ok(Some(&self.buffer[..datagram.len()]));
            }
            match self.socket.recv(&mut self.buffer) {
                Ok(len) => match &mut self.quic {
                    None => return Ok(Some(&self.buffer[..len])),
                    Some(quic) => {
                        let now = self.clock.instant_of(now);
                        quic.client.handle(now, self.monitor, None, &self.buffer[..len]);
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.flush(now)?;
                    return Ok(None);
                }
                Err(error) => self.notice(&error),
            }
        }
    }

    pub(super) fn send(&mut self, now: Time, datagram: &[u8]) -> Result<Sent, SourceError> {
        let Some(quic) = &mut self.quic else {
            return Ok(match self.socket.send(datagram) {
                Ok(_) => Sent::Gone,
                Err(error) => {
                    self.notice(&error);
                    Sent::Replaced
                }
            });
        };
        let outcome = quic.client.send(datagram);
        self.flush(now)?;
        Ok(if outcome == SendOutcome::Replaced { Sent::Replaced } else { Sent::Gone })
    }

    pub(super) fn on_timer(&mut self, now: Time) -> Result<(), SourceError> {
        if let Some(quic) = &mut self.quic {
            quic.client.on_timeout(self.clock.instant_of(now));
        }
        self.flush(now)
    }

    pub(super) fn next_timer(&self) -> Option<Time> {
        let at = self.quic.as_ref()?.client.next_timeout()?;
        let now = self.clock.now();
        Some(now + at.saturating_duration_since(self.clock.instant_of(now)).into())
    }

    pub(super) fn poll_event(&mut self) -> Option<LinkEvent> {
        if let Some(quic) = &mut self.quic
            && let Some(event) = quic.client.poll_event()
        {
            return Some(match event {
                ClientEvent::Connected => {
                    quic.state = State::Ready;
                    LinkEvent::Ready
                }
                ClientEvent::Lost(reason) => {
                    quic.state = State::Down;
                    LinkEvent::Lost(reason)
                }
            });
        }
        self.events.pop_front()
    }

    /// Makes a new socket, as the host may have moved to another network, and dials again.
    pub(super) fn renew(&mut self, now: Time, registry: &Registry) -> Result<(), SourceError> {
        if let Ok(socket) = connect(self.monitor, registry) {
            // Dropping the old socket takes it out of the poll.
            self.socket = socket;
        }
        if let Some(quic) = &mut self.quic {
            quic.client.redial(self.clock.instant_of(now));
            quic.state = State::Dialling;
        }
        self.flush(now)
    }

    /// Sends the last words; whether they arrive is the network's affair.
    pub(super) fn close(&mut self, now: Time, farewell: &[u8]) {
        let _ = self.send(now, farewell);
        if let Some(quic) = &mut self.quic {
            quic.client.close(self.clock.instant_of(now));
        }
        let _ = self.flush(now);
    }

    /// Hands QUIC's packets to the socket until either has enough.
    fn flush(&mut self, now: Time) -> Result<(), SourceError> {
        let Some(quic) = &mut self.quic else { return Ok(()) };
        let now = self.clock.instant_of(now);
        loop {
            if !quic.unsent && quic.client.poll_transmit(now, &mut quic.packet).is_none() {
                return Ok(());
            }
            quic.unsent = false;
            match self.socket.send(&quic.packet) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    quic.unsent = true;
                    return Ok(());
                }
                // Lost like any other packet; QUIC's own timers take care of it.
                Err(error) => {
                    if error.kind() == io::ErrorKind::ConnectionRefused {
                        self.events.push_back(LinkEvent::Unreachable);
                    }
                }
            }
        }
    }

    /// Errors of a UDP socket speak of packets sent before, or of the network: none is the end.
    fn notice(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::ConnectionRefused && self.events.len() < 8 {
            self.events.push_back(LinkEvent::Unreachable);
        }
    }
}

/// A socket that talks with `monitor` alone: the kernel drops what others send to it.
fn connect(monitor: SocketAddr, registry: &Registry) -> Result<UdpSocket, SourceError> {
    let any: IpAddr = match monitor {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut socket = UdpSocket::bind((any, 0).into()).map_err(system("open a UDP socket"))?;
    socket.connect(monitor).map_err(system("reach the monitor's network"))?;
    registry
        .register(&mut socket, SOCKET, Interest::READABLE | Interest::WRITABLE)
        .map_err(system("watch a socket"))?;
    Ok(socket)
}
