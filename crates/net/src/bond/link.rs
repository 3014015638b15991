//! A QUIC connection with its paths: packets received, datagrams sent, and events.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use freshline_core::unit::Span;
use noq_proto::{
    Connection, ConnectionError, ConnectionEvent, ConnectionHandle, Dir, Endpoint, EndpointEvent,
    Event, FourTuple, PathEvent, PathId, StreamEvent, StreamId, TransportErrorCode, VarInt,
};

use super::Sending;
use super::credit::Credits;
use super::paths::{Paths, Queues};
use super::socket::{Outlet, Parcel};
use crate::batch::Address;
use crate::quic::LostReason;

/// Maximum datagrams, and bytes, per turn, before other connections are served.
const DATAGRAMS_A_TURN: usize = 256;
const BYTES_A_TURN: usize = 512 * 1024;

/// An event of a link.
#[derive(Debug)]
pub(super) enum LinkEvent {
    /// Both sides are authenticated.
    Ready,
    /// The connection is lost, and all streams with it.
    Lost(LostReason),
    /// The server has closed it because it accepts no more clients now.
    Full,
    /// The peer has opened streams.
    Opened,
    /// A stream has data to read, accepts data, or was stopped.
    Stream(StreamId),
    /// Datagrams have arrived.
    Datagrams,
    /// The peer permits a stream to send up to this many bytes.
    Limit(StreamId, u64),
    /// More streams can be opened.
    Room,
    /// This path carries data.
    PathUp(PathId),
    /// This path is gone.
    PathGone(PathId),
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) handle: ConnectionHandle,
    pub(super) connection: Connection,
    /// At a server, the client's address in the handshake. Addresses of later packets can be
    /// forged.
    pub(super) from: Option<SocketAddr>,
    pub(super) paths: Paths,
    pub(super) credits: Credits,
    gone: Vec<PathId>,
    pub(super) is_ready: bool,
    /// When its last packet arrived.
    pub(super) heard_at: Option<Instant>,
    /// Since when it has asked whether its peer is still there, without a packet since.
    pub(super) asked_at: Option<Instant>,
    /// It has ended, and the endpoint knows.
    is_drained: bool,
    /// It has more to send than one turn allows.
    has_more: bool,
}

impl Link {
    pub(super) fn new(
        handle: ConnectionHandle,
        connection: Connection,
        paths: Paths,
        sending: &Sending,
    ) -> Self {
        Self {
            handle,
            connection,
            from: None,
            paths,
            credits: Credits::new(sending),
            gone: Vec::new(),
            is_ready: false,
            heard_at: None,
            asked_at: None,
            is_drained: false,
            has_more: false,
        }
    }

    /// Handles a received packet.
    pub(super) fn on_received(&mut self, event: ConnectionEvent, now: Instant) {
        self.connection.handle_event(event);
        self.paths.on_received(now);
        (self.heard_at, self.asked_at) = (Some(now), None);
    }

    /// Asks whether the peer is still there, if it has been silent for `silence`.
    pub(super) fn ask(&mut self, silence: Duration, now: Instant) {
        let is_silent = |at| now.saturating_duration_since(at) >= silence;
        if self.asked_at.is_none() && self.heard_at.is_none_or(is_silent) {
            self.connection.ping();
            self.asked_at = Some(now);
        }
    }

    /// How long the peer has not answered whether it is still there.
    pub(super) fn unanswered(&self, now: Instant) -> Duration {
        self.asked_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }

    /// Passes the connection's events to the endpoint; returns whether the connection has ended.
    pub(super) fn settle(&mut self, endpoint: &mut Endpoint) -> bool {
        while let Some(event) = self.connection.poll_endpoint_events() {
            self.is_drained |= event.is_drained();
            if let Some(answer) = endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(answer);
            }
        }
        self.is_drained
    }

    /// Removes it from the endpoint without sending a close.
    pub(super) fn forget(mut self, endpoint: &mut Endpoint) {
        // A second notice would remove the connection that has the same place by now.
        if !self.settle(endpoint) {
            endpoint.handle_event(self.handle, EndpointEvent::drained());
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<LinkEvent> {
        loop {
            if let Some((stream, limit)) = self.credits.poll(&mut self.connection) {
                return Some(LinkEvent::Limit(stream, limit));
            }
            return Some(match self.connection.poll()? {
                // Only now does a client know that the server accepts its certificate, too.
                Event::HandshakeConfirmed if self.connection.side().is_client() => self.ready(),
                Event::Connected if self.connection.side().is_server() => self.ready(),
                Event::ConnectionLost { reason } => {
                    self.is_ready = false;
                    match is_full(&reason) {
                        true => LinkEvent::Full,
                        false => LinkEvent::Lost(reason.into()),
                    }
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => LinkEvent::Opened,
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    self.credits.accept(&mut self.connection);
                    continue;
                }
                Event::Stream(
                    StreamEvent::Readable { id }
                    | StreamEvent::Writable { id }
                    | StreamEvent::Stopped { id, .. },
                ) if self.credits.is_own(id) => continue,
                Event::Stream(StreamEvent::Available { dir: Dir::Bi }) => LinkEvent::Room,
                Event::Stream(
                    StreamEvent::Readable { id }
                    | StreamEvent::Writable { id }
                    | StreamEvent::Stopped { id, .. },
                ) => LinkEvent::Stream(id),
                Event::DatagramReceived => LinkEvent::Datagrams,
                Event::Path(PathEvent::Established { id, .. }) => {
                    self.paths.on_established(id);
                    LinkEvent::PathUp(id)
                }
                Event::Path(PathEvent::Abandoned { id, .. }) => {
                    self.gone.push(id);
                    LinkEvent::PathGone(id)
                }
                Event::Path(PathEvent::Discarded { id, .. }) => {
                    self.gone.retain(|gone| *gone != id);
                    continue;
                }
                _ => continue,
            });
        }
    }

    /// Begins a turn of sending.
    pub(super) fn begin(&mut self, queues: &mut dyn Queues, now: Instant) {
        let written = self.credits.flush(&mut self.connection);
        self.paths.on_written(written);
        self.paths.begin(&mut self.connection, queues, &self.gone, now);
    }

    fn ready(&mut self) -> LinkEvent {
        self.is_ready = true;
        self.credits.open(&mut self.connection);
        LinkEvent::Ready
    }

    /// The round-trip time of the slowest path that carries data.
    pub(super) fn rtt(&self) -> Span {
        let paths = self.paths.all().iter().filter(|path| path.is_established);
        let rtts = paths.filter_map(|path| self.connection.rtt(path.id));
        rtts.max().unwrap_or_default().into()
    }

    /// Sends all datagrams that the connection may send, by `send`: the path's local address, the
    /// destination, and the contents. `is_full` reports whether a path's socket accepts no more.
    pub(super) fn transmit(
        &mut self,
        now: Instant,
        queues: &mut dyn Queues,
        buf: &mut Vec<u8>,
        is_full: impl Fn(FourTuple) -> bool,
        mut send: impl FnMut(Option<IpAddr>, Address, Parcel<'_>),
    ) {
        self.begin(queues, now);
        self.paths.hold(is_full);
        self.has_more = false;
        let mut sent = 0;
        for _ in 0..DATAGRAMS_A_TURN {
            if sent >= BYTES_A_TURN {
                break;
            }
            buf.clear();
            let Some(mut leaving) = self.paths.poll_transmit(&mut self.connection, now, buf) else {
                return;
            };
            let transmit = leaving.transmit;
            sent += transmit.size;
            let to = Address { remote: transmit.destination, local: transmit.src_ip };
            let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
            for contents in buf[..transmit.size].chunks(segment) {
                let packet = leaving.packet.take();
                send(transmit.src_ip, to, Parcel { contents, train: leaving.train, packet });
            }
        }
        self.has_more = true;
    }

    /// When the next turn is due.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let more = self.has_more.then_some(now);
        let own = self.paths.poll_timeout(now);
        [self.connection.poll_timeout(), own, more].into_iter().flatten().min()
    }

    pub(super) fn close(&mut self, now: Instant, why: &'static str) {
        self.connection.close(now, VarInt::from_u32(0), Bytes::from_static(why.as_bytes()));
    }
}

/// The reason with which a server closes a connection beyond its maximum.
pub(super) const TOO_MANY: &str = "too many clients";

/// Whether the server has refused the connection because it is full.
fn is_full(reason: &ConnectionError) -> bool {
    match reason {
        ConnectionError::ConnectionClosed(close) => {
            close.error_code == TransportErrorCode::CONNECTION_REFUSED
        }
        ConnectionError::ApplicationClosed(close) => close.reason == TOO_MANY.as_bytes(),
        _ => false,
    }
}

/// Hands a datagram to a socket; without a socket, the datagram is lost.
pub(super) fn send_by(outlet: Option<&mut Outlet>, to: Address, parcel: Parcel<'_>) {
    if let Some(outlet) = outlet {
        outlet.push(to, parcel);
    }
}
