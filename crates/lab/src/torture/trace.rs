//! The last observations of a world.

use std::collections::VecDeque;

use freshline_core::unit::Time;

use super::observation::Observation;

/// The number of observations kept: a few seconds of a few sources.
const KEPT: usize = 2_000;

#[derive(Default)]
pub(super) struct Trace(VecDeque<(Time, Observation)>);

impl Trace {
    pub(super) fn record(&mut self, now: Time, seen: &Observation) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((now, seen.clone()));
    }

    /// One line per observation, the oldest first.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(at, seen): &(Time, Observation)| {
            format!("{:>14.9} s  {seen}", at.since(Time::ZERO).as_secs_f64())
        };
        self.0.iter().map(line).collect()
    }
}
