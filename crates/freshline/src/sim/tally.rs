//! Measures true ages and delays at the receiving hosts of a simulation.
//!
//! All hosts of a simulation have one clock, which the sessions do not know, so the age of a state
//! is exact here: the current time minus its generation time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshline_core::age::{AgeMeter, AgeSummary, Freshness};
use freshline_core::session::{SourceKey, TakenRecord, TopicRecord};
use freshline_core::unit::{Span, Time};
use freshline_net::monitor::{Both, Record, Watch};

use crate::state::full_name;
use crate::store::Store;
use crate::topic::Topic;

/// The measured quantity, and where: at the monitor, or at a source that receives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Which {
    /// The name of the source; empty for the monitor.
    pub(super) at: Box<str>,
    /// `source/topic`.
    pub(super) name: Box<str>,
    /// Of a topic with keys: one of them, or `None` for all together.
    pub(super) key: Option<Box<[u8]>>,
}

impl Which {
    /// A topic at the monitor.
    pub(super) fn topic(name: &str) -> Self {
        Self { at: "".into(), name: name.into(), key: None }
    }
}

/// The measurements of a topic, or of a key.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    age: Box<AgeMeter>,
    /// From the generation of each fresh state, or each record, to its arrival.
    delays: Vec<Span>,
}

impl Measured {
    /// From `start` on it counts as old as it is.
    fn starting_at(start: Time) -> Self {
        Self { age: Box::new(AgeMeter::starting_at(start)), delays: Vec::new() }
    }

    fn on_state(&mut self, now: Time, generated_at: Time) {
        if self.age.on_update(now, generated_at) == Freshness::Fresh {
            self.delays.push(now.since(generated_at));
        }
    }

    pub(super) fn age(&self, now: Time) -> Option<AgeSummary> {
        self.age.summary(now)
    }

    pub(super) fn delays(&self) -> &[Span] {
        &self.delays
    }
}

/// A topic of a source that has a handle.
struct Registered {
    which: Which,
    topic: Topic,
}

#[derive(Default)]
struct Inner {
    measured: BTreeMap<Which, Measured>,
    /// Topics without a state so far.
    silent: Vec<Registered>,
    measured_from: Time,
}

/// The measurements of a simulation.
#[derive(Clone, Default)]
pub(super) struct Tally(Arc<Mutex<Inner>>);

impl Tally {
    /// The topic is measured from its first state on, whether that arrives or not.
    pub(super) fn register(&self, name: &str, topic: Topic) {
        self.lock().silent.push(Registered { which: Which::topic(name), topic });
    }

    /// Applications may have given first states, now.
    pub(super) fn notice_states(&self, now: Time) {
        let mut inner = self.lock();
        let Inner { measured, silent, .. } = &mut *inner;
        for begun in silent.extract_if(.., |it| it.topic.has_state()) {
            measured.entry(begun.which).or_insert_with(|| Measured::starting_at(now));
        }
    }

    /// Discards measurements before `now`.
    pub(super) fn measure_from(&self, now: Time) {
        let mut inner = self.lock();
        for measured in inner.measured.values_mut() {
            measured.age.measure_from(now);
            measured.delays.clear();
        }
        inner.measured_from = now;
    }

    /// All measurements, and the time since which they are; topics without a state are as old as
    /// that.
    pub(super) fn snapshot(&self) -> (BTreeMap<Which, Measured>, Time) {
        let inner = self.lock();
        let mut measured = inner.measured.clone();
        let from = inner.measured_from;
        for silent in &inner.silent {
            measured.entry(silent.which.clone()).or_insert_with(|| Measured::starting_at(from));
        }
        (measured, from)
    }

    fn on_state(&self, now: Time, which: Which, generated_at: Time) {
        let mut inner = self.lock();
        if which.key.is_some() {
            let all = Which { key: None, ..which.clone() };
            inner.measured.entry(all).or_default().on_state(now, generated_at);
        }
        inner.measured.entry(which).or_default().on_state(now, generated_at);
    }

    fn on_record(&self, now: Time, which: Which, generated_at: Time) {
        let mut inner = self.lock();
        let measured = inner.measured.entry(which).or_default();
        measured.age.on_update(now, generated_at);
        measured.delays.push(now.since(generated_at));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store, and the measurement alongside.
pub(super) type MeasuredStore = Both<Box<Store>, Box<Measuring>>;

/// Measures the ages and delays of arrivals.
pub(super) struct Measuring {
    tally: Tally,
    /// See [`Which::at`].
    at: Box<str>,
}

impl Measuring {
    /// This store, and the measurement alongside.
    pub(super) fn with(store: Store, tally: Tally, at: &str) -> MeasuredStore {
        Both { first: Box::new(store), other: Box::new(Self { tally, at: at.into() }) }
    }

    fn which(&self, record: &Record, topic: &str, key: Option<&[u8]>) -> Which {
        let name = full_name(&Store::source(record), topic).into();
        Which { at: self.at.clone(), name, key: key.map(Into::into) }
    }

    fn measure(&self, now: Time, record: &Record) {
        if record.payload().is_some() {
            let topic = record.topic(0).map(TopicRecord::name).unwrap_or_default();
            let which = self.which(record, topic, None);
            self.tally.on_state(now, which, record.generated_at);
        }
    }

    fn measure_topic(&self, now: Time, record: &Record, topic: &TopicRecord) {
        if topic.payload().is_some() {
            let which = self.which(record, topic.name(), topic.key());
            self.tally.on_state(now, which, topic.generated_at());
        }
    }
}

impl Watch for Measuring {
    fn fresh(&mut self, now: Time, _: SourceKey, record: &Record) {
        self.measure(now, record);
    }

    fn fresh_topic(&mut self, now: Time, _: SourceKey, record: &Record, topic: &TopicRecord) {
        self.measure_topic(now, record, topic);
    }

    fn see_record(
        &mut self,
        now: Time,
        _: SourceKey,
        record: &Record,
        topic: &str,
        taken: &TakenRecord,
    ) {
        self.tally.on_record(now, self.which(record, topic, None), taken.generated_at);
    }

    fn aged(&mut self, now: Time, _: SourceKey, record: &Record) {
        self.measure(now, record);
    }

    fn aged_topic(&mut self, now: Time, _: SourceKey, record: &Record, topic: &TopicRecord) {
        self.measure_topic(now, record, topic);
    }
}

#[cfg(test)]
mod tests {
    use freshline_core::session::TopicKind;

    use super::*;
    use crate::clock::Clock;
    use crate::topic::Limits;

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    #[test]
    fn the_age_of_a_topic_counts_from_its_first_state_on() {
        let limits = Limits { max_state: 9, clock: Clock::real() };
        let topic = Topic::new("pose", &TopicKind::Latest, false, limits);
        let tally = Tally::default();
        tally.measure_from(at(1));
        tally.register("robot/pose", topic.clone());
        tally.notice_states(at(5));
        let which = Which::topic("robot/pose");
        let max = |now| tally.snapshot().0[&which].age(now).map(|age| age.max);
        assert_eq!(max(at(6)), Some(Span::from_secs(5)), "without a state: since the start");
        topic.put("x=1").expect("it is short");
        tally.notice_states(at(7));
        assert_eq!(max(at(10)), Some(Span::from_secs(3)));
        tally.on_state(at(10), which.clone(), at(9));
        tally.on_state(at(10), which.clone(), at(8));
        let (measured, from) = tally.snapshot();
        assert_eq!((measured[&which].delays(), from), (&[Span::from_secs(1)][..], at(1)));
        tally.measure_from(at(10));
        assert_eq!(max(at(12)), Some(Span::from_secs(3)), "the age goes on");
        assert!(tally.snapshot().0[&which].delays().is_empty());
    }

    #[test]
    fn a_topic_with_keys_is_as_old_as_the_key_that_changed_last() {
        let tally = Tally::default();
        for (now, key) in [(10, "a"), (20, "b")] {
            let key = Some(key.as_bytes().into());
            tally.on_state(at(now), Which { key, ..Which::topic("robot/doors") }, at(now));
        }
        let (measured, _) = tally.snapshot();
        assert_eq!(measured.len(), 3);
        let age = measured[&Which::topic("robot/doors")].age(at(25)).expect("it is known");
        assert_eq!((age.max, age.fresh), (Span::from_secs(10), 2));
    }
}
