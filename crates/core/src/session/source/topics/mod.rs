//! The topics of a source: which of them an update carries, and what the monitor has of each.
//!
//! ```text
//!   put ─► newest state of the topic ─► pending ─┬─ whole ─► in flight ─► delivered
//!                                          ▲     └─ parts ─► Transfers ─► delivered
//!                                          └───── lost, or the session opens again
//! ```
//!
//! Which topic leads the update that is due is the decision of [`schedule`](crate::state::schedule); small states of others join
//! it. A whole state is lost by the same rules as a part ([`AckedParts::loses`]), and leaves again if there
//! is no newer one.

mod topic;
mod types;

use alloc::vec::Vec;

use super::transfers::AckedParts;
use crate::age::AgeProcess;
use crate::state::schedule::{Candidate, HEADERS};
use crate::unit::{Span, Time};
use crate::wire::Frame;
use topic::{Content, Topic};
pub(super) use topic::{Put, Slot};
pub use types::{MAX_TOPICS, TopicCounters, TopicError, TopicId, TopicParams};

/// An update in this number asks for an ack: acks name 64 updates before their own.
const ACK_EVERY: u32 = 32;

/// A topic in the update that leaves.
#[derive(Debug, Clone, Copy)]
struct Carried {
    topic: usize,
    content: Content,
    bytes: usize,
}

/// What an update carries, to those who count it.
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
}

/// A state in parts that begins: its symbols, and [`Repair::age_slots`](crate::state::Repair::age_slots).
pub(super) type Begun = (u32, f64);

#[derive(Debug, Default)]
pub(super) struct Topics {
    list: Vec<Topic>,
    /// The frames of the last update, for copies of it.
    frames: Vec<u8>,
    carried: Vec<Carried>,
    /// Those that may join, by their indices.
    joining: Vec<(f64, usize)>,
    /// Whether an update is to leave even if there is no state for it.
    is_empty_wanted: bool,
    /// Updates since one has asked for an ack.
    unasked: u32,
    /// The newest acknowledged update, and how long after its sending one before it is lost.
    passed: u64,
    patience: Span,
}

impl Topics {
    pub(super) fn new(list: Vec<TopicParams>) -> Result<Self, TopicError> {
        if list.len() > MAX_TOPICS {
            return Err(TopicError::TooMany(list.len()));
        }
        for (place, params) in list.iter().enumerate() {
            params.check()?;
            if list[..place].iter().any(|other| other.name == params.name) {
                return Err(TopicError::Twice(params.name.clone()));
            }
        }
        let list = list.into_iter().enumerate();
        let list = list.map(|(number, params)| Topic::new(number as u8, params)).collect();
        Ok(Self { list, ..Self::default() })
    }

    // ---- inputs ----

    /// This state is the newest of a topic; `None` if there is no such topic.
    pub(super) fn put(
        &mut self,
        topic: TopicId,
        generated_at: Time,
        state: &[u8],
        on_change: bool,
    ) -> Option<Put> {
        Some(self.list.get_mut(topic.index())?.put(generated_at, state, on_change))
    }

    /// The driver was asked, and the state that it has put was left out.
    pub(super) fn on_unchanged(&mut self, topic: TopicId) {
        if let Some(topic) = self.list.get_mut(topic.index()) {
            topic.counters.unchanged += 1;
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        let (passed, patience) = (self.passed, self.patience);
        self.list.iter_mut().for_each(|topic| topic.handle_timeout(now, passed, patience));
    }

    /// No ack has come for so long that what left until `before` is taken for lost.
    pub(super) fn on_silence(&mut self, now: Time, before: Time) {
        self.list.iter_mut().for_each(|topic| topic.on_silence(now, before));
    }

    pub(super) fn on_opened(&mut self, now: Time) {
        self.list.iter_mut().for_each(|topic| topic.on_opened(now));
        (self.passed, self.patience) = (0, Span::ZERO);
    }

    /// The newest ack has come; gives the number and the bytes of states in parts that are complete now.
    pub(super) fn on_ack(&mut self, now: Time, ack: &AckedParts) -> (u64, u64) {
        (self.passed, self.patience) = (ack.seq, ack.patience());
        let completed = self.list.iter_mut().filter_map(|topic| topic.on_ack(now, ack));
        completed.fold((0, 0), |(states, bytes), len| (states + 1, bytes + len as u64))
    }

    /// An ack has come that says nothing of other updates.
    pub(super) fn on_lone_ack(&mut self, now: Time, seq: u64) {
        self.list.iter_mut().for_each(|topic| topic.on_lone_ack(now, seq));
    }

    pub(super) fn on_late_ack(&mut self, now: Time, ack: &AckedParts) {
        self.list.iter_mut().for_each(|topic| topic.on_late_ack(now, ack));
    }

    /// An update is to leave even if there is no state for it.
    pub(super) fn want_empty(&mut self) {
        self.is_empty_wanted = self.has_any();
    }

    // ---- sending ----

    /// Nothing is chosen.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.carried.clear();
    }

    /// Chooses what the update carries that is due, and writes it to [`Topics::frames`]; whether there is
    /// something. A state in parts that begins is reported to `begins`.
    pub(super) fn choose(
        &mut self,
        slot: &Slot,
        is_empty_wanted: bool,
        begins: impl FnMut(Begun),
    ) -> bool {
        self.clear();
        self.list.iter_mut().for_each(|topic| topic.expire(slot.now));
        self.choose_states(slot, begins);
        if (self.carried.is_empty() && !is_empty_wanted) || self.asks_for_parts() {
            return !self.carried.is_empty();
        }
        // Its ack tells which earlier updates have arrived.
        let room = slot.room.saturating_sub(self.frames.len());
        let unresolved = self.list.iter().find(|topic| topic.is_unresolved());
        if let Some(topic) = unresolved.filter(|_| room >= Frame::MAX_OVERHEAD) {
            topic.write_again(slot, &mut self.frames);
        }
        !self.frames.is_empty()
    }

    /// Whether the ack of the chosen update tells which others have arrived.
    fn asks_for_parts(&self) -> bool {
        let is_plain = |it: &Carried| it.topic == 0 && matches!(it.content, Content::Whole);
        let has_name = self.list.first().is_some_and(|first| !first.is_named());
        self.carried.iter().any(|it| !is_plain(it) || has_name)
    }

    fn choose_states(&mut self, slot: &Slot, mut begins: impl FnMut(Begun)) {
        // One that turns out to have no symbol left does not lead a second time.
        for _ in 0..=self.list.len() {
            let Some((leader, index)) = self.leader(slot) else { return };
            let Some((content, begun)) = self.list[leader].lead(slot) else { continue };
            if let Some(begun) = begun {
                begins(begun);
            }
            self.carry(slot, leader, content);
            self.join(slot, leader, if slot.are_bytes_scarce { index } else { 0.0 });
            return;
        }
    }

    /// The topic that leads, and its index with the headers.
    fn leader(&self, slot: &Slot) -> Option<(usize, f64)> {
        let with_headers = |topic: &Topic| {
            let candidate = topic.candidate(slot)?;
            Some(Candidate { bytes: candidate.bytes + HEADERS, ..candidate }.index())
        };
        let all =
            self.list.iter().enumerate().filter_map(|(place, topic)| {
                Some((topic.rank(slot.now), with_headers(topic)?, place))
            });
        let first = all.reduce(|best, other| {
            let is_better = (other.0, other.1) > (best.0, best.1);
            if is_better { other } else { best }
        });
        first.map(|(_, index, place)| (place, index))
    }

    /// Small states of other topics whose index is at least this one join, the greatest first.
    fn join(&mut self, slot: &Slot, leader: usize, least: f64) {
        self.joining.clear();
        for (place, topic) in self.list.iter().enumerate() {
            let candidate = topic.candidate(slot).filter(|_| topic.can_join(slot));
            let index = candidate.map(|candidate| candidate.index());
            if let Some(index) = index.filter(|index| place != leader && *index >= least) {
                self.joining.push((index, place));
            }
        }
        self.joining.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
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

    /// What the chosen update carries.
    pub(super) fn load(&self) -> Load {
        let mut load = Load { whole: 0, bytes: 0, is_part: false, has_state: false };
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

    /// The chosen update has left, and asks for an ack or not; gives how many parts of it repeat a symbol
    /// or are for repair.
    pub(super) fn on_sent(&mut self, now: Time, seq: u64, wants_ack: bool) -> u64 {
        self.is_empty_wanted = false;
        self.unasked = if wants_ack { 0 } else { self.unasked + 1 };
        let list = &mut self.list;
        let repair = self.carried.iter().filter(|Carried { topic, content, bytes }| {
            list[*topic].on_sent(now, seq, *content, *bytes)
        });
        repair.count() as u64
    }

    // ---- what it wants ----

    /// From when on there is something to send.
    pub(super) fn ready_at(&self) -> Option<Time> {
        self.list.iter().filter_map(Topic::ready_at).min()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.list.iter().filter_map(|topic| topic.poll_timeout(self.passed, self.patience)).min()
    }

    /// From when on a state that one update carries is to leave ahead of the law's pace.
    pub(super) fn hurried_at(&self, max_whole: usize) -> Option<Time> {
        self.list.iter().filter_map(|topic| topic.hurried_at(max_whole)).min()
    }

    /// Whether the update that leaves now must ask for an ack.
    pub(super) fn wants_ack(&self) -> bool {
        self.has_any() && (self.unasked + 1 >= ACK_EVERY || self.is_urgent())
    }

    /// Whether the chosen update carries an urgent state, or a part of one.
    pub(super) fn is_urgent(&self) -> bool {
        self.carried.iter().any(|carried| self.list[carried.topic].params.is_urgent)
    }

    // ---- getters ----

    /// Whether the source has topics.
    pub(super) fn has_any(&self) -> bool {
        !self.list.is_empty()
    }

    /// Whether an update is to leave even if there is no state for it.
    pub(super) fn is_empty_wanted(&self) -> bool {
        self.is_empty_wanted
    }

    /// Whether a topic has ever had a state.
    pub(super) fn has_state(&self) -> bool {
        self.list.iter().any(Topic::has_state)
    }

    /// Whether a symbol of a state in parts is to leave.
    pub(super) fn has_symbol(&self) -> bool {
        self.list.iter().any(Topic::has_symbol)
    }

    /// Whether the monitor is known to have the newest state of each.
    pub(super) fn are_delivered(&self) -> bool {
        self.list.iter().all(Topic::is_delivered)
    }

    /// The frames of the chosen update.
    pub(super) fn frames(&self) -> &[u8] {
        &self.frames
    }

    /// States in parts that newer ones replaced before they were complete.
    pub(super) fn abandoned(&self) -> u64 {
        self.list.iter().map(Topic::abandoned).sum()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn params(&self, topic: TopicId) -> Option<&TopicParams> {
        self.list.get(topic.index()).map(|topic| &topic.params)
    }

    pub(super) fn age(&self, topic: TopicId) -> Option<&AgeProcess> {
        self.list.get(topic.index()).map(|topic| &topic.age)
    }

    pub(super) fn counters(&self, topic: TopicId) -> Option<&TopicCounters> {
        self.list.get(topic.index()).map(|topic| &topic.counters)
    }
}
