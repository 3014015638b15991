//! Commands arrive whole, at the source that they are for, and never go back.

use super::Check;
use crate::torture::hosts::Hosts;
use crate::torture::observation::Observation;
use crate::torture::plan::{Damaged, Plan};

pub(super) struct Commands {
    damaged: Damaged,
    /// Of each source: the process that was given a command last, and the command's number.
    newest: Vec<Option<(u64, (u64, u64))>>,
}

impl Commands {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { damaged: plan.damaged, newest: vec![None; plan.sources.len()] }
    }
}

impl Check for Commands {
    fn property(&self) -> &'static str {
        "commands arrive whole and in order"
    }

    fn on_observation(&mut self, hosts: &Hosts, seen: &Observation) -> Result<(), String> {
        let Observation::Commanded { source, state } = seen else { return Ok(()) };
        if self.damaged == Damaged::Delivered {
            return Ok(()); // what is damaged may say anything
        }
        let text = String::from_utf8_lossy(state);
        let Some(command) = hosts.ledger.command(state) else {
            return Err(format!("source {source} is given {text:?}, which was never put"));
        };
        let process = hosts.sources[*source].process();
        if hosts.ledger.process_of(command.session) != Some(process) {
            return Err(format!("source {source} is given {text:?}, which is for another process"));
        }
        let newest = self.newest[*source].replace((process.0, command.number));
        match newest {
            Some((same, former)) if same == process.0 && former > command.number => {
                Err(format!("source {source} is given {text:?} after {former:?}"))
            }
            _ => Ok(()),
        }
    }
}
