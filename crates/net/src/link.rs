//! The link of a source, or of a downlink's client, which carries its datagrams: a UDP socket, or a
//! QUIC connection over one.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use freshline_core::dscp::Dscp;
use freshline_core::unit::{Bytes, Span, Time};
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};

use crate::clock::Clock;
use crate::marked::Marked;
use crate::quic::{self, Client, ClientEvent, LostReason, SendOutcome};
use crate::received::{ask_for_dscp, receive};
use crate::system::{SystemError, system};
use crate::via::{self, Departures, Via};

/// How datagrams are carried.
#[derive(Debug, Clone)]
pub enum Transport {
    /// Plain UDP: for laboratories and trusted links.
    Udp,
    /// QUIC DATAGRAM frames over TLS 1.3.
    Quic {
        /// Trust and identity.
        config: quic::ClientConfig,
        /// The name that the other side's certificate must have, unless it is pinned.
        server_name: String,
    },
}

impl Transport {
    /// The longest datagram that a source sends over it; a longer state is cut into parts.
    pub fn max_datagram(&self) -> usize {
        match self {
            Self::Udp => MAX_UNFRAGMENTED,
            Self::Quic { .. } => quic::MAX_DATAGRAM,
        }
    }
}

/// An event of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// Datagrams can be sent: there is a UDP socket, or QUIC's handshake is done.
    Ready,
    /// The QUIC connection is gone.
    Lost(LostReason),
    /// The peer's host has reported that the port is unreachable.
    Unreachable,
    /// The peer's address is unknown, or this host has no route to it; it is retried. The text is
    /// the system's message.
    Waiting(String),
}

/// Why there is no link, or no link any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The operating system refused something.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The other side cannot be dialled by QUIC.
    #[error(transparent)]
    Dial(#[from] quic::DialError),
}

/// Reads datagrams from a socket.
pub(crate) trait Inlet {
    /// The metadata of a datagram.
    type Mark: Copy + Default;

    /// Prepares a socket.
    fn open(&mut self, socket: &UdpSocket) -> io::Result<()>;

    /// Reads the next datagram into `out`; bytes beyond its room are lost.
    fn receive(&mut self, socket: &UdpSocket, out: &mut [u8]) -> io::Result<(usize, Self::Mark)>;
}

/// The result of reading a socket.
#[derive(Debug)]
pub(crate) enum Fetched<T> {
    Datagram(T),
    /// No more datagrams until the socket wakes the poll.
    Nothing,
    /// No datagram yet, and maybe more packets: timers come first.
    Busy,
}

/// The maximum number of consecutive packets without a datagram of the protocol: acknowledgements
/// of QUIC, or forged ones.
const PACKETS_IN_A_ROW: usize = 256;

/// A datagram and its metadata.
pub(crate) type Received<'a, I> = (&'a [u8], <I as Inlet>::Mark);

/// Reads datagrams one after the other, each with its code point.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Plain;

impl Inlet for Plain {
    type Mark = Option<Dscp>;

    fn open(&mut self, socket: &UdpSocket) -> io::Result<()> {
        ask_for_dscp(socket)
    }

    fn receive(&mut self, socket: &UdpSocket, out: &mut [u8]) -> io::Result<(usize, Self::Mark)> {
        let received = receive(socket, out)?;
        Ok((received.len, received.info.dscp))
    }
}

/// The result of sending a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendStatus {
    /// It has left, or will leave at the next opportunity.
    Gone,
    /// It replaces a datagram that had not left yet, or was itself dropped by a full socket.
    Replaced,
}

/// Counts the bytes sent by the links that share it: IP packets, with all headers.
#[derive(Debug, Clone, Default)]
pub(crate) struct WireBytes(Arc<AtomicU64>);

impl WireBytes {
    /// Counts a datagram to `remote`.
    fn add(&self, remote: SocketAddr, datagram: &[u8]) {
        self.0.fetch_add(wire_bytes(remote, datagram.len()).get(), Ordering::Relaxed);
    }

    /// The bytes sent since the last call.
    pub(crate) fn take(&self) -> Bytes {
        Bytes::new(self.0.swap(0, Ordering::Relaxed))
    }
}

/// The length of an IP packet to `remote` with a UDP datagram of this length.
pub(crate) fn wire_bytes(remote: SocketAddr, len: usize) -> Bytes {
    let headers = if remote.is_ipv6() { IPV6_UDP } else { IPV4_UDP };
    Bytes::new((headers + len) as u64)
}

/// Headers of IPv4 (RFC 791) and UDP, without options.
const IPV4_UDP: usize = 20 + 8;

/// Headers of IPv6 (RFC 8200) and UDP, without extensions.
const IPV6_UDP: usize = 40 + 8;

pub(crate) struct Link<I: Inlet> {
    clock: Clock,
    wire_bytes: WireBytes,
    /// Its exit, and its destination.
    ends: (Via, SocketAddr),
    token: Token,
    socket: UdpSocket,
    inlet: I,
    /// The metadata of the last packet received.
    mark: I::Mark,
    quic: Option<Quic>,
    /// Departure times from the device, if requested.
    departures: Option<Departures<u64>>,
    events: VecDeque<LinkEvent>,
    /// Received bytes: of the socket, and of QUIC's last datagram.
    buffer: Vec<u8>,
}

struct Quic {
    client: Client,
    state: State,
    /// The tag of the datagram that has not left yet, as passed to [`Link::send`], and when it was
    /// given to QUIC.
    tag: Option<(Time, u64)>,
    /// An outgoing packet, kept while the socket is full, and the datagram in it.
    packet: Vec<u8>,
    packet_tag: Option<(Time, u64)>,
    /// Its code point.
    dscp: Dscp,
    unsent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Dialling,
    Ready,
    Down,
}

/// The longest UDP payload over IPv4; over IPv6 it is 20 bytes longer.
const MAX_UDP_PAYLOAD: usize = 65_507;

/// The longest UDP payload that Ethernet carries in one packet of 1500 bytes, by either family. IP
/// cuts a longer one into fragments: one lost fragment then loses the whole datagram, fragments
/// take memory at hosts and middleboxes, and many middleboxes drop them (RFC 8900). A path with a
/// smaller MTU, such as a tunnel, still fragments.
pub(crate) const MAX_UNFRAGMENTED: usize = 1500 - IPV6_UDP;

impl<I: Inlet> Link<I> {
    /// Opens a link by `via` to `remote`, whose socket wakes a poll as `token`; `wire_bytes` counts
    /// the bytes sent.
    pub(crate) fn open(
        transport: Transport,
        (via, remote): (Via, SocketAddr),
        (registry, token): (&Registry, Token),
        mut inlet: I,
        clock: Clock,
        wire_bytes: WireBytes,
    ) -> Result<Self, LinkError> {
        let quic = match transport {
            Transport::Udp => None,
            Transport::Quic { config, server_name } => {
                let now = clock.instant_of(clock.now());
                let client = Client::new(&config, remote, &server_name, now)?;
                Some(Quic {
                    client,
                    state: State::Dialling,
                    tag: None,
                    packet: Vec::new(),
                    packet_tag: None,
                    dscp: Dscp::DEFAULT,
                    unsent: false,
                })
            }
        };
        let socket = connect(&via, remote, registry, token)?;
        inlet.open(&socket).map_err(system("prepare a UDP socket"))?;
        let (buffer, mark) = (vec![0; MAX_UDP_PAYLOAD], I::Mark::default());
        let events = VecDeque::new();
        let (ends, departures) = ((via, remote), None);
        let mut link = Self {
            clock,
            wire_bytes,
            ends,
            token,
            socket,
            inlet,
            mark,
            quic,
            departures,
            events,
            buffer,
        };
        link.flush(clock.now())?;
        Ok(link)
    }

    /// Makes [`Link::fetch`] report when tagged datagrams left their device, if the kernel does.
    pub(crate) fn stamp_departures(&mut self) {
        self.departures = Some(Departures::new(self.clock));
    }

    pub(crate) fn is_dialling(&self) -> bool {
        self.quic.as_ref().is_some_and(|quic| quic.state == State::Dialling)
    }

    pub(crate) fn is_down(&self) -> bool {
        self.quic.as_ref().is_some_and(|quic| quic.state == State::Down)
    }

    /// The length of the next received datagram of the protocol, which is now at the front of
    /// [`Link::buffer`], and its metadata. Read the clock afterwards: with an earlier reading, a
    /// datagram that arrived while this process waited for a processor would seem to have arrived
    /// too early, and round trips would be too short. Before that, `on_left` gets the tags of
    /// datagrams that left their device, each with the time since [`Link::send`].
    pub(crate) fn fetch(
        &mut self,
        on_left: &mut dyn FnMut(u64, Span),
    ) -> Result<Fetched<(usize, I::Mark)>, LinkError> {
        for _ in 0..PACKETS_IN_A_ROW {
            if let Some(quic) = &mut self.quic
                && let Some(datagram) = quic.client.recv()
            {
                self.buffer[..datagram.len()].copy_from_slice(&datagram);
                return Ok(Fetched::Datagram((datagram.len(), self.mark)));
            }
            let received = self.inlet.receive(&self.socket, &mut self.buffer);
            // A departure comes before its ack.
            if let Some(departures) = &mut self.departures {
                departures.read(&self.socket, &mut *on_left);
            }
            match received {
                Ok((len, mark)) => match &mut self.quic {
                    None => return Ok(Fetched::Datagram((len, mark))),
                    Some(quic) => {
                        let now = self.clock.instant_of(self.clock.now());
                        quic.client.handle(now, self.ends.1, None, &self.buffer[..len]);
                        self.mark = mark;
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.flush(self.clock.now())?;
                    return Ok(Fetched::Nothing);
                }
                Err(error) => self.notice(&error),
            }
        }
        Ok(Fetched::Busy)
    }

    /// The data that [`Link::fetch`] has written.
    pub(crate) fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// This host's address, as chosen by the routes.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        Some(self.socket.local_addr().ok()?.ip())
    }

    /// Sends a datagram with this code point. With a tag, [`Link::fetch`] reports when it left its
    /// device, if departures are stamped.
    pub(crate) fn send(
        &mut self,
        now: Time,
        dscp: Dscp,
        datagram: &[u8],
        tag: Option<u64>,
    ) -> Result<SendStatus, LinkError> {
        let tag = tag.map(|tag| (now, tag));
        let Self { socket, ends: (_, remote), departures, quic, wire_bytes, .. } = self;
        let Some(quic) = quic else {
            let sent = send_by(socket, departures, *remote, dscp, datagram, tag);
            return Ok(match sent.inspect(|()| wire_bytes.add(*remote, datagram)) {
                Ok(()) => SendStatus::Gone,
                Err(error) => {
                    self.notice(&error);
                    SendStatus::Replaced
                }
            });
        };
        let outcome = quic.client.send_marked(datagram, dscp);
        quic.tag = tag;
        self.flush(now)?;
        Ok(if outcome == SendOutcome::Replaced { SendStatus::Replaced } else { SendStatus::Gone })
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError> {
        if let Some(quic) = &mut self.quic {
            quic.client.handle_timeout(self.clock.instant_of(now));
        }
        self.flush(now)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let at = self.quic.as_ref()?.client.poll_timeout()?;
        let now = self.clock.now();
        Some(now + at.saturating_duration_since(self.clock.instant_of(now)).into())
    }

    pub(crate) fn poll_event(&mut self) -> Option<LinkEvent> {
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

    /// Makes a new socket, as the host may have moved to another network, and redials.
    pub(crate) fn renew(&mut self, now: Time, registry: &Registry) -> Result<(), LinkError> {
        let (via, remote) = &self.ends;
        if let Ok(socket) = connect(via, *remote, registry, self.token)
            && self.inlet.open(&socket).is_ok()
        {
            // Dropping the old socket removes it from the poll.
            self.socket = socket;
            self.departures = self.departures.take().map(|_| Departures::new(self.clock));
        }
        if let Some(quic) = &mut self.quic {
            quic.client.redial(self.clock.instant_of(now));
            quic.state = State::Dialling;
        }
        self.flush(now)
    }

    /// Sends the final datagram, without a guarantee that it arrives.
    pub(crate) fn close(&mut self, now: Time, farewell: &[u8]) {
        let _ = self.send(now, Dscp::DEFAULT, farewell, None);
        self.hang_up(now);
    }

    /// Ends a QUIC connection, and notifies the peer.
    pub(crate) fn hang_up(&mut self, now: Time) {
        if let Some(quic) = &mut self.quic {
            quic.client.close(self.clock.instant_of(now));
        }
        let _ = self.flush(now);
    }

    /// Passes QUIC's packets to the socket until QUIC has no more or the socket is full.
    fn flush(&mut self, now: Time) -> Result<(), LinkError> {
        let Self { socket, ends: (_, remote), departures, quic, wire_bytes, .. } = self;
        let Some(quic) = quic else { return Ok(()) };
        let now = self.clock.instant_of(now);
        loop {
            if !quic.unsent {
                let Some(transmit) = quic.client.poll_transmit(now, &mut quic.packet) else {
                    return Ok(());
                };
                quic.dscp = transmit.dscp;
                let is_waiting = quic.client.is_datagram_waiting();
                quic.packet_tag = quic.tag.take_if(|_| !is_waiting);
            }
            quic.unsent = false;
            let tag = quic.packet_tag;
            let sent = send_by(socket, departures, *remote, quic.dscp, &quic.packet, tag);
            match sent.inspect(|()| wire_bytes.add(*remote, &quic.packet)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    quic.unsent = true;
                    return Ok(());
                }
                // Lost like any other packet; QUIC's own timers handle it.
                Err(error) => {
                    if error.kind() == io::ErrorKind::ConnectionRefused {
                        self.events.push_back(LinkEvent::Unreachable);
                    }
                }
            }
        }
    }

    /// Errors of a UDP socket concern earlier packets, or the network: none ends the link.
    fn notice(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::ConnectionRefused && self.events.len() < 8 {
            self.events.push_back(LinkEvent::Unreachable);
        }
    }
}

/// Sends by a socket that is connected to `remote`, and records the call if departures are stamped.
fn send_by(
    socket: &UdpSocket,
    departures: &mut Option<Departures<u64>>,
    remote: SocketAddr,
    dscp: Dscp,
    contents: &[u8],
    tag: Option<(Time, u64)>,
) -> io::Result<()> {
    if let Some(departures) = departures {
        departures.prepare(socket);
    }
    let (local, segment) = (None, None);
    let sent = match dscp {
        Dscp::DEFAULT => socket.send(contents).map(drop),
        _ => Marked { dscp, remote, is_connected: true, local, segment, contents }.send(socket),
    };
    if let Some(departures) = departures {
        match sent {
            Ok(()) => departures.on_sent(Vec::from_iter(tag)),
            Err(_) => departures.on_doubt(socket),
        }
    }
    sent
}

/// A socket connected to `remote`: the kernel drops packets from other senders.
fn connect(
    via: &Via,
    remote: SocketAddr,
    registry: &Registry,
    token: Token,
) -> Result<UdpSocket, LinkError> {
    let socket = via::bind(via, remote).map_err(system("open a UDP socket"))?;
    let mut socket = UdpSocket::from_std(socket);
    socket.connect(remote).map_err(system("reach the network of the other side"))?;
    registry
        .register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)
        .map_err(system("watch a socket"))?;
    Ok(socket)
}
