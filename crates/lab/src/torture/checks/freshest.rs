//! The freshest state never goes back while the monitor holds a record of the session.

use std::collections::HashMap;

use freshline_core::wire::SessionId;

use super::Check;
use crate::torture::observation::Observation;
use crate::torture::world::World;

/// The freshest update of each session.
#[derive(Default)]
pub(super) struct Freshest(HashMap<SessionId, u64>);

impl Check for Freshest {
    fn property(&self) -> &'static str {
        "freshest never goes back"
    }

    fn on_observation(&mut self, _: &World, seen: &Observation) -> Result<(), String> {
        let Observation::Fresh { session, seq, opened, .. } = seen else { return Ok(()) };
        match self.0.insert(*session, *seq) {
            Some(before) if *seq <= before && !opened => {
                Err(format!("{session:?}: update {seq} counts as fresh after {before}"))
            }
            _ => Ok(()),
        }
    }
}
