//! Sources, their paths and a monitor in virtual time.
//!
//! Each host and each path draws from a random stream of its own. The hosts read their clocks, the
//! world alone knows the time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use freshline_core::link::Direction;
use freshline_core::session::SourceEvent;
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{self, Cookie, Frames, Opening, SessionId, Update};
use rand::{Rng, RngExt};
use rand_pcg::Pcg64;

use super::ledger::Ledger;
use super::monitor_host::{Address, MonitorHost};
use super::observation::Observation;
use super::path::Path;
use super::plan::{Plan, What};
use super::sabotage::Sabotage;
use super::source_host::{Leaving, SourceHost};

/// The hosts from which strangers send.
const STRANGERS: std::ops::Range<usize> = 1_000..1_100;

/// Datagrams of strangers are shorter, in bytes.
const MAX_FORGED: usize = 150;

/// How many of them are whole updates.
const WHOLE_UPDATES: f64 = 0.2;

/// The random streams of a seed; stream 0 draws the plan. Second paths have their own from twice the
/// number of the first ones on.
const STRANGERS_STREAM: u128 = 1;
const MONITOR_STREAM: u128 = 2;
const SOURCE_STREAMS: u128 = 1_000;
const PATH_STREAMS: u128 = 2_000;

pub(super) struct World {
    pub(super) now: Time,
    pub(super) sources: Vec<SourceHost>,
    pub(super) monitor: MonitorHost,
    pub(super) ledger: Ledger,
    /// Of each source.
    paths: Vec<Vec<Path>>,
    sabotage: Box<dyn Sabotage>,
    strangers: Pcg64,
    events: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    seen: Vec<Observation>,
}

enum Event {
    ToMonitor { from: Address, datagram: Vec<u8> },
    ToSource { to: Address, datagram: Vec<u8> },
    Incident(What),
}

/// An event with its place in the order: by time, then by number.
struct Scheduled {
    at: Time,
    number: u64,
    event: Event,
}

impl World {
    pub(super) fn new(plan: &Plan, sabotage: Box<dyn Sabotage>) -> Self {
        let stream = |number| Pcg64::new(plan.seed.into(), number);
        let each = || (0..).zip(&plan.sources);
        let mut world = Self {
            now: Time::ZERO,
            sources: each()
                .map(|(i, source)| SourceHost::new(source.clone(), stream(SOURCE_STREAMS + i)))
                .collect(),
            monitor: MonitorHost::new(plan.monitor.clone(), stream(MONITOR_STREAM)),
            ledger: Ledger::default(),
            paths: each()
                .map(|(i, source)| {
                    let delays = (0..).zip(&source.delays);
                    let number = |path: u128| PATH_STREAMS * (path + 1) + i;
                    delays
                        .map(|(p, delay)| Path::new(*delay, plan.damaged, stream(number(p))))
                        .collect()
                })
                .collect(),
            sabotage,
            strangers: stream(STRANGERS_STREAM),
            events: BinaryHeap::new(),
            scheduled: 0,
            seen: Vec::new(),
        };
        for incident in &plan.incidents {
            world.schedule(Time::ZERO + incident.at, Event::Incident(incident.what));
        }
        world
    }

    /// When the next step is due; [`Time::MAX`] if never.
    pub(super) fn poll_timeout(&self) -> Time {
        let next = self
            .sources
            .iter()
            .map(SourceHost::poll_timeout)
            .chain([self.monitor_timer(), self.events.peek().map(|Reverse(next)| next.at)])
            .flatten()
            .min()
            .unwrap_or(Time::MAX);
        self.sabotage.next_step_at(self.now, next).max(self.now)
    }

    /// Lets everything happen that is due at `now`, which is [`World::poll_timeout`]; gives what
    /// could be seen of it.
    pub(super) fn step(&mut self, now: Time) -> Vec<Observation> {
        self.now = now;
        while self.events.peek().is_some_and(|Reverse(next)| next.at <= now) {
            let Some(Reverse(next)) = self.events.pop() else { break };
            self.happen(next.event);
        }
        if self.monitor_timer().is_some_and(|at| at <= now) {
            self.monitor.handle_timeout(now);
        }
        for source in 0..self.sources.len() {
            if self.sources[source].poll_timeout().is_none_or(|at| at > now) {
                continue;
            }
            self.send_update(source);
        }
        let mut seen = std::mem::take(&mut self.seen);
        seen.iter_mut().for_each(|observation| self.sabotage.rewrite(observation));
        seen
    }

    fn monitor_timer(&self) -> Option<Time> {
        self.monitor.poll_timeout().filter(|_| !self.sabotage.stops_monitor_timer())
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse(Scheduled { at, number: self.scheduled, event }));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToMonitor { from, datagram } => self.reach_monitor(from, &datagram),
            Event::ToSource { to, datagram } => self.reach_source(to, &datagram),
            Event::Incident(what) => self.befall(what),
        }
    }

    fn befall(&mut self, what: What) {
        self.seen.push(Observation::Happened(what));
        match what {
            What::Weather { source, path, weather } => self.paths[source][path].weather = weather,
            What::MonitorDies => self.monitor.die(),
            What::MonitorStarts => self.monitor.start(),
            What::SourceRestarts { source, leave } => {
                if let Some(last_words) = self.sources[source].restart(self.now, leave) {
                    for path in 0..self.paths[source].len() {
                        self.carry_to_monitor(source, path, &last_words);
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
        let left = host.handle_timeout(now, &mut self.ledger, |host, event| {
            let (session, age) = (host.endpoint.session(), host.known_age(now));
            seen.push(Observation::Learned { source, session, event, age });
        });
        let (session, rate) = (host.endpoint.session(), host.endpoint.law().rate());
        self.ledger.sent(session, host.process());
        for Leaving { path, seq, datagram } in left {
            if let Some(seq) = seq {
                self.seen.push(Observation::Sent { source, session, seq, rate });
            }
            self.carry_to_monitor(source, path, &datagram);
        }
    }

    /// By a path whose interface is there; without it, nothing leaves.
    fn carry_to_monitor(&mut self, source: usize, path: usize, datagram: &[u8]) {
        let Some(port) = self.sources[source].port(path) else { return };
        let from = Address { host: source, path, port };
        self.carry(from, Direction::Forward, datagram, |datagram| Event::ToMonitor {
            from,
            datagram,
        });
    }

    fn reach_monitor(&mut self, from: Address, datagram: &[u8]) {
        if self.sabotage.intercepts(datagram) {
            return;
        }
        let seen = &mut self.seen;
        let answer = self.monitor.receive(self.now, from, datagram, |observed| seen.push(observed));
        if !answer.is_empty() && from.host < self.sources.len() {
            self.carry(from, Direction::Reverse, &answer, |datagram| Event::ToSource {
                to: from,
                datagram,
            });
        }
    }

    fn reach_source(&mut self, to: Address, datagram: &[u8]) {
        let host = &mut self.sources[to.host];
        if Some(to.port) != host.port(to.path) || self.sabotage.intercepts(datagram) {
            return;
        }
        if let Some(event) = host.receive(self.now, to.path, datagram) {
            self.learned(to.host, event);
        }
    }

    fn learned(&mut self, source: usize, event: SourceEvent) {
        let host = &self.sources[source];
        let (session, age) = (host.endpoint.session(), host.known_age(self.now));
        self.seen.push(Observation::Learned { source, session, event, age });
    }

    /// From a source, or to it.
    fn carry(
        &mut self,
        source: Address,
        direction: Direction,
        datagram: &[u8],
        event: impl Fn(Vec<u8>) -> Event,
    ) {
        let Address { host, path, .. } = source;
        if self.strangers.random_bool(self.paths[host][path].weather.foreign) {
            self.send_foreign(source);
        }
        let mut arrivals = Vec::new();
        self.paths[host][path].carry(self.now, direction, datagram, |at, datagram| {
            arrivals.push((at, event(datagram)));
        });
        for (at, event) in arrivals {
            self.schedule(at, event);
        }
    }

    /// Something from a stranger, often made to look like ours, to the monitor or to `source`.
    fn send_foreign(&mut self, source: Address) {
        let rng = &mut self.strangers;
        let datagram = forged(rng);
        let event = if rng.random() {
            let from = Address { host: rng.random_range(STRANGERS), path: 0, port: 1 };
            Event::ToMonitor { from, datagram }
        } else {
            Event::ToSource { to: source, datagram }
        };
        let transit = Span::from_millis(1);
        self.schedule(self.now + transit, event);
    }
}

/// A whole update, or random bytes, of which the first ones are often those of a message of ours.
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

/// An update that opens a session, with a cookie that no monitor gave out. Random bytes hardly ever are
/// one.
fn forged_update(rng: &mut Pcg64) -> Vec<u8> {
    let mut datagram = vec![0; MAX_FORGED];
    let name = "stranger";
    let update = Update {
        session: SessionId(rng.random()),
        seq: rng.random(),
        sent_at: Time::from_nanos(rng.random()),
        clock_offset: None,
        wants_ack: true,
        ack_mark: None,
        opening: Some(Opening { cookie: Cookie(rng.random()), name, token: b"" }),
        frames: Frames::fresh(b"state"),
    };
    let len = update.write(&mut datagram).expect("it is short");
    datagram.truncate(len);
    datagram
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Scheduled {}

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
