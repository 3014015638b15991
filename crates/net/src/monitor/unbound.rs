//! A monitor without sockets, clock and thread: a simulation passes it datagrams and the time.
//!
//! ```text
//!   handle_datagram ─┬─► handle_timeout, always ─┬─► poll_transmit, until there is none
//!   poll_timeout ────┘                           └─► poll_timeout: when to call again
//! ```
//!
//! Sessions, return sessions and records are those of [`Monitor`](super::Monitor).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use freshline_core::path::PathId;
use freshline_core::session::{self, Clocked, MonitorParams, Origin, Secret, SourceKey};
use freshline_core::unit::{Bytes, Time};
use freshline_core::wire::Ack;

use super::books::Books;
use super::returns::Returning;
use super::sources::Sources;
use super::{
    MonitorConfig, MonitorReport, ReturnConfig, ReturnConfigError, Sender, SourceStatus, Watch,
};
use crate::clock::Clock;
use crate::credentials::{Right, Rules};
use crate::waker::Waker;

/// A host of a simulation, and the path by which it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnboundPeer {
    /// The number of the host: each counts as a network of its own.
    pub host: u32,
    /// Its path.
    pub path: PathId,
}

impl UnboundPeer {
    fn sender(self) -> Sender {
        let address = SocketAddr::from((Ipv4Addr::from(self.host), self.path.0.into()));
        let number = u64::from(self.host) + 1;
        let origin = Origin { owner: 0, network: number, address: number };
        Sender { address, local: None, connection: None, origin }
    }

    fn of(sender: &Sender) -> Option<Self> {
        let SocketAddr::V4(address) = sender.address else { return None };
        Some(Self { host: (*address.ip()).into(), path: PathId(address.port() as u8) })
    }
}

/// A datagram of an [`UnboundMonitor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnboundTransmit {
    /// Its destination.
    pub to: UnboundPeer,
    /// Its length in bytes.
    pub len: usize,
    /// The source of its return session; `None` for an answer.
    source: Option<SourceKey>,
}

/// A monitor that its caller drives. After [`UnboundMonitor::handle_datagram`] and at
/// [`UnboundMonitor::poll_timeout`], and when its waker is called, the caller calls
/// [`UnboundMonitor::handle_timeout`], then [`UnboundMonitor::poll_transmit`] until there is nothing left.
pub struct UnboundMonitor {
    sources: Sources,
    began_at: Time,
}

impl UnboundMonitor {
    /// A monitor that starts at `now`. Any source may open a session. `detailed` is the number of
    /// sources with quantiles, as [`MonitorConfig::detailed`].
    pub fn new(params: MonitorParams, secret: Secret, detailed: usize, now: Time) -> Self {
        let monitor = session::Monitor::new(params, secret)
            .with_relation(Sender::relation)
            .with_origin(Sender::origin);
        let sources = Sources {
            sessions: session::Listener::new(monitor),
            rules: Rules::none(Right::Publish),
            books: Books::new(detailed, MonitorConfig::FORGET),
            returning: None,
            out: Vec::new(),
        };
        Self { sources, began_at: now }
    }

    /// The same, but it also sends states to the sources that ask for them, in datagrams of at most
    /// `max_datagram` bytes. `secrets` gives the secret of each return session; `waker` is called
    /// when a topic has a state that was awaited.
    ///
    /// # Errors
    /// [`ReturnConfigError`] if a name or a topic is invalid.
    pub fn returning(
        mut self,
        config: ReturnConfig,
        max_datagram: usize,
        mut secrets: impl FnMut() -> Secret + Send + 'static,
        waker: Arc<Waker>,
    ) -> Result<Self, ReturnConfigError> {
        let returning = Returning::new(config, max_datagram, Clock::new(), waker)?;
        let returning = returning.with_secrets(Box::new(move || Some(secrets())));
        returning.start()?;
        self.sources.sessions = self.sources.sessions.returning();
        self.sources.returning = Some(returning);
        Ok(self)
    }

    // ---- the contract ----

    /// Handles a datagram from a host. The answer, if there is one, replaces the bytes of `reply`.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        from: UnboundPeer,
        datagram: &[u8],
        reply: &mut Vec<u8>,
        watch: &mut dyn Watch,
    ) {
        let mut answer = [0; Ack::LEN_OF_PARTS];
        let at = Clocked::from(now);
        let from = (from.sender(), &[][..]);
        let answered = self.sources.handle_datagram(at, from, (None, datagram), &mut answer, watch);
        reply.clear();
        reply.extend_from_slice(&answer[..answered.len]);
    }

    /// Handles due timers, or a call of the waker.
    pub fn handle_timeout(&mut self, now: Time, watch: &mut dyn Watch) {
        self.sources.handle_timeout(now, watch);
        self.sources.hand_out_records(now, watch);
        self.sources.look_at_returns(now);
        watch.turn(now);
    }

    /// Writes the next datagram to the front of `out`.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<UnboundTransmit> {
        loop {
            let transmit = self.sources.poll_transmit(now)?;
            let Some(to) = UnboundPeer::of(&transmit.peer) else { continue };
            out.clear();
            out.extend_from_slice(&self.sources.out[..transmit.len]);
            return Some(UnboundTransmit { to, len: transmit.len, source: transmit.source });
        }
    }

    /// Counts a datagram that has left, and its bytes with all headers.
    pub fn on_sent(&mut self, now: Time, transmit: &UnboundTransmit, bytes: Bytes) {
        if let Some(source) = transmit.source {
            self.sources.on_sent(now, source, bytes);
        }
    }

    /// When to call [`UnboundMonitor::handle_timeout`] without an event.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.sources.poll_timeout()
    }

    /// Ends all sessions; [`UnboundMonitor::poll_transmit`] writes the goodbyes.
    pub fn close(&mut self, now: Time) {
        self.sources.sessions.close(now);
    }

    // ---- getters ----

    /// At most `most` sources with their ages and counts.
    pub fn statuses(&self, now: Time, most: usize, watch: &dyn Watch) -> Vec<SourceStatus> {
        self.sources.statuses(now, most, |source| watch.replaced(source))
    }

    /// A summary of the run until `now`.
    pub fn report(&self, now: Time, watch: &dyn Watch) -> MonitorReport {
        let monitor = self.sources.sessions.monitor();
        MonitorReport {
            duration_s: now.since(self.began_at).as_secs_f64(),
            sources_open: monitor.len(),
            stale_topics: monitor.stale_topics(),
            counters: *monitor.counters(),
            refusals: self.sources.books.refusals,
            sources: self.statuses(now, self.sources.books.details.limit(), watch),
            ended: self.sources.books.details.ended(),
        }
    }
}
