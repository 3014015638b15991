//! A source without its sleeper, so that one thread can run many sources.

use std::error::Error;

use freshline_core::path::PathId;
use freshline_core::session::{self, Datagram, Secret, SourceEvent, SourceParams, TransportState};
use freshline_core::unit::{Bytes, Span, Time};
use mio::Registry;

use super::feed::{Feed, Trouble};
use super::paths::{Change, Links, Place};
use super::report::SourceReport;
use super::{Event, Receive, SourceConfig, SourceError, Watch};
#[cfg(feature = "status")]
use super::{report, status::Status};
use crate::clock::Clock;
use crate::link::{Fetched, LinkEvent, SendStatus};
use crate::run::Turn;
use crate::stop::Stop;

/// Datagrams to receive before the timers are checked again.
const RECEIVES_A_TURN: usize = 256;

/// Session, links and sampler of a source. Its driver calls [`Engine::turn`] when a socket is
/// ready, when it is woken, and at [`Engine::poll_timeout`].
pub(crate) struct Engine {
    clock: Clock,
    /// The machine's total sleep time at the last check.
    slept: Span,
    links: Links,
    session: session::Source,
    /// The receiver of the return direction, if there is one.
    incoming: Option<Box<dyn Receive + Send>>,
    feed: Feed,
    #[cfg(feature = "status")]
    status: Option<Status>,
    began_at: Time,
    datagram: Vec<u8>,
}

impl Engine {
    /// Opens the socket and starts the session.
    ///
    /// # Errors
    /// [`SourceError`] names the cause.
    pub(crate) fn new(config: SourceConfig, place: &Place<'_>) -> Result<Self, SourceError> {
        let clock = Clock::new();
        let now = clock.now();
        let max_datagram = config.transport.max_datagram();
        let (source_paths, monitor) = (&config.paths, &config.monitor);
        let paths = source_paths.paths()?;
        let links = Links::open(source_paths, config.transport, monitor, place, clock)?;
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(SourceError::Random)?;
        let params = SourceParams { max_datagram, ..config.params };
        let session = session::Source::new(params, Secret::new(random), config.law, now)?;
        let (topics, inputs) = config.states.split();
        let session = session.with_topics(topics)?;
        let feed = inputs.feed(&session, clock, &place.waker)?;
        let mut engine = Self {
            clock,
            slept: clock.slept(),
            feed,
            session: session.over(paths),
            incoming: None,
            #[cfg(feature = "status")]
            status: None,
            began_at: now,
            datagram: Vec::new(),
            links,
        };
        engine.mark_what_is_not_ready(now);
        Ok(engine)
    }

    /// Requests the return direction from now on, and passes it to `incoming`.
    pub(super) fn receive(&mut self, incoming: Box<dyn Receive + Send>) {
        self.session.want_return();
        self.incoming = Some(incoming);
    }

    /// Puts the source's status from now on.
    #[cfg(feature = "status")]
    pub(super) fn report_status(&mut self, interval: Span) {
        self.status = Some(Status::new(interval));
    }

    /// Hands out the data received so far.
    ///
    /// # Errors
    /// The errors of [`Receive::finish`].
    pub(super) fn finish_incoming(
        &mut self,
        stop: &Stop,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.incoming.take().map_or(Ok(()), |incoming| incoming.finish(stop))
    }

    // ---- the contract ----

    /// Processes received datagrams and due timers, and sends due updates.
    ///
    /// # Errors
    /// [`SourceError`] if it cannot continue.
    pub(crate) fn turn(
        &mut self,
        registry: &Registry,
        watch: &mut dyn Watch,
    ) -> Result<Turn, SourceError> {
        self.notice_sleep();
        let mut turning = Turning { engine: self, registry, watch };
        let busy = turning.receive()?;
        let now = turning.engine.clock.now();
        turning.engine.session.handle_timeout(now);
        if let Some(incoming) = &mut turning.engine.incoming {
            incoming.turn(now);
        }
        turning.attend(now)?;
        #[cfg(feature = "status")]
        self.put_status(now);
        self.transmit()?;
        if self.links.are_several() {
            watch.queues(&mut self.links.seen_by());
        }
        watch.turn(now, &self.session);
        if !self.session.has_finished() {
            return Ok(Turn::busy_if(busy));
        }
        self.feed.failure().map_or(Ok(Turn::Over), |why| Err(SourceError::Sampler(why)))
    }

    /// Notes that the sampler may have a state; returns whether a state was awaited, so that a turn
    /// is due.
    pub(crate) fn on_woken(&mut self) -> bool {
        self.feed.on_woken(self.clock.now(), &mut self.session)
    }

    /// When the next turn is due, even if no event arrives.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let incoming = self.incoming.as_ref().and_then(|incoming| incoming.poll_timeout());
        #[cfg(feature = "status")]
        let status = self.status.as_ref().and_then(|status| status.poll_timeout(&self.session));
        #[cfg(not(feature = "status"))]
        let status = None;
        Time::earliest([self.session.poll_timeout(), self.links.poll_timeout(), incoming, status])
    }

    /// Closes the session and the connections.
    pub(crate) fn close(&mut self, now: Time) {
        let Self { session, links, datagram, .. } = self;
        session.close();
        while let Some(transmit) = session.poll_transmit(now, datagram) {
            links.close(transmit.path, now, &datagram[..transmit.len]);
        }
    }

    /// Closes only the connections: the monitor sees the source fall silent, and keeps its name.
    pub(crate) fn leave(&mut self, now: Time) {
        self.links.hang_up(now);
    }

    /// Ignores the machine's sleep until now.
    pub(super) fn forget_sleep(&mut self) {
        self.slept = self.clock.slept();
    }

    // ---- getters ----

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// The session, for reports.
    pub(crate) fn session(&self) -> &session::Source {
        &self.session
    }

    /// A summary of the run until now.
    pub(crate) fn report(&self) -> SourceReport {
        let Self { session, feed, links, began_at, .. } = self;
        SourceReport::of(session, feed, Some(links), *began_at, self.clock.now())
    }

    // ---- steps ----

    #[cfg(feature = "status")]
    fn put_status(&mut self, now: Time) {
        let Self { status, session, links, began_at, .. } = self;
        if let Some(status) = status {
            let duration_s = now.since(*began_at).as_secs_f64();
            status.turn(now, session, |session| report::paths(session, links, duration_s, now));
        }
    }

    fn notice_sleep(&mut self) {
        if self.clock.has_slept(&mut self.slept) {
            // Must precede the reading of acks that arrived just before the sleep, which would
            // count as a round trip.
            self.session.handle_resume(self.clock.now());
        }
    }

    /// Informs the session which of its paths cannot carry packets (yet).
    fn mark_what_is_not_ready(&mut self, now: Time) {
        for id in self.links.ids().filter(|id| !self.links.is_ready(*id)) {
            let state = match self.links.is_dialling(id) {
                true => TransportState::Connecting,
                false => TransportState::Down,
            };
            self.session.handle_transport(now, id, state);
        }
    }

    /// Reports the sent bytes to the session.
    fn count_bytes(&mut self) {
        let bytes = self.links.take_wire_bytes();
        if bytes > Bytes::ZERO {
            self.session.handle_wire_bytes(self.clock.now(), bytes);
        }
    }

    /// Sends due updates.
    fn transmit(&mut self) -> Result<(), SourceError> {
        // Taking the sample may have taken time.
        let now = self.clock.now();
        while let Some(incoming) = &mut self.incoming
            && let Some((path, len, dscp)) = incoming.poll_transmit(now, &mut self.datagram)
        {
            self.links.send(path, now, dscp, &self.datagram[..len], None)?;
        }
        let max_len = self.session.max_datagram();
        while let Some(mut transmit) = self.session.poll_transmit(now, &mut self.datagram) {
            if let Some(incoming) = &mut self.incoming {
                transmit.len = incoming.board(now, &transmit, max_len, &mut self.datagram);
            }
            let datagram = &self.datagram[..transmit.len];
            let sent =
                self.links.send(transmit.path, now, transmit.dscp, datagram, transmit.seq)?;
            if sent == SendStatus::Replaced {
                self.session.handle_replaced(&transmit);
            }
        }
        self.count_bytes();
        Ok(())
    }
}

/// A turn of a source, with the receiver of its events.
struct Turning<'a> {
    engine: &'a mut Engine,
    registry: &'a Registry,
    watch: &'a mut dyn Watch,
}

impl Turning<'_> {
    /// Processes received datagrams, and handles the links' timers; returns whether there may be
    /// more.
    fn receive(&mut self) -> Result<bool, SourceError> {
        self.look_around()?;
        let mut busy = false;
        for id in self.engine.links.ids() {
            busy |= self.receive_by(id)?;
        }
        self.engine.mark_what_is_not_ready(self.engine.clock.now());
        // Bytes of QUIC's handshakes and acknowledgements.
        self.engine.count_bytes();
        Ok(busy)
    }

    /// Updates the list of interfaces, and starts due dial attempts.
    fn look_around(&mut self) -> Result<(), SourceError> {
        let Engine { links, session, clock, .. } = &mut *self.engine;
        let now = clock.now();
        links.look_around(now, self.registry, |path, change| {
            let is_there = matches!(change, Change::There);
            if !is_there {
                session.handle_transport(now, path, TransportState::Down);
            }
            self.watch.event(now, session, &Event::Path { path, is_there });
        })?;
        Ok(())
    }

    fn receive_by(&mut self, id: PathId) -> Result<bool, SourceError> {
        let mut busy = true;
        for _ in 0..RECEIVES_A_TURN {
            let Engine { links, session, clock, incoming, .. } = &mut *self.engine;
            let on_left = |seq, wait| session.handle_departure(id, seq, wait);
            let (datagram, dscp) = match links.receive(id, on_left)? {
                Fetched::Datagram(received) => received,
                Fetched::Nothing => {
                    busy = false;
                    break;
                }
                Fetched::Busy => break,
            };
            let now = clock.now();
            let datagram = Datagram::marked(datagram, dscp);
            let forward = session.session();
            let is_theirs = incoming
                .as_mut()
                .is_some_and(|incoming| incoming.handle_datagram(now, forward, id, datagram));
            let ours = if is_theirs { datagram.rider() } else { Some(datagram) };
            if ours.is_some_and(|ours| session.handle_datagram(now, id, ours).is_ok()) {
                self.attend(now)?;
            }
        }
        let now = self.engine.clock.now();
        self.engine.links.handle_timeout(id, now)?;
        while let Some(event) = self.engine.links.poll_event(id) {
            let session = &mut self.engine.session;
            match event {
                LinkEvent::Ready => session.handle_transport(now, id, TransportState::Ready),
                LinkEvent::Lost(_) => session.handle_transport(now, id, TransportState::Down),
                LinkEvent::Unreachable | LinkEvent::Waiting(_) => {}
            }
            self.watch.event(now, session, &Event::Link(&event));
        }
        Ok(busy)
    }

    /// Serves the requests of the session, and reports its events.
    fn attend(&mut self, now: Time) -> Result<(), SourceError> {
        for trouble in self.engine.feed.take_troubles() {
            self.report(now, &trouble);
        }
        while let Some(event) = self.engine.session.poll_event() {
            match event {
                SourceEvent::StateWanted(need) => {
                    let Engine { feed, session, .. } = &mut *self.engine;
                    let troubles = feed.answer(now, need, session).map_err(SourceError::Sampler)?;
                    troubles.iter().for_each(|trouble| self.report(now, trouble));
                    // The next update is routed by these queues.
                    let Engine { links, session, clock, .. } = &mut *self.engine;
                    links.show_queues(clock.now(), session);
                }
                SourceEvent::RenewTransports { all } => {
                    self.engine.links.renew(now, self.registry, all)?;
                    self.engine.mark_what_is_not_ready(now);
                }
                event => {
                    let Engine { feed, session, .. } = &mut *self.engine;
                    if let SourceEvent::RecordsDone { topic } = event {
                        feed.on_records_done(now, topic, session);
                    }
                    self.watch.event(now, session, &Event::Session(event));
                }
            }
        }
        Ok(())
    }

    fn report(&mut self, now: Time, trouble: &Trouble) {
        self.watch.event(now, &self.engine.session, &Event::from(trouble));
    }
}
