//! The monitor and its clock; it may be down.

use freshline_core::session::{Alarm, Monitor, MonitorEvent, MonitorParams, Record, Secret};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{Message, SessionId};
use rand::RngExt;
use rand_pcg::Pcg64;

use super::clock::Clock;
use super::network::Address;
use super::observation::Observation;
use super::plan::MonitorPlan;

pub(super) struct MonitorHost {
    /// `None` while it is down.
    pub(super) endpoint: Option<Monitor<Address>>,
    clock: Clock,
    plan: MonitorPlan,
    /// Whether its process is stopped.
    pub(super) is_stopped: bool,
    rng: Pcg64,
}

impl MonitorHost {
    pub(super) fn new(plan: MonitorPlan, mut rng: Pcg64) -> Self {
        let clock = Clock::random(&mut rng, plan.ppm);
        let mut host = Self { endpoint: None, clock, plan, is_stopped: false, rng };
        host.start();
        host
    }

    pub(super) fn die(&mut self) {
        self.endpoint = None;
    }

    pub(super) fn start(&mut self) {
        let MonitorPlan { max_sources, max_large, max_age, idle, ppm } = self.plan;
        let max_age = max_age.iter().map(|limit| format!("*={limit}").parse().expect("a rule"));
        let params = MonitorParams {
            max_sources,
            max_large,
            max_age: max_age.collect(),
            idle,
            ..MonitorParams::default()
        };
        self.is_stopped = false;
        self.endpoint = Some(Monitor::new(params, Secret::new(self.rng.random())));
        self.clock = Clock::random(&mut self.rng, ppm);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let local = self.endpoint.as_ref().filter(|_| !self.is_stopped)?.poll_timeout()?;
        Some(self.clock.world(local))
    }

    /// Whether there is a process that is not stopped.
    pub(super) fn runs(&self) -> bool {
        self.endpoint.is_some() && !self.is_stopped
    }

    pub(super) fn handle_timeout(&mut self, now: Time, mut see: impl FnMut(Observation)) {
        if let Some(monitor) = &mut self.endpoint {
            monitor.handle_timeout(self.clock.read(now));
            while let Some(event) = monitor.poll_event() {
                if let MonitorEvent::Freshness(alarm) = event {
                    see(seen_alarm(&alarm));
                }
            }
        }
    }

    /// Hands in a datagram; gives the answer, which may be empty.
    pub(super) fn receive(
        &mut self,
        now: Time,
        from: Address,
        datagram: &[u8],
        mut see: impl FnMut(Observation),
    ) -> Vec<u8> {
        let Some(monitor) = &mut self.endpoint else { return Vec::new() };
        let local = self.clock.read(now);
        let _ = monitor.handle_datagram(local, from, datagram);
        while let Some(event) = monitor.poll_event() {
            if let MonitorEvent::Freshness(alarm) = event {
                see(seen_alarm(&alarm));
                continue;
            }
            let Ok(Message::Update(update)) = Message::parse(datagram) else { continue };
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
                    let state =
                        state.map(|(id, it)| (id.generated_at(update.sent_at), it.to_vec()));
                    see(Observation::Stale { session: update.session, seq: update.seq, state });
                }
                _ => {}
            }
        }
        let mut answer = Vec::new();
        let len = monitor.poll_transmit(local, &mut answer).map_or(0, |transmit| transmit.len);
        answer.truncate(len);
        if !answer.is_empty() {
            see(Observation::Answered { question: datagram.len(), answer: answer.len() });
        }
        answer
    }

    /// All that it holds.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record<Address>> {
        self.endpoint.iter().flat_map(|monitor| monitor.records().map(|(_, record)| record))
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
