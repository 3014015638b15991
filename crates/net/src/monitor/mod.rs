//! A monitor on real clocks and sockets: one socket, one thread, many sources.
//!
//! ```text
//!   socket ─► inbox ─► (QUIC server ─►) session::Monitor ─► watch: outputs, metrics
//!                              ◄─ outbox ◄─── answers ◄─┘
//! ```
//!
//! All protocol logic is in [`freshline_core::session`]. Whoever wants to know something of a
//! running monitor asks it through an [`Asker`] and is answered between two turns of its loop, so
//! that nothing is locked while updates come.

pub mod output;
mod status;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use freshline_core::session::{self, MonitorCounters, MonitorParams, Secret, SourceKey, Verdict};
use freshline_core::unit::Time;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::alarm::Alarm;
use crate::ask::{self, Desk};
use crate::batch::{Inbox, Socket};
use crate::carrier::Carrier;
use crate::clock::Clock;
use crate::quic;
use crate::stop::Stop;

pub use crate::ask::Gone;
pub use status::{MonitorReport, SourceStatus};

use status::Details;

/// What a monitor holds of a source; see [`session::Record`].
pub type Record = session::Record<Sender>;

/// Where an update came from, and from whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sender {
    /// Its address.
    pub address: SocketAddr,
    /// Stands for the certificate that it has shown, if it was asked for one.
    identity: Option<NonZeroU64>,
}

impl Sender {
    /// A session may come by several paths, of one source alone.
    fn may_follow(before: &Self, now: &Self) -> bool {
        before.identity == now.identity
    }
}

/// Asks a monitor that runs on another thread.
pub type Asker = ask::Asker<MonitorReport>;

impl Asker {
    /// The states of the sources as of now, at most `most`.
    ///
    /// # Errors
    /// [`Gone`] if the monitor does not run any more.
    pub fn sources(&self, most: usize) -> Result<Vec<SourceStatus>, Gone> {
        Ok(self.report(most)?.sources)
    }
}

const SOCKET: Token = Token(0);
const ALARM: Token = Token(1);
const WAKER: Token = Token(2);

/// Receives before the timers are looked at again.
const BATCHES_A_TURN: usize = 16;

/// What a monitor needs to run.
#[derive(Debug)]
pub struct MonitorConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// QUIC's settings, or `None` for plain UDP.
    pub quic: Option<quic::ServerConfig>,
    /// The session's settings; `admission` is set by the transport.
    pub params: MonitorParams,
    /// Sources of which quantiles are kept and which are named in metrics, at most; the others
    /// count in the sums only. Each costs 60 kB.
    pub detailed: usize,
}

/// Why a monitor cannot run, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
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
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> MonitorError {
    move |error| MonitorError::System { what, error }
}

/// Somebody who takes in what comes. Everything defaults to looking away; nothing may block.
pub trait Watch {
    /// Fresh state has come.
    fn fresh(&mut self, _now: Time, _source: SourceKey, _record: &Record) {}
    /// A source has opened a session; a former source of this key, or of this name, is gone.
    fn opened(&mut self, _now: Time, _source: SourceKey, _record: &Record) {}
    /// A source is gone: it said so, or it was idle.
    fn gone(&mut self, _now: Time, _source: SourceKey) {}
    /// A turn of the loop has ended.
    fn turn(&mut self, _now: Time) {}
    /// States of a source that a newer one replaced before they could be handed on.
    fn replaced(&self, _source: SourceKey) -> u64 {
        0
    }
}

impl Watch for () {}

/// A monitor that is ready to run.
pub struct Monitor {
    clock: Clock,
    poll: Poll,
    alarm: Alarm,
    waker: Arc<Waker>,
    socket: Socket,
    inbox: Inbox,
    carrier: Carrier,
    sessions: session::Monitor<Sender>,
    details: Details,
    desk: Desk<MonitorReport>,
    began_at: Time,
}

impl Monitor {
    /// Opens the socket.
    ///
    /// # Errors
    /// [`MonitorError`] says what is missing.
    pub fn bind(config: MonitorConfig) -> Result<Self, MonitorError> {
        let clock = Clock::new();
        let now = clock.now();
        let address = config.listen;
        let mut socket =
            Socket::bind(address).map_err(|error| MonitorError::Listen { address, error })?;
        let poll = Poll::new().map_err(system("make a poll"))?;
        let mut alarm = Alarm::new().map_err(system("make a timer"))?;
        let registry = poll.registry();
        registry
            .register(&mut socket.udp, SOCKET, Interest::READABLE)
            .and_then(|()| registry.register(&mut alarm, ALARM, Interest::READABLE))
            .map_err(system("watch its socket"))?;
        let waker = Arc::new(Waker::new(registry, WAKER).map_err(system("make a waker"))?);
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(MonitorError::Random)?;
        let carrier = Carrier::new(config.quic.as_ref(), clock.instant_of(now));
        let params = MonitorParams { admission: carrier.admission(), ..config.params };
        Ok(Self {
            clock,
            poll,
            alarm,
            desk: Desk::new(Arc::clone(&waker)),
            waker,
            inbox: Inbox::new(),
            carrier,
            sessions: session::Monitor::new(params, Secret::new(secret))
                .with_owners(Sender::may_follow),
            details: Details::new(config.detailed),
            socket,
            began_at: now,
        })
    }

    /// Where it listens; tells the port that was chosen for port 0.
    ///
    /// # Errors
    /// [`MonitorError::System`] if the system does not say.
    pub fn local_addr(&self) -> Result<SocketAddr, MonitorError> {
        self.socket.udp.local_addr().map_err(system("learn its own address"))
    }

    /// Something through which other threads ask for the sources' states.
    pub fn asker(&self) -> Asker {
        self.desk.asker()
    }

    /// What all sources together have sent so far.
    pub fn counters(&self) -> &MonitorCounters {
        self.sessions.counters()
    }

    /// A summary of the run until now, with the sources that are watched in detail; `watch` knows
    /// what was replaced.
    pub fn report(&self, watch: &dyn Watch) -> MonitorReport {
        self.report_of(self.details.limit(), watch)
    }

    fn report_of(&self, most: usize, watch: &dyn Watch) -> MonitorReport {
        let now = self.clock.now();
        let replaced = |source| watch.replaced(source);
        MonitorReport {
            duration_s: now.since(self.began_at).as_secs_f64(),
            sources_open: self.sessions.len(),
            counters: *self.sessions.counters(),
            sources: self.details.statuses(&self.sessions, now, most, replaced),
            ended: self.details.ended(),
        }
    }

    /// Runs until `stop`, or until `until` has come, and says goodbye to all sources.
    ///
    /// # Errors
    /// [`MonitorError`] where it cannot go on; trouble with single packets is none.
    pub fn run(
        &mut self,
        stop: &Stop,
        until: Option<Time>,
        watch: &mut dyn Watch,
    ) -> Result<(), MonitorError> {
        stop.wakes(Arc::clone(&self.waker));
        let mut events = Events::with_capacity(16);
        loop {
            let busy = self.receive(watch)?;
            let now = self.clock.now();
            self.tick(now, watch);
            self.desk.answer(|most| self.report_of(most, watch));
            watch.turn(now);
            if stop.is_stopped() || until.is_some_and(|end| now >= end) {
                let records = self.sessions.records();
                let sessions = records.map(|(_, record)| (record.peer.address, record.session));
                self.carrier.say_goodbye(&self.socket, sessions, self.clock.instant_of(now));
                return Ok(());
            }
            let now = self.clock.now();
            let wake = Time::earliest([busy.then_some(now), self.next_event(), until]);
            let timeout = self.alarm.poll_until(now, wake).map_err(system("set a timer"))?;
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                polled => polled.map_err(system("wait for its socket"))?,
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        let carrier = self.carrier.next_timeout().map(|at| {
            let now = self.clock.now();
            now + at.saturating_duration_since(self.clock.instant_of(now)).into()
        });
        self.sessions.next_event().into_iter().chain(carrier).min()
    }

    fn tick(&mut self, now: Time, watch: &mut dyn Watch) {
        self.carrier.on_timeout(&self.socket, self.clock.instant_of(now));
        let details = &mut self.details;
        self.sessions.on_tick(now, |source, record| {
            details.end(source, record, now, watch.replaced(source));
            watch.gone(now, source);
        });
    }

    /// Takes in some batches; whether there may be more.
    fn receive(&mut self, watch: &mut dyn Watch) -> Result<bool, MonitorError> {
        let Self { carrier, inbox, socket, sessions, details, clock, .. } = self;
        for _ in 0..BATCHES_A_TURN {
            if !inbox.fill(socket).map_err(system("receive"))? {
                return Ok(false);
            }
            let received_at = clock.now();
            carrier.take_in(socket, inbox, *clock, received_at, |at, from, datagram, reply| {
                let sender = Sender { address: from.remote(), identity: from.identity };
                let receipt = sessions.on_datagram(at, sender, datagram, reply);
                let now = at.received_at;
                match receipt.verdict {
                    Verdict::Fresh { source, opened, .. } => {
                        if let Some(record) = sessions.record(source) {
                            if opened {
                                details.insert(source);
                                watch.opened(now, source, record);
                            }
                            details.on_fresh(source, record, now);
                            watch.fresh(now, source, record);
                        }
                    }
                    Verdict::Closed { source, record } => {
                        details.end(source, &record, now, watch.replaced(source));
                        watch.gone(now, source);
                    }
                    _ => {}
                }
                receipt.reply
            });
        }
        Ok(true)
    }
}
