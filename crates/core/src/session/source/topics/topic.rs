//! One topic of a source: its newest state, and what the monitor has of it.

use alloc::vec::Vec;

use super::super::transfers::{AckedParts, Symbol, Transfers};
use super::types::{TopicCounters, TopicParams};
use crate::age::AgeProcess;
use crate::state::schedule::{Candidate, UNKNOWN_AGE};
use crate::unit::{Span, Time, UpdateRate};
use crate::wire::{Frame, StateId, TopicName};

/// What the datagram that is due allows.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Slot {
    pub(in super::super) now: Time,
    /// The number of the update.
    pub(in super::super) seq: u64,
    /// The longest state that it carries whole, with its topic's name.
    pub(in super::super) max_whole: usize,
    pub(in super::super) symbol_len: u16,
    /// Bytes of frames in it.
    pub(in super::super) room: usize,
    /// Whether limits allow a state to begin; parts of one go on all the same.
    pub(in super::super) may_begin: bool,
    /// Whether it is bytes that the path, or a limit, lets no more of leave; otherwise it is datagrams.
    pub(in super::super) are_bytes_scarce: bool,
    /// The period of the law's rate, and the smoothed round trip.
    pub(in super::super) period: Span,
    pub(in super::super) srtt: Span,
}

/// What an update carries of a topic.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    Whole,
    Part(Symbol),
    /// The number of the newest state: the ack says whether the monitor has it.
    Again,
}

/// An update in flight that carries the newest state of the topic that has left, or names it.
#[derive(Debug, Clone, Copy)]
struct SentState {
    seq: u64,
    sent_at: Time,
    generated_at: Time,
    is_whole: bool,
}

#[derive(Debug)]
pub(super) struct Topic {
    number: u8,
    pub(super) params: TopicParams,
    newest: Vec<u8>,
    /// When the newest state was sampled; `None` while there is none.
    generated_at: Option<Time>,
    /// The first update with it, or a part of it.
    state_number: Option<u64>,
    /// Whether it has yet to leave, or to begin.
    is_pending: bool,
    /// Whether it was too old before it left.
    is_expired: bool,
    in_flight: Option<SentState>,
    transfers: Transfers,
    /// When the newest state was sampled that the monitor is known to have.
    delivered: Option<Time>,
    /// Whether the monitor is known to have the name, and the last update with it.
    is_named: bool,
    named_in: Option<u64>,
    /// When a state last left whole, or began.
    last_sent: Option<Time>,
    pub(super) age: AgeProcess,
    pub(super) counters: TopicCounters,
}

impl Topic {
    pub(super) fn new(number: u8, params: TopicParams) -> Self {
        Self {
            number,
            params,
            newest: Vec::new(),
            generated_at: None,
            state_number: None,
            is_pending: false,
            is_expired: false,
            in_flight: None,
            transfers: Transfers::new(number),
            delivered: None,
            is_named: false,
            named_in: None,
            last_sent: None,
            age: AgeProcess::new(),
            counters: TopicCounters::default(),
        }
    }

    // ---- inputs ----

    /// This state is the newest; whether it is to be sent.
    pub(super) fn put(&mut self, generated_at: Time, state: &[u8], on_change: bool) -> bool {
        let is_same = self.generated_at.is_some() && self.newest == state;
        if is_same && self.generated_at == Some(generated_at) {
            return self.is_pending;
        }
        if is_same && on_change && !self.is_pending && self.is_there() {
            self.counters.unchanged += 1;
            return false;
        }
        self.counters.replaced += u64::from(self.is_pending);
        self.newest.clear();
        self.newest.extend_from_slice(state);
        (self.generated_at, self.state_number) = (Some(generated_at), None);
        (self.is_pending, self.is_expired) = (true, false);
        true
    }

    /// States that are too old by now are dropped.
    pub(super) fn expire(&mut self, now: Time) {
        let Some(deadline) = self.params.deadline else { return };
        let is_late = |generated_at: Time| now.since(generated_at) > deadline;
        if self.is_pending && self.generated_at.is_some_and(is_late) {
            (self.is_pending, self.is_expired) = (false, true);
            self.counters.expired += 1;
        }
        if self.transfers.has_next() && self.transfers.current_generated_at().is_some_and(is_late) {
            self.transfers.abandon();
            self.counters.expired += 1;
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time, passed: u64, patience: Span) {
        self.expire(now);
        self.transfers.handle_timeout(now);
        self.lose_if(|sent| sent.seq < passed && sent.sent_at + patience <= now);
    }

    /// No ack has come for so long that what left until `before` is taken for lost.
    pub(super) fn on_silence(&mut self, before: Time) {
        self.transfers.on_silence(before);
        self.lose_if(|sent| sent.sent_at <= before);
    }

    /// The session is open, maybe at another monitor: nothing is known of what it has.
    pub(super) fn on_opened(&mut self) {
        self.transfers.on_opened();
        self.is_pending = self.generated_at.is_some() && !self.is_expired;
        (self.in_flight, self.delivered) = (None, None);
        (self.is_named, self.named_in) = (false, None);
    }

    /// The newest ack has come; gives the length of the state in parts that is complete now.
    pub(super) fn on_ack(&mut self, now: Time, ack: &AckedParts) -> Option<usize> {
        if let Some(seq) = self.named_in.filter(|seq| ack.parts.names(ack.seq, *seq)) {
            (self.is_named, self.named_in) = (true, self.named_in.filter(|named| *named > seq));
        }
        let asked = self.in_flight.is_some_and(|sent| !sent.is_whole && sent.seq == ack.seq);
        let is_of_topic = ack.is_of_topic && (asked || self.transfers.is_in_flight(ack.seq));
        if let Some(sent) = self.in_flight.filter(|sent| sent.seq <= ack.seq) {
            if ack.parts.names(ack.seq, sent.seq) {
                self.on_arrived(now, sent);
            } else {
                self.lose_if(|sent| ack.loses(sent.seq, sent.sent_at));
            }
        }
        let completed = self.transfers.on_ack(now, &AckedParts { is_of_topic, ..*ack })?;
        self.on_delivered(now, completed.generated_at);
        Some(completed.len)
    }

    /// An ack that is older than others has come.
    pub(super) fn on_late_ack(&mut self, now: Time, ack: &AckedParts) {
        self.transfers.on_late_ack(ack.seq, &ack.parts);
        let arrived = self.in_flight.filter(|sent| ack.parts.names(ack.seq, sent.seq));
        arrived.into_iter().for_each(|sent| self.on_arrived(now, sent));
    }

    // ---- what leaves ----

    /// What could leave of the topic, without its headers.
    pub(super) fn candidate(&self, slot: &Slot) -> Option<Candidate> {
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
        let (age, gain) = match sent {
            Some(sent) => (slot.now.since(sent), generated_at.since(sent)),
            None => (UNKNOWN_AGE, UNKNOWN_AGE),
        };
        Some(Candidate { weight: self.params.weight, age, gain, bytes })
    }

    /// Whether the topic goes before others, as it is below its lowest rate.
    pub(super) fn is_overdue(&self, now: Time) -> bool {
        let is_over =
            |rate: UpdateRate| self.last_sent.is_none_or(|last| last + rate.period() <= now);
        self.is_pending && self.params.min_rate.is_some_and(is_over)
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
            self.transfers.begin(number, generated_at, &self.newest, slot.symbol_len).ok()?;
            self.is_pending = false;
            (self.last_sent, self.in_flight) = (Some(slot.now), None);
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

    /// The most bytes of its frames in an update that it joins.
    pub(super) fn frame_len(&self, slot: &Slot) -> usize {
        let name = if self.is_named { 0 } else { TopicName::MAX_LEN };
        let symbols = if self.is_large(slot) {
            self.newest.len().div_ceil(slot.symbol_len.into())
        } else {
            1
        };
        name + self.newest.len() + symbols * Frame::MAX_OVERHEAD
    }

    /// Appends the frames; gives how many bytes of states are in them.
    pub(super) fn write(&mut self, slot: &Slot, content: Content, out: &mut Vec<u8>) -> usize {
        if !self.is_named {
            let name = TopicName { topic: self.number, name: &self.params.name };
            Frame::Name(name).append_to(out);
            self.named_in = Some(slot.seq);
        }
        match content {
            Content::Whole => {
                self.state_number.get_or_insert(slot.seq);
                let id = self.id(slot);
                Frame::State { id, bytes: &self.newest }.append_to(out);
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
        match content {
            Content::Whole => {
                self.transfers.abandon();
                self.is_pending = false;
                self.last_sent = Some(now);
                self.in_flight =
                    Some(SentState { seq, sent_at: now, generated_at, is_whole: true });
                self.counters.sent += 1;
                false
            }
            Content::Part(symbol) => self.transfers.on_sent(now, seq, symbol),
            Content::Again => {
                self.in_flight =
                    Some(SentState { seq, sent_at: now, generated_at, is_whole: false });
                false
            }
        }
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
        let lost_at = self.in_flight.filter(|sent| sent.seq < passed);
        let lost_at = lost_at.map(|sent| sent.sent_at + patience);
        Time::earliest([lost_at, self.transfers.poll_timeout()])
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
        !self.is_pending && (self.is_expired || self.delivered >= self.generated_at)
    }

    pub(super) fn abandoned(&self) -> u64 {
        self.transfers.abandoned()
    }

    // ---- steps ----

    fn is_large(&self, slot: &Slot) -> bool {
        self.newest.len() > slot.max_whole
    }

    fn id(&self, slot: &Slot) -> StateId {
        let number = self.state_number.unwrap_or(slot.seq);
        let age = self.generated_at.map_or(Span::ZERO, |at| slot.now.since(at));
        StateId { topic: self.number, behind: slot.seq - number, age }
    }

    /// The earliest time for its next state.
    fn not_before(&self) -> Time {
        let period = self.params.max_rate.map(|rate| rate.period());
        self.last_sent.zip(period).map_or(Time::ZERO, |(last, period)| last + period)
    }

    /// Whether the newest state may leave whole, or begin, in this slot.
    fn may_begin(&self, slot: &Slot) -> bool {
        self.is_pending && slot.may_begin && self.not_before() <= slot.now
    }

    /// Whether the newest state, which is large, takes the place of the one that is on its way.
    fn replaces(&self, slot: &Slot) -> bool {
        let symbols = self.newest.len().div_ceil(slot.symbol_len.into());
        self.generated_at
            .is_some_and(|at| self.transfers.should_replace(slot.now, at, symbols as u32))
    }

    /// Whether all of a state in parts has left and arrived, as far as is known, and no ack has said yet
    /// that the monitor has it.
    fn must_ask(&self) -> bool {
        let is_quiet = !self.transfers.has_next() && !self.transfers.has_in_flight();
        is_quiet && self.in_flight.is_none() && !self.is_pending && self.transfers.is_incomplete()
    }

    /// When the newest state was sampled that the monitor has, or will have if nothing is lost.
    fn sent_so_far(&self) -> Option<Time> {
        let in_flight = self.in_flight.map(|sent| sent.generated_at);
        let current = self.transfers.current_generated_at().filter(|_| !self.transfers.has_next());
        self.delivered.max(in_flight).max(current)
    }

    /// Whether the newest state is at the monitor, or on its way.
    fn is_there(&self) -> bool {
        self.generated_at.is_some() && self.sent_so_far() >= self.generated_at
    }

    fn on_arrived(&mut self, now: Time, sent: SentState) {
        self.in_flight = None;
        if sent.is_whole {
            self.on_delivered(now, sent.generated_at);
        }
    }

    fn on_delivered(&mut self, now: Time, generated_at: Time) {
        if self.delivered < Some(generated_at) {
            self.delivered = Some(generated_at);
            self.age.on_update(now, generated_at);
            self.counters.delivered += 1;
        }
    }

    /// What is in flight is lost, if so: the newest state leaves again.
    fn lose_if(&mut self, is_lost: impl Fn(&SentState) -> bool) {
        if let Some(sent) = self.in_flight.filter(is_lost) {
            self.in_flight = None;
            self.is_pending |= sent.is_whole && self.delivered < self.generated_at;
        }
    }
}
