//! How datagrams come to a monitor and how its answers go back: plain UDP, or QUIC over it.

use std::net::SocketAddr;
use std::time::Instant;

use freshline_core::session::{self, Admission, Clocked};
use freshline_core::unit::Time;
use freshline_core::wire::{Ack, Close, CloseReason};

use crate::batch::{Address, Inbox, Outbox, Socket};
use crate::clock::Clock;
use crate::quic::{self, Server};

pub(super) enum Carrier {
    Udp(Outbox),
    Quic(Box<Quic>),
}

pub(super) struct Quic {
    server: Server,
    packet: Vec<u8>,
}

/// Hands a datagram up and writes the answer; gives the answer's length.
type Answer<'a> = dyn FnMut(Clocked, SocketAddr, &[u8], &mut [u8; Ack::LEN]) -> usize + 'a;

impl Carrier {
    pub(super) fn new(quic: Option<&quic::ServerConfig>, now: Instant) -> Self {
        match quic {
            None => Self::Udp(Outbox::new()),
            Some(config) => {
                let server = Server::new(config, now);
                Self::Quic(Box::new(Quic { server, packet: Vec::new() }))
            }
        }
    }

    /// What an address is worth here.
    pub(super) fn admission(&self) -> Admission {
        match self {
            Self::Udp(_) => Admission::Cookie,
            Self::Quic(_) => Admission::Proven,
        }
    }

    /// Hands up a batch and sends the answers.
    pub(super) fn take_in(
        &mut self,
        socket: &Socket,
        inbox: &Inbox,
        clock: Clock,
        received_at: Time,
        mut answer: impl FnMut(Clocked, SocketAddr, &[u8], &mut [u8; Ack::LEN]) -> usize,
    ) {
        let mut reply = [0; Ack::LEN];
        for train in inbox.trains() {
            // One look at the clock a train: its datagrams came in one packet of the kernel's.
            let now = clock.now();
            match self {
                Self::Udp(outbox) => {
                    for datagram in train.datagrams() {
                        let at = Clocked { received_at, now };
                        let len = answer(at, train.from.remote, datagram, &mut reply);
                        if len > 0 {
                            outbox.push(socket, train.from, &reply[..len]);
                        }
                    }
                }
                Self::Quic(quic) => {
                    let Address { remote, local } = train.from;
                    for packet in train.datagrams() {
                        quic.server.handle(clock.instant_of(now), remote, local, packet);
                        let at = Clocked { received_at, now: clock.now() };
                        quic.hand_up(at, &mut answer);
                        quic.flush(socket, clock.instant_of(now));
                    }
                }
            }
        }
        if let Self::Udp(outbox) = self {
            outbox.flush(socket);
        }
    }

    pub(super) fn on_timeout(&mut self, socket: &Socket, now: Instant) {
        if let Self::Quic(quic) = self {
            quic.server.on_timeout(now);
            while let Some(event) = quic.server.poll_event() {
                tracing::debug!(?event, "quic");
            }
            quic.flush(socket, now);
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Udp(_) => None,
            Self::Quic(quic) => quic.server.next_timeout(),
        }
    }

    /// Tells every source that the monitor stops.
    pub(super) fn say_goodbye(
        &mut self,
        socket: &Socket,
        sessions: &session::Monitor<SocketAddr>,
        now: Instant,
    ) {
        match self {
            Self::Udp(outbox) => {
                for (_, record) in sessions.records() {
                    let close =
                        Close { session: record.session, reason: CloseReason::ShuttingDown };
                    let to = Address { remote: record.peer, local: None };
                    outbox.push(socket, to, &close.bytes());
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
    fn hand_up(&mut self, at: Clocked, answer: &mut Answer<'_>) {
        let mut reply = [0; Ack::LEN];
        while let Some((connection, datagram)) = self.server.recv() {
            let Some(from) = self.server.remote_addr(connection) else { continue };
            let len = answer(at, from, &datagram, &mut reply);
            if len > 0 {
                // An answer that replaces an older one, or comes to a connection that has just
                // ended, is no loss.
                let _ = self.server.send(connection, &reply[..len]);
            }
        }
    }

    fn flush(&mut self, socket: &Socket, now: Instant) {
        while let Some(transmit) = self.server.poll_transmit(now, &mut self.packet) {
            let to = Address { remote: transmit.to, local: transmit.local_ip };
            // A packet that the socket does not take is lost like any other.
            let _ = socket.send(to, &self.packet, self.packet.len());
        }
    }
}
