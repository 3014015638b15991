//! Commands arrive complete, at their source, in time, in order, and once per session.

use freshline_core::unit::Span;
use freshline_core::wire::SessionId;

use super::Check;
use crate::torture::hosts::Hosts;
use crate::torture::ledger::Command;
use crate::torture::observation::Observation;
use crate::torture::plan::{Damaged, Plan};
use crate::torture::source_host::Given;

pub(super) struct Commands {
    damaged: Damaged,
    max_age: Option<Span>,
    newest: Vec<Option<Newest>>,
}

/// The last command given to a source.
#[derive(Clone, Copy)]
struct Newest {
    /// The process of the source.
    process: SessionId,
    /// The return session.
    session: SessionId,
    command: Command,
}

impl Commands {
    pub(super) fn new(plan: &Plan) -> Self {
        let (damaged, max_age) = (plan.damaged, plan.monitor.max_age);
        Self { damaged, max_age, newest: vec![None; plan.sources.len()] }
    }
}

impl Check for Commands {
    fn property(&self) -> &'static str {
        "commands arrive whole, in order and in time"
    }

    fn on_observation(&mut self, hosts: &Hosts, seen: &Observation) -> Result<(), String> {
        let Observation::Commanded { source, given } = seen else { return Ok(()) };
        if self.damaged == Damaged::Delivered {
            return Ok(()); // damaged bytes may be any command, of any time
        }
        let Given { state, session, opened } = given;
        let text = String::from_utf8_lossy(state);
        let Some(&command) = hosts.ledger.command(state) else {
            return Err(format!("source {source} is given {text:?}, which was never put"));
        };
        let process = hosts.sources[*source].process();
        if hosts.ledger.process_of(command.session) != Some(process) {
            return Err(format!("source {source} is given {text:?}, which is for another process"));
        }
        let age = hosts.now.since(command.at);
        if self.max_age.is_some_and(|max_age| age > max_age) {
            return Err(format!("source {source} is given {text:?}, {age} old"));
        }
        let newest = Newest { process, session: *session, command };
        let former = self.newest[*source].replace(newest);
        let Some(former) = former.filter(|former| former.process == process) else { return Ok(()) };
        let is_again = former.session == *session && !opened;
        let is_older = command.number < former.command.number;
        if is_older || is_again && command.number == former.command.number {
            return Err(format!("source {source} is given {text:?} after {:?}", former.command));
        }
        Ok(())
    }
}
