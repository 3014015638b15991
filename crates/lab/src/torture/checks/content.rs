//! The monitor holds states as they were sampled: complete, by that source, and not later than now.

use super::Check;
use crate::torture::hosts::Hosts;
use crate::torture::observation::Observation;
use crate::torture::plan::{Damaged, Plan};

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

    fn on_observation(&mut self, hosts: &Hosts, seen: &Observation) -> Result<(), String> {
        if let Observation::Withheld { session, label, .. } = seen
            && self.damaged == Damaged::Dropped
            && hosts.ledger.put_at(*session, *label).is_none()
        {
            return Err(format!("a state of {session:?} that is withheld was never put"));
        }
        let Observation::Fresh { session, seq, label, given, held, .. } = seen else {
            return Ok(());
        };
        if held != given {
            return Err(format!("update {seq} of {session:?} is not held as it was given"));
        }
        if self.damaged == Damaged::Delivered {
            return Ok(()); // by whom it is damaged cannot be told
        }
        if hosts.ledger.put_at(*session, *label).is_none() {
            return Err(format!("the state of {session:?}, held at update {seq}, was never put"));
        }
        if hosts.ledger.find(*session, *label, held).is_none() {
            let len = held.len();
            return Err(format!("{len} bytes of {session:?}, at {seq}, are not the state put"));
        }
        Ok(())
    }
}
