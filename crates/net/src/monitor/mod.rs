//! A monitor on real clocks and sockets: one socket, one thread, many sources.
//!
//! ```text
//!   socket ─► inbox ─► (QUIC server ─►) session::Monitor ─► watch: outputs, metrics
//!                              ◄─ outbox ◄─── answers ◄─┘
//! ```
//!
//! All protocol logic is in [`freshline_core::session`]. Other threads query a running monitor
//! through an [`Asker`], which is answered between two turns of the monitor's loop, so that nothing
//! is locked while updates arrive.

mod books;
mod both;
mod details;
mod freshness;
mod incoming;
pub mod output;
mod returns;
mod sources;
mod status;
mod topic_status;
#[cfg(test)]
mod true_ages;
mod unbound;
mod which;

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use freshline_core::session::{
    self, Alarm, Cursor, End, ListenerTransmit, MonitorCounters, MonitorParams, NextRecord, Origin,
    Relation, RemovedTopic, SourceKey, TakenRecord, TopicRecord,
};
use freshline_core::unit::{Span, Time};

use crate::ask::{self, Desk};
use crate::batch::Address;
use crate::carrier::{Peer, Received};
use crate::clock::Clock;
use crate::credentials::{Order, Reloader, Reloads, Rules};
use crate::endpoint::{self, Endpoint};
use crate::quic;
use crate::run::{self, Driven, Turn};
use crate::sleeper::Sleeper;
use crate::stop::Stop;
use crate::waker::Waker;

pub use crate::ask::Gone;
pub use crate::endpoint::EndpointError as MonitorError;
pub use both::Both;
pub use freshness::FreshnessStatus;
pub use incoming::Incoming;
pub use returns::{ReturnConfig, ReturnConfigError, ReturnTopic};
pub use status::{MonitorReport, SourceStatus};
pub use topic_status::{SHOWN, TopicStatus};
pub use unbound::{UnboundMonitor, UnboundPeer, UnboundTransmit};

pub(crate) use books::Books;
use returns::Returning;
use sources::Sources;

/// The state that a monitor holds of a source; see [`session::Record`].
pub type Record = session::Record<Sender>;

/// The sender of an update.
#[derive(Debug, Clone, Copy)]
pub struct Sender {
    /// Its address.
    pub address: SocketAddr,
    /// The address of this host to which it wrote, if the kernel reported it.
    local: Option<IpAddr>,
    /// The QUIC connection.
    connection: Option<quic::ConnKey>,
    /// The origin by which its places are counted. The owner identifies its certificate, and is 0
    /// without one. A forged address does not change it.
    origin: Origin,
}

impl Sender {
    /// A session may use several connections, of one source alone. UDP has no connections: there a
    /// session may move from address to address.
    fn relation(before: &Self, now: &Self) -> Relation {
        let is_owner = before.origin.owner == now.origin.owner;
        match (is_owner, before.connection == now.connection) {
            (false, _) => Relation::Other,
            (true, true) => Relation::Same,
            (true, false) => Relation::Unproven,
        }
    }

    /// The origin by which its places are counted.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    fn of(peer: &Peer) -> Self {
        let Address { remote, local } = peer.address;
        Self { address: remote, local, connection: peer.connection(), origin: peer.origin() }
    }

    /// The destination of datagrams for it.
    fn peer(&self) -> Peer {
        let address = Address { remote: self.address, local: self.local };
        Peer::new(address, self.connection, self.origin)
    }

    /// The part that must stay the same, as in [`Peer`]: a QUIC connection may move from address to
    /// address.
    fn place(&self) -> (Option<quic::ConnKey>, Option<(SocketAddr, Option<IpAddr>)>) {
        let address = self.connection.is_none().then_some((self.address, self.local));
        (self.connection, address)
    }
}

impl PartialEq for Sender {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Sender {}

impl Hash for Sender {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place().hash(state);
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

/// The configuration of a monitor.
#[derive(Debug)]
pub struct MonitorConfig {
    /// The address to listen at.
    pub listen: SocketAddr,
    /// QUIC's settings, or `None` for plain UDP.
    pub quic: Option<quic::ServerConfig>,
    /// The session's settings; `admission` is set by the transport.
    pub params: MonitorParams,
    /// Rules for opening a session. If they are not empty, they replace `params.tokens`.
    pub rules: Rules,
    /// Maximum number of sources whose quantiles are kept and that have a name of their own in
    /// metrics; the others count in the sums only. Each costs 60 kB. The same number of silent
    /// sources is kept in addition, so that the maximum is twice 60 kB times this number.
    pub detailed: usize,
    /// Forget a silent source with a name this long after its last update; until then its growing age
    /// stays in reports. Sources without a name are forgotten after [`MonitorParams::idle`].
    pub forget: Span,
}

impl MonitorConfig {
    /// The default of [`MonitorConfig::forget`]: a day.
    pub const FORGET: Span = Span::from_secs(24 * 3600);
}

/// Whether there is room for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordRoom {
    /// There is room.
    Free,
    /// There is no room now.
    Full,
    /// There will be no room: the topic is not asked for again until more of its records have
    /// arrived.
    Never,
}

impl RecordRoom {
    /// Room now, or not yet.
    pub fn now_if(has_room: bool) -> Self {
        if has_room { Self::Free } else { Self::Full }
    }
}

/// Receives events. Every method has an empty default implementation; none may block.
pub trait Watch {
    /// Fresh state has arrived. Its age is [`Record::state_age`](session::Record::state_age).
    fn fresh(&mut self, _now: Time, _source: SourceKey, _record: &Record) {}
    /// Fresh state of a topic other than the first, or of a key, has arrived.
    fn fresh_topic(
        &mut self,
        _now: Time,
        _source: SourceKey,
        _record: &Record,
        _topic: &TopicRecord,
    ) {
    }
    /// A key is removed; the record no longer has it.
    fn removed(
        &mut self,
        _now: Time,
        _source: SourceKey,
        _record: &Record,
        _removed: &RemovedTopic,
    ) {
    }
    /// Whether it can take the next record of a topic. Until it can, the records stay with the
    /// source. A topic without room is asked for again when one of its records is done, or their
    /// age becomes known; and in its turn after any record is done, and after
    /// [`Watch::has_room_again`].
    fn room_for_record(&self, _source: SourceKey, _topic: &str, _next: &NextRecord) -> RecordRoom {
        RecordRoom::Never
    }
    /// Whether there may be room for records that had none, since the last call, for another reason
    /// than a record that is done.
    fn has_room_again(&mut self) -> bool {
        false
    }
    /// The next record of a topic, in order; each record counts. The source keeps it until
    /// [`Watch::poll_record_done`] returns its cursor.
    fn record(
        &mut self,
        _now: Time,
        _source: SourceKey,
        _record: &Record,
        _topic: &str,
        _taken: &TakenRecord,
    ) {
    }
    /// A record that another watcher takes ([`Both`]).
    fn see_record(
        &mut self,
        _now: Time,
        _source: SourceKey,
        _record: &Record,
        _topic: &str,
        _taken: &TakenRecord,
    ) {
    }
    /// A record that is done for good, by its source and cursor; returned once per record.
    fn poll_record_done(&mut self) -> Option<(SourceKey, Cursor)> {
        None
    }
    /// A topic of which it has dropped all records that it was given and that are not done: they
    /// come again, in order. The number of the cursor does not count.
    fn poll_records_dropped(&mut self) -> Option<Cursor> {
        None
    }
    /// The age of the held state is known now; it was unknown when the state was fresh.
    fn aged(&mut self, _now: Time, _source: SourceKey, _record: &Record) {}
    /// The same of a topic other than the first, or of a key.
    fn aged_topic(
        &mut self,
        _now: Time,
        _source: SourceKey,
        _record: &Record,
        _topic: &TopicRecord,
    ) {
    }
    /// A topic with a maximum age ([`MonitorParams::max_age`]) no longer has a state that is fresh
    /// enough.
    fn stale(&mut self, _now: Time, _alarm: &Alarm) {}
    /// The topic has a fresh state again, which is handed out next.
    fn recovered(&mut self, _now: Time, _alarm: &Alarm) {}
    /// A source has opened a session; a former source of this key, or of this name, is gone.
    fn opened(&mut self, _now: Time, _source: SourceKey, _record: &Record) {}
    /// A source is gone, for this reason.
    fn gone(&mut self, _now: Time, _source: SourceKey, _why: End) {}
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
    endpoint: Endpoint,
    sources: Sources,
    desk: Desk<MonitorReport>,
    reloads: Reloads,
    began_at: Time,
    /// How long the machine had slept when that was last looked at.
    slept: Span,
}

impl Monitor {
    /// Opens the socket.
    ///
    /// # Errors
    /// [`MonitorError`] if the address, QUIC's settings or random numbers are unavailable.
    pub fn bind(config: MonitorConfig) -> Result<Self, MonitorError> {
        let endpoint = Endpoint::bind(config.listen, config.quic.as_ref())?;
        let params = MonitorParams { admission: endpoint.admission(), ..config.params };
        Ok(Self {
            desk: Desk::new(endpoint.waker()),
            reloads: Reloads::new(endpoint.waker()),
            sources: Sources {
                sessions: session::Listener::new(
                    session::Monitor::new(params, endpoint::secret()?)
                        .with_relation(Sender::relation)
                        .with_origin(Sender::origin),
                ),
                rules: config.rules,
                out: Vec::new(),
                books: Books::new(config.detailed, config.forget),
                returning: None,
            },
            began_at: endpoint.clock.now(),
            slept: endpoint.clock.slept(),
            endpoint,
        })
    }

    /// The same, continuing with records where applications were in an earlier run
    /// ([`output::Outputs::take_records`]).
    #[must_use]
    pub fn with_cursors(mut self, cursors: Vec<Cursor>) -> Self {
        self.sources.sessions =
            self.sources.sessions.map_monitor(|monitor| monitor.with_cursors(cursors));
        self
    }

    /// The same, but it also sends states to each source that asks for them, and that may receive
    /// them if there are credentials ([`Right::Receive`](crate::credentials::Right)).
    ///
    /// # Errors
    /// [`ReturnConfigError`] if a name or a topic is invalid, or the system refuses something.
    pub fn returning(mut self, config: ReturnConfig) -> Result<Self, ReturnConfigError> {
        let max_datagram = self.endpoint.max_datagram();
        let returning = Returning::new(config, max_datagram, self.endpoint.clock, self.waker())?;
        self.sources.sessions = self.sources.sessions.returning();
        self.sources.returning = Some(returning);
        Ok(self)
    }

    /// Wakes its loop, for example when there is room for a further record.
    pub fn waker(&self) -> Arc<Waker> {
        self.endpoint.waker()
    }

    /// The listening address, with the port that was chosen for port 0.
    ///
    /// # Errors
    /// [`MonitorError::System`] if the system does not report it.
    pub fn local_addr(&self) -> Result<SocketAddr, MonitorError> {
        self.endpoint.local_addr()
    }

    /// A handle by which other threads ask for the sources' states.
    pub fn asker(&self) -> Asker {
        self.desk.asker()
    }

    /// A handle by which another thread puts other credentials in force.
    pub fn reloader(&self) -> Reloader {
        self.reloads.reloader()
    }

    /// Counters over all sources so far.
    pub fn counters(&self) -> &MonitorCounters {
        self.sources.sessions.monitor().counters()
    }

    /// A summary of the run until now, with the sources that are watched in detail; `watch` counts
    /// the replaced states.
    pub fn report(&self, watch: &dyn Watch) -> MonitorReport {
        self.report_of(self.sources.books.details.limit(), watch)
    }

    fn report_of(&self, most: usize, watch: &dyn Watch) -> MonitorReport {
        let now = self.endpoint.clock.now();
        let replaced = |source| watch.replaced(source);
        MonitorReport {
            duration_s: now.since(self.began_at).as_secs_f64(),
            sources_open: self.sources.sessions.monitor().len(),
            stale_topics: self.sources.sessions.monitor().stale_topics(),
            counters: *self.sources.sessions.monitor().counters(),
            refusals: self.sources.books.refusals.and(&self.endpoint.refusals()),
            sources: self.sources.statuses(now, most, replaced),
            ended: self.sources.books.details.ended(),
        }
    }

    /// Runs until `stop`, or until the time `until`, and says goodbye to all sources.
    ///
    /// # Errors
    /// [`MonitorError`] if it cannot go on; errors of single packets do not end it.
    pub fn run(
        &mut self,
        stop: &Stop,
        until: Option<Time>,
        watch: &mut dyn Watch,
    ) -> Result<(), MonitorError> {
        self.sources.returning.as_ref().map_or(Ok(()), Returning::start)?;
        run::run(&mut Watched { monitor: self, watch }, stop, until)
    }

    /// Puts other credentials and authorities in force, if given, and ends sessions that they do
    /// not permit.
    fn reload(&mut self, now: Time, watch: &mut dyn Watch) {
        while let Some(Order { change, ended }) = self.reloads.next() {
            let quic = change.quic.as_ref();
            let mut connections =
                quic.map_or_else(HashSet::new, |config| self.endpoint.replace_clients(config));
            let number =
                self.sources.replace_credentials(now, change.credentials, &mut connections, watch);
            self.endpoint.revoke(now, &connections);
            // The thread that asked may have ended.
            let _ = ended.send(number);
        }
    }

    /// Called before acks are read that arrived just before the machine slept, and would count as a
    /// round trip.
    fn notice_sleep(&mut self) {
        if self.endpoint.clock.has_slept(&mut self.slept) {
            self.sources.handle_resume(self.endpoint.clock.now());
        }
    }

    /// Sends the datagrams that return sessions may send.
    fn send_returns(&mut self) {
        let Self { endpoint, sources, .. } = self;
        if sources.returning.is_none() {
            return;
        }
        let now = endpoint.clock.now();
        sources.look_at_returns(now);
        while let Some(transmit) = sources.poll_transmit(now) {
            let ListenerTransmit { peer, len, dscp, source } = transmit;
            // A datagram that the socket or a connection does not take is lost like any other.
            let sent = endpoint.send(now, peer.peer(), dscp, &sources.out[..len]);
            if let (Some(source), Ok(bytes)) = (source, sent) {
                sources.on_sent(now, source, bytes);
            }
        }
    }

    /// Receives datagrams for a limited time; returns whether there may be more.
    fn receive(&mut self, watch: &mut dyn Watch) -> Result<bool, MonitorError> {
        let Self { endpoint, sources, .. } = self;
        endpoint.receive(|received, reply| {
            let Received { at, peer, dscp, names, datagram } = received;
            let sender = Sender::of(&peer);
            sources.handle_datagram(at, (sender, names), (dscp, datagram), reply, watch)
        })
    }
}

/// A running monitor, and the watcher of its events.
struct Watched<'a> {
    monitor: &'a mut Monitor,
    watch: &'a mut dyn Watch,
}

impl Driven for Watched<'_> {
    type Error = MonitorError;

    fn sleeper(&mut self) -> (Clock, &mut Sleeper) {
        self.monitor.endpoint.sleeper()
    }

    fn on_ready(&mut self, event: &mio::event::Event) {
        self.monitor.endpoint.on_ready(event);
    }

    fn turn(&mut self) -> Result<Turn, MonitorError> {
        let Self { monitor, watch } = self;
        monitor.notice_sleep();
        let busy = monitor.receive(*watch)?;
        let now = monitor.endpoint.clock.now();
        monitor.endpoint.handle_timeout(now);
        monitor.sources.handle_timeout(now, *watch);
        monitor.sources.hand_out_records(now, *watch);
        // This may close return sessions.
        monitor.reload(now, *watch);
        monitor.send_returns();
        monitor.desk.answer(|most| monitor.report_of(most, *watch));
        watch.turn(now);
        Ok(Turn::busy_if(busy))
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        let Monitor { sources, endpoint, .. } = &*self.monitor;
        Time::earliest([sources.poll_timeout(), endpoint.poll_timeout()])
    }

    fn close(&mut self, now: Time) {
        let Monitor { sources, endpoint, .. } = &mut *self.monitor;
        let records = sources.sessions.monitor().records();
        let sessions = records.map(|(_, record)| (record.peer.peer().address, record.session));
        endpoint.say_goodbye(now, sessions);
    }
}
