//! One topic of a source, or one key of a topic: its newest state, and the state that the monitor
//! has. The removal of a key counts as its newest state.

mod urgent;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::acked_parts::AckedParts;
use super::super::transfers::{Symbol, Transfers};
use super::again;
use super::slot::Slot;
use super::types::{TopicCounters, TopicParams};
use crate::age::AgeProcess;
use crate::state::schedule::Candidate;
use crate::unit::{Span, Time};
use crate::wire::{Frame, StateId, TopicKey, TopicName};

/// The result of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Put {
    /// A new state, to be sent.
    New,
    /// The last state again, with the same time.
    Again,
    /// Left out, as the monitor has the same state, or will have it.
    Unchanged,
}

/// The content of a topic in an update.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    Whole,
    Part(Symbol),
    /// The number of the newest state: the ack reports whether the monitor has it.
    Again,
}

/// An update in flight with content of the topic.
#[derive(Debug, Clone, Copy)]
struct Sent {
    seq: u64,
    sent_at: Time,
    generated_at: Time,
    /// The state, by the number of its put.
    put: u64,
    content: Content,
    has_name: bool,
}

/// The maximum number of updates in flight that are remembered.
const MAX_IN_FLIGHT: usize = 128;

/// A state that is not newer than the last one sent, such as with a coarse clock, counts as this
/// much newer.
const MIN_GAIN: Span = Span::from_millis(1);

/// A key of a topic.
#[derive(Debug)]
struct Key {
    bytes: Box<[u8]>,
    /// The first update that names it.
    named_in: Option<u64>,
    /// Whether the key was removed, which is then its newest state.
    is_removed: bool,
    /// Whether the monitor may have a state of it.
    has_left: bool,
}

#[derive(Debug)]
pub(super) struct Topic {
    number: u16,
    pub(super) params: Arc<TopicParams>,
    /// Its key, if the topic has keys.
    key: Option<Key>,
    /// Whether it is in the list of active topics: a state is to be sent, or in flight without a
    /// result.
    pub(super) is_active: bool,
    newest: Vec<u8>,
    /// When the newest state was sampled; `None` without a state.
    generated_at: Option<Time>,
    /// The number of the first update with it, or with a part of it.
    state_number: Option<u64>,
    /// The number of its put, from 1.
    put: u64,
    /// Since when there is a state, or the session is open, whichever is later.
    wanted_since: Option<Time>,
    /// Whether it is still to be sent, or to begin.
    is_pending: bool,
    /// Whether it expired before it was sent.
    is_expired: bool,
    /// It is not sent before this time, as the monitor had no room.
    held_until: Time,
    in_flight: VecDeque<Sent>,
    transfers: Transfers,
    /// The number on the wire of the last state in parts that began, and the number of its put.
    large: (u64, u64),
    /// The put of the newest state that the monitor is known to have, and when it was sampled.
    delivered_put: u64,
    delivered: Option<Time>,
    /// Whether the monitor is known to have the name, by an update with this put or a later one.
    is_named: bool,
    named_from: u64,
    /// When a state was last sent whole, or began.
    last_sent: Option<Time>,
    /// How many times the newest state was sent, and the round trip at that time; for urgent topics
    /// only.
    sent_times: u32,
    srtt: Span,
    /// The part of [`Transfers::abandoned`] that [`Topic::take_abandoned`] has returned.
    abandoned: u64,
    pub(super) age: AgeProcess,
    pub(super) counters: TopicCounters,
}

impl Topic {
    pub(super) fn new(number: u16, params: Arc<TopicParams>) -> Self {
        Self {
            number,
            params,
            key: None,
            is_active: false,
            newest: Vec::new(),
            generated_at: None,
            state_number: None,
            put: 0,
            wanted_since: None,
            is_pending: false,
            is_expired: false,
            held_until: Time::ZERO,
            in_flight: VecDeque::new(),
            transfers: Transfers::new(number),
            large: (0, 0),
            delivered_put: 0,
            delivered: None,
            is_named: false,
            named_from: 0,
            last_sent: None,
            sent_times: 0,
            srtt: Span::ZERO,
            abandoned: 0,
            age: AgeProcess::new(),
            counters: TopicCounters::default(),
        }
    }

    /// A key of a topic with keys.
    pub(super) fn of_key(number: u16, params: Arc<TopicParams>, key: &[u8]) -> Self {
        let key = Key { bytes: key.into(), named_in: None, is_removed: false, has_left: false };
        Self { key: Some(key), ..Self::new(number, params) }
    }

    // ---- inputs ----

    /// This state is the newest.
    pub(super) fn put(&mut self, generated_at: Time, state: &[u8], on_change: bool) -> Put {
        let is_same = self.generated_at.is_some() && self.newest == state && !self.is_removed();
        if is_same && self.generated_at == Some(generated_at) {
            return Put::Again;
        }
        if is_same && on_change && !self.is_pending && self.is_there() {
            return Put::Unchanged;
        }
        self.replace(generated_at, state);
        if let Some(key) = self.key.as_mut().filter(|key| key.is_removed) {
            // The monitor may have dropped the name with the state.
            (key.is_removed, key.named_in) = (false, None);
            (self.is_named, self.named_from) = (false, self.put);
        }
        Put::New
    }

    /// Removes this key; returns whether the monitor must be informed.
    pub(super) fn remove(&mut self, now: Time) -> bool {
        self.replace(now, &[]);
        self.transfers.abandon();
        let Some(key) = &mut self.key else { return false };
        key.is_removed = true;
        key.has_left
    }

    fn replace(&mut self, generated_at: Time, state: &[u8]) {
        self.counters.replaced += u64::from(self.is_pending && !self.is_removed());
        self.newest.clear();
        self.newest.extend_from_slice(state);
        (self.generated_at, self.state_number) = (Some(generated_at), None);
        self.wanted_since.get_or_insert(generated_at);
        self.put += 1;
        (self.is_pending, self.is_expired) = (true, false);
        self.sent_times = 0;
    }

    /// Drops expired states.
    pub(super) fn expire(&mut self, now: Time) {
        let Some(deadline) = self.params.deadline else { return };
        let is_late = |generated_at: Time| now.since(generated_at) > deadline;
        if self.is_pending && !self.is_removed() && self.generated_at.is_some_and(is_late) {
            (self.is_pending, self.is_expired) = (false, true);
            self.counters.expired += 1;
        }
        if self.transfers.has_next() && self.transfers.current_generated_at().is_some_and(is_late) {
            self.transfers.abandon();
            self.is_expired |= self.large.1 == self.put;
            self.counters.expired += 1;
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time, passed: u64, patience: Span) {
        self.expire(now);
        self.transfers.handle_timeout(now);
        let is_lost = |sent: &Sent| sent.seq < passed && sent.sent_at + patience <= now;
        self.settle(now, |sent| is_lost(sent).then_some(false));
        self.is_pending |= self.repeat_at().is_some_and(|at| at <= now);
    }

    /// No ack has arrived for a long time: updates sent until `before` are considered lost.
    pub(super) fn on_silence(&mut self, now: Time, before: Time) {
        self.transfers.on_silence(before);
        self.settle(now, |sent| (sent.sent_at <= before).then_some(false));
    }

    /// The session is open, possibly at another monitor: its states are unknown.
    pub(super) fn on_opened(&mut self, now: Time) {
        self.transfers.on_opened();
        self.in_flight.clear();
        self.is_pending = self.generated_at.is_some() && !self.is_expired;
        self.wanted_since = self.generated_at.map(|_| now);
        (self.delivered_put, self.delivered, self.held_until) = (0, None, Time::ZERO);
        self.is_named = false;
        self.sent_times = 0;
    }

    /// The newest ack has arrived; returns the length of the state in parts that is complete now.
    pub(super) fn on_ack(&mut self, now: Time, ack: &AckedParts) -> Option<usize> {
        let is_asked = |sent: &Sent| matches!(sent.content, Content::Again) && sent.seq == ack.seq;
        let is_asked = self.in_flight.iter().any(is_asked);
        let is_of_topic = ack.is_of_topic && (is_asked || self.transfers.is_in_flight(ack.seq));
        if ack.parts.no_room && self.in_flight.iter().any(|sent| sent.seq == ack.seq) {
            self.held_until = now + again::NO_ROOM;
        }
        self.settle(now, |sent| ack.verdict(sent.seq, sent.sent_at));
        let completed = self.transfers.on_ack(now, &AckedParts { is_of_topic, ..*ack })?;
        let put = if completed.number == self.large.0 { self.large.1 } else { 0 };
        self.on_delivered(now, put, completed.generated_at);
        Some(completed.len)
    }

    /// An ack of this update has arrived that does not report on others.
    pub(super) fn on_lone_ack(&mut self, now: Time, seq: u64) {
        self.settle(now, |sent| (sent.seq == seq).then_some(true));
    }

    /// An ack older than others has arrived.
    pub(super) fn on_late_ack(&mut self, now: Time, ack: &AckedParts) {
        self.transfers.on_late_ack(ack.seq, &ack.parts);
        self.settle(now, |sent| ack.parts.names(ack.seq, sent.seq).then_some(true));
    }

    // ---- sending ----

    /// The candidate for the next update, without headers.
    pub(super) fn candidate(&self, slot: &Slot) -> Option<Candidate> {
        if slot.is_ahead && !self.is_hurried(slot.max_whole) {
            return None;
        }
        let pending = self.generated_at.filter(|_| self.may_begin(slot));
        let continues = self.transfers.has_next() && pending.is_none_or(|_| self.is_large(slot));
        let (generated_at, sent, bytes) = if continues {
            let current = self.transfers.current_generated_at()?;
            (current, self.delivered, self.transfers.bytes_left())
        } else if let Some(generated_at) = pending {
            (generated_at, self.sent_so_far(), self.frame_len(slot))
        } else if self.must_ask() {
            (self.generated_at?, self.delivered, Frame::MAX_OVERHEAD)
        } else {
            return None;
        };
        // Without a state at the monitor, the waiting time counts.
        let sent = sent.or(self.wanted_since)?;
        let (age, gain) = (slot.now.since(sent).max(MIN_GAIN), generated_at.since(sent));
        let gain = if self.delivered.is_none() { age } else { gain.max(MIN_GAIN) };
        Some(Candidate { weight: self.params.weight, age, gain, bytes })
    }

    /// The content that leads the update of this slot, with the symbols of a state that begins.
    pub(super) fn lead(&mut self, slot: &Slot) -> Option<(Content, Option<(u32, f64)>)> {
        let is_large = self.is_large(slot);
        if self.may_begin(slot) && !is_large {
            return Some((Content::Whole, None));
        }
        let mut begun = None;
        if self.may_begin(slot) && is_large && self.replaces(slot) {
            let number = *self.state_number.get_or_insert(slot.seq);
            let generated_at = self.generated_at?;
            self.transfers.begin(number, generated_at, &self.newest, slot.cut).ok()?;
            self.is_pending = false;
            (self.last_sent, self.large) = (Some(slot.now), (number, self.put));
            self.counters.sent += 1;
            begun = Some(self.transfers.cost());
        }
        self.transfers.on_slot(slot.period, slot.srtt);
        let symbol = self.transfers.next(slot.now).map(Content::Part);
        Some((symbol.or_else(|| self.must_ask().then_some(Content::Again))?, begun))
    }

    /// Whether a whole state of it can join an update.
    pub(super) fn can_join(&self, slot: &Slot) -> bool {
        self.may_begin(slot) && !self.is_large(slot)
    }

    /// Whether its content in an update is from before a clock jump, so that its age is unbounded.
    pub(super) fn is_unbounded(&self, slot: &Slot, content: Content) -> bool {
        let generated_at = match content {
            Content::Part(_) => self.transfers.current_generated_at(),
            Content::Whole | Content::Again => self.generated_at,
        };
        generated_at.is_some_and(|at| at < slot.bounded_from)
    }

    /// The maximum size of its frames in an update that it joins.
    pub(super) fn frame_len(&self, slot: &Slot) -> usize {
        let name = self.name(slot).map_or(0, |name| Frame::Name(name).len());
        if !self.is_large(slot) {
            return name + self.whole(slot).len();
        }
        let symbols = self.newest.len().div_ceil(slot.cut.symbol_len.into());
        name + self.newest.len() + symbols * Frame::MAX_OVERHEAD
    }

    /// Appends the frames; returns the number of bytes of states in them.
    pub(super) fn write(&mut self, slot: &Slot, content: Content, out: &mut Vec<u8>) -> usize {
        if let Some(key) = &mut self.key {
            key.named_in.get_or_insert(slot.seq);
        }
        if let Some(name) = self.name(slot) {
            Frame::Name(name).append_to(out);
        }
        self.srtt = slot.srtt;
        match content {
            Content::Whole => {
                self.state_number.get_or_insert(slot.seq);
                self.whole(slot).append_to(out);
                self.newest.len()
            }
            Content::Part(symbol) => {
                let Some(part) = self.transfers.part(symbol, slot.seq, slot.now) else { return 0 };
                Frame::Part(part).append_to(out);
                part.bytes.len()
            }
            Content::Again => {
                Frame::Again(self.id(slot)).append_to(out);
                0
            }
        }
    }

    /// The update was sent; returns whether it repeats a symbol, or carries one for repair.
    pub(super) fn on_sent(&mut self, now: Time, seq: u64, content: Content, bytes: usize) -> bool {
        self.counters.payload_bytes += bytes as u64;
        let generated_at = self.generated_at.unwrap_or(now);
        let (put, has_name) = (self.put, !self.is_named && !self.is_removed());
        if let Some(key) = &mut self.key {
            key.has_left = true;
        }
        if self.in_flight.len() == MAX_IN_FLIGHT {
            self.in_flight.pop_front();
        }
        self.in_flight.push_back(Sent { seq, sent_at: now, generated_at, put, content, has_name });
        match content {
            Content::Whole => {
                self.transfers.abandon();
                self.is_pending = false;
                self.last_sent = Some(now);
                self.sent_times = self.sent_times.saturating_add(1);
                self.counters.sent += u64::from(!self.is_removed());
                false
            }
            Content::Part(symbol) => self.transfers.on_sent(now, seq, symbol),
            Content::Again => false,
        }
    }

    /// Names the newest state again, so that the ack reports which updates have arrived.
    pub(super) fn write_again(&self, slot: &Slot, out: &mut Vec<u8>) {
        Frame::Again(self.id(slot)).append_to(out);
    }

    // ---- timers and requests ----

    /// From when on it has something to send; `None` if it has nothing.
    pub(super) fn ready_at(&self) -> Option<Time> {
        if self.has_symbol() || self.must_ask() {
            return Some(Time::ZERO);
        }
        self.is_pending.then(|| self.not_before())
    }

    pub(super) fn poll_timeout(&self, passed: u64, patience: Span) -> Option<Time> {
        let lost_at = self.in_flight.front().filter(|sent| sent.seq < passed);
        let lost_at = lost_at.map(|sent| sent.sent_at + patience);
        Time::earliest([lost_at, self.transfers.poll_timeout(), self.repeat_at()])
    }

    // ---- getters ----

    /// Whether a symbol of a state in parts is to be sent.
    pub(super) fn has_symbol(&self) -> bool {
        self.transfers.has_next()
    }

    pub(super) fn has_state(&self) -> bool {
        self.generated_at.is_some()
    }

    /// Whether the monitor is known to have the newest state, or there is no state to send.
    pub(super) fn is_delivered(&self) -> bool {
        !self.is_pending && (self.is_expired || self.delivered_put == self.put)
    }

    pub(super) fn is_named(&self) -> bool {
        self.is_named
    }

    /// Whether an update with its content is in flight without a result.
    pub(super) fn is_unresolved(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// States in parts that newer ones have replaced before they were complete, since the last
    /// call.
    pub(super) fn take_abandoned(&mut self) -> u64 {
        let all = self.transfers.abandoned();
        all - core::mem::replace(&mut self.abandoned, all)
    }

    /// The key, of a topic with keys.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.key.as_ref().map(|key| &*key.bytes)
    }

    /// Whether its key was removed, even if the monitor does not know yet.
    pub(super) fn is_removed(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.is_removed)
    }

    /// Whether its key is removed and the monitor is known to know it: the number is free.
    pub(super) fn is_over(&self) -> bool {
        self.is_removed() && self.delivered_put == self.put
    }

    /// Whether content is to be sent, or in flight without a result.
    pub(super) fn is_unsettled(&self) -> bool {
        self.is_pending
            || !self.in_flight.is_empty()
            || self.transfers.is_busy()
            || self.repeat_at().is_some()
    }

    // ---- steps ----

    fn is_large(&self, slot: &Slot) -> bool {
        self.newest.len() > slot.max_whole
    }

    /// The name, if an update with a state must carry it.
    fn name(&self, slot: &Slot) -> Option<TopicName<'_>> {
        if self.is_named || self.is_removed() {
            return None;
        }
        let key = self.key.as_ref().map(|Key { bytes, named_in, .. }| {
            let behind = slot.seq - named_in.unwrap_or(slot.seq);
            TopicKey { behind, bytes }
        });
        let (topic, name) = (self.number, &*self.params.name);
        Some(TopicName { topic, name, key, stream: None })
    }

    /// The frame of the newest state, whole, or of the key's removal.
    fn whole(&self, slot: &Slot) -> Frame<'_> {
        let id = self.id(slot);
        match self.is_removed() {
            true => Frame::Removed(id),
            false => Frame::State { id, bytes: &self.newest },
        }
    }

    fn id(&self, slot: &Slot) -> StateId {
        let number = self.state_number.unwrap_or(slot.seq);
        let age = self.generated_at.map_or(Span::ZERO, |at| slot.now.since(at));
        StateId { topic: self.number, behind: slot.seq - number, age }
    }

    /// The earliest time for its next state.
    fn not_before(&self) -> Time {
        let period = self.params.max_rate.map(|rate| rate.period());
        self.last_sent
            .zip(period)
            .map_or(self.held_until, |(last, period)| (last + period).max(self.held_until))
    }

    /// Whether the newest state may leave whole, or begin, in this slot.
    fn may_begin(&self, slot: &Slot) -> bool {
        let is_allowed = slot.may_begin || (slot.is_ahead && self.is_hurried(slot.max_whole));
        self.is_pending && is_allowed && self.not_before() <= slot.now
    }

    /// Whether the newest state, which is large, replaces the one being sent.
    fn replaces(&self, slot: &Slot) -> bool {
        let symbols = self.newest.len().div_ceil(slot.cut.symbol_len.into());
        self.generated_at
            .is_some_and(|at| self.transfers.should_replace(slot.now, at, symbols as u32))
    }

    /// Whether all parts of a state were sent and none is in flight, and no ack has reported yet
    /// whether the monitor has the state.
    fn must_ask(&self) -> bool {
        let is_quiet = !self.transfers.has_next() && !self.transfers.has_in_flight();
        is_quiet && self.in_flight.is_empty() && !self.is_pending && self.transfers.is_in_doubt()
    }

    /// The sampling time of the newest state that the monitor has, or will have without loss.
    fn sent_so_far(&self) -> Option<Time> {
        let whole = |sent: &&Sent| matches!(sent.content, Content::Whole);
        let in_flight = self.in_flight.iter().rfind(whole).map(|sent| sent.generated_at);
        let current = self.transfers.current_generated_at().filter(|_| !self.transfers.has_next());
        self.delivered.max(in_flight).max(current)
    }

    /// Whether the newest state is at the monitor, or on its way.
    fn is_there(&self) -> bool {
        self.delivered_put == self.put || self.is_travelling()
    }

    fn is_travelling(&self) -> bool {
        let is_it = |sent: &Sent| sent.put == self.put && matches!(sent.content, Content::Whole);
        self.in_flight.iter().any(is_it)
            || (self.large.1 == self.put && self.transfers.current_number() == Some(self.large.0))
    }

    /// Settles updates in flight: arrived (`Some(true)`), or lost (`Some(false)`). The newest state
    /// is sent again if no part of it is in flight any more.
    fn settle(&mut self, now: Time, verdict: impl Fn(&Sent) -> Option<bool>) {
        let mut newest = None;
        let (is_named, named_from) = (&mut self.is_named, self.named_from);
        self.in_flight.retain(|sent| {
            let verdict = verdict(sent);
            if verdict == Some(true) {
                *is_named |= sent.has_name && sent.put >= named_from;
                newest = Some(*sent).filter(|it| matches!(it.content, Content::Whole)).or(newest);
            }
            verdict.is_none()
        });
        if let Some(Sent { put, generated_at, .. }) = newest {
            self.on_delivered(now, put, generated_at);
        }
        if self.generated_at.is_some() && !self.is_expired && !self.is_there() {
            self.is_pending = true;
        }
    }

    /// The monitor has the state of this put; 0 if the put is unknown.
    fn on_delivered(&mut self, now: Time, put: u64, generated_at: Time) {
        self.delivered_put = self.delivered_put.max(put);
        if self.delivered_put == self.put {
            // A pending repeat of it is not needed any more.
            self.is_pending = false;
        }
        self.counters.delivered += u64::from(!(self.is_removed() && put == self.put));
        self.delivered = self.delivered.max(Some(generated_at));
        self.age.on_update(now, generated_at);
    }
}
