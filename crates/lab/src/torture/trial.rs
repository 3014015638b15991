//! One seed: its world, observed by all checkers until the end or the first violation.

use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};

use freshline_core::session::SourceEvent;
use freshline_core::unit::{Span, Time};

use super::checks::{self, Check};
use super::hosts::Hosts;
use super::observation::Observation;
use super::plan::Plan;
use super::sabotage::Sabotage;
use super::source_host::MAX_WHOLE;
use super::timetable::Timetable;
use super::trace::Trace;

/// A violated property.
#[derive(Debug, Clone)]
pub struct Breach {
    /// The property, in words.
    pub property: &'static str,
    /// The violation.
    pub what: String,
    /// When it happened, since the start of the world.
    pub at: Span,
}

/// Counters of events in one or several worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// The time that passed in them.
    pub simulated: Span,
    /// Steps of the worlds: times at which something happened.
    pub steps: u64,
    /// Incidents of the plans.
    pub incidents: u64,
    /// Updates sent.
    pub sent: u64,
    /// The updates among them that a monitor accepted as the freshest.
    pub fresh: u64,
    /// States in parts that were complete at a monitor.
    pub large: u64,
    /// How often a session was opened at its source.
    pub opened: u64,
    /// States that were not delivered on arrival because they might be older than their maximum
    /// age.
    pub withheld: u64,
    /// How often a source became stale.
    pub stale: u64,
    /// States of the return direction that sources were given.
    pub commands: u64,
    /// Records received by applications at monitors.
    pub records: u64,
    /// States and removals of keys that monitors delivered.
    pub keys: u64,
    /// Urgent states that monitors delivered.
    pub urgent: u64,
}

impl Counts {
    fn count(&mut self, seen: &Observation) {
        match seen {
            Observation::Happened(_) => self.incidents += 1,
            Observation::Sent { .. } => self.sent += 1,
            Observation::Fresh { held, .. } => {
                self.fresh += 1;
                self.large += u64::from(held.len() > MAX_WHOLE);
            }
            Observation::Part { .. } => self.fresh += 1,
            Observation::Withheld { .. } => {
                self.fresh += 1;
                self.withheld += 1;
            }
            Observation::Alarm { is_stale: true, .. } => self.stale += 1,
            Observation::Commanded { .. } => self.commands += 1,
            Observation::Record { .. } => self.records += 1,
            Observation::Key { .. } | Observation::KeyRemoved { .. } => self.keys += 1,
            Observation::Urgent { .. } => self.urgent += 1,
            Observation::Learned { event: SourceEvent::Opened, .. } => self.opened += 1,
            _ => {}
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.simulated += other.simulated;
        self.steps += other.steps;
        self.incidents += other.incidents;
        self.sent += other.sent;
        self.fresh += other.fresh;
        self.large += other.large;
        self.opened += other.opened;
        self.withheld += other.withheld;
        self.stale += other.stale;
        self.commands += other.commands;
        self.records += other.records;
        self.keys += other.keys;
        self.urgent += other.urgent;
    }
}

/// A world, its checkers, and their observations.
pub(super) struct Trial {
    hosts: Hosts,
    checks: Vec<Box<dyn Check>>,
    end: Time,
    pub(super) counts: Counts,
    pub(super) trace: Option<Trace>,
}

impl Trial {
    pub(super) fn new(plan: &Plan, sabotage: Box<dyn Sabotage>, trace: Option<Trace>) -> Self {
        Self {
            hosts: Hosts::new(plan, sabotage),
            checks: checks::all(plan),
            end: Timetable::of(plan).end,
            counts: Counts::default(),
            trace,
        }
    }

    /// Runs to the end. Returns the first violation; a panic counts as one.
    pub(super) fn run(&mut self) -> Option<Breach> {
        let broken = catch_unwind(AssertUnwindSafe(|| self.watch()));
        let (property, what) = match broken {
            Ok(Ok(())) => return None,
            Ok(Err(broken)) => broken,
            Err(panic) => ("nothing panics", words_of(&*panic)),
        };
        Some(Breach { property, what, at: self.counts.simulated })
    }

    fn watch(&mut self) -> Result<(), (&'static str, String)> {
        loop {
            let next = self.hosts.poll_timeout().min(self.end);
            self.counts.simulated = next.since(Time::ZERO);
            self.counts.steps += 1;
            let seen = self.hosts.step(next);
            for observation in &seen {
                self.counts.count(observation);
                if let Some(trace) = &mut self.trace {
                    trace.record(next, observation);
                }
            }
            for check in &mut self.checks {
                seen.iter()
                    .try_for_each(|observation| check.on_observation(&self.hosts, observation))
                    .and_then(|()| check.on_step(&self.hosts))
                    .map_err(|what| (check.property(), what))?;
            }
            if next >= self.end {
                return Ok(());
            }
        }
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
