//! The newest states that a monitor holds, for its application, and their readers.
//!
//! ```text
//!   network thread ─ Watch ─► store ─┬─► latest: by name
//!                                    ├─► readers: the newest of each topic and key, and records
//!                                    └─► events
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use freshline_core::session::{
    Alarm, Cursor, End, MaxAge, NextRecord, RemovedTopic, SourceKey, StateAge, TakenRecord,
    TopicRecord,
};
use freshline_core::unit::{Span, Time};
use freshline_net::Waker;
use freshline_net::monitor::{Record, RecordRoom, Watch};

use crate::clock::Clock;
use crate::events::Events;
use crate::monitor_event::{MonitorEvent, Why};
use crate::records::Records;
use crate::state::{Generated, Inner, State, Ticket, full_name};
use crate::subscription::{Reader, Subscription};

/// The states of a monitor, or of the return direction of a source, as applications see them.
#[derive(Clone)]
pub(crate) struct Board(Arc<Shared>);

struct Shared {
    clock: Clock,
    held: Mutex<Held>,
    events: Events<MonitorEvent>,
    records: Mutex<Records>,
    /// Wakes the network thread.
    waker: OnceLock<Arc<Waker>>,
}

#[derive(Default)]
struct Held {
    /// By the names of source and topic.
    sources: BTreeMap<Box<str>, BTreeMap<Box<str>, Topic>>,
    readers: Vec<Weak<Reader>>,
    /// A reader was added, or a record is done.
    has_room_again: bool,
    is_closed: bool,
}

#[derive(Default)]
struct Topic {
    newest: Option<State>,
    /// Of a topic with keys.
    keys: BTreeMap<Box<[u8]>, State>,
}

impl Board {
    pub(crate) fn new(clock: Clock) -> Self {
        let events = Events::new(clock.is_real());
        let (held, records, waker) = (Mutex::default(), Mutex::default(), OnceLock::new());
        Self(Arc::new(Shared { clock, held, events, records, waker }))
    }

    /// The store that puts states in.
    pub(crate) fn store(&self, max_ages: Vec<MaxAge>) -> Store {
        Store { board: self.clone(), max_ages, names: HashMap::new(), _closing: None }
    }

    /// The waker of the network thread, for when there is room for records again.
    pub(crate) fn set_waker(&self, waker: Arc<Waker>) {
        // One is set already.
        let _ = self.0.waker.set(waker);
    }

    /// The newest state of a topic, by [`State::name`]; of a topic with keys, the key that changed
    /// last.
    pub(crate) fn latest(&self, name: &str) -> Option<State> {
        let held = self.held();
        held.topic(name)?.newest.clone().filter(State::is_usable)
    }

    /// The newest state of a key.
    pub(crate) fn latest_key(&self, name: &str, key: &[u8]) -> Option<State> {
        let held = self.held();
        held.topic(name)?.keys.get(key).cloned().filter(State::is_usable)
    }

    /// The newest states of all keys, in the order of keys.
    pub(crate) fn keys(&self, name: &str) -> Vec<State> {
        let held = self.held();
        let keys = held.topic(name).into_iter().flat_map(|topic| topic.keys.values());
        keys.filter(|state| state.is_usable()).cloned().collect()
    }

    /// A reader of the topics that match; it begins with the current states.
    pub(crate) fn subscribe(&self, pattern: &str) -> Subscription {
        self.subscribe_as(pattern, false)
    }

    /// The same, as an observer ([`Reader::is_observer`]).
    pub(crate) fn observe(&self, pattern: &str) -> Subscription {
        self.subscribe_as(pattern, true)
    }

    fn subscribe_as(&self, pattern: &str, is_observer: bool) -> Subscription {
        let board = Arc::downgrade(&self.0);
        let on_room = Box::new(move || {
            if let Some(shared) = board.upgrade() {
                Self(shared).look_for_records();
            }
        });
        let reader = Reader::new(pattern, self.0.clock.is_real(), on_room);
        let reader = Arc::new(if is_observer { reader.observing() } else { reader });
        let mut held = self.held();
        for (source, topics) in &held.sources {
            let wanted = |topic: &str| reader.wants(&full_name(source, topic));
            for (_, topic) in topics.iter().filter(|(topic, _)| wanted(topic)) {
                let keys = topic.keys.values();
                let lone = topic.newest.iter().filter(|state| state.key().is_none());
                keys.chain(lone).for_each(|state| reader.put(state.clone()));
            }
        }
        if held.is_closed {
            reader.close();
        }
        held.readers.retain(|reader| reader.strong_count() > 0);
        held.readers.push(Arc::downgrade(&reader));
        drop(held);
        self.look_for_records();
        Subscription(reader)
    }

    /// Checks for room for records that had none.
    fn look_for_records(&self) {
        self.held().has_room_again = true;
        self.wake();
    }

    pub(crate) fn events(&self) -> &Events<MonitorEvent> {
        &self.0.events
    }

    /// Ends the board: no more states follow.
    pub(crate) fn close(&self) {
        let mut held = self.held();
        held.is_closed = true;
        let readers: Vec<_> = held.readers.iter().filter_map(Weak::upgrade).collect();
        drop(held);
        // Not under the lock: they wake tasks, which may ask for states.
        readers.iter().for_each(|reader| reader.close());
        self.0.events.close();
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(waker) = self.0.waker.get() {
            // It fails only at the end.
            let _ = waker.wake();
        }
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Board")
    }
}

impl Held {
    /// The topic of this full name. Both of its parts may contain slashes: if several sources have
    /// such a topic, the result is `None`, as one of them could pass for another.
    fn topic(&self, name: &str) -> Option<&Topic> {
        let splits = name.match_indices('/').map(|(at, _)| (&name[..at], &name[at + 1..]));
        let mut found = splits
            .chain([(name, "")])
            .filter_map(|(source, topic)| self.sources.get(source)?.get(topic));
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    /// The readers of a topic, by its name.
    fn readers_of(&self, name: &str) -> Vec<Arc<Reader>> {
        let readers = self.readers.iter().filter_map(Weak::upgrade);
        readers.filter(|reader| reader.wants(name)).collect()
    }

    /// The readers that take records.
    fn takers_of(&self, name: &str) -> Vec<Arc<Reader>> {
        let mut readers = self.readers_of(name);
        readers.retain(|reader| !reader.is_observer());
        readers
    }

    /// The observers among them.
    fn observers_of(&self, name: &str) -> Vec<Arc<Reader>> {
        let mut readers = self.readers_of(name);
        readers.retain(|reader| reader.is_observer());
        readers
    }
}

/// The network's end of a [`Board`].
pub(crate) struct Store {
    board: Board,
    max_ages: Vec<MaxAge>,
    /// The names of sources as applications see them, with the names of their topics.
    names: HashMap<SourceKey, Box<str>>,
    _closing: Option<Closing>,
}

/// Closes the board when it is dropped.
struct Closing(Board);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// An arrived state.
struct Arrived<'a> {
    topic: &'a str,
    key: Option<&'a [u8]>,
    payload: Option<&'a [u8]>,
    age: Option<StateAge>,
}

impl Store {
    /// The same that closes the board when it is dropped.
    pub(crate) fn closing(self) -> Self {
        let _closing = Some(Closing(self.board.clone()));
        Self { _closing, ..self }
    }

    /// The name of its source, as applications see it.
    pub(crate) fn source(record: &Record) -> Box<str> {
        match &*record.name {
            "" => record.label().to_string().into(),
            name => name.into(),
        }
    }

    fn limit(&self, record: &Record, topic: &str) -> Option<Span> {
        MaxAge::of(&self.max_ages, &record.name, topic)
    }

    /// Passes a state on; with a maximum age, once its age is known.
    fn show(&self, now: Time, record: &Record, arrived: &Arrived<'_>) {
        if let Some(state) = self.state(now, record, arrived) {
            self.put(state);
        }
    }

    /// The state, if it may be passed on.
    fn state(&self, now: Time, record: &Record, arrived: &Arrived<'_>) -> Option<State> {
        let Arrived { topic, key, payload, age } = *arrived;
        let limit = self.limit(record, topic);
        let fresh_until = match (limit, age) {
            (None, _) => None,
            (Some(_), None) => return None,
            (Some(limit), Some(age)) => Some(now + (limit - age.max())),
        };
        Some(State::new(Inner {
            source: Self::source(record),
            topic: topic.into(),
            key: key.map(Into::into),
            payload: payload.map(Into::into),
            seq: record.newest_seq,
            generated: Generated::of(now, age),
            fresh_until,
            clock: self.board.0.clock.clone(),
            ticket: None,
        }))
    }

    fn put(&self, state: State) {
        let mut held = self.board.held();
        let readers = held.readers_of(&state.name());
        let topics = held.sources.entry(state.source().into()).or_default();
        let topic = topics.entry(state.topic().into()).or_default();
        match (state.inner().key.clone(), state.is_removed()) {
            (Some(key), false) => _ = topic.keys.insert(key, state.clone()),
            (Some(key), true) => _ = topic.keys.remove(&key),
            (None, _) => {}
        }
        topic.newest = Some(state.clone()).filter(|state| !state.is_removed());
        drop(held);
        // Not under the lock: they wake tasks, which may ask for states.
        readers.iter().for_each(|reader| reader.put(state.clone()));
    }

    /// Adds the age of a state that was shown before.
    fn show_age(&self, now: Time, record: &Record, arrived: &Arrived<'_>) {
        let Arrived { topic, key, age, .. } = *arrived;
        if self.limit(record, topic).is_some() {
            return self.show(now, record, arrived);
        }
        let held = self.board.held();
        let topics = held.sources.get(&Self::source(record));
        let Some(topic) = topics.and_then(|topics| topics.get(topic)) else { return };
        let state = match key {
            Some(key) => topic.keys.get(key),
            None => topic.newest.as_ref(),
        };
        state.into_iter().for_each(|state| state.inner().generated.learn(now, age));
    }

    /// Removes all states of a source, and reports the removals to observers.
    fn forget(&self, name: &str) {
        let mut held = self.board.held();
        let Some(topics) = held.sources.remove(name) else { return };
        let mut removals = Vec::new();
        for (topic, states) in topics {
            let lone = states.newest.iter().filter(|state| state.key().is_none());
            let gone = states.keys.values().chain(lone).map(|state| self.removal(state));
            let gone: Vec<_> = gone.collect();
            let observers = held.observers_of(&full_name(name, &topic)).into_iter();
            removals.extend(observers.map(|reader| (reader, gone.clone())));
        }
        drop(held);
        // Not under the lock: they wake tasks, which may ask for states.
        for (reader, gone) in removals {
            gone.into_iter().for_each(|state| reader.put(state));
        }
    }

    /// The end of a state.
    fn removal(&self, state: &State) -> State {
        let (inner, clock) = (state.inner(), self.board.0.clock.clone());
        State::new(Inner {
            source: inner.source.clone(),
            topic: inner.topic.clone(),
            key: inner.key.clone(),
            payload: None,
            seq: inner.seq,
            generated: Generated::of(clock.now(), None),
            fresh_until: None,
            clock,
            ticket: None,
        })
    }

    fn arrived<'a>(now: Time, record: &'a Record) -> Arrived<'a> {
        Arrived {
            topic: record.topic(0).map(TopicRecord::name).unwrap_or_default(),
            key: None,
            payload: record.payload(),
            age: record.bounded_age(now),
        }
    }

    fn arrived_of<'a>(now: Time, topic: &'a TopicRecord) -> Arrived<'a> {
        Arrived {
            topic: topic.name(),
            key: topic.key(),
            payload: topic.payload(),
            age: topic.bounded_age(now),
        }
    }
}

impl Watch for Store {
    fn fresh(&mut self, now: Time, _: SourceKey, record: &Record) {
        let arrived = Self::arrived(now, record);
        if arrived.payload.is_some() {
            self.show(now, record, &arrived);
        }
    }

    fn fresh_topic(&mut self, now: Time, _: SourceKey, record: &Record, topic: &TopicRecord) {
        let arrived = Self::arrived_of(now, topic);
        if arrived.payload.is_some() {
            self.show(now, record, &arrived);
        }
    }

    fn removed(&mut self, now: Time, _: SourceKey, record: &Record, removed: &RemovedTopic) {
        let (topic, key) = (&*removed.name, Some(&*removed.key).filter(|key| !key.is_empty()));
        let state = State::new(Inner {
            source: Self::source(record),
            topic: topic.into(),
            key: key.map(Into::into),
            payload: None,
            seq: record.newest_seq,
            generated: Generated::of(now, None),
            fresh_until: None,
            clock: self.board.0.clock.clone(),
            ticket: None,
        });
        self.put(state);
    }

    fn aged(&mut self, now: Time, _: SourceKey, record: &Record) {
        let arrived = Self::arrived(now, record);
        if arrived.payload.is_some() {
            self.show_age(now, record, &arrived);
        }
    }

    fn aged_topic(&mut self, now: Time, _: SourceKey, record: &Record, topic: &TopicRecord) {
        let arrived = Self::arrived_of(now, topic);
        if arrived.payload.is_some() {
            self.show_age(now, record, &arrived);
        }
    }

    fn room_for_record(&self, source: SourceKey, topic: &str, _: &NextRecord) -> RecordRoom {
        let Some(name) = self.names.get(&source) else { return RecordRoom::Full };
        if self.board.records().is_held_up(source, topic) {
            return RecordRoom::Full;
        }
        let readers = self.board.held().takers_of(&full_name(name, topic));
        // Without a reader they stay with their source, until there is one.
        RecordRoom::now_if(
            !readers.is_empty() && readers.iter().all(|reader| reader.has_room_for_record()),
        )
    }

    fn has_room_again(&mut self) -> bool {
        std::mem::take(&mut self.board.held().has_room_again)
    }

    fn record(
        &mut self,
        now: Time,
        source: SourceKey,
        record: &Record,
        topic: &str,
        taken: &TakenRecord,
    ) {
        let (board, cursor) = (self.board.clone(), taken.cursor.clone());
        // First, so that a later subscriber gets the unread records.
        let name = full_name(&Self::source(record), topic);
        let readers = self.board.held().takers_of(&name);
        self.see_record(now, source, record, topic, taken);
        let mut records = self.board.records();
        if records.is_held_up(source, topic) {
            // A reader has left since the room was asked for; this record is delivered again with
            // the unread ones, in the next turn.
            drop(records);
            return self.board.look_for_records();
        }
        let id = records.give(source, &cursor);
        drop(records);
        let ticket = Ticket::new(move |was_read| {
            board.records().end(&cursor, id, was_read);
            board.look_for_records();
        });
        let state = State::new(Inner {
            source: Self::source(record),
            topic: topic.into(),
            key: None,
            payload: Some(taken.bytes.as_slice().into()),
            seq: record.newest_seq,
            generated: Generated::of(now, taken.age),
            fresh_until: None,
            clock: self.board.0.clock.clone(),
            ticket: Some(ticket),
        });
        readers.iter().for_each(|reader| reader.put(state.clone()));
    }

    fn see_record(
        &mut self,
        now: Time,
        _: SourceKey,
        record: &Record,
        topic: &str,
        taken: &TakenRecord,
    ) {
        let name = full_name(&Self::source(record), topic);
        let observers = self.board.held().observers_of(&name);
        let payload = Some(taken.bytes.as_slice());
        let arrived = Arrived { topic, key: None, payload, age: taken.age };
        if let Some(state) = self.state(now, record, &arrived).filter(|_| !observers.is_empty()) {
            observers.iter().for_each(|reader| reader.put(state.clone()));
        }
    }

    fn poll_record_done(&mut self) -> Option<(SourceKey, Cursor)> {
        self.board.records().poll_done()
    }

    fn poll_records_dropped(&mut self) -> Option<Cursor> {
        self.board.records().poll_dropped()
    }

    fn stale(&mut self, _: Time, alarm: &Alarm) {
        self.board.events().put(MonitorEvent::of(alarm));
    }

    fn recovered(&mut self, _: Time, alarm: &Alarm) {
        self.board.events().put(MonitorEvent::of(alarm));
    }

    fn opened(&mut self, _: Time, source: SourceKey, record: &Record) {
        let name = Self::source(record);
        self.board.events().put(MonitorEvent::Opened { source: name.clone() });
        // Removes states of an earlier session with this name.
        self.forget(&name);
        self.names.insert(source, name);
        // Records may have been refused while its name was unknown.
        self.board.held().has_room_again = true;
    }

    fn gone(&mut self, _: Time, source: SourceKey, why: End) {
        let Some(name) = self.names.remove(&source) else { return };
        // A newer session of the name may be open already.
        if !self.names.values().any(|other| *other == name) {
            self.forget(&name);
        }
        self.board.events().put(MonitorEvent::Gone { source: name, why: Why::of(why) });
    }
}
