//! A client of a downlink: joins, takes packets with their times, and reports.

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

/// Stands for a server whose address is not known yet: no packet comes from it.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
const SOCKET: Token = Token(0);
const ALARM: Token = Token(1);
const WAKER: Token = Token(2);

/// Datagrams taken before the timers are looked at again.
const RECEIVES_A_TURN: usize = 256;

/// What a client needs to run.
pub struct ClientConfig {
    /// The server: a name, of which every address is tried, or one address.
    pub server: Remote,
    /// How datagrams are carried.
    pub transport: Transport,
    /// The session: name, token, patience.
    pub params: ClientParams,
    /// Counts packets a frame: by the frames of `capture`, or by the kernel's times without one.
    pub counter: Box<dyn LevelCounter>,
    /// The rate of frames of which no capture tells it. Without a capture, packets count in no frame
    /// until it is known.
    pub rate: SharedRate,
    /// Where frames are seen. It opens a named pipe, and waits until somebody writes there.
    pub capture: Option<CaptureSource>,
    /// What comes in this time from the start on counts in no summary.
    pub warm_up: Span,
}

/// Why a client cannot run, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The operating system refused something that the client needs.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The system gave no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
    /// Name or token do not fit.
    #[error(transparent)]
    Opening(#[from] OpeningTooLong),
    /// The server cannot be dialled by QUIC.
    #[error(transparent)]
    Dial(#[from] quic::DialError),
    /// There is no capture to be had.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A capture cannot look into QUIC.
    #[error(
        "over quic:// a capture shows no numbers of packets, as QUIC encrypts them: use udp:// on a \
         trusted link, or count by the kernel's times, without a capture"
    )]
    Encrypted,
    /// It has left its server.
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

/// A packet that came.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The server's number of it.
    pub seq: u64,
    /// When it was sent, on the server's clock.
    pub sent_at: Time,
    /// When the kernel got it, by the wall clock; `None` where it did not say.
    pub kernel: Option<KernelTime>,
    /// When the kernel got it, by our clock.
    pub received_at: Time,
    /// How long it took, once that is known.
    pub delay: Option<Span>,
    /// Bytes of the datagram.
    pub datagram: usize,
    /// The payload.
    pub payload: &'a [u8],
}

/// What happens to a running client.
#[derive(Debug)]
pub enum Event<'a> {
    /// The first packet has come since it joined.
    Joined,
    /// No packet for too long; it joins again.
    Silent,
    /// The server ended or refused the downlink.
    Closed(CloseReason),
    /// The transport changed.
    Link(&'a LinkEvent),
    /// Joins have got no answer so often, one after the other.
    Unanswered(u64),
    /// The capture is of no use.
    Capture(&'a CaptureTrouble),
}

/// Somebody who takes in what comes. Everything defaults to looking away; nothing may block.
pub trait ClientWatch {
    /// A packet has come.
    fn packet(&mut self, _now: Time, _packet: &Received<'_>) {}
    /// The capture has shown the packet with this number in a frame. Packets of one frame have the same
    /// stamp ([`Captured::stamp`](crate::wlan::capture::Captured::stamp)), which is not a time of any
    /// clock here. It comes before or after [`ClientWatch::packet`], and again if the packet was sent
    /// again on the air.
    fn captured(&mut self, _now: Time, _seq: u64, _frame: Time) {}
    /// A report has been sent, of so much.
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
    /// Until when it warms up.
    warm_at: Option<Time>,
    /// The server has nothing more to send.
    is_done: bool,
    /// A run has ended, and with it the session.
    has_left: bool,
    datagram: Vec<u8>,
}

impl Client {
    /// Opens the socket and starts the session.
    ///
    /// # Errors
    /// [`ClientError`] says what is missing.
    pub fn new(config: ClientConfig) -> Result<Self, ClientError> {
        let clock = Clock::new();
        let now = clock.now();
        let sleeper = Sleeper::new([ALARM, WAKER])?;
        let air = match (&config.capture, &config.transport) {
            (None, _) => None,
            (Some(_), Transport::Quic { .. }) => return Err(ClientError::Encrypted),
            (Some(source), _) => {
                // Of a name, the address that answers is set later.
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

    /// Whether the server has said that it has nothing more to send.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// A summary of the run until now.
    pub fn report(&self) -> ClientReport {
        let air = self.air.as_ref().map(Air::report);
        self.gathered.report(&self.session, air, self.clock.now())
    }

    /// Runs until `stop`, or until `until` has come, or the server has nothing more to send. A client runs
    /// once: at the end it leaves the server.
    ///
    /// # Errors
    /// [`ClientError`] where it cannot go on, and [`ClientError::Left`] for another run. Trouble with the
    /// network is not an error: the client tries again.
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

    /// Reports to the session if its link can carry nothing (yet).
    fn mark_if_not_ready(&mut self, now: Time) {
        let state = match (self.link.is_ready(), self.link.is_down()) {
            (true, _) => return,
            (false, true) => TransportState::Down,
            // Its address is looked up, or its handshake is not done.
            (false, false) => TransportState::Connecting,
        };
        self.session.handle_transport(now, state);
    }

    /// Hands in what has arrived; whether there may be more.
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
            // One that is of no use is counted there.
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

    /// Does what the session wants, and reports what has happened to it; `kernel` is the time of a packet
    /// among that.
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

    /// Sends what may leave.
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

/// A packet for [`ClientWatch::packet`].
fn received(packet: ReceivedPacket<'_>, kernel: Option<KernelTime>) -> Received<'_> {
    let ReceivedPacket { seq, sent_at, received_at, delay, payload } = packet;
    let datagram = Packet::HEADER_LEN + payload.len();
    Received { seq, sent_at, kernel, received_at, delay, datagram, payload }
}

/// A client that runs, and who hears of it.
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
