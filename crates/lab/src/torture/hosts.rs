//! Sources, a monitor and strangers in virtual time, on the network between them.
//!
//! Each host and each path has its own random stream. Each host reads its own clock; only the
//! checks know the true time.

use freshline_core::link::Direction;
use freshline_core::unit::Time;
use freshline_core::wire::{self, Cookie, Frames, Opening, SessionId, Update};
use rand::{Rng, RngExt};
use rand_pcg::Pcg64;

use super::ledger::Ledger;
use super::monitor_host::{self, MonitorHost};
use super::network::{Address, Arrived, Network};
use super::observation::Observation;
use super::plan::{Incident, Leave, Plan, What};
use super::sabotage::Sabotage;
use super::source_host::{Happened, Leaving, SourceHost};

/// The number of strangers.
const STRANGERS: u16 = 100;

/// The maximum size of strangers' datagrams, in bytes.
const MAX_FORGED: usize = 150;

/// The fraction of them that are complete updates.
const WHOLE_UPDATES: f64 = 0.2;

/// The random streams of a seed, except those of the [`Network`]; stream 0 draws the plan.
const STRANGERS_STREAM: u128 = 1;
const MONITOR_STREAM: u128 = 2;
const RETURN_SESSIONS_STREAM: u128 = 6;
const SOURCE_STREAMS: u128 = 1_000;

pub(super) struct Hosts {
    pub(super) now: Time,
    pub(super) sources: Vec<SourceHost>,
    pub(super) monitor: MonitorHost,
    pub(super) ledger: Ledger,
    network: Network,
    /// Future incidents, the last first.
    incidents: Vec<Incident>,
    sabotage: Box<dyn Sabotage>,
    /// Datagrams for stopped processes, in order of arrival.
    held: Vec<(Arrived, Vec<u8>)>,
    strangers: Pcg64,
    seen: Vec<Observation>,
}

impl Hosts {
    pub(super) fn new(plan: &Plan, sabotage: Box<dyn Sabotage>) -> Self {
        let stream = |number| Pcg64::new(plan.seed.into(), number);
        let sources = (SOURCE_STREAMS..).zip(&plan.sources);
        let monitor = sabotage.monitor(plan.monitor.clone());
        let receiver = monitor_host::receiver(&monitor);
        let returns = stream(RETURN_SESSIONS_STREAM);
        Self {
            now: Time::ZERO,
            sources: sources
                .map(|(number, source)| {
                    let source = sabotage.source(source.clone());
                    SourceHost::new(source, receiver.clone(), stream(number))
                })
                .collect(),
            monitor: MonitorHost::new(monitor, stream(MONITOR_STREAM), returns),
            ledger: Ledger::default(),
            network: Network::new(plan),
            incidents: plan.incidents.iter().rev().copied().collect(),
            sabotage,
            held: Vec::new(),
            strangers: stream(STRANGERS_STREAM),
            seen: Vec::new(),
        }
    }

    /// When the next step is due; [`Time::MAX`] if never.
    pub(super) fn poll_timeout(&self) -> Time {
        let incident = self.incidents.last().map(|next| Time::ZERO + next.at);
        let next = self
            .sources
            .iter()
            .map(SourceHost::wakes_at)
            .chain([self.monitor.poll_timeout(), self.network.poll_timeout(), incident])
            .flatten()
            .min()
            .unwrap_or(Time::MAX);
        self.sabotage.next_step_at(self.now, next).max(self.now)
    }

    /// Processes all events that are due at `now`, which is [`Hosts::poll_timeout`] or earlier.
    /// Returns the observations.
    pub(super) fn step(&mut self, now: Time) -> Vec<Observation> {
        self.now = now;
        self.network.run_until(now);
        while let Some(next) = self.incidents.pop_if(|next| Time::ZERO + next.at <= now) {
            self.befall(next.what);
        }
        let mut datagram = Vec::new();
        while let Some(arrived) = self.network.poll_arrival(&mut datagram) {
            self.arrive(arrived, &datagram);
        }
        if self.monitor.poll_timeout().is_some_and(|at| at <= now) {
            let (seen, ledger) = (&mut self.seen, &mut self.ledger);
            let left = self.monitor.handle_timeout(now, ledger, |observed| seen.push(observed));
            self.send_from_monitor(left);
        }
        for source in 0..self.sources.len() {
            if self.sources[source].wakes_at().is_none_or(|at| at > now) {
                continue;
            }
            self.send_update(source);
        }
        let mut seen = std::mem::take(&mut self.seen);
        seen.iter_mut().for_each(|observation| self.sabotage.rewrite(observation));
        seen
    }

    /// A datagram arrives at a process, or is queued in its socket while the process is stopped.
    fn arrive(&mut self, arrived: Arrived, datagram: &[u8]) {
        let is_stopped = match arrived {
            Arrived::AtMonitor { .. } => self.monitor.is_stopped,
            Arrived::AtSource { to } => self.sources[to.host].is_stopped,
        };
        match arrived {
            arrived if is_stopped => self.held.push((arrived, datagram.to_vec())),
            Arrived::AtMonitor { from } => self.reach_monitor(from, datagram),
            Arrived::AtSource { to } => self.reach_source(to, datagram),
        }
    }

    /// Processes that were stopped handle the datagrams that have arrived.
    fn go_on(&mut self) {
        for (arrived, datagram) in std::mem::take(&mut self.held) {
            self.arrive(arrived, &datagram);
        }
    }

    /// The source to which a session belongs or belonged.
    pub(super) fn source_of(&self, session: SessionId) -> Option<usize> {
        let process = self.ledger.process_of(session)?;
        self.sources.iter().position(|host| host.has_run(process))
    }

    fn befall(&mut self, what: What) {
        self.seen.push(Observation::Happened(what));
        match what {
            What::Weather { source, path, weather } => {
                self.network.set_weather(source, path, &weather);
            }
            What::MonitorDies { leave } => {
                if leave == Leave::Close {
                    let see = |observed| self.seen.push(observed);
                    let left = self.monitor.close(self.now, &mut self.ledger, see);
                    self.send_from_monitor(left);
                }
                self.held.retain(|(arrived, _)| !matches!(arrived, Arrived::AtMonitor { .. }));
                self.monitor.die();
            }
            What::MonitorStarts => self.monitor.start(),
            What::SourceStops { source } => self.sources[source].is_stopped = true,
            What::SourceGoesOn { source, slept } => {
                let is_it = std::mem::take(&mut self.sources[source].is_stopped);
                if is_it && slept {
                    self.sources[source].resume(self.now);
                }
                self.go_on();
            }
            What::MonitorStops => self.monitor.is_stopped = true,
            What::MonitorGoesOn { slept } => {
                let is_it = std::mem::take(&mut self.monitor.is_stopped);
                if is_it && slept {
                    self.monitor.resume(self.now);
                }
                self.go_on();
            }
            What::SourceRestarts { source, leave } => {
                // Datagrams for the former process are lost with it.
                let is_its = |arrived: &Arrived| matches!(arrived, Arrived::AtSource { to } if to.host == source);
                self.held.retain(|(arrived, _)| !is_its(arrived));
                self.sources[source].is_stopped = false;
                if let Some(last_words) = self.sources[source].restart(self.now, leave) {
                    for path in 0..self.sources[source].paths() {
                        self.send_to_monitor(source, path, &last_words);
                    }
                }
            }
            What::AddressChanges { source, path } => self.sources[source].change_port(path),
            What::InterfaceGoes { source, path } => {
                self.sources[source].set_interface(self.now, path, false);
            }
            What::InterfaceUp { source, path } => {
                self.sources[source].set_interface(self.now, path, true);
            }
            What::LabelsStep { source, by_ms } => self.sources[source].step_labels(by_ms),
        }
    }

    fn send_update(&mut self, source: usize) {
        let (now, seen, host) = (self.now, &mut self.seen, &mut self.sources[source]);
        let left = host.handle_timeout(now, &mut self.ledger, |host, happened| {
            seen.push(observed(now, source, host, happened));
        });
        self.send_from_source(source, left);
    }

    fn send_from_source(&mut self, source: usize, left: Vec<Leaving>) {
        let host = &self.sources[source];
        let (session, rate) = (host.endpoint().session(), host.endpoint().law().rate());
        self.ledger.sent(session, host.process());
        for Leaving { path, seq, datagram } in left {
            if let Some(seq) = seq {
                self.seen.push(Observation::Sent { source, session, seq, rate });
            }
            self.send_to_monitor(source, path, &datagram);
        }
    }

    fn send_from_monitor(&mut self, left: Vec<(Address, Vec<u8>)>) {
        for (to, datagram) in left {
            if to.host < self.sources.len() {
                self.send(to, Direction::Reverse, &datagram);
            }
        }
    }

    /// Sends on a path whose interface is up; otherwise the datagram is not sent.
    fn send_to_monitor(&mut self, source: usize, path: usize, datagram: &[u8]) {
        let Some(port) = self.sources[source].port(path) else { return };
        self.send(Address { host: source, path, port }, Direction::Forward, datagram);
    }

    fn reach_monitor(&mut self, from: Address, datagram: &[u8]) {
        if self.sabotage.intercepts(Direction::Forward, datagram) {
            return;
        }
        let (seen, ledger) = (&mut self.seen, &mut self.ledger);
        let see = |observed| seen.push(observed);
        let misread = self.sabotage.misread(datagram);
        let datagram = misread.as_deref().unwrap_or(datagram);
        let left = self.monitor.receive(self.now, (from, datagram), ledger, see);
        self.send_from_monitor(left);
    }

    fn reach_source(&mut self, to: Address, datagram: &[u8]) {
        let (now, seen, host) = (self.now, &mut self.seen, &mut self.sources[to.host]);
        let is_gone = Some(to.port) != host.port(to.path);
        if is_gone || self.sabotage.intercepts(Direction::Reverse, datagram) {
            return;
        }
        let left = host.receive((now, to.path), datagram, &mut self.ledger, |host, happened| {
            seen.push(observed(now, to.host, host, happened));
        });
        if !left.is_empty() {
            self.send_from_source(to.host, left);
        }
    }

    /// Sends from a source or to it; a stranger may send something as well.
    fn send(&mut self, source: Address, direction: Direction, datagram: &[u8]) {
        if self.strangers.random_bool(self.network.foreign(source)) {
            self.send_foreign(source);
        }
        self.network.send(source, direction, datagram);
    }

    /// Sends a stranger's datagram, often similar to Freshline's, to the monitor or to `source`.
    fn send_foreign(&mut self, source: Address) {
        let datagram = forged(&mut self.strangers);
        if self.strangers.random() {
            let stranger = self.strangers.random_range(0..STRANGERS);
            self.network.send_to_monitor(stranger, &datagram);
        } else {
            self.network.send_to_source(source, &datagram);
        }
    }
}

fn observed(now: Time, source: usize, host: &SourceHost, happened: Happened) -> Observation {
    match happened {
        Happened::Learned(event) => {
            let (session, age) = (host.endpoint().session(), host.known_age(now));
            Observation::Learned { source, session, event, age }
        }
        Happened::Commanded(given) => Observation::Commanded { source, given },
        Happened::Withheld => Observation::CommandWithheld { source },
        Happened::Answered { question, answer } => Observation::Answered { question, answer },
    }
}

/// A complete update, or random bytes, which often begin like one of Freshline's messages.
fn forged(rng: &mut Pcg64) -> Vec<u8> {
    if rng.random_bool(WHOLE_UPDATES) {
        return forged_update(rng);
    }
    let mut datagram = vec![0; rng.random_range(0..MAX_FORGED)];
    rng.fill_bytes(&mut datagram);
    let kind = wire::TYPES[rng.random_range(0..wire::TYPES.len())];
    let ours = wire::MAGIC.into_iter().chain([wire::VERSION, kind]);
    for (byte, ours) in datagram.iter_mut().zip(ours) {
        if rng.random_bool(0.9) {
            *byte = ours;
        }
    }
    datagram
}

/// An update that opens a session, with a cookie that no monitor has issued. Random bytes are
/// hardly ever such an update.
fn forged_update(rng: &mut Pcg64) -> Vec<u8> {
    let mut datagram = vec![0; MAX_FORGED];
    let name = "stranger";
    let update = Update {
        session: SessionId(rng.random()),
        seq: rng.random(),
        sent_at: Time::from_nanos(rng.random()),
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening: Some(Opening { cookie: Cookie(rng.random()), name, token: b"" }),
        frames: Frames::fresh(b"state"),
    };
    let len = update.write(&mut datagram).expect("it is short");
    datagram.truncate(len);
    datagram
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use freshline_core::wire::{Message, ParseError};

    use super::*;

    #[test]
    fn some_datagrams_of_strangers_are_messages_of_each_type_and_many_are_not() {
        let rng = &mut Pcg64::new(1, STRANGERS_STREAM);
        let (mut types, mut errors) = (HashSet::new(), Vec::new());
        for datagram in std::iter::repeat_with(|| forged(rng)).take(10_000) {
            match Message::parse(&datagram) {
                Ok(_) => drop(types.insert(datagram[3])),
                Err(error) => errors.push(error),
            }
        }
        assert_eq!(types, wire::TYPES.iter().copied().collect());
        for error in [ParseError::Foreign, ParseError::Truncated] {
            assert!(errors.contains(&error), "{error}");
        }
    }
}
