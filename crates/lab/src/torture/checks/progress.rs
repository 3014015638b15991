//! Time advances: no host stalls, and no timer spins.

use freshline_core::unit::{Span, Time};

use super::{Check, MAX_RATE};
use crate::torture::hosts::Hosts;
use crate::torture::plan::{Plan, SourcePlan};
use crate::torture::source_host::SourceHost;

/// The maximum number of steps per update of a source, on each of its paths and in each direction:
/// sending, arriving, being answered, copies of all that, timers, and strangers.
const STEPS_AN_UPDATE: u64 = 16;

pub(super) struct Progress {
    max_steps_per_second: u64,
    second_began_at: Time,
    steps: u64,
}

impl Progress {
    pub(super) fn new(plan: &Plan) -> Self {
        let directions = |source: &SourcePlan| 1 + usize::from(source.is_commanded);
        let paths = plan.sources.iter().map(|source| source.delays.len() * directions(source));
        let paths: usize = paths.sum();
        let max_steps_per_second = paths as u64 * MAX_RATE as u64 * STEPS_AN_UPDATE;
        Self { max_steps_per_second, second_began_at: Time::ZERO, steps: 0 }
    }
}

impl Check for Progress {
    fn property(&self) -> &'static str {
        "time goes on"
    }

    fn on_step(&mut self, hosts: &Hosts) -> Result<(), String> {
        let stalls = |source: &SourceHost| source.poll_timeout().is_none();
        if let Some(stalled) = hosts.sources.iter().position(stalls) {
            return Err(format!("source {stalled} waits for nothing"));
        }
        if hosts.now.since(self.second_began_at) >= Span::from_secs(1) {
            (self.second_began_at, self.steps) = (hosts.now, 0);
        }
        self.steps += 1;
        if self.steps > self.max_steps_per_second {
            return Err(format!("more than {} steps in a second", self.max_steps_per_second));
        }
        Ok(())
    }
}
