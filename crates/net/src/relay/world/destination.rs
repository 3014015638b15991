//! A destination with an application that compares received states and records with the ones that
//! were put.

use std::collections::BTreeMap;

use freshline_core::session::{self, MonitorEvent, MonitorParams, SourceKey, StateAge};
use freshline_core::unit::{Span, Time};

use super::hop::{Clock, Direction, Hop};
use crate::monitor::Sender;

/// Ages on the wire and clock readings are rounded.
const ROUNDING: Span = Span::from_micros(10);

/// The name of a source whose updates a test writes itself: its states and records are not tracked.
pub(super) const OTHER: &str = "other";

/// Identifies a state of a source: its topic, and its key if it has one.
pub(super) type Which = (String, Option<Vec<u8>>);

/// A state that was put.
struct Put {
    /// The number of the source's process.
    process: u64,
    which: Which,
    at: Time,
    bytes: Vec<u8>,
}

/// Everything that the sources have put, with the world's times.
#[derive(Default)]
pub(super) struct Truth {
    states: Vec<Put>,
    /// By source, topic and bytes.
    records: BTreeMap<(String, String, Vec<u8>), Time>,
}

impl Truth {
    /// Creates a state of at least this length; its bytes begin with its unique number.
    pub(super) fn put(&mut self, process: u64, which: Which, at: Time, len: usize) -> Vec<u8> {
        let number = self.states.len();
        let mut bytes = format!("{number} ").into_bytes();
        bytes.resize(len.max(bytes.len()), b'a' + (number % 26) as u8);
        self.states.push(Put { process, which, at, bytes: bytes.clone() });
        bytes
    }

    pub(super) fn put_record(&mut self, source: &str, topic: &str, bytes: &[u8], at: Time) {
        self.records.insert((source.into(), topic.into(), bytes.into()), at);
    }

    /// The number of a state that was handed out.
    fn find(&self, which: &Which, bytes: &[u8]) -> usize {
        let number = bytes.split(|byte| *byte == b' ').next().unwrap_or_default();
        let number = String::from_utf8_lossy(number).parse().unwrap_or(usize::MAX);
        let put = self.states.get(number).filter(|put| put.which == *which && put.bytes == bytes);
        assert!(put.is_some(), "{which:?} {} was never put", String::from_utf8_lossy(bytes));
        number
    }
}

/// The records that a destination has received, by the names of source and topic.
pub(in super::super) type Got = BTreeMap<(String, String), Vec<Vec<u8>>>;

pub(in super::super) struct Destination {
    pub(super) number: usize,
    pub(in super::super) clock: Clock,
    pub(in super::super) hop: Hop,
    pub(in super::super) monitor: session::Monitor<Sender>,
    pub(in super::super) got: Got,
    /// The ages of all records in the order of arrival.
    pub(in super::super) ages: Vec<Option<StateAge>>,
    /// The number of the newest state handed out, per process of a source.
    newest: BTreeMap<(u64, Which), usize>,
}

impl Destination {
    pub(super) fn new(number: usize, hop: Hop, monitor: session::Monitor<Sender>) -> Self {
        let (clock, got, newest) = (Clock::default(), Got::new(), BTreeMap::new());
        Self { number, clock, hop, monitor, got, ages: Vec::new(), newest }
    }

    /// Kills and restarts the destination; its application has saved its position.
    pub(super) fn restart(&mut self, params: MonitorParams, secret: session::Secret) {
        let cursors: Vec<_> = self.monitor.cursors().collect();
        self.monitor = session::Monitor::new(params, secret).with_cursors(cursors);
    }

    pub(super) fn turn(&mut self, now: Time, truth: &Truth) {
        let local = self.clock.read(now);
        self.monitor.handle_timeout(local);
        while let Some((sender, datagram)) = self.hop.receive(now, Direction::There) {
            let sender = Sender::of_number(sender);
            let _ = self.monitor.handle_datagram(local, sender, &datagram);
            self.take(now, truth);
        }
        self.take(now, truth);
        let mut answer = Vec::new();
        while let Some(transmit) = self.monitor.poll_transmit(local, &mut answer) {
            let (sender, answer) = (transmit.peer.number(), &answer[..transmit.len]);
            self.hop.send(now, Direction::Back, sender, answer);
        }
    }

    /// The application takes all states and records.
    fn take(&mut self, now: Time, truth: &Truth) {
        while let Some(event) = self.monitor.poll_event() {
            match event {
                MonitorEvent::Fresh { source, .. } => self.look(now, source, 0, truth),
                MonitorEvent::Topic { source, topic }
                | MonitorEvent::TopicAged { source, topic } => {
                    self.look(now, source, topic, truth);
                }
                MonitorEvent::Record { source, topic } => {
                    self.take_records(now, (source, topic), truth);
                }
                _ => {}
            }
        }
    }

    fn take_records(&mut self, now: Time, (source, topic): (SourceKey, u16), truth: &Truth) {
        let local = self.clock.read(now);
        while let Some(taken) = self.monitor.take_record(local, source, topic) {
            let names = (taken.cursor.source.to_string(), taken.cursor.topic.to_string());
            if names.0 != OTHER {
                let key = (names.0.clone(), names.1.clone(), taken.bytes.clone());
                let put = truth.records.get(&key).expect("it was put");
                if let Some(age) = taken.age {
                    self.check_age(now, *put, age);
                }
            }
            self.got.entry(names).or_default().push(taken.bytes);
            self.ages.push(taken.age);
        }
    }

    /// Checks a state that is handed out: it was put, is not older than an earlier state of the
    /// same process, and has the right age.
    fn look(&mut self, now: Time, source: SourceKey, topic: u16, truth: &Truth) {
        let local = self.clock.read(now);
        let record = self.monitor.record(source).expect("it is open");
        let (Some(latest), Some(topic)) =
            (self.monitor.latest(local, source, topic), record.topic(topic))
        else {
            return;
        };
        if *record.name == *OTHER {
            return;
        }
        let which = (topic.name().to_owned(), topic.key().map(<[u8]>::to_vec));
        let number = truth.find(&which, latest.payload);
        let put = &truth.states[number];
        if let Some(age) = latest.age {
            self.check_age(now, put.at, age);
        }
        let newest = self.newest.entry((put.process, which)).or_default();
        assert!(
            number >= *newest,
            "state {number} of {:?} comes after state {newest}, at destination {}",
            put.which,
            self.number,
        );
        *newest = number;
    }

    /// All states of a source that it holds, with their ages.
    pub(super) fn states(
        &self,
        now: Time,
        source: &str,
    ) -> BTreeMap<Which, (Vec<u8>, Option<StateAge>)> {
        let records = self.monitor.records().filter(|(_, record)| *record.name == *source);
        let states = records.flat_map(|(key, record)| {
            record.topics().filter_map(move |topic| {
                let latest = self.monitor.latest(self.clock.read(now), key, topic.number())?;
                let which = (topic.name().to_owned(), topic.key().map(<[u8]>::to_vec));
                Some((which, (latest.payload.to_vec(), latest.age)))
            })
        });
        states.collect()
    }

    /// Checks the ages of all states of a source that it holds.
    pub(super) fn check_ages(&self, now: Time, source: &str, truth: &Truth) {
        for (which, (bytes, age)) in self.states(now, source) {
            if let Some(age) = age {
                self.check_age(now, truth.states[truth.find(&which, &bytes)].at, age);
            }
        }
    }

    /// Checks that an age counts from the generation at the source, within its uncertainty.
    fn check_age(&self, now: Time, put: Time, age: StateAge) {
        let truth = self.clock.read(now).since(self.clock.read(put));
        let is_within =
            age.max() + ROUNDING >= truth && age.estimate <= truth + age.uncertainty + ROUNDING;
        assert!(is_within, "{age:?} of a state aged {truth}, at destination {}", self.number);
    }
}
