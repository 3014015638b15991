//! The freshest state never goes back while the monitor holds a record of the session: the number
//! of the newest update does not decrease, and an older state does not follow a newer one.

use std::collections::HashMap;

use freshline_core::wire::SessionId;

use super::Check;
use crate::torture::hosts::Hosts;
use crate::torture::observation::Observation;
use crate::torture::plan::{Damaged, Plan};

pub(super) struct Freshest {
    damaged: Damaged,
    /// The newest update of each session, and its newest state.
    newest: HashMap<SessionId, (u64, Option<u64>)>,
}

impl Freshest {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { damaged: plan.damaged, newest: HashMap::new() }
    }
}

impl Check for Freshest {
    fn property(&self) -> &'static str {
        "freshest never goes back"
    }

    fn on_observation(&mut self, hosts: &Hosts, seen: &Observation) -> Result<(), String> {
        if let Observation::Part { session, opened: true, .. } = seen {
            self.newest.remove(session);
        }
        if let Observation::Withheld { session, seq, opened, .. } = seen {
            let before = self.newest.remove(session).filter(|_| !opened);
            self.newest.insert(*session, (*seq, before.and_then(|(_, number)| number)));
        }
        let Observation::Fresh { session, seq, label, opened, is_repeat, held, .. } = seen else {
            return Ok(());
        };
        let sample = hosts.ledger.find(*session, *label, held);
        // A damaged label proves nothing.
        let sample = sample.filter(|_| self.damaged == Damaged::Dropped);
        let number = sample.map(|sample| sample.number);
        let before = self.newest.insert(*session, (*seq, number)).filter(|_| !opened);
        match before {
            Some((before, _)) if *seq < before => {
                Err(format!("{session:?}: update {seq} counts as fresh after {before}"))
            }
            Some((_, before))
                if number < before || (number == before && before.is_some() && !is_repeat) =>
            {
                Err(format!("{session:?}: state {number:?} follows {before:?}"))
            }
            _ => Ok(()),
        }
    }
}
