//! The common part of servers, a monitor or the server of a downlink: its sockets, one poll, one
//! timer.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use freshline_core::dscp::Dscp;
use freshline_core::session::{Admission, Secret};
use freshline_core::unit::{Bytes, Time};
use freshline_core::wire::SessionId;
use mio::Token;
use mio::event::Event;

use crate::batch::Address;
use crate::carrier::{Answer, Carrier, Peer, Received};
use crate::clock::Clock;
use crate::queues::{Queues, Served};
use crate::quic;
use crate::refusal::Refusals;
use crate::sleeper::Sleeper;
use crate::system::{SystemError, system};
use crate::waker::Waker;

const ALARM: Token = Token(0);
const WAKER: Token = Token(1);
/// The token of its first socket.
const SOCKETS: Token = Token(2);

/// The close message of a revoked session.
const REVOKED: &str = "the far end has revoked the token or the certificate, or does not permit it to use this name any more";

/// Why an endpoint cannot run, or cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The operating system refused something else.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The system gave no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
}

/// A random secret.
pub(crate) fn secret() -> Result<Secret, EndpointError> {
    let mut secret = [0; 16];
    getrandom::fill(&mut secret).map_err(EndpointError::Random)?;
    Ok(Secret::new(secret))
}

/// Listening sockets, and the poll and timer of their thread.
pub(crate) struct Endpoint {
    pub(crate) clock: Clock,
    sleeper: Sleeper,
    queues: Queues,
    carrier: Carrier,
}

impl Endpoint {
    pub(crate) fn bind(
        address: SocketAddr,
        quic: Option<&quic::ServerConfig>,
    ) -> Result<Self, EndpointError> {
        let clock = Clock::new();
        let mut key = [0; 4];
        getrandom::fill(&mut key).map_err(EndpointError::Random)?;
        let sorted = quic.map(|quic| (quic.tag(), u32::from_ne_bytes(key)));
        let mut queues = Queues::bind(address, sorted)
            .map_err(|error| EndpointError::Listen { address, error })?;
        let sleeper = Sleeper::new([ALARM, WAKER])?;
        queues.register(sleeper.registry(), SOCKETS).map_err(system("watch its sockets"))?;
        let carrier = Carrier::new(quic, clock.instant_of(clock.now()));
        Ok(Self { clock, sleeper, queues, carrier })
    }

    /// Its listening address, with the port that the system chose for port 0.
    pub(crate) fn local_addr(&self) -> Result<SocketAddr, EndpointError> {
        Ok(self.queues.socket().udp.local_addr().map_err(system("learn its own address"))?)
    }

    /// The waker for other threads.
    pub(crate) fn waker(&self) -> Arc<Waker> {
        self.sleeper.waker()
    }

    /// The admission by address here.
    pub(crate) fn admission(&self) -> Admission {
        self.carrier.admission()
    }

    /// The maximum length of a datagram.
    pub(crate) fn max_datagram(&self) -> usize {
        self.carrier.max_datagram()
    }

    /// The refusals of the transport and the kernel.
    pub(crate) fn refusals(&self) -> Refusals {
        let mut refusals = self.carrier.refusals();
        self.queues.count_drops(&mut refusals);
        refusals
    }

    /// Hands received datagrams up for a limited time, and sends the answers; returns whether there
    /// may be more.
    pub(crate) fn receive<const N: usize>(
        &mut self,
        mut answer: impl FnMut(Received<'_>, &mut [u8; N]) -> Answer,
    ) -> Result<bool, EndpointError> {
        let Self { carrier, queues, clock, .. } = self;
        let serve = |served: Served<'_>| match served {
            Served::Train(socket, at, train, later) => {
                carrier.take_in(socket, (train, later), *clock, at, &mut answer);
            }
            Served::Crowd => carrier.on_crowd(clock.instant_of(clock.now())),
        };
        let served = queues.serve(*clock, serve);
        carrier.send_answers(queues.socket());
        Ok(served.map_err(system("receive"))?)
    }

    /// Sends one datagram at once, with this code point; returns the bytes sent, with all headers.
    ///
    /// # Errors
    /// The errors of [`Carrier::send`].
    pub(crate) fn send(
        &mut self,
        now: Time,
        peer: Peer,
        dscp: Dscp,
        datagram: &[u8],
    ) -> io::Result<Bytes> {
        self.carrier.send(self.queues.socket(), peer, dscp, datagram, self.clock.instant_of(now))
    }

    /// Handles the timers of the transport.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.carrier.handle_timeout(self.queues.socket(), self.clock.instant_of(now));
    }

    /// When the transport needs [`Endpoint::handle_timeout`].
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let at = self.carrier.poll_timeout()?;
        let now = self.clock.now();
        Some(now + at.saturating_duration_since(self.clock.instant_of(now)).into())
    }

    /// The clock and the sleeper.
    pub(crate) fn sleeper(&mut self) -> (Clock, &mut Sleeper) {
        (self.clock, &mut self.sleeper)
    }

    /// Handles an event of the poll; returns whether it is of one of the sockets.
    pub(crate) fn on_ready(&mut self, event: &Event) -> bool {
        self.queues.on_ready(SOCKETS, event.token())
    }

    /// Checks certificates by another configuration with the same identity from now on. Returns the
    /// numbers of the connections that it does not accept, which continue until they are revoked.
    pub(crate) fn replace_clients(&mut self, config: &quic::ServerConfig) -> HashSet<NonZeroU64> {
        self.carrier.replace_clients(config)
    }

    /// Ends these QUIC connections because their sessions are no longer permitted.
    pub(crate) fn revoke(&mut self, now: Time, connections: &HashSet<NonZeroU64>) {
        let now = self.clock.instant_of(now);
        self.carrier.close_connections(self.queues.socket(), connections, REVOKED, now);
    }

    /// Notifies all these sessions that the endpoint stops.
    pub(crate) fn say_goodbye(
        &mut self,
        now: Time,
        sessions: impl Iterator<Item = (Address, SessionId)>,
    ) {
        self.carrier.say_goodbye(self.queues.socket(), sessions, self.clock.instant_of(now));
    }
}
