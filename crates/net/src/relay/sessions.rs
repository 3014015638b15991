//! The sessions of one destination: one source session per source of the monitor, all on one
//! thread.
//!
//! ```text
//!   Inbox ─► open, close, on_woken ─┐
//!   sockets ────────────────────────┼─► turn of the sessions concerned ─► Timers ─► sleep
//!   Timers, resolver ───────────────┘
//! ```
//!
//! A session gets a turn only when one of its inputs is ready or its timer has expired, so idle
//! sessions cost nothing. A session that fails, for example because the system is out of
//! descriptors, is reopened after [`RETRY`]; other sessions are not affected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use freshline_core::path::MAX_PATHS;
use freshline_core::session::{End, Reach, SourceParams};
use freshline_core::unit::{Span, Time};
use mio::Token;

use super::board::Inbox;
use super::newest::Newest;
use super::parting::Parting;
use super::report::{DestinationReport, RelayedReport};
use super::states::Relayed;
use super::timers::Timers;
use super::{Destination, Watch};
use crate::ask::{Asker, Desk};
use crate::clock::Clock;
use crate::run::{Driven, Turn};
use crate::sleeper::Sleeper;
use crate::source::engine::Engine;
use crate::source::paths::Place;
use crate::source::{SourceConfig, SourceError, States};
use crate::system::SystemError;
use crate::waker::Waker;

const ALARM: Token = Token(0);
const WAKER: Token = Token(1);

/// The token of the first session's first path.
const FIRST_TOKEN: usize = 2;

/// A failed session is reopened after this time: the longest pause between openings.
const RETRY: Span = Span::from_secs(2);

struct Session {
    source: Arc<Relayed>,
    /// `None` until it is opened again.
    engine: Option<Engine>,
}

/// A destination with its sessions.
pub(super) struct Sessions {
    clock: Clock,
    sleeper: Sleeper,
    inbox: Arc<Inbox>,
    number: usize,
    destination: Destination,
    /// The number of sessions whose age is measured: each measurement takes 60 kB.
    detailed: usize,
    /// By place in the monitor.
    sessions: BTreeMap<usize, Session>,
    timers: Timers,
    /// Places whose sessions get a turn.
    ready: BTreeSet<usize>,
    /// Places for which the resolver has an answer.
    resolved: Arc<Mutex<Vec<usize>>>,
    desk: Desk<DestinationReport>,
    /// At the end of the run.
    last_report: Option<DestinationReport>,
    begun: u64,
    failed: u64,
}

impl Sessions {
    /// `number` is the destination's number.
    pub(super) fn new(
        number: usize,
        destination: Destination,
        detailed: usize,
    ) -> Result<Self, SystemError> {
        let sleeper = Sleeper::new([ALARM, WAKER])?;
        Ok(Self {
            clock: Clock::new(),
            inbox: Arc::new(Inbox::new(sleeper.waker())),
            desk: Desk::new(sleeper.waker()),
            sleeper,
            number,
            destination,
            detailed,
            sessions: BTreeMap::new(),
            timers: Timers::default(),
            ready: BTreeSet::new(),
            resolved: Arc::default(),
            last_report: None,
            begun: 0,
            failed: 0,
        })
    }

    pub(super) fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    pub(super) fn asker(&self) -> Asker<DestinationReport> {
        self.desk.asker()
    }

    /// Reports at most `max` sessions.
    pub(super) fn report(&self, max: usize) -> DestinationReport {
        let now = self.clock.now();
        let engines = self.sessions.values().filter_map(|session| session.engine.as_ref());
        let is_open = |engine: &&Engine| engine.session().reach() == Reach::Open;
        let of = |session: &Session| {
            let engine = session.engine.as_ref()?;
            Some(RelayedReport::of(&session.source.label, engine.session(), engine.report(), now))
        };
        DestinationReport {
            destination: self.destination.monitor.to_string(),
            sessions: self.sessions.len(),
            open: engines.filter(is_open).count(),
            begun: self.begun,
            failed: self.failed,
            sources: self.sessions.values().filter_map(of).take(max).collect(),
        }
    }

    /// The report at the end of the run, or as of now if the run has not ended.
    pub(super) fn last_report(&self) -> DestinationReport {
        self.last_report.clone().unwrap_or_else(|| self.report(self.detailed))
    }

    // ---- steps ----

    /// Opens and ends sessions as sources of the monitor appear and disappear.
    fn look_at_changes(&mut self, now: Time, watch: &mut dyn Watch) {
        for (place, source) in self.inbox.take() {
            let before = self.sessions.get_mut(&place);
            let is_same = before.as_ref().zip(source.as_ref());
            if is_same.is_some_and(|(session, source)| Arc::ptr_eq(&session.source, source)) {
                let engine = before.and_then(|session| session.engine.as_mut());
                if engine.is_some_and(Engine::on_woken) {
                    self.ready.insert(place);
                }
                continue;
            }
            self.end(now, place);
            if let Some(source) = source {
                self.sessions.insert(place, Session { source, engine: None });
                self.open(now, place, watch);
            }
        }
    }

    /// Opens the session of a place; a failure is reported and retried later.
    fn open(&mut self, now: Time, place: usize, watch: &mut dyn Watch) {
        let Some(Session { source, .. }) = self.sessions.get(&place) else { return };
        let config = self.config(source, place);
        let (resolved, waker) = (Arc::clone(&self.resolved), self.sleeper.waker());
        let wake = move || {
            resolved.lock().unwrap_or_else(PoisonError::into_inner).push(place);
            waker.wake()
        };
        let at = Place {
            registry: self.sleeper.registry(),
            waker: Arc::new(Waker::new(wake)),
            first_token: FIRST_TOKEN + place * MAX_PATHS,
        };
        match Engine::new(config, &at) {
            Ok(engine) => {
                self.begun += 1;
                self.ready.insert(place);
                self.sessions.entry(place).and_modify(|session| session.engine = Some(engine));
            }
            Err(error) => self.put_off(now, place, &error, watch),
        }
    }

    fn config(&self, source: &Arc<Relayed>, place: usize) -> SourceConfig {
        let Destination { monitor, transport, paths, params, law } = &self.destination;
        SourceConfig {
            monitor: monitor.clone(),
            transport: transport.clone(),
            paths: paths.clone(),
            params: SourceParams {
                name: source.name.to_string(),
                measure_age: place < self.detailed,
                ..params.clone()
            },
            law: law.build(),
            states: States::Found(Box::new(Newest::new(Arc::clone(source), self.number))),
        }
    }

    /// Closes the failed session of a place and schedules its reopening.
    fn put_off(&mut self, now: Time, place: usize, error: &SourceError, watch: &mut dyn Watch) {
        self.failed += 1;
        let Some(session) = self.sessions.get_mut(&place) else { return };
        if let Some(mut engine) = session.engine.take() {
            engine.leave(now);
        }
        self.timers.set(place, Some(now + RETRY));
        watch.failed(now, &session.source.label, error);
    }

    /// Ends the session of a place, if there is one.
    fn end(&mut self, now: Time, place: usize) {
        self.timers.set(place, None);
        self.ready.remove(&place);
        let Some(Session { source, engine: Some(mut engine) }) = self.sessions.remove(&place)
        else {
            return;
        };
        // The relay ends before its sources: the destinations see them fall silent.
        match source.parting().unwrap_or_else(|| Parting::of(End::Idle, &source.name)) {
            Parting::Close => engine.close(now),
            Parting::Leave => engine.leave(now),
        }
    }

    /// Runs a turn of a session; returns whether the session wants another turn at once.
    fn turn_of(&mut self, now: Time, place: usize, watch: &mut dyn Watch) -> bool {
        let Some(session) = self.sessions.get_mut(&place) else { return false };
        let Some(engine) = &mut session.engine else {
            self.open(now, place, watch);
            return self.sessions.get(&place).is_some_and(|session| session.engine.is_some());
        };
        match engine.turn(self.sleeper.registry(), watch) {
            Ok(turn) => {
                let at = engine.poll_timeout();
                self.timers.set(place, at);
                turn == Turn::Busy
            }
            Err(error) => {
                self.put_off(now, place, &error, watch);
                false
            }
        }
    }
}

/// The running sessions, and the receiver of their events.
pub(super) struct Watched<'a> {
    pub(super) sessions: &'a mut Sessions,
    pub(super) watch: &'a mut dyn Watch,
}

impl Driven for Watched<'_> {
    type Error = SystemError;

    fn sleeper(&mut self) -> (Clock, &mut Sleeper) {
        (self.sessions.clock, &mut self.sessions.sleeper)
    }

    fn on_ready(&mut self, event: &mio::event::Event) {
        if let Some(number) = event.token().0.checked_sub(FIRST_TOKEN) {
            self.sessions.ready.insert(number / MAX_PATHS);
        }
    }

    fn turn(&mut self) -> Result<Turn, SystemError> {
        let Self { sessions, watch } = self;
        let now = sessions.clock.now();
        sessions.look_at_changes(now, *watch);
        let resolved =
            std::mem::take(&mut *sessions.resolved.lock().unwrap_or_else(PoisonError::into_inner));
        sessions.ready.extend(resolved);
        while let Some(place) = sessions.timers.pop_due(now) {
            sessions.ready.insert(place);
        }
        for place in std::mem::take(&mut sessions.ready) {
            if sessions.turn_of(now, place, *watch) {
                sessions.ready.insert(place);
            }
        }
        sessions.desk.answer(|max| sessions.report(max));
        Ok(Turn::busy_if(!sessions.ready.is_empty()))
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        self.sessions.timers.next()
    }

    fn close(&mut self, now: Time) {
        self.sessions.last_report = Some(self.sessions.report(self.sessions.detailed));
        let places: Vec<usize> = self.sessions.sessions.keys().copied().collect();
        places.into_iter().for_each(|place| self.sessions.end(now, place));
    }
}
