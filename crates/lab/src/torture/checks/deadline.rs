//! No state older than its maximum age is delivered. A source whose newest state becomes older than
//! that is reported stale at most 10 ms later, and is not reported stale while its age plus twice
//! the uncertainty stated by the monitor is below the maximum.

use std::collections::HashMap;

use freshline_core::session::{SessionLabel, StateAge};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::SessionId;

use super::Check;
use super::age::on_any_clock;
use crate::torture::hosts::Hosts;
use crate::torture::observation::Observation;
use crate::torture::plan::{Damaged, Plan, What};

/// The maximum delay of an alarm.
const LATE: Span = Span::from_millis(10);

pub(super) struct Deadline {
    max_age: Option<Span>,
    /// For each source, whether its labels are true.
    honest: Vec<bool>,
    /// By the name of the source, or by its session if it has no name.
    known: HashMap<Whose, Known>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Whose {
    Name(String),
    Session(SessionLabel),
}

impl Whose {
    fn of(name: &str, by: SessionLabel) -> Self {
        if name.is_empty() { Self::Session(by) } else { Self::Name(name.to_owned()) }
    }
}

struct Known {
    /// When the newest delivered state was sampled, in the world's time.
    sampled: Time,
    is_stale: bool,
}

impl Deadline {
    pub(super) fn new(plan: &Plan) -> Self {
        // Damaged fields can contain any clock value.
        let max_age = plan.monitor.max_age.filter(|_| plan.damaged == Damaged::Dropped);
        let honest = (0..plan.sources.len()).map(|source| !plan.labels_lie(source)).collect();
        Self { max_age, honest, known: HashMap::new() }
    }

    fn on_handed_out(
        &mut self,
        hosts: &Hosts,
        whose: Whose,
        (session, label): (SessionId, Time),
        limit: Span,
    ) -> Result<(), String> {
        let is_honest = hosts.source_of(session).is_some_and(|source| self.honest[source]);
        let Some(sampled) = hosts.ledger.put_at(session, label).filter(|_| is_honest) else {
            return Ok(());
        };
        let age = hosts.now.since(sampled);
        if age > on_any_clock(limit) {
            return Err(format!("{whose:?}: a state with an age of {age}, {limit} are allowed"));
        }
        let known = self.known.entry(whose).or_insert(Known { sampled, is_stale: false });
        known.sampled = sampled;
        known.is_stale = false;
        Ok(())
    }

    fn on_alarm(
        &mut self,
        now: Time,
        whose: Whose,
        (is_stale, age): (bool, Option<StateAge>),
        limit: Span,
    ) -> Result<(), String> {
        let Some(known) = self.known.get_mut(&whose) else { return Ok(()) };
        known.is_stale = is_stale;
        let Some(age) = age.filter(|_| is_stale) else { return Ok(()) };
        let truth = now.since(known.sampled);
        if on_any_clock(truth + age.uncertainty * 2) < limit {
            return Err(format!("{whose:?}: an alarm at {age:?}, in truth {truth}"));
        }
        Ok(())
    }
}

/// A state of a key is delivered.
fn on_key(
    hosts: &Hosts,
    session: SessionId,
    key: &[u8],
    label: Time,
    limit: Span,
) -> Result<(), String> {
    let process = hosts.ledger.process(session);
    let mut puts = hosts.ledger.key(process, key).iter().rev();
    let Some(put) = puts.find(|put| put.label == label) else { return Ok(()) };
    let age = hosts.now.since(put.at);
    if age > on_any_clock(limit) {
        let key = String::from_utf8_lossy(key);
        return Err(format!("key {key:?}: a state with an age of {age}, {limit} are allowed"));
    }
    Ok(())
}

impl Check for Deadline {
    fn property(&self) -> &'static str {
        "no state is older than its maximum age"
    }

    fn on_observation(&mut self, hosts: &Hosts, seen: &Observation) -> Result<(), String> {
        let Some(limit) = self.max_age else { return Ok(()) };
        match seen {
            Observation::Happened(What::MonitorDies { .. } | What::MonitorStarts) => {
                self.known.clear();
                Ok(())
            }
            Observation::HandedOut { name, by, session, label, .. } => {
                self.on_handed_out(hosts, Whose::of(name, *by), (*session, *label), limit)
            }
            Observation::Key { session, key, label, .. } => {
                on_key(hosts, *session, key, *label, limit)
            }
            Observation::Alarm { name, by, is_stale, age } => {
                self.on_alarm(hosts.now, Whose::of(name, *by), (*is_stale, *age), limit)
            }
            _ => Ok(()),
        }
    }

    fn on_step(&mut self, hosts: &Hosts) -> Result<(), String> {
        let Some(limit) = self.max_age.filter(|_| hosts.monitor.runs()) else { return Ok(()) };
        let late = on_any_clock(limit) + LATE;
        for (whose, Known { sampled, is_stale }) in &self.known {
            let age = hosts.now.since(*sampled);
            if age > late && !is_stale {
                return Err(format!("{whose:?}: no alarm at an age of {age}"));
            }
        }
        Ok(())
    }
}
