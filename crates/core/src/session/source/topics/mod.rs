//! The topics of a source: chooses topics for each update, and tracks the state of each at the
//! monitor.
//!
//! ```text
//!   put ─► newest state of the topic ─► pending ─┬─ whole ─► in flight ─► delivered
//!                                          ▲     └─ parts ─► Transfers ─► delivered
//!                                          └───── lost, or the session opens again
//! ```
//!
//! [`schedule`](crate::state::schedule) decides which topic leads the update that is due; small
//! states of other topics join it. The loss of a whole state is detected by the same rules as that
//! of a part ([`AckedParts::loses`]); it is sent again if there is no newer one.
//!
//! Each **key** of a topic with keys is scheduled as a separate topic. Its number on the wire is
//! free again once it is removed and the monitor knows of the removal. There may be thousands of
//! topics and keys, of which few have something to send: each update considers only these, the
//! **active** ones.

mod again;
mod by_key;
mod by_record;
mod declare;
mod keys;
mod records;
mod slot;
mod topic;
mod types;

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::acked_parts::AckedParts;
use crate::age::AgeProcess;
use crate::state::schedule::{Candidate, HEADERS};
use crate::unit::{Span, Time};
use crate::wire::Frame;
use by_record::Share;
use keys::Keys;
use records::Records;
pub(super) use slot::Slot;
pub(super) use topic::Put;
use topic::{Content, Topic};
pub use types::{
    KeyError, KeyView, MAX_STREAMS, MAX_TOPICS, RecordError, RecordsView, TopicCounters,
    TopicError, TopicId, TopicKind, TopicParams,
};

/// One in this many updates asks for an ack: an ack names the 64 updates before its own.
const ACK_EVERY: u32 = 32;

/// The maximum number of states, of thousands of keys, that are tried to join an update: many more
/// than fit.
const JOINING: usize = 512;

/// A topic in the update that is being sent.
#[derive(Debug, Clone, Copy)]
struct Carried {
    topic: usize,
    content: Content,
    bytes: usize,
}

/// The amounts of content in an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    /// Bytes of whole states in it.
    pub(super) whole: usize,
    /// Bytes of states in it, parts included.
    pub(super) bytes: usize,
    /// Whether a part leads it.
    pub(super) is_part: bool,
    /// Whether a whole state is in it.
    pub(super) has_state: bool,
    /// Whether records, or a request for a cursor, are in it.
    pub(super) has_records: bool,
}

/// A state in parts that begins: its symbols, and
/// [`Repair::age_slots`](crate::state::Repair::age_slots).
pub(super) type Begun = (u32, f64);

/// The combined timers and requests of the active topics, computed once per change and read more
/// often.
#[derive(Debug, Default)]
struct Wants {
    /// From when on there is something to send of states and urgent records, and of records.
    ready_at: Option<Time>,
    records_at: Option<Time>,
    has_symbol: bool,
    /// When an update in flight is considered lost.
    timeout: Option<Time>,
}

impl Wants {
    fn add_records(&mut self, records: &Records, passed: u64, patience: Span) {
        self.records_at = Time::earliest([self.records_at, records.ready_at()]);
        // Records of an urgent topic do not wait for states.
        self.ready_at = Time::earliest([self.ready_at, records.hurried_at()]);
        self.timeout = Time::earliest([self.timeout, records.poll_timeout(passed, patience)]);
    }

    fn add(&mut self, topic: &Topic, passed: u64, patience: Span) {
        self.ready_at = Time::earliest([self.ready_at, topic.ready_at()]);
        self.has_symbol |= topic.has_symbol();
        self.timeout = Time::earliest([self.timeout, topic.poll_timeout(passed, patience)]);
    }
}

#[derive(Debug, Default)]
pub(super) struct Topics {
    /// Topics and keys, by their numbers.
    list: Vec<Topic>,
    /// The keys of each topic, by its index.
    keys: Vec<Keys>,
    has_keyed: bool,
    /// The records of each topic of records.
    records: Vec<Records>,
    share: Share,
    /// Numbers of keys that are gone.
    free: BTreeSet<u16>,
    /// The numbers of topics and keys with content to send or in flight, in ascending order.
    active: Vec<u16>,
    wants: Wants,
    /// Whether a topic has a deadline, or is urgent.
    has_deadline: bool,
    has_urgent: bool,
    /// States in parts that newer ones replaced before they were complete.
    abandoned: u64,
    /// The frames of the last update, for copies of it.
    frames: Vec<u8>,
    carried: Vec<Carried>,
    /// Topics with a state that may join, with their scheduling indices.
    joining: Vec<(f64, usize)>,
    /// Whether an update is to be sent even without a state.
    is_empty_wanted: bool,
    /// Updates since the last one that asked for an ack.
    unasked: u32,
    /// The newest acknowledged update, and how long after its sending an earlier one is considered
    /// lost.
    passed: u64,
    patience: Span,
}

impl Topics {
    // ---- inputs ----

    /// This state is the newest of a topic or a key, by its number.
    pub(super) fn put(
        &mut self,
        number: u16,
        generated_at: Time,
        state: &[u8],
        on_change: bool,
    ) -> Put {
        let topic = &mut self.list[usize::from(number)];
        let was_removed = topic.is_removed();
        let put = topic.put(generated_at, state, on_change);
        if put == Put::New {
            self.on_news(number);
        }
        if was_removed && let Some(keys) = self.keys_of(number) {
            keys.revive();
        }
        put
    }

    /// The number of a topic of one state; `None` if there is no such topic.
    pub(super) fn number(&self, topic: TopicId) -> Option<u16> {
        let is_latest = |params: &&TopicParams| params.kind == TopicKind::Latest;
        self.params(topic).filter(is_latest)?;
        self.number_of(topic)
    }

    /// The driver was asked, and the state that it put was left out.
    pub(super) fn on_unchanged(&mut self, number: u16) {
        self.list[usize::from(number)].counters.unchanged += 1;
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if !self.has_deadline && self.wants.timeout.is_none_or(|at| now < at) {
            return;
        }
        let (passed, patience) = (self.passed, self.patience);
        self.each_active(|topic| topic.handle_timeout(now, passed, patience));
        let records = self.records.iter_mut();
        records.for_each(|records| records.handle_timeout(now, passed, patience));
        self.settle();
    }

    /// No ack has arrived for a long time: updates sent until `before` are considered lost.
    pub(super) fn on_silence(&mut self, now: Time, before: Time) {
        self.each_active(|topic| topic.on_silence(now, before));
        self.records.iter_mut().for_each(|records| records.on_silence(before));
        self.settle();
    }

    pub(super) fn on_opened(&mut self, now: Time) {
        self.list.iter_mut().for_each(|topic| topic.on_opened(now));
        self.on_records_opened();
        for number in 0..self.list.len() {
            if self.list[number].is_unsettled() {
                self.activate(number as u16);
            }
        }
        (self.passed, self.patience) = (0, Span::ZERO);
        self.settle();
    }

    /// This number has something to send.
    fn on_news(&mut self, number: u16) {
        self.activate(number);
        let ready_at = self.list[usize::from(number)].ready_at();
        self.wants.ready_at = Time::earliest([self.wants.ready_at, ready_at]);
        self.wants.has_symbol |= self.list[usize::from(number)].has_symbol();
    }

    fn activate(&mut self, number: u16) {
        let is_active = &mut self.list[usize::from(number)].is_active;
        if !core::mem::replace(is_active, true) {
            let place = self.active.partition_point(|other| *other < number);
            self.active.insert(place, number);
        }
    }

    fn each_active(&mut self, mut what: impl FnMut(&mut Topic)) {
        let Self { list, active, .. } = self;
        active.iter().for_each(|number| what(&mut list[usize::from(*number)]));
    }

    fn active(&self) -> impl Iterator<Item = (usize, &Topic)> {
        let numbers = self.active.iter().map(|number| usize::from(*number));
        numbers.map(|number| (number, &self.list[number]))
    }

    /// Deactivates topics with nothing to send and nothing in flight, and frees the numbers of keys
    /// whose removal the monitor knows.
    fn settle(&mut self) {
        if !self.has_any() {
            return;
        }
        let Self { list, active, wants, abandoned, passed, patience, .. } = self;
        let mut is_any_over = false;
        *wants = Wants::default();
        active.retain(|number| {
            let topic = &mut list[usize::from(*number)];
            *abandoned += topic.take_abandoned();
            is_any_over |= topic.is_over();
            topic.is_active = topic.is_unsettled() || topic.is_over();
            wants.add(topic, *passed, *patience);
            topic.is_active
        });
        self.records.iter().for_each(|records| wants.add_records(records, *passed, *patience));
        if is_any_over {
            let over = self.active().filter(|(_, topic)| topic.is_over());
            let over: Vec<usize> = over.map(|(number, _)| number).collect();
            over.into_iter().for_each(|number| self.vacate(number as u16));
        }
    }

    /// A key is gone: its number is free.
    fn vacate(&mut self, number: u16) {
        let topic = &mut self.list[usize::from(number)];
        let vacant = Topic::new(number, Arc::clone(&topic.params));
        let gone = core::mem::replace(topic, vacant);
        if let Some((keys, key)) = self.keys_named(&gone.params.name).zip(gone.key()) {
            keys.forget(key, &gone.counters);
        }
        self.active.retain(|other| *other != number);
        self.free.insert(number);
    }

    /// The keys of the topic of a key.
    fn keys_of(&mut self, number: u16) -> Option<&mut Keys> {
        let params = Arc::clone(&self.list[usize::from(number)].params);
        self.keys_named(&params.name)
    }

    fn keys_named(&mut self, name: &str) -> Option<&mut Keys> {
        let Self { list, keys, .. } = self;
        keys.iter_mut().find(|keys| list[usize::from(keys.topic())].params.name == name)
    }

    /// The newest ack has arrived; returns the number and the bytes of states in parts that are
    /// complete now.
    pub(super) fn on_ack(&mut self, now: Time, ack: &AckedParts) -> (u64, u64) {
        (self.passed, self.patience) = (ack.seq, ack.patience());
        let (mut states, mut bytes) = (0, 0);
        self.each_active(|topic| {
            if let Some(len) = topic.on_ack(now, ack) {
                (states, bytes) = (states + 1, bytes + len as u64);
            }
        });
        self.on_records_ack(now, ack, false);
        self.settle();
        (states, bytes)
    }

    /// An ack has arrived that does not report on other updates.
    pub(super) fn on_lone_ack(&mut self, now: Time, seq: u64) {
        self.each_active(|topic| topic.on_lone_ack(now, seq));
        self.records.iter_mut().for_each(|records| records.on_lone_ack(now, seq));
        self.settle();
    }

    pub(super) fn on_late_ack(&mut self, now: Time, ack: &AckedParts) {
        self.each_active(|topic| topic.on_late_ack(now, ack));
        self.on_records_ack(now, ack, true);
        self.settle();
    }

    /// Requests an update even without a state.
    pub(super) fn want_empty(&mut self) {
        self.is_empty_wanted = self.has_any();
    }

    // ---- sending ----

    /// Nothing is chosen.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.carried.clear();
        self.clear_records();
    }

    /// Chooses the content of the update that is due, and writes it to [`Topics::frames`]; returns
    /// whether there is any. A state in parts that begins is reported to `begins`.
    pub(super) fn choose(
        &mut self,
        slot: &Slot,
        is_empty_wanted: bool,
        begins: impl FnMut(Begun),
    ) -> bool {
        self.clear();
        if self.has_deadline {
            self.each_active(|topic| topic.expire(slot.now));
        }
        if !self.lead_by_records(slot) {
            self.choose_states(slot, begins);
            if self.carried.is_empty() {
                self.settle();
            } else {
                self.join_records(slot);
            }
        }
        let has_any = !self.carried.is_empty() || self.has_records();
        if (!has_any && !is_empty_wanted) || self.asks_for_parts() {
            return has_any;
        }
        // Its ack reports which earlier updates have arrived.
        let room = slot.room.saturating_sub(self.frames.len());
        let unresolved = self.active().find(|(_, topic)| topic.is_unresolved());
        let unresolved = unresolved.filter(|_| room > Frame::MAX_OVERHEAD).map(|(place, _)| place);
        if !self.ask_of_records(slot)
            && let Some(place) = unresolved
        {
            self.list[place].write_again(slot, &mut self.frames);
        }
        !self.frames.is_empty()
    }

    /// Whether the ack of the chosen update reports which others have arrived.
    fn asks_for_parts(&self) -> bool {
        let is_plain = |it: &Carried| it.topic == 0 && matches!(it.content, Content::Whole);
        let has_name = self.list.first().is_some_and(|first| !first.is_named());
        self.has_records() || self.carried.iter().any(|it| !is_plain(it) || has_name)
    }

    fn choose_states(&mut self, slot: &Slot, mut begins: impl FnMut(Begun)) {
        // A topic that turns out to have no symbol left does not lead a second time.
        for _ in 0..=self.active.len() {
            let Some((leader, index)) = self.leader(slot) else { return };
            let Some((content, begun)) = self.list[leader].lead(slot) else { continue };
            if let Some(begun) = begun {
                begins(begun);
            }
            self.carry(slot, leader, content);
            self.keep_joining(slot, self.list[leader].is_unbounded(slot, content));
            self.join(slot, leader, if slot.are_bytes_scarce { index } else { 0.0 });
            return;
        }
    }

    /// The leading topic, and its scheduling index with the headers. Topics that may join are in
    /// `joining` then.
    fn leader(&mut self, slot: &Slot) -> Option<(usize, f64)> {
        let Self { list, active, joining, .. } = self;
        joining.clear();
        let all = active.iter().filter_map(|number| {
            let place = usize::from(*number);
            let topic = &list[place];
            let candidate = topic.candidate(slot)?;
            if topic.can_join(slot) {
                joining.push((candidate.index(), place));
            }
            let with_headers = Candidate { bytes: candidate.bytes + HEADERS, ..candidate }.index();
            Some((topic.rank(slot.now), with_headers, place))
        });
        let first = all.reduce(|best, other| {
            let is_better = (other.0, other.1) > (best.0, best.1);
            if is_better { other } else { best }
        });
        first.map(|(_, index, place)| (place, index))
    }

    /// All states of an update share the bound of its clock offset: only states with a bound join,
    /// or only states without.
    fn keep_joining(&mut self, slot: &Slot, are_unbounded: bool) {
        let Self { list, joining, .. } = self;
        joining
            .retain(|(_, place)| list[*place].is_unbounded(slot, Content::Whole) == are_unbounded);
    }

    /// Small states of other topics whose index is at least `least` join, the greatest first.
    fn join(&mut self, slot: &Slot, leader: usize, least: f64) {
        self.joining.retain(|(index, place)| *place != leader && *index >= least);
        let greater_first = |one: &(f64, usize), other: &(f64, usize)| other.0.total_cmp(&one.0);
        if self.joining.len() > JOINING {
            self.joining.select_nth_unstable_by(JOINING, greater_first);
            self.joining.truncate(JOINING);
        }
        self.joining.sort_unstable_by(greater_first);
        for at in 0..self.joining.len() {
            let (_, place) = self.joining[at];
            if self.frames.len() + self.list[place].frame_len(slot) <= slot.room {
                self.carry(slot, place, Content::Whole);
            }
        }
    }

    fn carry(&mut self, slot: &Slot, topic: usize, content: Content) {
        let bytes = self.list[topic].write(slot, content, &mut self.frames);
        self.carried.push(Carried { topic, content, bytes });
    }

    /// The amounts of content in the chosen update.
    pub(super) fn load(&self) -> Load {
        let bytes = self.records_len();
        let has_records = self.has_records();
        let mut load = Load { whole: 0, bytes, is_part: false, has_state: false, has_records };
        for Carried { content, bytes, .. } in &self.carried {
            load.bytes += bytes;
            match content {
                Content::Whole => (load.whole, load.has_state) = (load.whole + bytes, true),
                Content::Part(_) => load.is_part = true,
                Content::Again => {}
            }
        }
        load
    }

    /// The chosen update was sent; `wants_ack` if it asks for an ack. Returns how many of its parts
    /// repeat a symbol or are for repair.
    pub(super) fn on_sent(&mut self, now: Time, seq: u64, wants_ack: bool) -> u64 {
        self.is_empty_wanted = false;
        self.unasked = if wants_ack { 0 } else { self.unasked + 1 };
        let list = &mut self.list;
        let repair = self.carried.iter().filter(|Carried { topic, content, bytes }| {
            list[*topic].on_sent(now, seq, *content, *bytes)
        });
        let repair = repair.count() as u64;
        self.on_records_sent(now, seq);
        self.settle();
        repair
    }

    // ---- timers and requests ----

    /// From when on there is a state, or an urgent record, to send.
    pub(super) fn ready_at(&self) -> Option<Time> {
        self.wants.ready_at
    }

    /// From when on there is something to send of a topic or a key, by its number.
    pub(super) fn ready_at_of(&self, number: u16) -> Option<Time> {
        self.list[usize::from(number)].ready_at()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.wants.timeout
    }

    /// From when on a state that fits into one update is to be sent ahead of the law's pace.
    pub(super) fn hurried_at(&self, max_whole: usize) -> Option<Time> {
        let urgent = || {
            let states = self.active().filter_map(|(_, topic)| topic.hurried_at(max_whole));
            let records = self.records.iter().filter(|_| self.may_hurry());
            states.chain(records.filter_map(Records::hurried_at)).min()
        };
        self.has_urgent.then(urgent).flatten()
    }

    /// Whether the update that is sent now must ask for an ack.
    pub(super) fn wants_ack(&self) -> bool {
        let is_asked = self.is_urgent() || self.asks_for_cursor();
        self.has_any() && (self.unasked + 1 >= ACK_EVERY || is_asked)
    }

    /// Whether the chosen update carries an urgent state, or a part of one.
    pub(super) fn is_urgent(&self) -> bool {
        let is_urgent = |carried: &Carried| self.list[carried.topic].params.is_urgent;
        self.carried.iter().any(is_urgent) || self.has_urgent_records()
    }

    // ---- getters ----

    /// Whether the source has topics.
    pub(super) fn has_any(&self) -> bool {
        !self.list.is_empty()
    }

    /// Whether one of the topics has keys.
    pub(super) fn have_keys(&self) -> bool {
        self.has_keyed
    }

    /// Whether an update is to be sent even without a state.
    pub(super) fn is_empty_wanted(&self) -> bool {
        self.is_empty_wanted
    }

    /// Whether a topic has ever had a state, or holds records.
    pub(super) fn has_state(&self) -> bool {
        self.list.iter().any(Topic::has_state) || !self.records.iter().all(Records::is_empty)
    }

    /// Whether a symbol of a state in parts is to be sent.
    pub(super) fn has_symbol(&self) -> bool {
        self.wants.has_symbol
    }

    /// Whether the monitor is known to have the newest state of each, and the application there all
    /// records.
    pub(super) fn are_delivered(&self) -> bool {
        self.list.iter().all(Topic::is_delivered) && self.records.iter().all(Records::is_empty)
    }

    /// The frames of the chosen update.
    pub(super) fn frames(&self) -> &[u8] {
        &self.frames
    }

    /// States in parts that newer ones replaced before they were complete.
    pub(super) fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// How many topics there are.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn params(&self, topic: TopicId) -> Option<&TopicParams> {
        self.topic(topic).map(|topic| &*topic.params)
    }

    pub(super) fn age(&self, topic: TopicId) -> Option<&AgeProcess> {
        self.topic(topic).map(|topic| &topic.age)
    }

    /// The counters of a topic, or of all its keys.
    pub(super) fn counters(&self, topic: TopicId) -> Option<TopicCounters> {
        let mut counters = self.topic(topic)?.counters;
        let keys = &self.keys[topic.index()];
        counters.add(&keys.past);
        keys.numbers().for_each(|key| counters.add(&self.list[usize::from(key)].counters));
        Some(counters)
    }

    /// The keys of a topic that are not removed, in the order of their bytes.
    pub(super) fn keys(&self, topic: TopicId) -> impl Iterator<Item = KeyView<'_>> {
        let keys = self.keys.get(topic.index()).into_iter().flat_map(Keys::numbers);
        let keys = keys.map(|number| &self.list[usize::from(number)]);
        keys.filter(|topic| !topic.is_removed()).filter_map(|topic| {
            Some(KeyView { key: topic.key()?, age: &topic.age, counters: &topic.counters })
        })
    }

    fn topic(&self, topic: TopicId) -> Option<&Topic> {
        self.list.get(usize::from(self.number_of(topic)?))
    }

    /// The number of a topic; `None` if there is no such topic.
    fn number_of(&self, topic: TopicId) -> Option<u16> {
        self.keys.get(topic.index()).map(Keys::topic)
    }
}
