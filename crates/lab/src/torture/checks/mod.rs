//! The properties that must hold in every world: one checker per property.

mod age;
mod answers;
mod commands;
mod content;
mod deadline;
mod freshest;
mod keys;
mod memory;
mod normal;
mod progress;
mod rate;
mod records;
mod service;
mod urgent;

use super::draw::MAX_RATE;
use super::hosts::Hosts;
use super::observation::Observation;
use super::plan::Plan;
use super::timetable::Timetable;

/// The maximum relative difference between two clocks of these worlds, beyond rounding: ⌈2 · 200
/// ppm⌉.
const CLOCKS_DIFFER: f64 = 0.000_4;

/// Checks one property. `Err` describes the violation.
pub(super) trait Check: Send {
    /// The property, in words.
    fn property(&self) -> &'static str;

    /// An observation was made.
    fn on_observation(&mut self, _hosts: &Hosts, _seen: &Observation) -> Result<(), String> {
        Ok(())
    }

    /// A step of the world is over.
    fn on_step(&mut self, _hosts: &Hosts) -> Result<(), String> {
        Ok(())
    }
}

/// A checker for each property.
pub(super) fn all(plan: &Plan) -> Vec<Box<dyn Check>> {
    let timetable = Timetable::of(plan);
    vec![
        Box::new(age::Age::new(plan)),
        Box::new(answers::Answers),
        Box::new(commands::Commands::new(plan)),
        Box::new(content::Content::new(plan)),
        Box::new(deadline::Deadline::new(plan)),
        Box::new(freshest::Freshest::new(plan)),
        Box::new(keys::Keys::new(plan, timetable)),
        Box::new(memory::Memory::new(plan)),
        Box::new(progress::Progress::new(plan)),
        Box::new(rate::Rate),
        Box::new(records::Records::new(plan, timetable)),
        Box::new(urgent::Urgent::new(plan, timetable)),
        Box::new(service::Service::new(plan, timetable)),
        Box::new(normal::Normal::new(plan, timetable)),
    ]
}
