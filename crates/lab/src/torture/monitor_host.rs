//! The monitor, its commands to sources, and its clock; it may be down.

use std::collections::BTreeMap;

use freshline_core::session::{
    Alarm, Cursor, Listener, ListenerEvent, Monitor, MonitorEvent, MonitorParams, Record,
    ReturnParams, Secret, Source, SourceEvent, SourceKey, SourceParams,
};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{Frame, Message, SessionId, StateId, Update};
use rand::RngExt;
use rand_pcg::Pcg64;

use super::clock::Clock;
use super::keys;
use super::ledger::{Command, Ledger};
use super::network::Address;
use super::observation::Observation;
use super::plan::MonitorPlan;
use super::stops;
use super::traffic::Traffic;

pub(super) struct MonitorHost {
    /// `None` while it is down.
    listener: Option<Listener<Address>>,
    /// The number of processes so far.
    process: u64,
    /// The number of commands put so far by the present process.
    put: u64,
    clock: Clock,
    plan: MonitorPlan,
    /// Whether its process is stopped.
    pub(super) is_stopped: bool,
    rng: Pcg64,
    return_rng: Pcg64,
    /// The sessions of the sources with a return session.
    returns: BTreeMap<SourceKey, SessionId>,
    /// Sources that wait for their return sessions, each with the time at which it opens.
    wanted: Vec<(Time, SourceKey)>,
    traffic: Traffic,
    /// The application's position in the records of each source, as journaled.
    cursors: BTreeMap<Box<str>, Cursor>,
}

impl MonitorHost {
    pub(super) fn new(plan: MonitorPlan, mut rng: Pcg64, return_rng: Pcg64) -> Self {
        let clock = Clock::random(&mut rng, plan.ppm);
        let mut host = Self {
            listener: None,
            process: 0,
            put: 0,
            clock,
            plan,
            is_stopped: false,
            rng,
            return_rng,
            returns: BTreeMap::new(),
            wanted: Vec::new(),
            traffic: Traffic::default(),
            cursors: BTreeMap::new(),
        };
        host.start();
        host
    }

    pub(super) fn die(&mut self) {
        self.listener = None;
    }

    pub(super) fn start(&mut self) {
        let MonitorPlan { max_sources, max_large, ppm, .. } = self.plan;
        let params = MonitorParams { max_sources, max_large, ..receiver(&self.plan) };
        self.is_stopped = false;
        let monitor = Monitor::new(params, Secret::new(self.rng.random()));
        let monitor = monitor.with_cursors(self.cursors.values().cloned());
        self.listener = Some(Listener::new(monitor).returning());
        (self.process, self.put) = (self.process + 1, 0);
        self.returns.clear();
        self.wanted.clear();
        self.traffic = Traffic::default();
        self.clock = Clock::random(&mut self.rng, ppm);
    }

    /// Ends all sessions. Returns the close messages, with their destinations; nothing while it is
    /// stopped.
    pub(super) fn close(
        &mut self,
        now: Time,
        ledger: &mut Ledger,
        see: impl FnMut(Observation),
    ) -> Vec<(Address, Vec<u8>)> {
        let Some(listener) = self.listener.as_mut().filter(|_| !self.is_stopped) else {
            return Vec::new();
        };
        listener.close(self.clock.read(now));
        self.drain(now, None, ledger, see)
    }

    /// Its machine was suspended.
    pub(super) fn resume(&mut self, now: Time) {
        if let Some(listener) = &mut self.listener {
            listener.handle_resume(self.clock.read(now));
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let listener = self.listener.as_ref().filter(|_| !self.is_stopped)?;
        let wanted = self.wanted.iter().map(|(at, _)| *at).min();
        let local = Time::earliest([listener.poll_timeout(), wanted])?;
        Some(self.clock.world(local))
    }

    /// Its receiver; `None` while it is down.
    pub(super) fn monitor(&self) -> Option<&Monitor<Address>> {
        self.listener.as_ref().map(Listener::monitor)
    }

    /// The sender of the return direction to the source with this session.
    pub(super) fn return_source(&self, session: SessionId) -> Option<&Source> {
        let (key, _) = self.returns.iter().find(|(_, of)| **of == session)?;
        self.listener.as_ref()?.return_source(*key)
    }

    /// Describes a return session that was not requested by a source, and one that the listener
    /// does not report.
    pub(super) fn wrong_return(&self) -> Option<String> {
        let listener = self.listener.as_ref()?;
        let mut keys: Vec<_> = listener.return_sources().collect();
        keys.sort_unstable();
        if !keys.iter().eq(self.returns.keys()) {
            return Some(format!("return sessions {keys:?}, known are {:?}", self.returns));
        }
        let is_held = |(key, session): (&SourceKey, &SessionId)| {
            let record = listener.monitor().record(*key);
            record.is_some_and(|record| record.session == *session)
        };
        let gone = self.returns.iter().find(|entry| !is_held(*entry))?;
        Some(format!("a return session to {gone:?}, which is gone"))
    }

    /// Whether there is a process, and it is not stopped.
    pub(super) fn runs(&self) -> bool {
        self.listener.is_some() && !self.is_stopped
    }

    /// Handles due timeouts. Returns the datagrams to send, with their destinations.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        ledger: &mut Ledger,
        see: impl FnMut(Observation),
    ) -> Vec<(Address, Vec<u8>)> {
        let local = self.clock.read(now);
        if let Some(listener) = &mut self.listener {
            listener.handle_timeout(local);
        }
        let mut wanted = std::mem::take(&mut self.wanted);
        for (_, source) in wanted.extract_if(.., |(at, _)| *at <= local) {
            self.open_return(local, source);
        }
        self.wanted.append(&mut wanted);
        self.drain(now, None, ledger, see)
    }

    /// Handles a datagram. Returns the datagrams to send, with their destinations.
    pub(super) fn receive(
        &mut self,
        now: Time,
        (from, datagram): (Address, &[u8]),
        ledger: &mut Ledger,
        see: impl FnMut(Observation),
    ) -> Vec<(Address, Vec<u8>)> {
        self.traffic.receive(from, datagram);
        if let Some(listener) = &mut self.listener {
            let _ = listener.handle_datagram(self.clock.read(now), from, None, datagram);
        }
        self.drain(now, Some((from, datagram)), ledger, see)
    }

    fn drain(
        &mut self,
        now: Time,
        handed_in: Option<(Address, &[u8])>,
        ledger: &mut Ledger,
        mut see: impl FnMut(Observation),
    ) -> Vec<(Address, Vec<u8>)> {
        let local = self.clock.read(now);
        let update = match handed_in.map(|(_, datagram)| Message::parse(datagram)) {
            Some(Ok(Message::Update(update))) => Some(update),
            _ => None,
        };
        while let Some(event) = self.listener.as_mut().and_then(Listener::poll_event) {
            match (event, &update) {
                (ListenerEvent::Monitor(MonitorEvent::Freshness(alarm)), _) => {
                    seen_alarm(&alarm).into_iter().for_each(&mut see);
                }
                (ListenerEvent::Monitor(MonitorEvent::Record { source, topic }), _) => {
                    self.take_records(local, source, topic, &mut see);
                }
                (ListenerEvent::Monitor(MonitorEvent::Topic { source, topic }), _) => {
                    self.see_topic(source, topic, &mut see);
                }
                (ListenerEvent::Monitor(MonitorEvent::Removed { source, topic }), _) => {
                    let session = self.monitor().and_then(|monitor| monitor.record(source));
                    if let Some(session) = session.map(|record| record.session) {
                        see(Observation::KeyRemoved { session, key: topic.key.to_vec() });
                    }
                }
                (ListenerEvent::Monitor(event), Some(update)) => {
                    let has_cookie = matches!(
                        event,
                        MonitorEvent::Fresh { opened: true, .. } | MonitorEvent::Opened { .. }
                    );
                    if let Some((from, _)) = handed_in.filter(|_| has_cookie) {
                        self.traffic.prove(from);
                    }
                    self.see_update(local, event, update, &mut see);
                }
                (ListenerEvent::ReturnWanted { source }, _) => {
                    match self.plan.opens_returns_after {
                        Span::ZERO => self.open_return(local, source),
                        after => self.wanted.push((local + after, source)),
                    }
                }
                (ListenerEvent::ReturnEnded { source }, _) => drop(self.returns.remove(&source)),
                (ListenerEvent::Return { source, event: SourceEvent::StateWanted(_) }, _) => {
                    self.put_command((now, local), source, ledger);
                }
                (ListenerEvent::Return { source, event }, _) if is_answer(&event) => {
                    self.traffic.prove_return(source);
                    if let Some(observed) = self.answered(local, source) {
                        see(observed);
                    }
                }
                _ => {}
            }
        }
        let (mut left, mut out) = (Vec::new(), Vec::new());
        let Some(listener) = &mut self.listener else { return left };
        while let Some(transmit) = listener.poll_transmit(local, &mut out) {
            let datagram = out[..transmit.len].to_vec();
            let handed_in = handed_in.map(|(_, datagram)| datagram.len());
            if let Some(observed) = self.traffic.send(transmit, &datagram, handed_in) {
                see(observed);
            }
            left.push((transmit.peer, datagram));
        }
        left
    }

    fn take_records(
        &mut self,
        local: Time,
        source: SourceKey,
        topic: u16,
        see: &mut impl FnMut(Observation),
    ) {
        let Some(monitor) = self.listener.as_mut().map(Listener::monitor_mut) else { return };
        while let Some(taken) = monitor.take_record(local, source, topic) {
            let name = taken.cursor.source.to_string();
            if self.plan.journal {
                self.cursors.insert(taken.cursor.source.clone(), taken.cursor);
            }
            see(Observation::Record { name, record: taken.bytes });
        }
    }

    fn open_return(&mut self, now: Time, source: SourceKey) {
        let Some(listener) = &mut self.listener else { return };
        let params = ReturnParams {
            source: SourceParams::default(),
            secret: Secret::new(self.return_rng.random()),
            law: self.plan.return_law.build(),
            topics: Vec::new(),
        };
        let session = listener.monitor().record(source).map(|record| record.session);
        // It may have ended since its request.
        if let (Ok(()), Some(session)) = (listener.open_return(now, source, params), session) {
            self.returns.insert(source, session);
        }
    }

    fn put_command(&mut self, (now, local): (Time, Time), to: SourceKey, ledger: &mut Ledger) {
        let Some(source) = self.listener.as_mut().and_then(|it| it.return_source_mut(to)) else {
            return;
        };
        self.put += 1;
        let number = (self.process, self.put);
        let command = Command { session: self.returns[&to], number, at: now };
        source.put(local, local, &ledger.put_command(command)).expect("commands are short");
    }

    /// The state of a return session's sender after an answer; `None` if the session has ended by
    /// now.
    fn answered(&self, local: Time, source: SourceKey) -> Option<Observation> {
        let session = *self.returns.get(&source)?;
        let sender = self.listener.as_ref()?.return_source(source)?;
        let (age, rate) = (sender.age().process().age(local), sender.law().rate());
        Some(Observation::CommandAnswered { session, age, rate })
    }

    /// A further topic has a newer state, which is delivered.
    fn see_topic(&self, source: SourceKey, topic: u16, see: &mut impl FnMut(Observation)) {
        let record = self.monitor().and_then(|monitor| monitor.record(source));
        let Some((record, topic)) = record.and_then(|it| Some((it, it.topic(topic)?))) else {
            return;
        };
        let Some(state) = topic.payload().map(<[u8]>::to_vec) else { return };
        let (session, label) = (record.session, topic.generated_at());
        match (topic.name(), topic.key()) {
            (keys::TOPIC, Some(key)) => {
                see(Observation::Key { session, key: key.to_vec(), label, state });
            }
            (stops::TOPIC, None) => see(Observation::Urgent { session, state }),
            _ => {}
        }
    }

    /// The monitor's result for an update that has just arrived.
    fn see_update(
        &self,
        local: Time,
        event: MonitorEvent<Address>,
        update: &Update<'_>,
        see: &mut impl FnMut(Observation),
    ) {
        let Some(monitor) = self.monitor() else { return };
        match event {
            MonitorEvent::Fresh { source, opened, is_repeat, .. } => {
                let record = monitor.record(source).expect("it was just made or refreshed");
                let held = record.payload().expect("it is handed out").to_vec();
                let whole = state_of_first(update).map(|(_, state)| state.to_vec());
                see(Observation::Fresh {
                    session: record.session,
                    seq: record.newest_seq,
                    label: record.generated_at,
                    opened,
                    is_repeat,
                    given: whole.unwrap_or_else(|| held.clone()),
                    held,
                });
                if !is_repeat {
                    see(Observation::HandedOut {
                        name: record.name.to_string(),
                        by: record.label(),
                        session: record.session,
                        label: record.generated_at,
                        age: record.bounded_age(local),
                    });
                }
            }
            MonitorEvent::Withheld { source } | MonitorEvent::Opened { source }
                if monitor.record(source).is_some_and(Record::is_withheld) =>
            {
                let record = monitor.record(source).expect("it is withheld");
                let opened = matches!(event, MonitorEvent::Opened { .. });
                let (seq, label) = (record.newest_seq, record.generated_at);
                see(Observation::Withheld { session: record.session, seq, label, opened });
            }
            MonitorEvent::Part { .. } | MonitorEvent::Opened { .. } => {
                let opened = matches!(event, MonitorEvent::Opened { .. });
                see(Observation::Part { session: update.session, seq: update.seq, opened });
            }
            MonitorEvent::Stale { .. } => {
                let state = state_of_first(update)
                    .map(|(id, it)| (id.generated_at(update.sent_at), it.to_vec()));
                see(Observation::Stale { session: update.session, seq: update.seq, state });
            }
            _ => {}
        }
    }

    /// All records that it holds.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record<Address>> {
        self.monitor().into_iter().flat_map(|monitor| monitor.records().map(|(_, record)| record))
    }

    /// Its record of a session.
    pub(super) fn record(&self, session: SessionId) -> Option<&Record<Address>> {
        self.records().find(|record| record.session == session)
    }

    /// The age of a record, as known to the monitor.
    pub(super) fn known_age(&self, now: Time, record: &Record<Address>) -> Option<Span> {
        record.age.age(self.clock.read(now))
    }

    /// The time since a record was last heard.
    pub(super) fn silence(&self, now: Time, record: &Record<Address>) -> Span {
        self.clock.read(now).since(record.heard_at)
    }
}

/// The whole state of the first topic in an update.
fn state_of_first<'a>(update: &Update<'a>) -> Option<(StateId, &'a [u8])> {
    update.frames.iter().find_map(|frame| match frame {
        Frame::State { id, bytes } if id.topic == 0 => Some((id, bytes)),
        _ => None,
    })
}

/// Whether the other end has answered: a challenge or a close contains an id that was sent only
/// there.
fn is_answer(event: &SourceEvent) -> bool {
    !matches!(event, SourceEvent::Silent | SourceEvent::RenewTransports { .. })
}

/// `None` for topics other than the first.
fn seen_alarm(alarm: &Alarm) -> Option<Observation> {
    let Alarm { name, label, number, is_stale, age, .. } = alarm;
    let (by, is_stale, age) = (*label, *is_stale, *age);
    (*number == 0).then(|| Observation::Alarm { name: name.to_string(), by, is_stale, age })
}

/// The settings of a receiver at either end.
pub(super) fn receiver(plan: &MonitorPlan) -> MonitorParams {
    let max_age = plan.max_age.iter().map(|limit| format!("*={limit}").parse().expect("a rule"));
    MonitorParams { max_age: max_age.collect(), idle: plan.idle, ..MonitorParams::default() }
}
