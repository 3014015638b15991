//! The monitor, with what it sends to sources that are commanded, and its clock; it may be down.

use std::collections::{HashMap, VecDeque};

use freshline_core::session::{
    Alarm, Listener, ListenerEvent, Monitor, MonitorEvent, MonitorParams, Record, ReturnParams,
    Secret, SourceEvent, SourceKey, SourceParams,
};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{Message, SessionId, Update};
use rand::RngExt;
use rand_pcg::Pcg64;

use super::clock::Clock;
use super::ledger::{Command, Ledger};
use super::network::Address;
use super::observation::Observation;
use super::plan::{MonitorPlan, Plan};

/// The random stream of return sessions.
const RETURN_STREAM: u128 = 6;

pub(super) struct MonitorHost {
    /// `None` while it is down.
    listener: Option<Listener<Address>>,
    /// How many processes there have been.
    process: u64,
    /// Commands put so far, by the present one.
    put: u64,
    clock: Clock,
    plan: MonitorPlan,
    /// Whether its process is stopped.
    pub(super) is_stopped: bool,
    rng: Pcg64,
    return_rng: Pcg64,
    /// The lengths of the last datagrams from sources that are commanded: acks for them may wait for a command
    /// with which they leave.
    questions: HashMap<Address, VecDeque<usize>>,
    commanded: Vec<bool>,
}

/// How many datagrams of a source may come while an ack waits.
const QUESTIONS: usize = 8;

impl MonitorHost {
    pub(super) fn new(plan: MonitorPlan, of: &Plan, mut rng: Pcg64) -> Self {
        let clock = Clock::random(&mut rng, plan.ppm);
        let mut host = Self {
            listener: None,
            process: 0,
            put: 0,
            clock,
            plan,
            is_stopped: false,
            rng,
            return_rng: Pcg64::new(of.seed.into(), RETURN_STREAM),
            questions: HashMap::new(),
            commanded: of.sources.iter().map(|source| source.is_commanded).collect(),
        };
        host.start();
        host
    }

    pub(super) fn die(&mut self) {
        self.listener = None;
    }

    pub(super) fn start(&mut self) {
        let MonitorPlan { max_sources, max_large, max_age, idle, ppm, .. } = self.plan;
        let max_age = max_age.iter().map(|limit| format!("*={limit}").parse().expect("a rule"));
        let params = MonitorParams {
            max_sources,
            max_large,
            max_age: max_age.collect(),
            idle,
            ..MonitorParams::default()
        };
        self.is_stopped = false;
        let monitor = Monitor::new(params, Secret::new(self.rng.random()));
        self.listener = Some(Listener::new(monitor).returning());
        (self.process, self.put) = (self.process + 1, 0);
        self.clock = Clock::random(&mut self.rng, ppm);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let local = self.listener.as_ref().filter(|_| !self.is_stopped)?.poll_timeout()?;
        Some(self.clock.world(local))
    }

    /// Its receiving end; `None` while it is down.
    pub(super) fn monitor(&self) -> Option<&Monitor<Address>> {
        self.listener.as_ref().map(Listener::monitor)
    }

    /// How many return sessions it has.
    pub(super) fn return_sessions(&self) -> usize {
        self.listener.as_ref().map_or(0, |listener| listener.return_sources().count())
    }

    /// Whether there is a process that is not stopped.
    pub(super) fn runs(&self) -> bool {
        self.listener.is_some() && !self.is_stopped
    }

    /// Gives what leaves, and for whom.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        ledger: &mut Ledger,
        see: impl FnMut(Observation),
    ) -> Vec<(Address, Vec<u8>)> {
        if let Some(listener) = &mut self.listener {
            listener.handle_timeout(self.clock.read(now));
        }
        self.drain(now, None, ledger, see)
    }

    /// Hands in a datagram; gives what leaves, and for whom.
    pub(super) fn receive(
        &mut self,
        now: Time,
        (from, datagram): (Address, &[u8]),
        ledger: &mut Ledger,
        see: impl FnMut(Observation),
    ) -> Vec<(Address, Vec<u8>)> {
        if self.commanded.get(from.host).is_some_and(|is_commanded| *is_commanded) {
            let questions = self.questions.entry(from).or_default();
            questions.push_back(datagram.len());
            questions.drain(..questions.len().saturating_sub(QUESTIONS));
        }
        if let Some(listener) = &mut self.listener {
            let _ = listener.handle_datagram(self.clock.read(now), from, None, datagram);
        }
        self.drain(now, Some(datagram), ledger, see)
    }

    fn drain(
        &mut self,
        now: Time,
        question: Option<&[u8]>,
        ledger: &mut Ledger,
        mut see: impl FnMut(Observation),
    ) -> Vec<(Address, Vec<u8>)> {
        let (local, mut left) = (self.clock.read(now), Vec::new());
        let update = match question.map(Message::parse) {
            Some(Ok(Message::Update(update))) => Some(update),
            _ => None,
        };
        while let Some(event) = self.listener.as_mut().and_then(Listener::poll_event) {
            match (event, &update) {
                (ListenerEvent::Monitor(MonitorEvent::Freshness(alarm)), _) => {
                    see(seen_alarm(&alarm));
                }
                (ListenerEvent::Monitor(event), Some(update)) => {
                    self.see_update(local, event, update, &mut see);
                }
                (ListenerEvent::ReturnWanted { source }, _) => self.open_return(local, source),
                (ListenerEvent::Return { source, event: SourceEvent::StateWanted(_) }, _) => {
                    self.put_command(local, source, ledger);
                }
                _ => {}
            }
        }
        let (Some(listener), mut out) = (&mut self.listener, Vec::new()) else { return left };
        while let Some(transmit) = listener.poll_transmit(local, &mut out) {
            let answer = out[..transmit.len].to_vec();
            let former = self.questions.get(&transmit.peer).into_iter().flatten();
            let question = former.copied().chain(question.map(<[u8]>::len)).max();
            if let (Some(question), None) = (question, transmit.source) {
                see(Observation::Answered { question, answer: answer.len() });
            }
            left.push((transmit.peer, answer));
        }
        left
    }

    fn open_return(&mut self, now: Time, source: SourceKey) {
        let Some(listener) = &mut self.listener else { return };
        let params = ReturnParams {
            source: SourceParams::default(),
            secret: Secret::new(self.return_rng.random()),
            law: self.plan.return_law.build(),
            topics: Vec::new(),
        };
        // It may have ended since it asked.
        let _ = listener.open_return(now, source, params);
    }

    fn put_command(&mut self, now: Time, source: SourceKey, ledger: &mut Ledger) {
        let Some(listener) = &mut self.listener else { return };
        let Some(session) = listener.monitor().record(source).map(|record| record.session) else {
            return;
        };
        self.put += 1;
        let command = Command { session, number: (self.process, self.put) };
        if let Some(source) = listener.return_source_mut(source) {
            source.put(now, now, &ledger.put_command(command)).expect("commands are short");
        }
    }

    /// What the monitor made of an update that has just come.
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
                let whole = update.frames.state().map(|(_, state)| state.to_vec());
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
                let state = update.frames.state();
                let state = state.map(|(id, it)| (id.generated_at(update.sent_at), it.to_vec()));
                see(Observation::Stale { session: update.session, seq: update.seq, state });
            }
            _ => {}
        }
    }

    /// All that it holds.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record<Address>> {
        self.monitor().into_iter().flat_map(|monitor| monitor.records().map(|(_, record)| record))
    }

    /// What it holds of a session.
    pub(super) fn record(&self, session: SessionId) -> Option<&Record<Address>> {
        self.records().find(|record| record.session == session)
    }

    /// The age of a record as the monitor knows it.
    pub(super) fn known_age(&self, now: Time, record: &Record<Address>) -> Option<Span> {
        record.age.age(self.clock.read(now))
    }

    /// How long a record has not been heard.
    pub(super) fn silence(&self, now: Time, record: &Record<Address>) -> Span {
        self.clock.read(now).since(record.heard_at)
    }
}

fn seen_alarm(alarm: &Alarm) -> Observation {
    let Alarm { name, label, is_stale, age, .. } = alarm;
    Observation::Alarm { name: name.to_string(), by: *label, is_stale: *is_stale, age: *age }
}
