//! Age is never negative: no source believes the monitor fresher than it is. Nor does age grow
//! faster than time.

use std::collections::HashMap;

use freshline_core::unit::{Span, Time};
use freshline_core::wire::SessionId;

use super::{CLOCKS_DIFFER, Check};
use crate::torture::hosts::Hosts;
use crate::torture::observation::Observation;
use crate::torture::plan::{Damaged, Plan};

pub(super) struct Age {
    /// Of each source, whether what it labels and hears is true.
    honest: Vec<bool>,
    /// When the freshest state that ever reached the monitor was sampled.
    freshest: HashMap<SessionId, Time>,
    /// When the freshest command was put that a source was given in its session, where commands are not damaged
    /// or withheld.
    commands: Option<HashMap<SessionId, Time>>,
    /// The last age that was known, and when.
    known: HashMap<SessionId, (Time, Span)>,
}

impl Age {
    pub(super) fn new(plan: &Plan) -> Self {
        let intact = plan.damaged == Damaged::Dropped;
        let honest = (0..plan.sources.len()).map(|source| intact && !plan.labels_lie(source));
        let all_are_given = intact && plan.monitor.max_age.is_none();
        Self {
            honest: honest.collect(),
            freshest: HashMap::new(),
            commands: all_are_given.then(HashMap::new),
            known: HashMap::new(),
        }
    }

    fn learned(
        &mut self,
        now: Time,
        source: usize,
        session: SessionId,
        age: Span,
    ) -> Result<(), String> {
        if let Some((at, before)) = self.known.insert(session, (now, age)) {
            let most = before + on_any_clock(now.since(at));
            if age > most {
                return Err(format!("source {source}: an age of {age} after one of {before}"));
            }
        }
        let freshest = self.freshest.get(&session).filter(|_| self.honest[source]);
        match freshest.map(|freshest| now.since(*freshest)) {
            Some(truth) if on_any_clock(age) < truth => {
                Err(format!("source {source} knows an age of {age}, in truth it is {truth}"))
            }
            _ => Ok(()),
        }
    }
}

impl Check for Age {
    fn property(&self) -> &'static str {
        "age is never negative"
    }

    fn on_observation(&mut self, hosts: &Hosts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Fresh { session, label, .. }
            | Observation::Withheld { session, label, .. } => {
                if let Some(sampled) = hosts.ledger.put_at(*session, *label) {
                    let freshest = self.freshest.entry(*session).or_insert(sampled);
                    *freshest = sampled.max(*freshest);
                }
                Ok(())
            }
            Observation::Learned { source, session, age: Some(age), .. } => {
                self.learned(hosts.now, *source, *session, *age)
            }
            Observation::Commanded { given, .. } => {
                let command = hosts.ledger.command(&given.state);
                if let Some((commands, command)) = self.commands.as_mut().zip(command) {
                    let freshest = commands.entry(command.session).or_insert(command.at);
                    *freshest = command.at.max(*freshest);
                }
                Ok(())
            }
            Observation::CommandAnswered { session, age: Some(age), .. } => {
                let freshest = self.commands.as_ref().and_then(|commands| commands.get(session));
                match freshest.map(|freshest| hosts.now.since(*freshest)) {
                    Some(truth) if on_any_clock(*age) < truth => Err(format!(
                        "the monitor knows an age of {age} of a command, in truth it is {truth}"
                    )),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// The most that a clock can count during `span` of another.
pub(super) fn on_any_clock(span: Span) -> Span {
    span + span.mul_f64(CLOCKS_DIFFER) + Span::from_micros(1)
}
