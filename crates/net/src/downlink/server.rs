//! The server of a downlink: one socket, one thread, many clients.

use std::collections::HashSet;
use std::net::SocketAddr;

use freshline_core::dscp::Dscp;
use freshline_core::session::Access;
use freshline_core::session::downlink::{
    ClientKey, ClientRecord, Server as Sessions, ServerCounters, ServerParams, ServerVerdict,
};
use freshline_core::unit::{Bytes, Time};
use freshline_core::wire::{Close, CloseReason, Packet};
use freshline_core::wlan::{DownlinkLawConfig, ParamsError};

use super::payload::{Payloads, Take};
use super::report::{Details, ServerReport};
use super::stamps::LONGEST;
use crate::ask::{Asker, Desk};
use crate::carrier::{Answer, Peer, Received};
use crate::clock::Clock;
use crate::credentials::{Order, Reloader, Reloads, Rules};
use crate::endpoint::{self, Endpoint, EndpointError};
use crate::quic;
use crate::refusal::{Refusal, Refusals};
use crate::run::{self, Driven, Turn};
use crate::sleeper::Sleeper;
use crate::stop::Stop;
use crate::system::SystemError;

/// Packets before the sockets and the timers are looked at again.
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
    /// The session's settings; `admission`, `max_clients`, `interval` and `headers` follow from
    /// the rest.
    pub params: ServerParams,
    /// Who may join. Where these rules are not empty, they hold in place of `params.tokens`.
    pub rules: Rules,
    /// What to send.
    pub payloads: Box<dyn Payloads>,
}

/// Why a server cannot run, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Its socket, or what wakes it.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
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

/// A server that is ready to run.
pub struct Server {
    endpoint: Endpoint,
    /// Whether its sockets may have something.
    has_some: bool,
    sessions: Sessions<Peer>,
    rules: Rules,
    payloads: Box<dyn Payloads>,
    details: Details,
    refusals: Refusals,
    desk: Desk<ServerReport>,
    reloads: Reloads,
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
        let (law, headers) = fitted(config.law, config.listen, config.quic.is_some())?;
        let built = law.build()?;
        let endpoint = Endpoint::bind(config.listen, config.quic.as_ref())?;
        let downlink = *law.downlink();
        let params = ServerParams {
            admission: endpoint.admission(),
            max_clients: downlink.max_stations as usize,
            interval: downlink.interval,
            headers,
            ..config.params
        };
        let datagram = (downlink.packet.get() - headers.get()) as usize;
        Ok(Self {
            desk: Desk::new(endpoint.waker()),
            reloads: Reloads::new(endpoint.waker()),
            rules: config.rules,
            sessions: Sessions::new(params, built, endpoint::secret()?).with_origin(Peer::origin),
            refusals: Refusals::default(),
            payloads: config.payloads,
            details: Details::default(),
            began_at: endpoint.clock.now(),
            endpoint,
            has_some: true,
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
    /// [`ServerError::Endpoint`] if the system does not say.
    pub fn local_addr(&self) -> Result<SocketAddr, ServerError> {
        Ok(self.endpoint.local_addr()?)
    }

    /// Something through which other threads ask how it goes.
    pub fn asker(&self) -> Asker<ServerReport> {
        self.desk.asker()
    }

    /// Something through which another thread puts other credentials in force.
    pub fn reloader(&self) -> Reloader {
        self.reloads.reloader()
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
        let now = self.endpoint.clock.now();
        let dropped = |client| self.payloads.dropped(client);
        let refusals = self.refusals.and(&self.endpoint.refusals());
        let times = [self.began_at, now];
        let report = self.details.report(&self.sessions, times, self.unsent, most, dropped);
        ServerReport { refusals, ..report }
    }

    /// Runs until `stop`, or until `until` has come, and says goodbye to all clients.
    ///
    /// # Errors
    /// [`ServerError`] where it cannot go on; trouble with single packets is none.
    pub fn run(&mut self, stop: &Stop, until: Option<Time>) -> Result<(), ServerError> {
        self.payloads.start(self.endpoint.clock, self.endpoint.waker(), self.longest);
        self.has_some = true;
        run::run(self, stop, until)
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        let Self { sessions, details, payloads, .. } = self;
        let dscp = sessions.dscp();
        sessions.handle_timeout(now, |client, record| {
            details.end(client, record, dscp, now, payloads.dropped(client));
        });
    }

    /// Puts other credentials and authorities in force, if some have come, and ends what they do not permit.
    fn reload(&mut self, now: Time) {
        while let Some(Order { change, ended }) = self.reloads.next() {
            let Self { endpoint, sessions, rules, details, payloads, .. } = self;
            let quic = change.quic.as_ref();
            let mut connections =
                quic.map_or_else(HashSet::new, |config| endpoint.replace_clients(config));
            rules.credentials = change.credentials.or(rules.credentials.take());
            let untrusted = connections.clone();
            let dscp = sessions.dscp();
            let goes_on = |record: &ClientRecord<Peer>| {
                let connection = record.peer.serial();
                rules.permit(record.credential(), &record.name)
                    && connection.is_none_or(|connection| !untrusted.contains(&connection))
            };
            let number = sessions.revoke(now, goes_on, |client, record| {
                connections.extend(record.peer.serial());
                details.end(client, record, dscp, now, payloads.dropped(client));
            });
            self.endpoint.revoke(now, &connections);
            // The thread that has asked may have ended.
            let _ = ended.send(number);
        }
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

    /// Takes in what has come, for some time; whether there may be more.
    fn receive(&mut self) -> Result<bool, ServerError> {
        let Self { endpoint, sessions, rules, payloads, details, refusals, .. } = self;
        let more = endpoint.receive(|received, reply| {
            let Received { at, peer, dscp, names, datagram } = received;
            let check = rules.of(names);
            let access = check.as_ref().map(|check| check as &dyn Access);
            let receipt = sessions.on_checked_datagram(at, (peer, access), dscp, datagram, reply);
            if let Some((client, record)) = receipt.displaced.as_deref() {
                refusals.count(Refusal::Displaced);
                let dropped = payloads.dropped(*client);
                details.end(*client, record, sessions.dscp(), at.now, dropped);
            }
            let is_known =
                matches!(receipt.verdict, ServerVerdict::Joined(_) | ServerVerdict::Reported(_));
            match receipt.verdict {
                ServerVerdict::Joined(client) => {
                    let session = sessions.client(client).map(|record| record.session);
                    if details.begin(client, session) {
                        payloads.joined(client);
                    }
                }
                ServerVerdict::Left { client, record } => {
                    let mark = sessions.dscp();
                    details.end(client, &record, mark, at.now, payloads.dropped(client));
                }
                ServerVerdict::Refused(reason) => {
                    Refusal::of(reason).into_iter().for_each(|reason| refusals.count(reason));
                }
                _ => {}
            }
            Answer { len: receipt.reply, is_known, ..Answer::default() }
        })?;
        Ok(more)
    }

    /// Sends the packets that are due, up to some.
    fn send_due(&mut self) -> Result<(), ServerError> {
        for _ in 0..PACKETS_A_TURN {
            let now = self.endpoint.clock.now();
            let Some(client) = self.sessions.due(now) else { break };
            self.payload.clear();
            let taken = self.payloads.take(now, client, self.longest, &mut self.payload);
            let Self { sessions, datagram, payload, .. } = self;
            let mut dscp = sessions.dscp();
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
                        dscp = Dscp::DEFAULT;
                        Close::LEN
                    })
                }
                Take::Failed(why) => return Err(ServerError::Payload(why)),
            };
            if len > 0
                && let Some(record) = self.sessions.client(client)
            {
                let sent = self.endpoint.send(now, record.peer, dscp, &self.datagram[..len]);
                // It is lost like any other; the next one is fresher.
                self.unsent += u64::from(sent.is_err());
            }
        }
        Ok(())
    }
}

impl Driven for Server {
    type Error = ServerError;

    fn sleeper(&mut self) -> (Clock, &mut Sleeper) {
        self.endpoint.sleeper()
    }

    fn on_ready(&mut self, event: &mio::event::Event) {
        self.has_some |= self.endpoint.on_ready(event);
    }

    fn turn(&mut self) -> Result<Turn, ServerError> {
        self.send_due()?;
        self.has_some = self.has_some && self.receive()?;
        let now = self.endpoint.clock.now();
        self.handle_timeout(now);
        self.wake_waiting(now);
        self.reload(now);
        self.desk.answer(|most| self.report_of(most));
        Ok(Turn::busy_if(self.has_some))
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        let Self { sessions, endpoint, .. } = self;
        let [packet, session] = [sessions.next_packet_at(), sessions.poll_timeout()];
        Time::earliest([packet, session, endpoint.poll_timeout()])
    }

    fn close(&mut self, now: Time) {
        let clients = self.sessions.clients();
        let sessions = clients.map(|(_, record)| (record.peer.remote(), record.session));
        self.endpoint.say_goodbye(now, sessions);
    }
}

impl From<SystemError> for ServerError {
    fn from(error: SystemError) -> Self {
        Self::Endpoint(error.into())
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
