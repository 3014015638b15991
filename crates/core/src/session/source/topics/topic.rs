//! One topic of a source, or one key of a topic: its newest state, and what the monitor has of it. That a key
//! is removed counts as its newest state.

mod urgent;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::transfers::{AckedParts, Symbol, Transfers};
use super::again;
use super::slot::Slot;
use super::types::{TopicCounters, TopicParams};
use crate::age::AgeProcess;
use crate::state::schedule::Candidate;
use crate::unit::{Span, Time};
use crate::wire::{Frame, StateId, TopicKey, TopicName};

/// What became of a state that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Put {
    /// It is to be sent.
    New,
    /// It is the last one, with the same time.
    Again,
    /// It is left out, as the monitor has the same one, or will.
    Unchanged,
}

/// What an update carries of a topic.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    Whole,
    Part(Symbol),
    /// The number of the newest state: the ack says whether the monitor has it.
    Again,
}

/// An update in flight with something of the topic.
#[derive(Debug, Clone, Copy)]
struct Sent {
    seq: u64,
    sent_at: Time,
    generated_at: Time,
    /// Which state: the number of its put.
    put: u64,
    content: Content,
    has_name: bool,
}

/// Those that are remembered.
const MAX_IN_FLIGHT: usize = 128;

/// A state that is not newer than what was sent, such as of a clock of coarse steps, counts as this much
/// newer.
const MIN_GAIN: Span = Span::from_millis(1);

/// One of the keys of a topic.
#[derive(Debug)]
struct Key {
    bytes: Box<[u8]>,
    /// The first update that names it.
    named_in: Option<u64>,
    /// Whether the newest state is that there is none any more.
    is_removed: bool,
    /// Whether the monitor may have something of it.
    has_left: bool,
}

#[derive(Debug)]
pub(super) struct Topic {
    number: u16,
    pub(super) params: Arc<TopicParams>,
    /// Which key of its topic, if that has keys.
    key: Option<Key>,
    /// Whether the topics look after it: a state is to leave, or it is not known what became of one.
    pub(super) is_active: bool,
    newest: Vec<u8>,
    /// When the newest state was sampled; `None` while there is none.
    generated_at: Option<Time>,
    /// The first update with it, or a part of it.
    state_number: Option<u64>,
    /// The number of its put, from 1.
    put: u64,
    /// Since when there is a state, or the session is open, whichever is later.
    wanted_since: Option<Time>,
    /// Whether it has yet to leave, or to begin.
    is_pending: bool,
    /// Whether it was too old before it left.
    is_expired: bool,
    /// It does not leave before this time, as the monitor had no room.
    held_until: Time,
    in_flight: VecDeque<Sent>,
    transfers: Transfers,
    /// The number on the wire of the last state in parts that began, and that of its put.
    large: (u64, u64),
    /// The put of the newest state that the monitor is known to have, and when that was sampled.
    delivered_put: u64,
    delivered: Option<Time>,
    /// Whether the monitor is known to have the name, by an update with this put or a later one.
    is_named: bool,
    named_from: u64,
    /// When a state last left whole, or began.
    last_sent: Option<Time>,
    /// How many times the newest state has left, and the round trip then; of an urgent topic alone.
    sent_times: u32,
    srtt: Span,
    /// [`Transfers::abandoned`] that [`Topic::take_abandoned`] has given.
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
            // The monitor may have dropped the name together with the state.
            (key.is_removed, key.named_in) = (false, None);
            (self.is_named, self.named_from) = (false, self.put);
        }
        Put::New
    }

    /// There is no state of this key any more; whether the monitor must be told so.
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

    /// States that are too old by now are dropped.
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

    /// No ack has come for so long that what left until `before` is taken for lost.
    pub(super) fn on_silence(&mut self, now: Time, before: Time) {
        self.transfers.on_silence(before);
        self.settle(now, |sent| (sent.sent_at <= before).then_some(false));
    }

    /// The session is open, maybe at another monitor: nothing is known of what it has.
    pub(super) fn on_opened(&mut self, now: Time) {
        self.transfers.on_opened();
        self.in_flight.clear();
        self.is_pending = self.generated_at.is_some() && !self.is_expired;
        self.wanted_since = self.generated_at.map(|_| now);
        (self.delivered_put, self.delivered, self.held_until) = (0, None, Time::ZERO);
        self.is_named = false;
        self.sent_times = 0;
    }

    /// The newest ack has come; gives the length of the state in parts that is complete now.
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

    /// An ack of this update has come that says nothing of others.
    pub(super) fn on_lone_ack(&mut self, now: Time, seq: u64) {
        self.settle(now, |sent| (sent.seq == seq).then_some(true));
    }

    /// An ack that is older than others has come.
    pub(super) fn on_late_ack(&mut self, now: Time, ack: &AckedParts) {
        self.transfers.on_late_ack(ack.seq, &ack.parts);
        self.settle(now, |sent| ack.parts.names(ack.seq, sent.seq).then_some(true));
    }

    // ---- sending ----

    /// What could leave of the topic, without its headers.
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
        // Of what the monitor has nothing of, the wait counts.
        let sent = sent.or(self.wanted_since)?;
        let (age, gain) = (slot.now.since(sent).max(MIN_GAIN), generated_at.since(sent));
        let gain = if self.delivered.is_none() { age } else { gain.max(MIN_GAIN) };
        Some(Candidate { weight: self.params.weight, age, gain, bytes })
    }

    /// What leads the update of this slot; with the symbols of a state that begins.
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

    /// Whether what an update carries of it is from before a jump of clocks, so that its age has no bound.
    pub(super) fn is_unbounded(&self, slot: &Slot, content: Content) -> bool {
        let generated_at = match content {
            Content::Part(_) => self.transfers.current_generated_at(),
            Content::Whole | Content::Again => self.generated_at,
        };
        generated_at.is_some_and(|at| at < slot.bounded_from)
    }

    /// The most bytes of its frames in an update that it joins.
    pub(super) fn frame_len(&self, slot: &Slot) -> usize {
        let name = self.name(slot).map_or(0, |name| Frame::Name(name).len());
        if !self.is_large(slot) {
            return name + self.whole(slot).len();
        }
        let symbols = self.newest.len().div_ceil(slot.cut.symbol_len.into());
        name + self.newest.len() + symbols * Frame::MAX_OVERHEAD
    }

    /// Appends the frames; gives how many bytes of states are in them.
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

    /// The update has left; whether it repeats a symbol, or carries one for repair.
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

    /// Names the newest state again, so that the ack says which updates have come.
    pub(super) fn write_again(&self, slot: &Slot, out: &mut Vec<u8>) {
        Frame::Again(self.id(slot)).append_to(out);
    }

    // ---- what it wants ----

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

    /// Whether a symbol of a state in parts is to leave.
    pub(super) fn has_symbol(&self) -> bool {
        self.transfers.has_next()
    }

    pub(super) fn has_state(&self) -> bool {
        self.generated_at.is_some()
    }

    /// Whether the monitor is known to have the newest state, or there is none to send.
    pub(super) fn is_delivered(&self) -> bool {
        !self.is_pending && (self.is_expired || self.delivered_put == self.put)
    }

    pub(super) fn is_named(&self) -> bool {
        self.is_named
    }

    /// Whether it is not known yet of an update with something of it whether it has come.
    pub(super) fn is_unresolved(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// States in parts that newer ones have replaced before they were complete, since the last call.
    pub(super) fn take_abandoned(&mut self) -> u64 {
        let all = self.transfers.abandoned();
        all - core::mem::replace(&mut self.abandoned, all)
    }

    /// The key, of a topic with keys.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.key.as_ref().map(|key| &*key.bytes)
    }

    /// Whether its key is removed, be it that the monitor knows it yet or not.
    pub(super) fn is_removed(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.is_removed)
    }

    /// Whether its key is removed and the monitor is known to know it: the number is free.
    pub(super) fn is_over(&self) -> bool {
        self.is_removed() && self.delivered_put == self.put
    }

    /// Whether something is to leave, or it is not known what became of something.
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

    /// The newest state whole, or that there is none any more.
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

    /// Whether the newest state, which is large, takes the place of the one that is on its way.
    fn replaces(&self, slot: &Slot) -> bool {
        let symbols = self.newest.len().div_ceil(slot.cut.symbol_len.into());
        self.generated_at
            .is_some_and(|at| self.transfers.should_replace(slot.now, at, symbols as u32))
    }

    /// Whether all of a state in parts has left and arrived, as far as is known, and no ack has said yet
    /// that the monitor has it, or does not.
    fn must_ask(&self) -> bool {
        let is_quiet = !self.transfers.has_next() && !self.transfers.has_in_flight();
        is_quiet && self.in_flight.is_empty() && !self.is_pending && self.transfers.is_in_doubt()
    }

    /// When the newest state was sampled that the monitor has, or will have if nothing is lost.
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

    /// What is in flight has arrived (`Some(true)`), or is lost (`Some(false)`). The newest state leaves
    /// again if nothing of it is on its way any more.
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

    /// The monitor has the state of this put; 0 if it is not known which that is.
    fn on_delivered(&mut self, now: Time, put: u64, generated_at: Time) {
        self.delivered_put = self.delivered_put.max(put);
        if self.delivered_put == self.put {
            // A repeat of it that is due is not needed any more.
            self.is_pending = false;
        }
        self.counters.delivered += u64::from(!(self.is_removed() && put == self.put));
        self.delivered = self.delivered.max(Some(generated_at));
        self.age.on_update(now, generated_at);
    }
}
