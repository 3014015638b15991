//! The true history: when each state was sampled, in the world's time.

use std::collections::HashMap;

use freshline_core::unit::Time;
use freshline_core::wire::SessionId;

/// A state put by a source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// The process that put it, identified by the first of its sessions.
    pub(super) process: SessionId,
    /// Its number among the states of its host.
    pub(super) number: u64,
    /// Its length in bytes.
    pub(super) len: usize,
    /// When it was put, in the world's time.
    pub(super) at: Time,
}

impl Sample {
    /// The bytes of the state, which are determined by its process and its number.
    pub(super) fn state(&self) -> Vec<u8> {
        let text = format!("{:016x} {} ", self.process.0, self.number);
        text.bytes().cycle().take(self.len).collect()
    }
}

/// A state put by a monitor for a source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command {
    /// The session of the source, at the monitor.
    pub(super) session: SessionId,
    /// The numbers of the monitor's process, and of the command in it.
    pub(super) number: (u64, u64),
    /// When it was put, in the world's time.
    pub(super) at: Time,
}

impl Command {
    /// The bytes of the state, which are unique to the command.
    pub(super) fn state(&self) -> Vec<u8> {
        let (process, number) = self.number;
        let text = format!("command {number} of {process} to {:016x} ", self.session.0);
        text.bytes().cycle().take(100 + number as usize % 97).collect()
    }
}

/// An operation of a source on a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyPut {
    /// Its number among the states of its host.
    pub(super) number: u64,
    /// The length of the state in bytes; `None` if the key was removed.
    pub(super) len: Option<usize>,
    /// When it happened, by the clock of the source.
    pub(super) label: Time,
    /// When it happened, in the world's time.
    pub(super) at: Time,
}

impl KeyPut {
    /// The bytes of the state, which are unique to the key and the number; `None` if the key was
    /// removed.
    pub(super) fn state(&self, process: SessionId, key: &[u8]) -> Option<Vec<u8>> {
        let number = self.number;
        let key = String::from_utf8_lossy(key);
        let text = format!("key {number} {:016x} {key} ", process.0);
        Some(text.bytes().cycle().take(text.len() + self.len?).collect())
    }
}

/// An urgent state put by a source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stop {
    /// The process that put it, identified by the first of its sessions.
    pub(super) process: SessionId,
    /// Its number among the urgent states of its host.
    pub(super) number: u64,
    /// When it was put, by the clock of the source.
    pub(super) label: Time,
    /// When it was put, in the world's time.
    pub(super) at: Time,
}

impl Stop {
    /// The bytes of the state, which are unique to it.
    pub(super) fn state(&self) -> Vec<u8> {
        let text = format!("stop {} of {:016x} ", self.number, self.process.0);
        text.bytes().cycle().take(text.len() + self.number as usize % 97).collect()
    }
}

/// All states of all sources.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// By process and label; several if they were put at the same time.
    samples: HashMap<(SessionId, Time), Vec<Sample>>,
    /// The process of each session.
    processes: HashMap<SessionId, SessionId>,
    /// The monitor's commands, by their bytes.
    commands: HashMap<Vec<u8>, Command>,
    /// The puts and removals of each key, by the process of its source.
    keys: HashMap<(SessionId, Vec<u8>), Vec<KeyPut>>,
    /// Urgent states, by their process.
    stops: HashMap<SessionId, Vec<Stop>>,
}

impl Ledger {
    /// Records a state with this label.
    pub(super) fn put(&mut self, label: Time, sample: Sample) {
        self.samples.entry((sample.process, label)).or_default().push(sample);
    }

    /// Records a command. Returns its bytes.
    pub(super) fn put_command(&mut self, command: Command) -> Vec<u8> {
        let state = command.state();
        self.commands.insert(state.clone(), command);
        state
    }

    /// The command with these bytes.
    pub(super) fn command(&self, state: &[u8]) -> Option<&Command> {
        self.commands.get(state)
    }

    /// Records that a key was put or removed.
    pub(super) fn put_key(&mut self, process: SessionId, key: &[u8], put: KeyPut) {
        self.keys.entry((process, key.to_vec())).or_default().push(put);
    }

    /// The puts and removals of a key, in order.
    pub(super) fn key(&self, process: SessionId, key: &[u8]) -> &[KeyPut] {
        self.keys.get(&(process, key.to_vec())).map_or(&[], Vec::as_slice)
    }

    /// Records an urgent state.
    pub(super) fn put_stop(&mut self, stop: Stop) {
        self.stops.entry(stop.process).or_default().push(stop);
    }

    /// The urgent states of a process, in their order.
    pub(super) fn stops(&self, process: SessionId) -> &[Stop] {
        self.stops.get(&process).map_or(&[], Vec::as_slice)
    }

    /// Records that an update of a session was sent.
    pub(super) fn sent(&mut self, session: SessionId, process: SessionId) {
        self.processes.insert(session, process);
    }

    /// The process of a session.
    pub(super) fn process_of(&self, session: SessionId) -> Option<SessionId> {
        self.processes.get(&session).copied()
    }

    /// The process of a session. A session without sent updates counts as its own process without
    /// states.
    pub(super) fn process(&self, session: SessionId) -> SessionId {
        self.process_of(session).unwrap_or(session)
    }

    /// When the states of a session with this label were put; `None` if there was no such state.
    pub(super) fn put_at(&self, session: SessionId, label: Time) -> Option<Time> {
        self.samples(session, label).last().map(|sample| sample.at)
    }

    /// The state of a session with this label and these bytes.
    pub(super) fn find(&self, session: SessionId, label: Time, state: &[u8]) -> Option<&Sample> {
        self.samples(session, label).iter().rev().find(|sample| sample.state() == state)
    }

    fn samples(&self, session: SessionId, label: Time) -> &[Sample] {
        let process = self.processes.get(&session);
        let samples = process.and_then(|process| self.samples.get(&(*process, label)));
        samples.map_or(&[], Vec::as_slice)
    }
}

/// A pseudo-random number that depends only on the number of a state.
pub(super) fn mix(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}
