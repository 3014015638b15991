//! What really happened: when each state was sampled, in the world's time.

use std::collections::HashMap;

use freshline_core::unit::Time;
use freshline_core::wire::SessionId;

/// A state that a source has put.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// The process that has put it, by the first of its sessions.
    pub(super) process: SessionId,
    /// Counts the states of its host.
    pub(super) number: u64,
    /// Its length in bytes.
    pub(super) len: usize,
    /// When, in the world's time.
    pub(super) at: Time,
}

impl Sample {
    /// The state: its process and its number say which bytes.
    pub(super) fn state(&self) -> Vec<u8> {
        let text = format!("{:016x} {} ", self.process.0, self.number);
        text.bytes().cycle().take(self.len).collect()
    }
}

/// A state that a monitor has put for a source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command {
    /// The session of the source, at the monitor.
    pub(super) session: SessionId,
    /// Of the monitor's process, and of the command in it.
    pub(super) number: (u64, u64),
    /// When it was put, in the world's time.
    pub(super) at: Time,
}

impl Command {
    /// The state: no other command has it.
    pub(super) fn state(&self) -> Vec<u8> {
        let (process, number) = self.number;
        let text = format!("command {number} of {process} to {:016x} ", self.session.0);
        text.bytes().cycle().take(100 + number as usize % 97).collect()
    }
}

/// What a source has done with a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyPut {
    /// Counts the states of its host.
    pub(super) number: u64,
    /// The length of the state in bytes; `None` if the key was removed.
    pub(super) len: Option<usize>,
    /// When, on the clock of the source.
    pub(super) label: Time,
    /// When, in the world's time.
    pub(super) at: Time,
}

impl KeyPut {
    /// The state, which no other key and no other number has; `None` if the key was removed.
    pub(super) fn state(&self, process: SessionId, key: &[u8]) -> Option<Vec<u8>> {
        let number = self.number;
        let key = String::from_utf8_lossy(key);
        let text = format!("key {number} {:016x} {key} ", process.0);
        Some(text.bytes().cycle().take(text.len() + self.len?).collect())
    }
}

/// An urgent state that a source has put.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stop {
    /// The process that has put it, by the first of its sessions.
    pub(super) process: SessionId,
    /// Counts the urgent states of its host.
    pub(super) number: u64,
    /// When, on the clock of the source.
    pub(super) label: Time,
    /// When, in the world's time.
    pub(super) at: Time,
}

impl Stop {
    /// The state: no other one has it.
    pub(super) fn state(&self) -> Vec<u8> {
        let text = format!("stop {} of {:016x} ", self.number, self.process.0);
        text.bytes().cycle().take(text.len() + self.number as usize % 97).collect()
    }
}

/// All states of all sources.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// By their process and their label; several if they were put at one time.
    samples: HashMap<(SessionId, Time), Vec<Sample>>,
    /// The process of each session.
    processes: HashMap<SessionId, SessionId>,
    /// Those of the monitor, by their bytes.
    commands: HashMap<Vec<u8>, Command>,
    /// The puts and removals of each key, by the process of its source.
    keys: HashMap<(SessionId, Vec<u8>), Vec<KeyPut>>,
    /// Urgent states, by their process.
    stops: HashMap<SessionId, Vec<Stop>>,
}

impl Ledger {
    /// A state was put with this label.
    pub(super) fn put(&mut self, label: Time, sample: Sample) {
        self.samples.entry((sample.process, label)).or_default().push(sample);
    }

    /// A command was put; gives its bytes.
    pub(super) fn put_command(&mut self, command: Command) -> Vec<u8> {
        let state = command.state();
        self.commands.insert(state.clone(), command);
        state
    }

    /// The command with these bytes.
    pub(super) fn command(&self, state: &[u8]) -> Option<&Command> {
        self.commands.get(state)
    }

    /// A key was put or removed.
    pub(super) fn put_key(&mut self, process: SessionId, key: &[u8], put: KeyPut) {
        self.keys.entry((process, key.to_vec())).or_default().push(put);
    }

    /// The puts and removals of a key, in order.
    pub(super) fn key(&self, process: SessionId, key: &[u8]) -> &[KeyPut] {
        self.keys.get(&(process, key.to_vec())).map_or(&[], Vec::as_slice)
    }

    /// An urgent state was put.
    pub(super) fn put_stop(&mut self, stop: Stop) {
        self.stops.entry(stop.process).or_default().push(stop);
    }

    /// The urgent states of a process, in their order.
    pub(super) fn stops(&self, process: SessionId) -> &[Stop] {
        self.stops.get(&process).map_or(&[], Vec::as_slice)
    }

    /// An update of a session has left.
    pub(super) fn sent(&mut self, session: SessionId, process: SessionId) {
        self.processes.insert(session, process);
    }

    /// The process of a session.
    pub(super) fn process_of(&self, session: SessionId) -> Option<SessionId> {
        self.processes.get(&session).copied()
    }

    /// The process of a session; a session that was never sent counts as a process of its own, which has put nothing.
    pub(super) fn process(&self, session: SessionId) -> SessionId {
        self.process_of(session).unwrap_or(session)
    }

    /// When the states of a session with this label were put; `None` if none was.
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

/// A number that looks drawn, but depends on the number of a state alone.
pub(super) fn mix(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}
