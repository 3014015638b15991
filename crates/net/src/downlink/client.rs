//! A client of a downlink: joins, takes packets with their times, and reports.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use freshline_core::session::Clocked;
use freshline_core::session::downlink::{Client as Session, ClientEvent, ClientParams, Stamp};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{CloseReason, Message, OpeningTooLong, SessionId};
use freshline_core::wlan::{LevelCounter, Report};
use mio::Token;

use super::air::{Air, CaptureTrouble};
use super::rate::SharedRate;
use super::report::{ClientReport, Gathered};
use super::stamps::{KernelTime, Stamped, Stamps};
use crate::clock::Clock;
use crate::dial::{Dialler, Remote, Settings};
use crate::link::{LinkError, LinkEvent, Transport, WireBytes};
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
/// Joins without an answer after which the socket and the connection are made anew.
const RENEW_AFTER: u64 = 3;
/// Join and report are shorter.
const LONGEST_MESSAGE: usize = 512;

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
    /// Joins written when something was heard last.
    heard: u64,
    /// The server has nothing more to send.
    is_done: bool,
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
        Ok(Self {
            clock,
            sleeper,
            link,
            session,
            rate: config.rate,
            air,
            gathered: Gathered::new(now),
            warm_at: (!config.warm_up.is_zero()).then(|| now + config.warm_up),
            heard: 0,
            is_done: false,
            datagram: vec![0; LONGEST_MESSAGE],
        })
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

    /// Runs until `stop`, or until `until` has come, or the server has nothing more to send.
    ///
    /// # Errors
    /// [`ClientError`] where it cannot go on; trouble with the network is none, it is waited out.
    pub fn run(
        &mut self,
        stop: &Stop,
        until: Option<Time>,
        watch: &mut dyn ClientWatch,
    ) -> Result<(), ClientError> {
        run::run(&mut Watched { client: self, watch }, stop, until)
    }

    fn wakes_at(&self) -> Option<Time> {
        // While the link is being dialled it has the word.
        let session = self.session.poll_timeout().filter(|_| self.can_act());
        Time::earliest([session, self.link.poll_timeout(), self.warm_at])
    }

    /// Whether the session has a link to send by, or one to dial again.
    fn can_act(&self) -> bool {
        self.link.is_ready() || self.link.is_down()
    }

    /// Takes in what has come; whether there may be more.
    fn receive(&mut self, watch: &mut dyn ClientWatch) -> Result<bool, ClientError> {
        let mut busy = true;
        for _ in 0..RECEIVES_A_TURN {
            let Self { link, session, rate, air, gathered, clock, .. } = self;
            let Some((datagram, Stamped { kernel, dscp })) = link.receive(&mut |_, _| {})? else {
                busy = false;
                break;
            };
            let now = clock.now();
            let received_at = kernel.map_or(now, |kernel| kernel.at.min(now));
            let at = Clocked { received_at, now };
            let rate = rate.get().filter(|_| air.is_none());
            let stamp = rate.map(|rate| Stamp { at: received_at, rate });
            match session.on_marked_datagram(at, stamp, dscp, datagram) {
                Ok(ClientEvent::Packet { seq, payload, delay, joined }) => {
                    self.heard = session.counters().joins;
                    if let Some(delay) = delay {
                        gathered.on_delay(delay);
                    }
                    let Ok(Message::Packet(packet)) = Message::parse(datagram) else { continue };
                    let sent_at = packet.sent_at;
                    let datagram = datagram.len();
                    let received =
                        Received { seq, sent_at, kernel, received_at, delay, datagram, payload };
                    if joined {
                        watch.event(now, &Event::Joined);
                    }
                    watch.packet(now, &received);
                }
                Ok(ClientEvent::Closed(reason)) => {
                    self.heard = session.counters().joins;
                    self.is_done |= reason == CloseReason::Done;
                    watch.event(now, &Event::Closed(reason));
                }
                Ok(ClientEvent::Challenged) => self.heard = session.counters().joins,
                Ok(ClientEvent::Silent) | Err(_) => {}
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
                LinkEvent::Ready => self.session.on_transport_ready(now),
                LinkEvent::Lost(_) => self.session.on_transport_lost(now),
                LinkEvent::Unreachable | LinkEvent::Waiting(_) => {}
            }
            watch.event(now, &Event::Link(&event));
        }
        Ok(busy)
    }

    /// Sends the join or the report that is due.
    fn write(&mut self, watch: &mut dyn ClientWatch) -> Result<(), ClientError> {
        let now = self.clock.now();
        if !self.can_act() || self.session.poll_timeout().is_none_or(|at| at > now) {
            return Ok(());
        }
        let unanswered = self.session.counters().joins - self.heard;
        let in_doubt = unanswered > 0 && unanswered.is_multiple_of(RENEW_AFTER);
        if !self.session.has_joined() && (self.link.is_down() || in_doubt) {
            self.link.renew(now, self.sleeper.registry())?;
            watch.event(now, &Event::Unanswered(unanswered));
        }
        let dscp = self.session.mark();
        let Some(len) = self.session.write(now, &mut self.datagram) else { return Ok(()) };
        let message = &self.datagram[..len];
        if let Ok(Message::Report(report)) = Message::parse(message) {
            if let Some(seen) = report.seen {
                self.gathered.on_report(seen);
            }
            watch.reported(now, report.seen);
        }
        // A join that meets a link that is dialled goes out when it is ready.
        self.link.send(now, dscp, message, None)?;
        Ok(())
    }
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
        if let Some(ClientEvent::Silent) = client.session.handle_timeout(now) {
            watch.event(now, &Event::Silent);
        }
        client.write(*watch)?;
        watch.turn(now, client);
        Ok(if client.is_done { Turn::Over } else { Turn::busy_if(busy) })
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        self.client.wakes_at()
    }

    fn close(&mut self, now: Time) {
        self.client.link.close(now, &self.client.session.close());
    }
}
