//! What the monitor holds is what was sampled: whole, by that source, and not later than now.

use super::Check;
use crate::torture::observation::Observation;
use crate::torture::path::Damaged;
use crate::torture::plan::Plan;
use crate::torture::source_host::state;
use crate::torture::world::World;

pub(super) struct Content {
    damaged: Damaged,
}

impl Content {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { damaged: plan.damaged }
    }
}

impl Check for Content {
    fn property(&self) -> &'static str {
        "states arrive whole"
    }

    fn on_observation(&mut self, world: &World, seen: &Observation) -> Result<(), String> {
        let Observation::Fresh { session, seq, given, held, .. } = seen else { return Ok(()) };
        if held != given {
            return Err(format!("update {seq} of {session:?} is not held as it was given"));
        }
        if self.damaged == Damaged::Delivered {
            return Ok(()); // by whom it is damaged cannot be told
        }
        if world.ledger.sampled_at(*session, *seq).is_none() {
            return Err(format!("update {seq} of {session:?} was never sent"));
        }
        if *given != state(*session, *seq) {
            return Err(format!("update {seq} of {session:?} is not what was sent"));
        }
        Ok(())
    }
}
