//! For each key the monitor holds a state that was put for it, never an older one after a newer
//! one, and never one that was removed before. After the healing it obtains the newest state of
//! each key, and no removed key.

use std::collections::HashMap;

use freshline_core::session::TopicRecord;
use freshline_core::wire::SessionId;

use super::Check;
use crate::torture::hosts::Hosts;
use crate::torture::keys::{KEYS, MAX_KEYS, TOPIC};
use crate::torture::ledger::KeyPut;
use crate::torture::observation::Observation;
use crate::torture::plan::{Damaged, Plan, What};
use crate::torture::timetable::Timetable;
use crate::torture::topics;

/// The maximum number of fresh acks of its source for which a key may be out of date.
const MAX_ACKS: u64 = 32;

pub(super) struct Keys {
    timetable: Timetable,
    damaged: Damaged,
    /// Whether a source has keys.
    sources: Vec<bool>,
    /// The number of the newest state of each key that the monitor has had, or of its removal.
    newest: HashMap<SessionId, HashMap<Vec<u8>, u64>>,
    /// The number of fresh acks of each source since the monitor obtained the newest state of its
    /// key, or a newer state than before.
    acks: Vec<HashMap<&'static [u8], u64>>,
}

impl Keys {
    pub(super) fn new(plan: &Plan, timetable: Timetable) -> Self {
        Self {
            timetable,
            damaged: plan.damaged,
            sources: plan.sources.iter().map(|source| source.keys).collect(),
            newest: HashMap::new(),
            acks: vec![HashMap::new(); plan.sources.len()],
        }
    }

    /// The monitor has the state of a key with this number, or knows its removal.
    fn advance(&mut self, hosts: &Hosts, session: SessionId, key: &[u8], number: u64) {
        self.newest.entry(session).or_default().insert(key.to_vec(), number);
        if let Some(source) = hosts.source_of(session) {
            self.acks[source].remove(key);
        }
    }

    fn newest(&self, session: SessionId, key: &[u8]) -> Option<u64> {
        self.newest.get(&session)?.get(key).copied()
    }

    fn on_key(
        &mut self,
        hosts: &Hosts,
        session: SessionId,
        key: &[u8],
        state: &[u8],
    ) -> Result<(), String> {
        let name = String::from_utf8_lossy(key);
        let process = hosts.ledger.process(session);
        let mut puts = hosts.ledger.key(process, key).iter().rev();
        let is_it = |put: &&KeyPut| put.state(process, key).as_deref() == Some(state);
        let Some(put) = puts.find(is_it) else {
            return Err(format!("the state of key {name:?} of {session:?} was never put for it"));
        };
        let before = self.newest(session, key);
        if before.is_some_and(|before| put.number <= before) {
            let number = put.number;
            return Err(format!("key {name:?} of {session:?}: {number} follows {before:?}"));
        }
        self.advance(hosts, session, key, put.number);
        Ok(())
    }

    fn on_removed(&mut self, hosts: &Hosts, session: SessionId, key: &[u8]) -> Result<(), String> {
        let process = hosts.ledger.process(session);
        let before = self.newest(session, key);
        let mut puts = hosts.ledger.key(process, key).iter();
        let Some(put) = puts.find(|put| put.len.is_none() && Some(put.number) > before) else {
            let name = String::from_utf8_lossy(key);
            return Err(format!("key {name:?} of {session:?} is removed, as never at its source"));
        };
        self.advance(hosts, session, key, put.number);
        Ok(())
    }

    /// The source has received a fresh ack.
    fn on_ack(&mut self, hosts: &Hosts, source: usize) -> Result<(), String> {
        let (host, acks) = (&hosts.sources[source], &mut self.acks[source]);
        let sender = host.endpoint();
        let live = sender.keys(topics::id(sender, TOPIC)).count();
        if live > usize::from(MAX_KEYS) {
            return Err(format!("source {source} has {live} keys, {MAX_KEYS} are allowed"));
        }
        let Timetable { healed, away, found, .. } = self.timetable;
        let is_calm = (healed..away).contains(&hosts.now) || hosts.now >= found;
        let Some(record) = hosts.monitor.record(sender.session()).filter(|_| is_calm) else {
            acks.clear();
            return Ok(());
        };
        let of_keys = |topic: &&TopicRecord| topic.name() == TOPIC;
        let held: HashMap<_, _> =
            record.topics().filter(of_keys).filter_map(|it| Some((it.key()?, it))).collect();
        for key in KEYS {
            let newest = hosts.ledger.key(host.process(), key).last();
            if is_up_to_date(held.get(key).copied(), newest, host.process(), key) {
                acks.remove(key);
                continue;
            }
            let acks = acks.entry(key).or_default();
            *acks += 1;
            if *acks > MAX_ACKS {
                let name = String::from_utf8_lossy(key);
                return Err(format!("key {name:?} of source {source}: {newest:?} is not held"));
            }
        }
        Ok(())
    }
}

/// Whether the monitor has the newest state of a key, or does not have a removed key.
fn is_up_to_date(
    held: Option<&TopicRecord>,
    newest: Option<&KeyPut>,
    process: SessionId,
    key: &[u8],
) -> bool {
    let Some(newest) = newest.filter(|newest| newest.len.is_some()) else { return held.is_none() };
    held.is_some_and(|held| match held.payload() {
        Some(state) => newest.state(process, key).as_deref() == Some(state),
        None => held.is_withheld() && held.generated_at() == newest.label,
    })
}

impl Check for Keys {
    fn property(&self) -> &'static str {
        "keys have their newest states"
    }

    fn on_observation(&mut self, hosts: &Hosts, seen: &Observation) -> Result<(), String> {
        if self.damaged == Damaged::Delivered {
            return Ok(()); // sources have no keys then, but damage can make one
        }
        if let Some(session) = seen.opened_session() {
            self.newest.remove(&session);
        }
        match seen {
            Observation::Happened(What::MonitorDies { .. }) => self.newest.clear(),
            Observation::Key { session, key, state, .. } => {
                return self.on_key(hosts, *session, key, state);
            }
            Observation::KeyRemoved { session, key } => {
                return self.on_removed(hosts, *session, key);
            }
            Observation::Learned { source, .. } if seen.is_ack() && self.sources[*source] => {
                return self.on_ack(hosts, *source);
            }
            _ => {}
        }
        Ok(())
    }
}
