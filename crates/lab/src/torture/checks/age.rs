//! Age is never negative: no source believes that the monitor is fresher than it is. Nor does age
//! grow faster than time.

use std::collections::HashMap;

use freshline_core::unit::{Span, Time};
use freshline_core::wire::SessionId;

use super::{CLOCKS_DIFFER, Check};
use crate::torture::hosts::Hosts;
use crate::torture::observation::Observation;
use crate::torture::plan::{Damaged, Plan};

pub(super) struct Age {
    /// For each source, whether its labels and the ages reported to it are true.
    honest: Vec<bool>,
    /// When the freshest state that ever reached the monitor was sampled.
    freshest: HashMap<SessionId, Time>,
    /// When the freshest command given to a source in its session was put, in worlds in which
    /// commands are neither damaged nor withheld.
    commands: Option<HashMap<SessionId, Time>>,
    /// The last known age, and when it was known.
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
        match too_fresh(now, age, freshest) {
            Some(truth) => {
                Err(format!("source {source} knows an age of {age}, in truth it is {truth}"))
            }
            None => Ok(()),
        }
    }
}

/// Keeps the later time of the session.
fn refresh(freshest: &mut HashMap<SessionId, Time>, session: SessionId, at: Time) {
    let freshest = freshest.entry(session).or_insert(at);
    *freshest = at.max(*freshest);
}

/// The true age, if one end believes that the other end is fresher than that.
fn too_fresh(now: Time, age: Span, freshest: Option<&Time>) -> Option<Span> {
    let truth = now.since(*freshest?);
    (on_any_clock(age) < truth).then_some(truth)
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
                    refresh(&mut self.freshest, *session, sampled);
                }
                Ok(())
            }
            Observation::Learned { source, session, age: Some(age), .. } => {
                self.learned(hosts.now, *source, *session, *age)
            }
            Observation::Commanded { given, .. } => {
                let command = hosts.ledger.command(&given.state);
                if let Some((commands, command)) = self.commands.as_mut().zip(command) {
                    refresh(commands, command.session, command.at);
                }
                Ok(())
            }
            Observation::CommandAnswered { session, age: Some(age), .. } => {
                let freshest = self.commands.as_ref().and_then(|commands| commands.get(session));
                match too_fresh(hosts.now, *age, freshest) {
                    Some(truth) => Err(format!(
                        "the monitor knows an age of {age} of a command, in truth it is {truth}"
                    )),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// The maximum that a clock can count during `span` of another clock.
pub(super) fn on_any_clock(span: Span) -> Span {
    span + span.mul_f64(CLOCKS_DIFFER) + Span::from_micros(1)
}
