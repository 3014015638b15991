//! States in several updates: which symbol is sent next, and which ones have arrived.
//!
//! ```text
//!   begin ─► current ──── a newer state begins ────► former ──► forgotten
//!              │ all symbols acknowledged              │ the current one is complete, or a
//!              ▼                                       │ third state begins
//!           complete, and kept: the monitor may have forgotten it when the session reopens
//! ```
//!
//! [`Repair`] decides which symbol is sent. Acks report which ones have arrived: each names an
//! update, and which of the 64 updates before it have arrived. A missing part counts as lost once
//! an update has arrived that was sent 3 or more updates after it (RFC 9002 section
//! 6.1.1), or 9/8 of a round trip after it (section 6.1.2). Over several paths, whose delays
//! differ, only the time counts.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::acked_parts::AckedParts;
use super::types::Cut;
use crate::state::{
    CurrentState, Encoder, FormerState, LayoutError, NewerState, Outgoing, Repair, RepairParams,
    Transfer, max_repair, schedule::HEADERS,
};
use crate::unit::{Span, Time};
use crate::wire::{Part, PartsAck, StateId};

/// The number of updates before the acknowledged one on whose arrival an ack reports.
const NAMED: u64 = u64::BITS as u64;

/// The maximum number of parts in flight that are remembered: acks that do not report parts must
/// not make the list grow.
const MAX_IN_FLIGHT: usize = 1 << 16;

/// The minimum interval between repeats of a state that the monitor has forgotten.
const AGAIN: Span = Span::from_secs(1);

/// A part in flight.
#[derive(Debug, Clone, Copy)]
struct SentPart {
    seq: u64,
    sent_at: Time,
    number: u64,
    index: u32,
}

/// A symbol of one of the states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbol {
    /// The state's number.
    pub(super) number: u64,
    pub(super) index: u32,
}

/// A state that is complete at the monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Completed {
    pub(super) number: u64,
    pub(super) generated_at: Time,
    /// Its length in bytes.
    pub(super) len: usize,
}

/// A state that was begun and may still be completed at the monitor.
#[derive(Debug, Clone, Copy)]
struct Begun {
    number: u64,
    state: Completed,
}

/// The maximum number of begun states that are remembered.
const BEGUN: usize = 64;

#[derive(Debug)]
pub(super) struct Transfers {
    topic: u16,
    law: Repair,
    encoder: Encoder,
    current: Option<Transfer>,
    former: Option<Transfer>,
    /// A finished transfer whose buffers are reused.
    spare: Option<Transfer>,
    /// All begun states, including older ones than `former`.
    begun: VecDeque<Begun>,
    /// Parts that are neither acknowledged nor lost, in the order of sending.
    in_flight: VecDeque<SentPart>,
    /// A buffer for parts whose result an ack leaves open.
    undecided: Vec<SentPart>,
    /// The newest acknowledged update, and how long after its sending an earlier part counts as
    /// lost.
    passed: u64,
    patience: Span,
    /// Repair symbols of the current state still to be sent; `None` while data symbols are.
    repair: Option<u32>,
    /// Symbols of the former state still to be sent in the round that completes it.
    round: u32,
    /// Parts since a state was last sent to its end.
    spent: u32,
    /// The sampling time of the newest state that is complete at the monitor.
    delivered: Option<Time>,
    /// The newest state that the monitor is known to have whole.
    confirmed: Option<u64>,
    /// Whether all symbols of the current state have arrived, but the monitor does not have it.
    is_forgotten: bool,
    /// When the current state was last restarted for that reason.
    restarted_at: Option<Time>,
    /// Parts since the last one that asked for an ack.
    unasked: u32,
    /// States that newer ones replaced before they were complete.
    abandoned: u64,
}

impl Transfers {
    pub(super) fn new(topic: u16) -> Self {
        Self {
            topic,
            law: Repair::new(RepairParams::default()),
            encoder: Encoder::new(),
            current: None,
            former: None,
            spare: None,
            begun: VecDeque::new(),
            in_flight: VecDeque::new(),
            undecided: Vec::new(),
            passed: 0,
            patience: Span::ZERO,
            repair: None,
            round: 0,
            spent: 0,
            delivered: None,
            confirmed: None,
            is_forgotten: false,
            restarted_at: None,
            unasked: 0,
            abandoned: 0,
        }
    }

    // ---- inputs ----

    /// A state begins: its first symbol is sent now, in update `number`.
    ///
    /// # Errors
    /// [`LayoutError`] if it cannot be cut like that; then nothing changes.
    pub(super) fn begin(
        &mut self,
        number: u64,
        generated_at: Time,
        bytes: &[u8],
        cut: Cut,
    ) -> Result<(), LayoutError> {
        let Cut { symbol_len, has_repair } = cut;
        let data = bytes.len().div_ceil(usize::from(symbol_len.max(1)));
        let data = u32::try_from(data).map_err(|_| LayoutError::TooLong(bytes.len()))?;
        let most = if has_repair { max_repair(data) } else { 0 };
        let repair = most.min(self.law.repair_symbols(data, data)) as u16;
        let outgoing = Outgoing { number, generated_at, symbol_len, repair, bytes };
        let next = match self.spare.take() {
            Some(mut spare) => spare.reset(&outgoing).map(|()| spare),
            None => Transfer::new(&outgoing),
        }?;
        self.set_former_aside();
        self.former = self.current.replace(next);
        if self.former.as_ref().is_some_and(Transfer::is_complete) {
            self.set_former_aside();
        }
        (self.repair, self.restarted_at, self.is_forgotten) = (None, None, false);
        if self.begun.len() == BEGUN {
            self.begun.pop_front();
            self.abandoned += 1;
        }
        self.begun.push_back(Begun {
            number,
            state: Completed { number, generated_at, len: bytes.len() },
        });
        Ok(())
    }

    /// An update with this symbol was sent; returns whether the symbol is for repair, or was sent
    /// before.
    pub(super) fn on_sent(&mut self, now: Time, seq: u64, symbol: Symbol) -> bool {
        let Symbol { number, index } = symbol;
        if self.in_flight.len() == MAX_IN_FLIGHT
            && let Some(oldest) = self.in_flight.pop_front()
        {
            self.on_lost(oldest);
        }
        self.in_flight.push_back(SentPart { seq, sent_at: now, number, index });
        self.spent = self.spent.saturating_add(1);
        let Some(transfer) = self.transfer(number) else { return false };
        let (is_repair, is_again) = (index >= transfer.layout().data(), transfer.is_lost(index));
        transfer.on_sent(index);
        if self.is_former(number) {
            self.round = self.round.saturating_sub(1);
            return true;
        }
        if is_repair && !is_again {
            self.repair = self.repair.map(|left| left.saturating_sub(1));
        }
        self.plan_repair();
        is_repair || is_again
    }

    /// The length of a slot, the period of the rate law, and the smoothed round trip.
    pub(super) fn on_slot(&mut self, slot: Span, srtt: Span) {
        self.law.on_slot(slot);
        self.law.on_round_trip(srtt);
    }

    /// The newest ack has reported which parts have arrived; returns the state that is complete
    /// now.
    pub(super) fn on_ack(&mut self, now: Time, ack: &AckedParts) -> Option<Completed> {
        let AckedParts { seq, parts, .. } = *ack;
        while let Some(part) = self.in_flight.front().copied().filter(|part| part.seq <= seq) {
            self.in_flight.pop_front();
            if parts.names(seq, part.seq) {
                self.on_arrived(part);
                continue;
            }
            if ack.loses(part.seq, part.sent_at) {
                self.on_lost(part);
            } else {
                self.undecided.push(part);
            }
        }
        while let Some(part) = self.undecided.pop() {
            self.in_flight.push_front(part);
        }
        (self.passed, self.patience) = (seq, ack.patience());
        if !ack.is_of_topic {
            return None;
        }
        self.check_forgotten(now, parts.newest);
        parts.newest.and_then(|newest| self.on_complete(newest))
    }

    /// An ack older than others has reported which parts have arrived.
    pub(super) fn on_late_ack(&mut self, seq: u64, parts: &PartsAck) {
        let mut place = self.in_flight.partition_point(|part| part.seq + NAMED < seq);
        while let Some(part) = self.in_flight.get(place).copied().filter(|part| part.seq <= seq) {
            if parts.names(seq, part.seq) {
                self.in_flight.remove(place);
                self.on_arrived(part);
            } else {
                place += 1;
            }
        }
    }

    /// An update with a part is sent; `wants_ack` if it asks for an ack.
    pub(super) fn on_ack_request(&mut self, wants_ack: bool) {
        self.unasked = if wants_ack { 0 } else { self.unasked + 1 };
    }

    /// Parts sent before the newest acknowledged update count as lost after 9/8 of a round trip,
    /// even without an ack of a later update (RFC 9002 section 6.1.2).
    pub(super) fn handle_timeout(&mut self, now: Time) {
        let Self { passed, patience, .. } = *self;
        self.lose_while(|part| part.seq < passed && part.sent_at + patience <= now);
        self.restart_forgotten(now);
    }

    /// No ack has arrived for a long time: parts sent until `before` are considered lost.
    pub(super) fn on_silence(&mut self, before: Time) {
        self.lose_while(|part| part.sent_at <= before);
    }

    /// The session is open, possibly at another monitor: its states are unknown.
    pub(super) fn on_opened(&mut self) {
        self.in_flight.clear();
        self.begun.clear();
        // The newest state begins again; it may be another one by now.
        self.abandon();
        self.set_former_aside();
        (self.repair, self.delivered, self.confirmed) = (None, None, None);
        (self.restarted_at, self.is_forgotten, self.spent) = (None, false, 0);
    }

    /// No more parts are sent of the states so far, as a newer one is sent whole. Parts in flight
    /// may complete the last one before that one arrives.
    pub(super) fn abandon(&mut self) {
        if self.current.is_some() {
            self.set_former_aside();
            self.former = self.current.take();
        }
    }

    // ---- timers and requests ----

    /// When the first part sent before the newest acknowledged update counts as lost, or a state
    /// that the monitor has forgotten begins again.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let first = self.in_flight.front().filter(|part| part.seq < self.passed);
        let lost_at = first.map(|part| part.sent_at + self.patience);
        let again_at = self.restarted_at.filter(|_| self.is_forgotten).map(|at| at + AGAIN);
        Time::earliest([lost_at, again_at])
    }

    /// Whether the part that is sent now must ask for an ack: acks report on [`NAMED`] updates.
    pub(super) fn wants_ack(&self) -> bool {
        u64::from(self.unasked) + 1 >= NAMED / 2
    }

    /// Whether a symbol is to be sent.
    pub(super) fn has_next(&self) -> bool {
        let is_incomplete = |current: &Transfer| {
            !current.is_complete()
                && (current.needed() > 0 || self.repair.is_some_and(|left| left > 0))
        };
        self.current.as_ref().is_some_and(is_incomplete)
    }

    /// The symbol to be sent now.
    pub(super) fn next(&mut self, now: Time) -> Option<Symbol> {
        if !self.has_next() {
            return None;
        }
        if self.round == 0 {
            self.round = self.repair_round(now);
        }
        if self.round > 0
            && let Some(former) = &mut self.former
        {
            let number = former.number();
            if let Some(index) = former.next_lost().or_else(|| former.next_repair()) {
                return Some(Symbol { number, index });
            }
            self.round = 0;
        }
        let current = self.current.as_mut()?;
        let number = current.number();
        let index = match current.needed() > 0 {
            true => current.next_lost().or_else(|| current.next_data()),
            false => current.next_repair(),
        };
        if index.is_none() {
            self.repair = Some(0);
        }
        Some(Symbol { number, index: index? })
    }

    /// Whether a newer state of this length begins at once, although the current one is not
    /// completely sent.
    pub(super) fn should_replace(&self, now: Time, generated_at: Time, symbols: u32) -> bool {
        let Some(current) = self.current.as_ref().filter(|_| self.has_next()) else { return true };
        let gain = generated_at.since(current.generated_at());
        self.law.should_replace(&self.current_state(now, current), &NewerState { symbols, gain })
    }

    /// A symbol as the part in update `seq`, which is sent at `sent_at`.
    pub(super) fn part(
        &mut self,
        Symbol { number, index }: Symbol,
        seq: u64,
        sent_at: Time,
    ) -> Option<Part<'_>> {
        let Self { current, former, encoder, .. } = self;
        let transfers = [current, former].into_iter().flatten();
        let transfer = transfers.into_iter().find(|transfer| transfer.number() == number)?;
        let (layout, age) = (*transfer.layout(), sent_at.since(transfer.generated_at()));
        let id = StateId { topic: self.topic, behind: seq - number, age };
        Some(Part { id, layout, index, bytes: transfer.symbol(index, encoder)? })
    }

    // ---- getters ----

    /// The number of the current state.
    pub(super) fn current_number(&self) -> Option<u64> {
        self.current.as_ref().map(Transfer::number)
    }

    /// When the current state was sampled.
    pub(super) fn current_generated_at(&self) -> Option<Time> {
        self.current.as_ref().map(Transfer::generated_at)
    }

    /// Bytes of symbols of the current state that are still to be sent.
    pub(super) fn bytes_left(&self) -> usize {
        let left = |current: &Transfer| {
            let symbols = current.needed().max(self.repair.unwrap_or(0));
            symbols as usize * (current.layout().symbol_len() + HEADERS)
        };
        self.current.as_ref().map_or(0, left)
    }

    /// Whether a part in flight is in update `seq`.
    pub(super) fn is_in_flight(&self, seq: u64) -> bool {
        self.in_flight.binary_search_by_key(&seq, |part| part.seq).is_ok()
    }

    /// Whether there are parts in flight.
    pub(super) fn has_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// The data symbols of the current state, and [`Repair::age_slots`] of them.
    pub(super) fn cost(&self) -> (u32, f64) {
        let symbols = self.current.as_ref().map_or(1, |current| current.layout().data());
        (symbols, self.law.age_slots(symbols))
    }

    /// Whether the current state is known to be complete at the monitor.
    pub(super) fn is_complete(&self) -> bool {
        self.current_number().is_some_and(|number| self.confirmed >= Some(number))
    }

    /// Whether acks or times may still change something.
    pub(super) fn is_busy(&self) -> bool {
        self.is_incomplete() || self.has_in_flight() || self.has_next()
    }

    /// States that newer ones replaced before they were complete.
    pub(super) fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// Whether there is a current state that is not known to be complete at the monitor.
    pub(super) fn is_incomplete(&self) -> bool {
        self.current.is_some() && !self.is_complete()
    }

    /// The same, and no ack has reported that the monitor does not have it.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_incomplete() && !self.is_forgotten
    }

    // ---- steps ----

    fn transfer(&mut self, number: u64) -> Option<&mut Transfer> {
        let transfers = [&mut self.current, &mut self.former].into_iter().flatten();
        transfers.into_iter().find(|transfer| transfer.number() == number)
    }

    fn is_former(&self, number: u64) -> bool {
        self.former.as_ref().is_some_and(|former| former.number() == number)
    }

    /// Once all data symbols were sent, the law decides how many repair symbols follow.
    fn plan_repair(&mut self) {
        let Some(current) = &self.current else { return };
        if self.repair.is_none() && current.needed() == 0 {
            let data = current.layout().data();
            let repair = self.law.repair_symbols(data, current.in_flight());
            self.repair = Some(repair.min(current.layout().repair()));
            self.spent = 0;
        }
    }

    fn on_arrived(&mut self, part: SentPart) {
        self.law.on_arrived();
        let Some(transfer) = self.transfer(part.number) else { return };
        transfer.on_acked(part.index);
        if transfer.is_complete() {
            let generated_at = transfer.generated_at();
            self.delivered = self.delivered.max(Some(generated_at));
            if self.is_former(part.number) {
                self.round = 0;
            } else {
                self.set_former_aside();
            }
        }
    }

    /// The monitor has the state of this number, and no newer one.
    fn on_complete(&mut self, number: u64) -> Option<Completed> {
        self.confirmed = self.confirmed.max(Some(number));
        // Acks may not have named all symbols of it: no more are needed.
        if let Some(current) = self.current.as_mut().filter(|it| it.number() <= number) {
            current.complete();
            self.delivered = self.delivered.max(Some(current.generated_at()));
            self.set_former_aside();
        }
        while let Some(begun) = self.begun.front().copied().filter(|it| it.number <= number) {
            self.begun.pop_front();
            if begun.number == number {
                return Some(begun.state);
            }
            self.abandoned += 1;
        }
        None
    }

    /// Marks the oldest parts in flight as lost, as long as `is_lost` holds for them.
    fn lose_while(&mut self, is_lost: impl Fn(&SentPart) -> bool) {
        while let Some(part) = self.in_flight.front().copied().filter(&is_lost) {
            self.in_flight.pop_front();
            self.on_lost(part);
        }
    }

    fn on_lost(&mut self, part: SentPart) {
        self.law.on_lost();
        if let Some(transfer) = self.transfer(part.number) {
            transfer.on_lost(part.index);
        }
    }

    /// If all symbols of the current state have arrived but the monitor does not have it (it had no
    /// room, or some were corrupted), the state is sent again.
    fn check_forgotten(&mut self, now: Time, newest: Option<u64>) {
        let Some(current) = self.current.as_ref().filter(|current| current.is_complete()) else {
            return;
        };
        self.is_forgotten = newest.is_none_or(|newest| newest < current.number());
        self.restart_forgotten(now);
    }

    fn restart_forgotten(&mut self, now: Time) {
        let is_soon = self.restarted_at.is_some_and(|at| now < at + AGAIN);
        if !self.is_forgotten || is_soon {
            return;
        }
        self.is_forgotten = false;
        if let Some(current) = self.current.as_mut().filter(|current| current.is_complete()) {
            current.restart();
            self.in_flight.clear();
            (self.repair, self.restarted_at) = (None, Some(now));
        }
    }

    fn set_former_aside(&mut self) {
        self.round = 0;
        self.spare = self.former.take().or(self.spare.take());
    }

    fn repair_round(&self, now: Time) -> u32 {
        let (Some(former), Some(current)) = (&self.former, &self.current) else { return 0 };
        let layout = former.layout();
        let gain = self.delivered.map_or(Span::MAX, |at| former.generated_at().since(at));
        let needed = layout.data().saturating_sub(former.acked());
        let state = FormerState { needed, in_flight: former.in_flight(), gain };
        self.law.repair_round(&state, &self.current_state(now, current))
    }

    fn current_state(&self, now: Time, current: &Transfer) -> CurrentState {
        let former_at = self.former.as_ref().map(Transfer::generated_at).or(self.delivered);
        CurrentState {
            symbols: current.layout().data(),
            remaining: current.needed(),
            gain: former_at.map_or(Span::ZERO, |at| current.generated_at().since(at)),
            delivered_age: self.delivered.map_or(Span::MAX, |at| now.since(at)),
            spent: self.spent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_which_no_ack_says_anything_are_remembered_within_a_bound() {
        let (mut transfers, now) = (Transfers::new(0), Time::ZERO);
        for seq in 0..MAX_IN_FLIGHT as u64 + 1_000 {
            if !transfers.has_next() {
                transfers
                    .begin(seq, now, &[1; 100], Cut { symbol_len: 10, has_repair: true })
                    .expect("ten symbols");
            }
            let symbol = transfers.next(now).expect("one is to leave");
            transfers.on_sent(now, seq, symbol);
        }
        assert_eq!(transfers.in_flight.len(), MAX_IN_FLIGHT);
    }
}
