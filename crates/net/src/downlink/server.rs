//! The server of a downlink: one socket, one thread, many clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use freshline_core::session::Secret;
use freshline_core::session::downlink::{
    ClientKey, Server as Sessions, ServerCounters, ServerParams, ServerVerdict,
};
use freshline_core::unit::{Bytes, Time};
use freshline_core::wire::{Close, CloseReason, Packet};
use freshline_core::wlan::{DownlinkLawConfig, ParamsError};
use mio::{Events, Interest, Poll, Token, Waker};

use super::payload::{Payloads, Take};
use super::report::{Details, ServerReport};
use super::stamps::LONGEST;
use crate::alarm::Alarm;
use crate::ask::{Asker, Desk};
use crate::batch::{Inbox, Socket};
use crate::carrier::{Carrier, Peer};
use crate::clock::Clock;
use crate::quic;
use crate::stop::Stop;

const SOCKET: Token = Token(0);
const ALARM: Token = Token(1);
const WAKER: Token = Token(2);

/// Receives before packets are sent again: reports are few, so more is a flood, and it waits.
const BATCHES_A_TURN: usize = 2;
/// Packets before the socket and the timers are looked at again.
const PACKETS_A_TURN: usize = 16;
/// What QUIC has around a datagram: short header, number, frame's type and tag.
const QUIC_HEADERS: u64 = 29;

/// What a server needs to run.
pub struct ServerConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// QUIC's settings, or `None` for plain UDP.
    pub quic: Option<quic::ServerConfig>,
    /// How fast to send. Where the transport takes smaller packets than its
    /// [`packet`](freshline_core::wlan::DownlinkParams::packet), that is made smaller.
    pub law: DownlinkLawConfig,
    /// The session's settings; `admission`, `interval` and `headers` follow from the rest.
    pub params: ServerParams,
    /// What to send.
    pub payloads: Box<dyn Payloads>,
}

/// Why a server cannot run, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The operating system refused something else.
    #[error("cannot {what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The system gave no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
    /// The law's settings make no sense.
    #[error(transparent)]
    Law(#[from] ParamsError),
    /// Packets that carry nothing, or more than a client takes.
    #[error(
        "packets of {given} bytes are not possible here: they take from {least} to {most}, headers \
         included; give for example 1500B"
    )]
    Packet {
        /// What was asked for.
        given: u64,
        /// With one byte of payload.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// What is to be sent cannot be had any more.
    #[error("{0}")]
    Payload(String),
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> ServerError {
    move |error| ServerError::System { what, error }
}

/// A server that is ready to run.
pub struct Server {
    clock: Clock,
    poll: Poll,
    alarm: Alarm,
    waker: Arc<Waker>,
    socket: Socket,
    inbox: Inbox,
    carrier: Carrier,
    sessions: Sessions<Peer>,
    payloads: Box<dyn Payloads>,
    details: Details,
    desk: Desk<ServerReport>,
    began_at: Time,
    /// The longest payload.
    longest: usize,
    /// Packets that the socket did not take.
    unsent: u64,
    payload: Vec<u8>,
    datagram: Vec<u8>,
    /// Those who wait for something to send, in one look at them.
    waiting: Vec<ClientKey>,
}

impl Server {
    /// Opens the socket.
    ///
    /// # Errors
    /// [`ServerError`] says what is missing.
    pub fn bind(config: ServerConfig) -> Result<Self, ServerError> {
        let clock = Clock::new();
        let now = clock.now();
        let address = config.listen;
        let (law, headers) = fitted(config.law, address, config.quic.is_some())?;
        let built = law.build()?;
        let mut socket =
            Socket::bind(address).map_err(|error| ServerError::Listen { address, error })?;
        let poll = Poll::new().map_err(system("make a poll"))?;
        let mut alarm = Alarm::new().map_err(system("make a timer"))?;
        let registry = poll.registry();
        registry
            .register(&mut socket.udp, SOCKET, Interest::READABLE)
            .and_then(|()| registry.register(&mut alarm, ALARM, Interest::READABLE))
            .map_err(system("watch its socket"))?;
        let waker = Arc::new(Waker::new(registry, WAKER).map_err(system("make a waker"))?);
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(ServerError::Random)?;
        let carrier = Carrier::new(config.quic.as_ref(), clock.instant_of(now));
        let downlink = *law.downlink();
        let params = ServerParams {
            admission: carrier.admission(),
            interval: downlink.interval,
            headers,
            ..config.params
        };
        let datagram = (downlink.packet.get() - headers.get()) as usize;
        Ok(Self {
            clock,
            poll,
            alarm,
            desk: Desk::new(Arc::clone(&waker)),
            waker,
            inbox: Inbox::new(),
            carrier,
            sessions: Sessions::new(params, built, Secret::new(secret)),
            payloads: config.payloads,
            details: Details::default(),
            socket,
            began_at: now,
            longest: datagram - Packet::HEADER_LEN,
            unsent: 0,
            payload: Vec::with_capacity(datagram),
            datagram: vec![0; datagram.max(Close::LEN)],
            waiting: Vec::new(),
        })
    }

    /// Where it listens; tells the port that was chosen for port 0.
    ///
    /// # Errors
    /// [`ServerError::System`] if the system does not say.
    pub fn local_addr(&self) -> Result<SocketAddr, ServerError> {
        self.socket.udp.local_addr().map_err(system("learn its own address"))
    }

    /// Something through which other threads ask how it goes.
    pub fn asker(&self) -> Asker<ServerReport> {
        self.desk.asker()
    }

    /// What was counted so far.
    pub fn counters(&self) -> &ServerCounters {
        self.sessions.counters()
    }

    /// A summary of the run until now.
    pub fn report(&self) -> ServerReport {
        self.report_of(usize::MAX)
    }

    fn report_of(&self, most: usize) -> ServerReport {
        let now = self.clock.now();
        let dropped = |client| self.payloads.dropped(client);
        self.details.report(&self.sessions, [self.began_at, now], self.unsent, most, dropped)
    }

    /// Runs until `stop`, or until `until` has come, and says goodbye to all clients.
    ///
    /// # Errors
    /// [`ServerError`] where it cannot go on; trouble with single packets is none.
    pub fn run(&mut self, stop: &Stop, until: Option<Time>) -> Result<(), ServerError> {
        stop.wakes(Arc::clone(&self.waker));
        self.payloads.start(self.clock, Arc::clone(&self.waker), self.longest);
        let mut events = Events::with_capacity(16);
        let mut busy = true;
        loop {
            self.send_due()?;
            if busy || events.iter().any(|event| event.token() == SOCKET) {
                busy = self.receive()?;
            }
            let now = self.clock.now();
            self.tick(now);
            self.wake_waiting(now);
            self.desk.answer(|most| self.report_of(most));
            if stop.is_stopped() || until.is_some_and(|end| now >= end) {
                let clients = self.sessions.clients();
                let sessions = clients.map(|(_, record)| (record.peer.remote(), record.session));
                self.carrier.say_goodbye(&self.socket, sessions, self.clock.instant_of(now));
                return Ok(());
            }
            let now = self.clock.now();
            let wake = Time::earliest([busy.then_some(now), self.next_event(), until]);
            let timeout = self.alarm.poll_until(now, wake).map_err(system("set a timer"))?;
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
                polled => polled.map_err(system("wait for its socket"))?,
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        let carrier = self.carrier.next_timeout().map(|at| {
            let now = self.clock.now();
            now + at.saturating_duration_since(self.clock.instant_of(now)).into()
        });
        Time::earliest([self.sessions.next_packet_at(), self.sessions.next_event(), carrier])
    }

    fn tick(&mut self, now: Time) {
        self.carrier.on_timeout(&self.socket, self.clock.instant_of(now));
        let Self { sessions, details, payloads, .. } = self;
        sessions.on_tick(now, |client, record| {
            details.end(client, record, now, payloads.dropped(client));
        });
    }

    /// Those with nothing to send are looked at again when something has come.
    fn wake_waiting(&mut self, now: Time) {
        if self.payloads.has_news() {
            let idle = self.sessions.clients().filter(|(_, record)| record.is_idle());
            self.waiting.clear();
            self.waiting.extend(idle.map(|(client, _)| client));
            for client in &self.waiting {
                self.sessions.on_something_to_send(now, *client);
            }
        }
    }

    /// Takes in some batches; whether there may be more.
    fn receive(&mut self) -> Result<bool, ServerError> {
        let Self { carrier, inbox, socket, sessions, payloads, details, clock, .. } = self;
        for _ in 0..BATCHES_A_TURN {
            if !inbox.fill(socket).map_err(system("receive"))? {
                return Ok(false);
            }
            let received_at = clock.now();
            carrier.take_in(socket, inbox, *clock, received_at, |at, peer, datagram, reply| {
                let receipt = sessions.on_datagram(at, peer, datagram, reply);
                match receipt.verdict {
                    ServerVerdict::Joined(client) => {
                        let session = sessions.client(client).map(|record| record.session);
                        if details.begin(client, session) {
                            payloads.joined(client);
                        }
                    }
                    ServerVerdict::Left { client, record } => {
                        details.end(client, &record, at.now, payloads.dropped(client));
                    }
                    _ => {}
                }
                receipt.reply
            });
        }
        Ok(true)
    }

    /// Sends the packets that are due, up to some.
    fn send_due(&mut self) -> Result<(), ServerError> {
        for _ in 0..PACKETS_A_TURN {
            let now = self.clock.now();
            let Some(client) = self.sessions.due(now) else { break };
            self.payload.clear();
            let taken = self.payloads.take(now, client, self.longest, &mut self.payload);
            let Self { sessions, datagram, payload, .. } = self;
            let len = match taken {
                Take::Packet => sessions.write_packet(now, client, payload, datagram).unwrap_or(0),
                Take::NotYet => sessions.on_nothing_to_send(now, client, datagram),
                Take::End => {
                    let is_first = sessions.client(client).is_some_and(|record| !record.is_idle());
                    let is_due = sessions.on_nothing_to_send(now, client, datagram) > 0;
                    // Until it says goodbye, which may get lost, it is told once an interval.
                    let told = (is_first || is_due).then(|| sessions.client(client)).flatten();
                    told.map_or(0, |record| {
                        let done = Close { session: record.session, reason: CloseReason::Done };
                        datagram[..Close::LEN].copy_from_slice(&done.bytes());
                        Close::LEN
                    })
                }
                Take::Failed(why) => return Err(ServerError::Payload(why)),
            };
            if len > 0
                && let Some(record) = self.sessions.client(client)
            {
                let at = self.clock.instant_of(now);
                let sent = self.carrier.send(&self.socket, record.peer, &self.datagram[..len], at);
                // It is lost like any other; the next one is fresher.
                self.unsent += u64::from(sent.is_err());
            }
        }
        Ok(())
    }
}

/// The law with packets that the transport takes, and the headers in them.
fn fitted(
    mut law: DownlinkLawConfig,
    listen: SocketAddr,
    is_quic: bool,
) -> Result<(DownlinkLawConfig, Bytes), ServerError> {
    let below = if listen.is_ipv4() { 20 + 8 } else { 40 + 8 };
    let (headers, longest) = match is_quic {
        true => (below + QUIC_HEADERS, quic::MAX_DATAGRAM),
        false => (below, LONGEST),
    };
    let least = headers + Packet::HEADER_LEN as u64 + 1;
    let packet = &mut law.downlink_mut().packet;
    let most = headers + LONGEST as u64;
    if !(least..=most).contains(&packet.get()) {
        return Err(ServerError::Packet { given: packet.get(), least, most });
    }
    *packet = Bytes::new(packet.get().min(headers + longest as u64));
    Ok((law, Bytes::new(headers)))
}
