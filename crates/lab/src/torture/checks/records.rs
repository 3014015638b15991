//! Each record reaches the application at the monitor once and in order, whatever happens to either
//! end. After the healing, pending records arrive.

use std::collections::HashMap;

use super::Check;
use crate::torture::hosts::Hosts;
use crate::torture::log;
use crate::torture::observation::Observation;
use crate::torture::plan::{Damaged, Plan};
use crate::torture::timetable::Timetable;

pub(super) struct Records {
    timetable: Timetable,
    damaged: Damaged,
    /// The number of the next record, by the name of the source.
    next: HashMap<String, u64>,
    /// Fresh acks of each source since one of its records arrived or it had no pending record.
    acks: Vec<u64>,
}

/// Alongside the states of an adaptive law, records are a sixteenth of the bytes: a record of three
/// chunks arrives within this number of updates of 50 bytes.
const MAX_ACKS: u64 = 400;

impl Records {
    pub(super) fn new(plan: &Plan, timetable: Timetable) -> Self {
        Self {
            timetable,
            damaged: plan.damaged,
            next: HashMap::new(),
            acks: vec![0; plan.sources.len()],
        }
    }
}

impl Check for Records {
    fn property(&self) -> &'static str {
        "records arrive once and in order"
    }

    fn on_observation(&mut self, hosts: &Hosts, seen: &Observation) -> Result<(), String> {
        if let Observation::Learned { source, .. } = seen
            && seen.is_ack()
        {
            self.acks[*source] += 1;
        }
        let Observation::Record { name, record } = seen else { return Ok(()) };
        if self.damaged == Damaged::Delivered {
            return Ok(()); // sources have no records then, but damage can make one
        }
        let next = self.next.entry(name.clone()).or_default();
        if *record != log::record(name, *next) {
            return Err(format!("not record {next} of {name:?}: {seen}"));
        }
        *next += 1;
        if let Some(source) = hosts.sources.iter().position(|host| host.name() == name) {
            self.acks[source] = 0;
        }
        Ok(())
    }

    fn on_step(&mut self, hosts: &Hosts) -> Result<(), String> {
        let Timetable { healed, away, found, .. } = self.timetable;
        let is_calm = (healed..away).contains(&hosts.now) || hosts.now >= found;
        for (host, acks) in hosts.sources.iter().zip(&mut self.acks) {
            if !is_calm || !host.has_waiting_records() {
                *acks = 0;
            }
            let (done, given) = (host.records_done(), self.next.get(host.name()));
            if done > given.copied().unwrap_or_default() {
                return Err(format!("{done} of {:?} are done, {given:?} have come", host.name()));
            }
            if *acks > MAX_ACKS {
                return Err(format!("none of {:?} came with {acks} acks", host.name()));
            }
        }
        Ok(())
    }
}
