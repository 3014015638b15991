//! The source's end: one connection to one monitor, which can be redialled.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use freshline_core::dscp::Dscp;
use noq_proto::{
    ConnectError, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig,
    EndpointEvent, Event, FourTuple, VarInt,
};
use thiserror::Error;

use super::datagram::Datagram;
use super::transmit::{Transmit, Written, write_next};
use super::{ClientConfig, LostReason, SendOutcome, TOO_SMALL, outbox, takes_our_datagrams};

/// An address that cannot be dialled.
#[derive(Debug, Error)]
pub enum DialError {
    /// Neither a host name nor an IP address.
    #[error("`{name}` is neither a host name nor an IP address")]
    BadName {
        /// The given name.
        name: String,
    },
    /// Port 0, or no particular host.
    #[error("nothing can listen at {addr}: give the monitor's own address and port")]
    BadAddress {
        /// The given address.
        addr: SocketAddr,
    },
    /// Another error of QUIC.
    #[error("cannot dial: {0}")]
    Quic(ConnectError),
}

impl From<ConnectError> for DialError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::InvalidServerName(name) => Self::BadName { name },
            ConnectError::InvalidRemoteAddress(addr) => Self::BadAddress { addr },
            other => Self::Quic(other),
        }
    }
}

/// An event of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The monitor has proved its identity, and datagrams can be sent. Whether it accepts *our*
    /// certificate is known only when the first answer arrives.
    Connected,
    /// The connection was not established or is lost. [`Client::redial`] makes a new one.
    Lost(LostReason),
}

/// A connection to a monitor. See the [module](super) for how to drive it.
///
/// - input: [`handle`](Self::handle), [`handle_timeout`](Self::handle_timeout)
/// - commands: [`send`](Self::send), [`redial`](Self::redial), [`close`](Self::close),
///   [`local_address_changed`](Self::local_address_changed)
/// - output: [`poll_event`](Self::poll_event), [`recv`](Self::recv),
///   [`poll_transmit`](Self::poll_transmit), [`poll_timeout`](Self::poll_timeout)
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    config: noq_proto::ClientConfig,
    connect_timeout: Duration,
    server: SocketAddr,
    name: String,
    link: Option<Link>,
    /// The final packets of a closed connection.
    farewell: Written,
    events: VecDeque<ClientEvent>,
}

#[derive(Debug)]
struct Link {
    handle: ConnectionHandle,
    connection: Connection,
    phase: Phase,
    /// The code point of the pending datagram.
    mark: Dscp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Dialling {
        give_up_at: Instant,
    },
    Connected,
    /// Reported as lost; stays until QUIC has sent its final packets.
    Lost,
}

impl Client {
    /// Dials `server`, which must present a certificate for `name` (not compared if a fingerprint
    /// is pinned).
    ///
    /// # Errors
    /// [`DialError`] if the address or the name cannot belong to a monitor.
    pub fn new(
        config: &ClientConfig,
        server: SocketAddr,
        name: &str,
        now: Instant,
    ) -> Result<Self, DialError> {
        let mut endpoint_config = EndpointConfig::default();
        endpoint_config.supported_versions(vec![1]);
        let mut client = Self {
            endpoint: Endpoint::new(Arc::new(endpoint_config), None, false),
            config: config.quic(),
            connect_timeout: config.connect_timeout,
            server: FourTuple::from_remote(server).remote(),
            name: name.to_owned(),
            link: None,
            farewell: Written::new(),
            events: VecDeque::new(),
        };
        client.dial(now)?;
        Ok(client)
    }

    /// Handles a UDP datagram from `from`; `local_ip` is its destination address, if known.
    pub fn handle(
        &mut self,
        now: Instant,
        from: SocketAddr,
        local_ip: Option<IpAddr>,
        bytes: &[u8],
    ) {
        let path = FourTuple::new(from, local_ip);
        // Replies to unknown packets are not sent: a source need not answer strangers.
        let mut unsent = Vec::new();
        let event = self.endpoint.handle(now, path, None, bytes.into(), &mut unsent);
        if let (Some(DatagramEvent::ConnectionEvent(_, event)), Some(link)) =
            (event, &mut self.link)
        {
            link.connection.handle_event(event);
            self.settle(now);
        }
    }

    /// Handles due timers; to be called at [`poll_timeout`](Self::poll_timeout), harmless before.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(link) = &mut self.link else { return };
        match link.phase {
            Phase::Dialling { give_up_at } if give_up_at <= now => {
                self.hang_up(now);
                self.events.push_back(ClientEvent::Lost(LostReason::NoAnswer));
            }
            _ => {
                link.connection.handle_timeout(now);
                self.settle(now);
            }
        }
    }

    /// Makes `datagram` the next to leave, replacing one that is still pending.
    pub fn send(&mut self, datagram: &[u8]) -> SendOutcome {
        self.send_marked(datagram, Dscp::DEFAULT)
    }

    /// Like [`send`](Self::send), in a packet with this code point.
    pub fn send_marked(&mut self, datagram: &[u8], dscp: Dscp) -> SendOutcome {
        match &mut self.link {
            Some(Link { connection, phase: Phase::Connected, mark, .. }) => {
                *mark = dscp;
                outbox::put(connection, datagram)
            }
            _ => SendOutcome::NotConnected,
        }
    }

    /// Whether a datagram is pending.
    pub(crate) fn is_datagram_waiting(&mut self) -> bool {
        self.link.as_mut().is_some_and(|link| outbox::is_waiting(&mut link.connection))
    }

    /// Drops the connection, if there is one, and makes a new one from the same socket. The layer
    /// above calls it, with its backoff, after [`ClientEvent::Lost`] or when it receives nothing
    /// from the monitor.
    pub fn redial(&mut self, now: Instant) {
        self.hang_up(now);
        if let Err(error) = self.dial(now) {
            self.events.push_back(ClientEvent::Lost(LostReason::Protocol(error.to_string())));
        }
    }

    /// Ends the connection and notifies the monitor; [`poll_transmit`](Self::poll_transmit) has one
    /// more packet to send.
    pub fn close(&mut self, now: Instant) {
        self.hang_up(now);
    }

    /// Announces this host's new address to the monitor (RFC 9000 §9), instead of waiting for the
    /// next update to show it; restarts any backed-off timers.
    pub fn local_address_changed(&mut self, now: Instant) {
        if let Some(link) = &mut self.link {
            link.connection.handle_network_change(None, now);
            self.settle(now);
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// The next datagram from the monitor.
    pub fn recv(&mut self) -> Option<Datagram> {
        self.link.as_mut()?.connection.datagrams().recv().map(Datagram)
    }

    /// Writes the next outgoing UDP datagram into `buf`, replacing its content.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        buf.clear();
        if let Some((transmit, bytes)) = self.farewell.pop_front() {
            buf.extend_from_slice(&bytes);
            return Some(transmit);
        }
        let Link { connection, mark, .. } = self.link.as_mut()?;
        let transmit = write_next(connection, now, *mark, buf, &mut self.farewell);
        self.settle(now);
        transmit
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due. Query it again after any other call.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let link = self.link.as_ref()?;
        let give_up_at = match link.phase {
            Phase::Dialling { give_up_at } => Some(give_up_at),
            Phase::Connected | Phase::Lost => None,
        };
        [link.connection.poll_timeout(), give_up_at].into_iter().flatten().min()
    }

    fn dial(&mut self, now: Instant) -> Result<(), DialError> {
        let (handle, connection) =
            self.endpoint.connect(now, self.config.clone(), self.server, &self.name)?;
        let phase = Phase::Dialling { give_up_at: now + self.connect_timeout };
        self.link = Some(Link { handle, connection, phase, mark: Dscp::DEFAULT });
        Ok(())
    }

    /// Forgets the connection; its closing packets, if it has any left, become the farewell.
    fn hang_up(&mut self, now: Instant) {
        let Some(mut link) = self.link.take() else { return };
        link.connection.close(now, VarInt::from_u32(0), Bytes::from_static(b"the source left"));
        let (mut bytes, mut rest) = (Vec::new(), Written::new());
        let first = write_next(&mut link.connection, now, link.mark, &mut bytes, &mut rest);
        self.farewell.extend(first.map(|transmit| (transmit, bytes)));
        self.farewell.extend(rest);
        self.endpoint.handle_event(link.handle, EndpointEvent::drained());
    }

    /// Passes the connection's events to the endpoint and to the caller.
    fn settle(&mut self, now: Instant) {
        let Some(link) = &mut self.link else { return };
        let mut drained = false;
        while let Some(event) = link.connection.poll_endpoint_events() {
            drained |= event.is_drained();
            if let Some(answer) = self.endpoint.handle_event(link.handle, event) {
                link.connection.handle_event(answer);
            }
        }
        while let Some(event) = link.connection.poll() {
            match event {
                Event::Connected if takes_our_datagrams(&mut link.connection) => {
                    link.phase = Phase::Connected;
                    self.events.push_back(ClientEvent::Connected);
                }
                Event::Connected => {
                    link.connection.close(now, VarInt::from_u32(0), TOO_SMALL.into());
                    link.phase = Phase::Lost;
                    let reason = LostReason::Protocol(TOO_SMALL.into());
                    self.events.push_back(ClientEvent::Lost(reason));
                }
                Event::ConnectionLost { reason } => {
                    link.phase = Phase::Lost;
                    self.events.push_back(ClientEvent::Lost(reason.into()));
                }
                _ => {}
            }
        }
        if drained {
            self.link = None;
        }
    }
}
