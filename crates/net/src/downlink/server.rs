//! The server of a downlink: one socket, one thread, many clients.

use std::collections::HashSet;
use std::net::SocketAddr;

use freshline_core::session::downlink::{
    Server as Sessions, ServerCounters, ServerParams, ServerTransmit,
};
use freshline_core::unit::{Bytes, Time};
use freshline_core::wire::Packet;
use freshline_core::wlan::{DownlinkLawConfig, ParamsError};

use super::clients::Clients;
use super::payload::Payloads;
use super::report::ServerReport;
use super::stamps::LONGEST;
use crate::ask::{Asker, Desk};
use crate::carrier::Peer;
use crate::clock::Clock;
use crate::credentials::{Order, Reloader, Reloads, Rules};
use crate::endpoint::{self, Endpoint, EndpointError};
use crate::quic;
use crate::run::{self, Driven, Turn};
use crate::sleeper::Sleeper;
use crate::stop::Stop;
use crate::system::SystemError;

/// Packets to send before the sockets and the timers are checked again.
const PACKETS_A_TURN: usize = 16;
/// QUIC's overhead per datagram: short header, number, frame's type and tag.
const QUIC_HEADERS: u64 = 29;

/// The configuration of a server.
pub struct ServerConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// QUIC's settings, or `None` for plain UDP.
    pub quic: Option<quic::ServerConfig>,
    /// How fast to send. If the transport takes smaller packets than the law's
    /// [`packet`](freshline_core::wlan::DownlinkParams::packet), that size is reduced.
    pub law: DownlinkLawConfig,
    /// The session's settings; `admission`, `max_clients`, `interval` and `headers` follow from
    /// the rest.
    pub params: ServerParams,
    /// The rules that decide which clients may join. If they are not empty, they replace
    /// `params.tokens`.
    pub rules: Rules,
    /// What to send.
    pub payloads: Box<dyn Payloads>,
}

/// Why a server cannot run, or cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An error of its socket or its poll.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The law's settings are invalid.
    #[error(transparent)]
    Law(#[from] ParamsError),
    /// The packet size leaves no room for payload, or exceeds the limit of clients.
    #[error(
        "packets of {given} bytes are not possible here: they take from {least} to {most}, headers \
         included; give for example 1500B"
    )]
    Packet {
        /// The configured packet size.
        given: u64,
        /// The minimum size: one byte of payload.
        least: u64,
        /// The maximum size.
        most: u64,
    },
    /// The payload is no longer available.
    #[error("{0}")]
    Payload(String),
}

/// A server that is ready to run.
pub struct Server {
    endpoint: Endpoint,
    /// Whether its sockets may be readable.
    has_some: bool,
    clients: Clients,
    desk: Desk<ServerReport>,
    reloads: Reloads,
    began_at: Time,
    /// Packets that the socket refused.
    unsent: u64,
    datagram: Vec<u8>,
}

impl Server {
    /// Opens the socket.
    ///
    /// # Errors
    /// [`ServerError`] names the cause.
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
            max_payload: (downlink.packet.get() - headers.get()) as usize - Packet::HEADER_LEN,
            ..config.params
        };
        let max_payload = params.max_payload;
        let sessions = Sessions::new(params, built, endpoint::secret()?).with_origin(Peer::origin);
        Ok(Self {
            desk: Desk::new(endpoint.waker()),
            reloads: Reloads::new(endpoint.waker()),
            clients: Clients::new(sessions, config.rules, config.payloads, max_payload),
            began_at: endpoint.clock.now(),
            endpoint,
            has_some: true,
            unsent: 0,
            datagram: Vec::new(),
        })
    }

    /// Its listening address, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// [`ServerError::Endpoint`] if the system does not report it.
    pub fn local_addr(&self) -> Result<SocketAddr, ServerError> {
        Ok(self.endpoint.local_addr()?)
    }

    /// A handle with which other threads request reports.
    pub fn asker(&self) -> Asker<ServerReport> {
        self.desk.asker()
    }

    /// A handle with which another thread replaces the credentials.
    pub fn reloader(&self) -> Reloader {
        self.reloads.reloader()
    }

    /// The counters of the run until now.
    pub fn counters(&self) -> &ServerCounters {
        self.clients.sessions.counters()
    }

    /// A summary of the run until now.
    pub fn report(&self) -> ServerReport {
        self.report_of(usize::MAX)
    }

    fn report_of(&self, most: usize) -> ServerReport {
        let times = [self.began_at, self.endpoint.clock.now()];
        let refusals = self.clients.refusals.and(&self.endpoint.refusals());
        ServerReport { refusals, ..self.clients.report(times, self.unsent, most) }
    }

    /// Runs until `stop`, or until the time `until`, and then closes the downlink of all clients.
    ///
    /// # Errors
    /// [`ServerError`] if it cannot continue; problems with single packets are not errors.
    pub fn run(&mut self, stop: &Stop, until: Option<Time>) -> Result<(), ServerError> {
        let Self { clients, endpoint, .. } = self;
        clients.payloads.start(endpoint.clock, endpoint.waker(), clients.max_payload);
        self.has_some = true;
        run::run(self, stop, until)
    }

    /// Puts new credentials and authorities in force, if there are any, and ends sessions that they
    /// do not permit.
    fn reload(&mut self, now: Time) {
        while let Some(Order { change, ended }) = self.reloads.next() {
            let quic = change.quic.as_ref();
            let mut connections =
                quic.map_or_else(HashSet::new, |config| self.endpoint.replace_clients(config));
            let number =
                self.clients.replace_credentials(now, change.credentials, &mut connections);
            self.endpoint.revoke(now, &connections);
            // The requesting thread may have ended.
            let _ = ended.send(number);
        }
    }

    /// Processes received datagrams for a limited time; returns whether there may be more.
    fn receive(&mut self) -> Result<bool, ServerError> {
        let Self { endpoint, clients, .. } = self;
        Ok(endpoint.receive(|received, reply| clients.handle_datagram(received, reply))?)
    }

    /// Sends due packets, up to a maximum number.
    fn send_due(&mut self) -> Result<(), ServerError> {
        for _ in 0..PACKETS_A_TURN {
            let now = self.endpoint.clock.now();
            self.clients.handle_timeout(now).map_err(ServerError::Payload)?;
            self.transmit(now);
            if self.clients.poll_timeout().is_none_or(|at| at > now) {
                break;
            }
        }
        Ok(())
    }

    fn transmit(&mut self, now: Time) {
        while let Some(transmit) = self.clients.poll_transmit(now, &mut self.datagram) {
            let ServerTransmit { peer, len, dscp, .. } = transmit;
            let sent = self.endpoint.send(now, peer, dscp, &self.datagram[..len]);
            // It is lost like any other packet; the next one is fresher.
            self.unsent += u64::from(sent.is_err());
        }
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
        self.endpoint.handle_timeout(now);
        self.clients.resume_if_news(now);
        self.reload(now);
        self.desk.answer(|most| self.report_of(most));
        Ok(Turn::busy_if(self.has_some))
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        let Self { clients, endpoint, .. } = self;
        Time::earliest([clients.poll_timeout(), endpoint.poll_timeout()])
    }

    fn close(&mut self, now: Time) {
        let clients = self.clients.sessions.clients();
        let sessions = clients.map(|(_, record)| (record.peer.address, record.session));
        self.endpoint.say_goodbye(now, sessions);
    }
}

impl From<SystemError> for ServerError {
    fn from(error: SystemError) -> Self {
        Self::Endpoint(error.into())
    }
}

/// Adapts the law to the packet size and the headers of the transport.
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
