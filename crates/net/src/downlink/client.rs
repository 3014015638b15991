//! A client of a downlink: joins, receives packets with their times, and reports.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use freshline_core::session::downlink::{
    Client as Session, ClientEvent, ClientMessage, ClientParams, ReceivedDatagram, ReceivedPacket,
    Stamp,
};
use freshline_core::session::{Datagram, TransportState};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{CloseReason, OpeningTooLong, Packet, SessionId};
use freshline_core::wlan::{LevelCounter, Report};
use mio::Token;

use super::air::{Air, CaptureTrouble};
use super::rate::SharedRate;
use super::report::{ClientReport, Gathered};
use super::stamps::{KernelTime, Stamped, Stamps};
use crate::clock::Clock;
use crate::dial::{Dialler, Remote, Settings};
use crate::link::{Fetched, LinkError, LinkEvent, Transport, WireBytes};
use crate::quic;
use crate::run::{self, Driven, Turn};
use crate::sleeper::Sleeper;
use crate::stop::Stop;
use crate::system::SystemError;
use crate::via::Via;
use crate::wlan::capture::{CaptureError, CaptureSource};

/// A placeholder for a server whose address is not known yet: no packet comes from it.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
const SOCKET: Token = Token(0);
const ALARM: Token = Token(1);
const WAKER: Token = Token(2);

/// Datagrams to receive before the timers are checked again.
const RECEIVES_A_TURN: usize = 256;

/// The configuration of a client.
pub struct ClientConfig {
    /// The server: a name, whose addresses are all tried, or one address.
    pub server: Remote,
    /// How datagrams are carried.
    pub transport: Transport,
    /// The session: name, token, patience.
    pub params: ClientParams,
    /// Counts packets per frame: by the frames of `capture`, or by the kernel's times without one.
    pub counter: Box<dyn LevelCounter>,
    /// The rate of frames whose rate the capture does not contain. Without a capture, packets count
    /// in no frame until it is known.
    pub rate: SharedRate,
    /// The capture of the frames. Opening a named pipe blocks until a writer opens it.
    pub capture: Option<CaptureSource>,
    /// Packets received in this time from the start on count in no summary.
    pub warm_up: Span,
}

/// Why a client cannot run, or cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The operating system refused something that the client needs.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The system gave no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
    /// The name or the token is too long.
    #[error(transparent)]
    Opening(#[from] OpeningTooLong),
    /// The server cannot be dialled by QUIC.
    #[error(transparent)]
    Dial(#[from] quic::DialError),
    /// The capture is unavailable.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A capture cannot look into QUIC.
    #[error(
        "over quic:// a capture shows no numbers of packets, as QUIC encrypts them: use udp:// on a \
         trusted link, or count by the kernel's times, without a capture"
    )]
    Encrypted,
    /// The client has left its server.
    #[error("this client has left its server, and cannot join again: make another one")]
    Left,
}

impl From<LinkError> for ClientError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::System(error) => Self::System(error),
            LinkError::Dial(error) => Self::Dial(error),
        }
    }
}

/// A received packet.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The server's number of the packet.
    pub seq: u64,
    /// When it was sent, on the server's clock.
    pub sent_at: Time,
    /// The kernel's receive time by the wall clock; `None` if the kernel did not report it.
    pub kernel: Option<KernelTime>,
    /// The kernel's receive time by the program's clock.
    pub received_at: Time,
    /// Its one-way delay, when that is known.
    pub delay: Option<Span>,
    /// Bytes of the datagram.
    pub datagram: usize,
    /// The payload.
    pub payload: &'a [u8],
}

/// An event of a running client.
#[derive(Debug)]
pub enum Event<'a> {
    /// The first packet since the join has arrived.
    Joined,
    /// No packet has arrived for too long; the client joins again.
    Silent,
    /// The server ended or refused the downlink.
    Closed(CloseReason),
    /// The transport changed.
    Link(&'a LinkEvent),
    /// This many consecutive joins have got no answer.
    Unanswered(u64),
    /// The capture cannot be used.
    Capture(&'a CaptureTrouble),
}

/// Receives events. Every method has an empty default implementation, and must not block.
pub trait ClientWatch {
    /// A packet has arrived.
    fn packet(&mut self, _now: Time, _packet: &Received<'_>) {}
    /// The capture has shown the packet with this number in a frame. Packets of one frame have the
    /// same stamp ([`Captured::stamp`](crate::wlan::capture::Captured::stamp)), which is not a time
    /// of any clock here. This comes before or after [`ClientWatch::packet`], and again if the
    /// packet was retransmitted on the air.
    fn captured(&mut self, _now: Time, _seq: u64, _frame: Time) {}
    /// A report with this content has been sent.
    fn reported(&mut self, _now: Time, _seen: Option<Report>) {}
    /// Something else has happened.
    fn event(&mut self, _now: Time, _event: &Event<'_>) {}
    /// A turn of the loop has ended.
    fn turn(&mut self, _now: Time, _client: &Client) {}
}

impl ClientWatch for () {}

/// A client that is ready to run.
pub struct Client {
    clock: Clock,
    sleeper: Sleeper,
    link: Dialler<Stamps>,
    session: Session,
    rate: SharedRate,
    air: Option<Air>,
    gathered: Gathered,
    /// The end of the warm-up.
    warm_at: Option<Time>,
    /// The server has no more payloads to send.
    is_done: bool,
    /// A run has ended, and the session with it.
    has_left: bool,
    datagram: Vec<u8>,
}

impl Client {
    /// Opens the socket and starts the session.
    ///
    /// # Errors
    /// [`ClientError`] names the cause.
    pub fn new(config: ClientConfig) -> Result<Self, ClientError> {
        let clock = Clock::new();
        let now = clock.now();
        let sleeper = Sleeper::new([ALARM, WAKER])?;
        let air = match (&config.capture, &config.transport) {
            (None, _) => None,
            (Some(_), Transport::Quic { .. }) => return Err(ClientError::Encrypted),
            (Some(source), _) => {
                // For a name, the address that answers is set later.
                let server = config.server.literal().unwrap_or(UNKNOWN);
                Some(Air::open(source, server, sleeper.waker())?)
            }
        };
        let settings = Settings {
            transport: config.transport,
            via: Via::Any,
            remote: config.server,
            token: SOCKET,
            inlet: Stamps::new,
            clock,
            redials: false,
            stamps_departures: false,
            wire_bytes: WireBytes::default(),
            waker: sleeper.waker(),
        };
        let link = Dialler::new(settings, sleeper.registry())?;
        let id = getrandom::u64().map_err(ClientError::Random)?;
        let session = Session::new(config.params, SessionId(id), config.counter, now)?;
        let mut client = Self {
            clock,
            sleeper,
            link,
            session,
            rate: config.rate,
            air,
            gathered: Gathered::new(now),
            warm_at: (!config.warm_up.is_zero()).then(|| now + config.warm_up),
            is_done: false,
            has_left: false,
            datagram: Vec::new(),
        };
        client.mark_if_not_ready(now);
        Ok(client)
    }

    /// The session, for reports.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether the server has reported that it has nothing more to send.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// A summary of the run until now.
    pub fn report(&self) -> ClientReport {
        let air = self.air.as_ref().map(Air::report);
        self.gathered.report(&self.session, air, self.clock.now())
    }

    /// Runs until `stop`, until the time `until`, or until the server has nothing more to send. A
    /// client runs once: at the end it leaves the server.
    ///
    /// # Errors
    /// [`ClientError`] if it cannot continue, and [`ClientError::Left`] for another run. Network
    /// problems are not errors: the client tries again.
    pub fn run(
        &mut self,
        stop: &Stop,
        until: Option<Time>,
        watch: &mut dyn ClientWatch,
    ) -> Result<(), ClientError> {
        if self.has_left {
            return Err(ClientError::Left);
        }
        run::run(&mut Watched { client: self, watch }, stop, until)
    }

    /// Informs the session if its link cannot carry packets (yet).
    fn mark_if_not_ready(&mut self, now: Time) {
        let state = match (self.link.is_ready(), self.link.is_down()) {
            (true, _) => return,
            (false, true) => TransportState::Down,
            // Its address lookup or its handshake is not complete.
            (false, false) => TransportState::Connecting,
        };
        self.session.handle_transport(now, state);
    }

    /// Processes received datagrams; returns whether there may be more.
    fn receive(&mut self, watch: &mut dyn ClientWatch) -> Result<bool, ClientError> {
        let mut busy = true;
        for _ in 0..RECEIVES_A_TURN {
            let Self { link, session, rate, air, clock, .. } = self;
            let (datagram, Stamped { kernel, dscp }) = match link.receive(&mut |_, _| {})? {
                Fetched::Datagram(received) => received,
                Fetched::Nothing => {
                    busy = false;
                    break;
                }
                Fetched::Busy => break,
            };
            let now = clock.now();
            let received_at = kernel.map_or(now, |kernel| kernel.at.min(now));
            let rate = rate.get().filter(|_| air.is_none());
            let stamp = rate.map(|rate| Stamp { at: received_at, rate });
            let datagram = ReceivedDatagram::at(received_at, Datagram::marked(datagram, dscp));
            // The session counts the datagrams that it ignores.
            if session.handle_stamped_datagram(now, stamp, datagram).is_ok() {
                self.attend(now, kernel, watch)?;
            }
        }
        let now = self.clock.now();
        self.link.turn(now, self.sleeper.registry())?;
        self.link.handle_timeout(now)?;
        if let (Some(air), Some(server), true) =
            (&self.air, self.link.address(), self.session.has_joined())
        {
            air.set_server(server);
        }
        while let Some(event) = self.link.poll_event() {
            match event {
                LinkEvent::Ready => self.session.handle_transport(now, TransportState::Ready),
                LinkEvent::Lost(_) => self.session.handle_transport(now, TransportState::Down),
                LinkEvent::Unreachable | LinkEvent::Waiting(_) => {}
            }
            watch.event(now, &Event::Link(&event));
        }
        self.mark_if_not_ready(now);
        Ok(busy)
    }

    /// Serves the requests of the session, and reports its events; `kernel` is the time of a packet
    /// among them.
    fn attend(
        &mut self,
        now: Time,
        kernel: Option<KernelTime>,
        watch: &mut dyn ClientWatch,
    ) -> Result<(), ClientError> {
        while let Some(event) = self.session.poll_event() {
            match event {
                ClientEvent::Packet(packet) => {
                    if let Some(delay) = packet.delay {
                        self.gathered.on_delay(delay);
                    }
                    watch.packet(now, &received(packet, kernel));
                }
                ClientEvent::Joined => watch.event(now, &Event::Joined),
                ClientEvent::Closed(reason) => {
                    self.is_done |= reason == CloseReason::Done;
                    watch.event(now, &Event::Closed(reason));
                }
                ClientEvent::Silent => watch.event(now, &Event::Silent),
                ClientEvent::Challenged => {}
                ClientEvent::RenewTransport { unanswered } => {
                    self.link.renew(now, self.sleeper.registry())?;
                    self.mark_if_not_ready(now);
                    watch.event(now, &Event::Unanswered(unanswered));
                }
            }
        }
        Ok(())
    }

    /// Sends due datagrams.
    fn transmit(&mut self, watch: &mut dyn ClientWatch) -> Result<(), ClientError> {
        let now = self.clock.now();
        while let Some(transmit) = self.session.poll_transmit(now, &mut self.datagram) {
            if let ClientMessage::Report { seen } = transmit.message {
                if let Some(seen) = seen {
                    self.gathered.on_report(seen);
                }
                watch.reported(now, seen);
            }
            self.link.send(now, transmit.dscp, &self.datagram[..transmit.len], None)?;
        }
        Ok(())
    }
}

/// Converts a packet for [`ClientWatch::packet`].
fn received(packet: ReceivedPacket<'_>, kernel: Option<KernelTime>) -> Received<'_> {
    let ReceivedPacket { seq, sent_at, received_at, delay, payload } = packet;
    let datagram = Packet::HEADER_LEN + payload.len();
    Received { seq, sent_at, kernel, received_at, delay, datagram, payload }
}

/// A running client, and the receiver of its events.
struct Watched<'a> {
    client: &'a mut Client,
    watch: &'a mut dyn ClientWatch,
}

impl Driven for Watched<'_> {
    type Error = ClientError;

    fn sleeper(&mut self) -> (Clock, &mut Sleeper) {
        (self.client.clock, &mut self.client.sleeper)
    }

    fn turn(&mut self) -> Result<Turn, ClientError> {
        let Self { client, watch } = self;
        let mut busy = client.receive(*watch)?;
        let now = client.clock.now();
        if let Some(air) = &mut client.air {
            let captured = &mut |seq, frame| watch.captured(now, seq, frame);
            busy |= air.feed(now, &mut client.session, &client.rate, captured);
            if let Some(trouble) = air.trouble(now, client.session.counters().packets) {
                watch.event(now, &Event::Capture(&trouble));
            }
        }
        if client.warm_at.is_some_and(|at| at <= now) {
            client.warm_at = None;
            client.gathered.restart(now, client.session.counters());
        }
        client.session.handle_timeout(now);
        client.attend(now, None, *watch)?;
        client.transmit(*watch)?;
        watch.turn(now, client);
        Ok(if client.is_done { Turn::Over } else { Turn::busy_if(busy) })
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        let Client { session, link, warm_at, .. } = &*self.client;
        Time::earliest([session.poll_timeout(), link.poll_timeout(), *warm_at])
    }

    fn close(&mut self, now: Time) {
        let Client { session, link, datagram, has_left, .. } = &mut *self.client;
        *has_left = true;
        session.close();
        while let Some(transmit) = session.poll_transmit(now, datagram) {
            link.close(now, &datagram[..transmit.len]);
        }
    }
}
