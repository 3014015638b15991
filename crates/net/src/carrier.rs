//! Carries datagrams between a server (a monitor or a downlink's server) and its peers: over plain
//! UDP, or QUIC.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Instant;

use freshline_core::dscp::Dscp;
use freshline_core::session::{Admission, Clocked, Origin};
use freshline_core::unit::Bytes;
use freshline_core::wire::{Close, CloseReason, SessionId};

use crate::batch::{Address, Socket, Train};
use crate::clock::Clock;
use crate::link::{MAX_UNFRAGMENTED, wire_bytes};
use crate::network;
use crate::outbox::Outbox;
use crate::queues::Later;
use crate::quic::{self, ConnKey, SendOutcome, Server};
use crate::refusal::Refusals;

/// The sender of a datagram, and the address for answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) address: Address,
    /// The QUIC connection.
    connection: Option<ConnKey>,
    /// The party that is charged for its places. With QUIC it is the origin of the handshake, as
    /// later addresses can be forged; over UDP it is the origin of this datagram, which only counts
    /// once a cookie has proven its address.
    origin: Origin,
}

impl Peer {
    pub(crate) fn remote(&self) -> SocketAddr {
        self.address.remote
    }

    /// The party that is charged for its places; the owner identifies the certificate that it has
    /// presented, 0 without one.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// A peer with these properties.
    pub(crate) fn new(address: Address, connection: Option<ConnKey>, origin: Origin) -> Self {
        Self { address, connection, origin }
    }

    /// Its QUIC connection.
    pub(crate) fn connection(&self) -> Option<ConnKey> {
        self.connection
    }

    /// The number of its QUIC connection, never reused for another.
    pub(crate) fn serial(&self) -> Option<NonZeroU64> {
        self.connection.map(ConnKey::serial)
    }

    /// The part that must stay the same: a QUIC connection may move from address to address.
    fn place(&self) -> (Option<ConnKey>, Option<Address>) {
        (self.connection, self.connection.is_none().then_some(self.address))
    }
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Peer {}

impl Hash for Peer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place().hash(state);
    }
}

pub(crate) enum Carrier {
    Udp(Outbox),
    Quic(Box<Quic>),
}

pub(crate) struct Quic {
    server: Server,
    packet: Vec<u8>,
}

/// A received datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received<'a> {
    /// When it arrived, and when it is handed up.
    pub(crate) at: Clocked,
    pub(crate) peer: Peer,
    /// Its code point, if the kernel reported it.
    pub(crate) dscp: Option<Dscp>,
    /// The names in the certificate that its sender has presented, if it was asked for one.
    pub(crate) names: &'a [Box<str>],
    pub(crate) datagram: &'a [u8],
}

/// The answer to a datagram.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answer {
    /// The number of bytes written; 0 for no answer.
    pub(crate) len: usize,
    /// The code point of the answer.
    pub(crate) dscp: Dscp,
    /// Whether the datagram belongs to an accepted session.
    pub(crate) is_known: bool,
}

/// Hands a datagram up and writes the answer.
type HandUp<'a, const N: usize> = dyn FnMut(Received<'_>, &mut [u8; N]) -> Answer + 'a;

impl Carrier {
    pub(crate) fn new(quic: Option<&quic::ServerConfig>, now: Instant) -> Self {
        match quic {
            None => Self::Udp(Outbox::default()),
            Some(config) => {
                let server = Server::new(config, now);
                Self::Quic(Box::new(Quic { server, packet: Vec::new() }))
            }
        }
    }

    /// The maximum length of a datagram over this carrier.
    pub(crate) fn max_datagram(&self) -> usize {
        match self {
            Self::Udp(_) => MAX_UNFRAGMENTED,
            Self::Quic(_) => quic::MAX_DATAGRAM,
        }
    }

    /// The admission by address here.
    pub(crate) fn admission(&self) -> Admission {
        match self {
            Self::Udp(_) => Admission::Cookie,
            Self::Quic(_) => Admission::Proven,
        }
    }

    /// Hands datagrams up, and sends or collects the answers. Datagrams that begin a connection are
    /// deferred if possible.
    pub(crate) fn take_in<const N: usize>(
        &mut self,
        socket: &Socket,
        (train, mut later): (Train<'_>, Option<&mut Later>),
        clock: Clock,
        at: Clocked,
        mut answer: impl FnMut(Received<'_>, &mut [u8; N]) -> Answer,
    ) {
        let mut reply = [0; N];
        let (Clocked { received_at, now }, dscp) = (at, train.dscp);
        match self {
            Self::Udp(outbox) => {
                let origin = network::origin(train.from.remote, 0);
                let peer = Peer { address: train.from, connection: None, origin };
                for datagram in train.datagrams() {
                    let answer =
                        answer(Received { at, peer, dscp, names: &[], datagram }, &mut reply);
                    if answer.len > 0 {
                        outbox.push(socket, train.from, answer.dscp, &reply[..answer.len]);
                    }
                }
            }
            Self::Quic(quic) => {
                let Address { remote, local } = train.from;
                let instant = clock.instant_of(now);
                for packet in train.datagrams() {
                    if let Some(later) = &mut later
                        && quic.server.begins(remote, packet)
                    {
                        if !later.push(received_at, train.from, dscp, packet) {
                            quic.server.on_dropped(instant);
                        }
                        continue;
                    }
                    quic.server.handle(instant, remote, local, packet);
                    let at = Clocked { received_at, now: clock.now() };
                    quic.hand_up(at, dscp, instant, &mut answer);
                    quic.flush(socket, instant);
                }
            }
        }
    }

    /// Sends the collected answers.
    pub(crate) fn send_answers(&mut self, socket: &Socket) {
        if let Self::Udp(outbox) = self {
            outbox.flush(socket);
        }
    }

    pub(crate) fn handle_timeout(&mut self, socket: &Socket, now: Instant) {
        if let Self::Quic(quic) = self {
            quic.server.handle_timeout(now);
            while let Some(event) = quic.server.poll_event() {
                tracing::debug!(?event, "quic");
            }
            quic.flush(socket, now);
        }
    }

    /// Newcomers arrive faster than they are processed.
    pub(crate) fn on_crowd(&mut self, now: Instant) {
        if let Self::Quic(quic) = self {
            quic.server.on_crowd(now);
        }
    }

    /// QUIC's refusals.
    pub(crate) fn refusals(&self) -> Refusals {
        match self {
            Self::Udp(_) => Refusals::default(),
            Self::Quic(quic) => *quic.server.refusals(),
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Udp(_) => None,
            Self::Quic(quic) => quic.server.poll_timeout(),
        }
    }

    /// Sends one datagram at once, with this code point; returns the bytes sent to its peer, with
    /// all headers.
    ///
    /// # Errors
    /// The socket's errors; with QUIC also `NotConnected`: the peer must then reconnect.
    pub(crate) fn send(
        &mut self,
        socket: &Socket,
        peer: Peer,
        dscp: Dscp,
        datagram: &[u8],
        now: Instant,
    ) -> io::Result<Bytes> {
        match (self, peer.connection) {
            (Self::Quic(quic), Some(connection)) => {
                match quic.server.send_marked(connection, datagram, dscp) {
                    SendOutcome::Queued | SendOutcome::Replaced => {}
                    SendOutcome::NotConnected => return Err(io::ErrorKind::NotConnected.into()),
                    SendOutcome::TooLarge { .. } => {
                        return Err(io::ErrorKind::InvalidInput.into());
                    }
                }
                let remote = quic.server.remote_addr(connection);
                let mut bytes = Bytes::ZERO;
                quic.flush_with(socket, now, |to, len| {
                    if remote == Some(to) {
                        bytes += wire_bytes(to, len);
                    }
                });
                Ok(bytes)
            }
            _ => {
                socket.send(peer.address, dscp, datagram, datagram.len())?;
                Ok(wire_bytes(peer.address.remote, datagram.len()))
            }
        }
    }

    /// Checks certificates by another configuration from now on. Returns the numbers of the
    /// connections that it does not accept.
    pub(crate) fn replace_clients(&mut self, config: &quic::ServerConfig) -> HashSet<NonZeroU64> {
        match self {
            Self::Udp(_) => HashSet::new(),
            Self::Quic(quic) => quic.server.replace_clients(config),
        }
    }

    /// Ends these connections, and sends the reason to their peers. UDP has no connections: a peer
    /// learns of the end by its next datagram.
    pub(crate) fn close_connections(
        &mut self,
        socket: &Socket,
        connections: &HashSet<NonZeroU64>,
        reason: &str,
        now: Instant,
    ) {
        if let Self::Quic(quic) = self {
            quic.server.close_those(now, reason, |serial| connections.contains(&serial));
            quic.flush(socket, now);
        }
    }

    /// Notifies all these sessions that the server stops.
    pub(crate) fn say_goodbye(
        &mut self,
        socket: &Socket,
        sessions: impl Iterator<Item = (Address, SessionId)>,
        now: Instant,
    ) {
        match self {
            Self::Udp(outbox) => {
                for (to, session) in sessions {
                    let close = Close { session, reason: CloseReason::ShuttingDown };
                    outbox.push(socket, to, Dscp::DEFAULT, &close.bytes());
                }
                outbox.flush(socket);
            }
            Self::Quic(quic) => {
                quic.server.close_all(now, &CloseReason::ShuttingDown.to_string());
                quic.flush(socket, now);
            }
        }
    }
}

impl Quic {
    fn hand_up<const N: usize>(
        &mut self,
        at: Clocked,
        dscp: Option<Dscp>,
        now: Instant,
        answer: &mut HandUp<'_, N>,
    ) {
        let mut reply = [0; N];
        while let Some((connection, datagram)) = self.server.recv() {
            let Some(remote) = self.server.remote_addr(connection) else { continue };
            let Some(origin) = self.server.origin(connection) else { continue };
            let address = Address { remote, local: None };
            let peer = Peer { address, connection: Some(connection), origin };
            let names = self.server.names(connection);
            let Answer { len, dscp: mark, is_known } =
                answer(Received { at, peer, dscp, names, datagram: &datagram }, &mut reply);
            if is_known {
                self.server.keep(connection, now);
            }
            if len > 0 {
                // An answer that replaces an older one, or is for a connection that has just ended,
                // is not a loss.
                let _ = self.server.send_marked(connection, &reply[..len], mark);
            }
        }
    }

    fn flush(&mut self, socket: &Socket, now: Instant) {
        self.flush_with(socket, now, |_, _| {});
    }

    /// Sends due packets; `on_sent` gets the destination and length of each.
    fn flush_with(
        &mut self,
        socket: &Socket,
        now: Instant,
        mut on_sent: impl FnMut(SocketAddr, usize),
    ) {
        while let Some(transmit) = self.server.poll_transmit(now, &mut self.packet) {
            let to = Address { remote: transmit.to, local: transmit.local_ip };
            // A packet that the socket refuses is lost like any other.
            let _ = socket.send(to, transmit.dscp, &self.packet, self.packet.len());
            on_sent(transmit.to, self.packet.len());
        }
    }
}
