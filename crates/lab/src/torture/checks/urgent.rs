//! Urgent states arrive complete and in order. While a source is served on healthy paths, they
//! arrive at once, whatever the rate of its law. Tenth pauses for up to six periods, for which a
//! burst of four is not enough.

use std::collections::HashMap;

use freshline_core::session::Record;
use freshline_core::unit::Span;
use freshline_core::wire::SessionId;

use super::Check;
use super::age::on_any_clock;
use super::normal::max_pause;
use crate::torture::hosts::Hosts;
use crate::torture::ledger::Stop;
use crate::torture::observation::Observation;
use crate::torture::plan::{Damaged, Plan, What};
use crate::torture::stops::TOPIC;
use crate::torture::timetable::{MAX_PAUSE, Timetable};

/// The maximum delivery time of an urgent state beyond the delay of its path.
const AT_ONCE: Span = Span::from_millis(1);

pub(super) struct Urgent {
    timetable: Timetable,
    damaged: Damaged,
    /// The delay of the slowest path of each source.
    delays: Vec<Span>,
    /// The number of the newest urgent state of each session.
    newest: HashMap<SessionId, u64>,
}

impl Urgent {
    pub(super) fn new(plan: &Plan, timetable: Timetable) -> Self {
        let slowest = |delays: &Vec<Span>| delays.iter().copied().max().unwrap_or(Span::ZERO);
        Self {
            timetable,
            damaged: plan.damaged,
            delays: plan.sources.iter().map(|source| slowest(&source.delays)).collect(),
            newest: HashMap::new(),
        }
    }

    fn on_urgent(&mut self, hosts: &Hosts, session: SessionId, state: &[u8]) -> Result<(), String> {
        let process = hosts.ledger.process(session);
        let mut stops = hosts.ledger.stops(process).iter().rev();
        let Some(stop) = stops.find(|stop| stop.state() == state) else {
            let text = String::from_utf8_lossy(state);
            return Err(format!("the urgent state {text:?} of {session:?} was never put"));
        };
        let before = self.newest.insert(session, stop.number);
        if before.is_some_and(|before| stop.number <= before) {
            return Err(format!("{session:?}: {stop:?} follows {before:?}"));
        }
        Ok(())
    }
}

/// Whether the monitor has the newest urgent state of a session, even if that is too old to be
/// delivered.
fn is_held(hosts: &Hosts, session: SessionId, stop: &Stop) -> bool {
    let record = hosts.monitor.record(session);
    let mut topics = record.into_iter().flat_map(Record::topics);
    let topic = topics.find(|topic| topic.name() == TOPIC);
    topic.is_some_and(|topic| topic.generated_at() == stop.label)
}

impl Check for Urgent {
    fn property(&self) -> &'static str {
        "urgent states arrive whole, in order and at once"
    }

    fn on_observation(&mut self, hosts: &Hosts, seen: &Observation) -> Result<(), String> {
        if self.damaged == Damaged::Delivered {
            return Ok(()); // sources have no urgent states then, but damage can make one
        }
        if let Some(session) = seen.opened_session() {
            self.newest.remove(&session);
        }
        match seen {
            Observation::Happened(What::MonitorDies { .. }) => self.newest.clear(),
            Observation::Urgent { session, state } => {
                return self.on_urgent(hosts, *session, state);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_step(&mut self, hosts: &Hosts) -> Result<(), String> {
        let Timetable { served, away, .. } = self.timetable;
        // Earlier ones are sent once the session is open.
        let from = served + MAX_PAUSE;
        if !(from..away).contains(&hosts.now) {
            return Ok(());
        }
        for (source, (host, delay)) in hosts.sources.iter().zip(&self.delays).enumerate() {
            let Some(stop) = hosts.ledger.stops(host.process()).last() else { continue };
            let wait = hosts.now.since(stop.at.max(from));
            let law = host.endpoint().law();
            let pause = if law.name() == "tenth" { max_pause(law, *delay) } else { Span::ZERO };
            if wait <= on_any_clock(*delay + pause + AT_ONCE) {
                continue;
            }
            if !is_held(hosts, host.endpoint().session(), stop) {
                return Err(format!("source {source}: {stop:?} has not come after {wait}"));
            }
        }
        Ok(())
    }
}
