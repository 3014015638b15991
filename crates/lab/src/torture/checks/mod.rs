//! What must hold in every world: one checker a property.

mod age;
mod answers;
mod content;
mod freshest;
mod memory;
mod normal;
mod progress;
mod rate;
mod service;

use freshline_core::unit::{Span, Time};

use super::observation::Observation;
use super::path::Damaged;
use super::plan::{MAX_RATE, Plan};
use super::world::World;

/// The longest pause that a healthy source makes on its own: the longest wait between openings, a
/// quarter of spread included. A probe's timeout and the longest period of the laws are shorter.
const LONGEST_PAUSE: Span = Span::from_millis(2_500);

/// By how much readings of two clocks of these worlds can differ, beyond rounding: ⌈2 · 200 ppm⌉.
const CLOCKS_DIFFER: f64 = 0.000_4;

/// Watches one property. `Err` says what broke it.
pub(super) trait Check: Send {
    /// The property, in words.
    fn property(&self) -> &'static str;

    /// Something was seen.
    fn on_observation(&mut self, _world: &World, _seen: &Observation) -> Result<(), String> {
        Ok(())
    }

    /// A step of the world is over.
    fn on_step(&mut self, _world: &World) -> Result<(), String> {
        Ok(())
    }
}

/// A checker for each property.
pub(super) fn all(plan: &Plan) -> Vec<Box<dyn Check>> {
    let timetable = Timetable::of(plan);
    vec![
        Box::new(age::Age::new(plan)),
        Box::new(answers::Answers),
        Box::new(content::Content::new(plan)),
        Box::new(freshest::Freshest::default()),
        Box::new(memory::Memory::new(plan)),
        Box::new(progress::Progress::new(plan)),
        Box::new(rate::Rate),
        Box::new(service::Service::new(plan, timetable)),
        Box::new(normal::Normal::new(plan, timetable)),
    ]
}

/// What is demanded when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timetable {
    /// All faults are over.
    healed: Time,
    /// Every source has been served again.
    served: Time,
    /// The clocks' offset is that of healthy times.
    settled: Time,
    /// The run is over.
    pub(super) end: Time,
}

impl Timetable {
    pub(super) fn of(plan: &Plan) -> Self {
        let healed = Time::ZERO + plan.healed_at;
        let delay = plan.sources.iter().map(|source| source.delay).max().unwrap_or(Span::ZERO);
        // docs/src/protocol.md, "Silence and backoff"; what was under way when the world was
        // healed is no part of the healed world.
        let mut served = healed + plan.longest_jitter() + LONGEST_PAUSE + (delay * 2) * 3;
        if plan.damaged == Damaged::Delivered {
            // A damaged number that is far too high shows when 8 updates have been stale.
            served += LONGEST_PAUSE * 8;
        }
        if plan.leaves_orphans() {
            // They may fill the monitor until they have been idle; then comes the next try.
            served += plan.monitor.idle * 2 + LONGEST_PAUSE;
        }
        // The source forgets the offset of troubled times after 20 s.
        let settled = served + Span::from_secs(22);
        Self { healed, served, settled, end: settled + Span::from_secs(5) }
    }
}
