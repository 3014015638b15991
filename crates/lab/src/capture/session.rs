//! The age of a Freshline session over UDP, as measured in a capture.
//!
//! ```text
//! at the source   age(t) = t − s    an update was captured at s, its ack at t
//! at the monitor  age(r) = r − (g + o)
//!                 generated at g: the ack repeats when the update left, and the update says how
//!                 old its state was then; received at r, by the ack;
//!                 o: the offset between both clocks, by the source's updates
//! ```
//!
//! The second age is a function of the source's clock, t = r − o, which continues if a monitor is
//! replaced by another one with another clock. Such a change is visible as a new opening, with
//! which the known offset becomes invalid.
//!
//! The first age is the source's own upper bound if the capture was made at the source. Elsewhere,
//! it is too low by the delay from the source to the capture. The second age uses no time of the
//! capture, and is the same wherever that was made. It is as accurate as the source's estimate of
//! the offset ([`freshline_core::session::ClockOffset`]), and does not include updates whose acks
//! were not captured, or not requested. A state that takes several updates counts when an ack names
//! it as complete; s is then the time of its first part.

use std::collections::VecDeque;
use std::net::SocketAddr;

use freshline_core::session::ClockOffset;
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{Ack, Frame, OffsetEstimate, SessionId, Update};

use super::ages::Sawtooth;
use super::outstanding::Outstanding;
use super::packet::Ends;
use super::report::SessionReport;
use super::round_trips::RoundTrips;

/// Sessions do not lose this many consecutive updates.
const JUMP: u64 = 1 << 20;

/// A state that takes several updates.
#[derive(Debug, Clone, Copy)]
struct InParts {
    number: u64,
    generated_at: Time,
    /// When its first part was captured.
    at: Time,
}

#[derive(Debug)]
pub(super) struct Session {
    id: SessionId,
    name: String,
    source: SocketAddr,
    monitor: SocketAddr,
    began_at: Time,
    ended_at: Time,
    /// The highest number seen, plus one.
    next_seq: u64,
    clock_offset: Option<OffsetEstimate>,
    outstanding: Outstanding,
    /// The age of an update's newest complete state at departure, by update number: if it is above
    /// zero, and for updates whose acks report topics or states in parts.
    ages: VecDeque<(u64, Span)>,
    /// Incomplete states in parts, in the order of their numbers.
    in_parts: VecDeque<InParts>,
    max_outstanding: usize,
    updates: u64,
    copies: u64,
    acks: u64,
    late_acks: u64,
    early_acks: u64,
    strays: u64,
    /// The number of an update that is far from all before it.
    stray: Option<u64>,
    round_trips: RoundTrips,
    at_source: Sawtooth,
    at_monitor: Sawtooth,
}

impl Session {
    /// The session `id`, whose first update has been captured between `ends`.
    pub(super) fn new(now: Time, ends: Ends, id: SessionId, max_outstanding: usize) -> Self {
        Self {
            id,
            name: String::new(),
            source: ends.from,
            monitor: ends.to,
            began_at: now,
            ended_at: now,
            next_seq: 0,
            clock_offset: None,
            outstanding: Outstanding::new(max_outstanding),
            ages: VecDeque::new(),
            in_parts: VecDeque::new(),
            max_outstanding,
            updates: 0,
            copies: 0,
            acks: 0,
            late_acks: 0,
            early_acks: 0,
            strays: 0,
            stray: None,
            round_trips: RoundTrips::default(),
            at_source: Sawtooth::default(),
            at_monitor: Sawtooth::default(),
        }
    }

    pub(super) fn on_update(&mut self, now: Time, ends: Ends, update: &Update<'_>) {
        if self.is_stray(update.seq) {
            self.strays += 1;
            return;
        }
        (self.source, self.monitor) = (ends.from, ends.to);
        self.ended_at = now.max(self.ended_at);
        if let Some(opening) = update.opening.filter(|_| self.name.is_empty()) {
            opening.name.clone_into(&mut self.name);
        }
        // A monitor that needs an opening has another clock than the previous one, if any.
        let known = self.clock_offset.filter(|_| update.opening.is_none());
        self.clock_offset = update.clock_offset.or(known);
        // Lower numbers are copies, or updates that were overtaken before the capture.
        let Some(end) = update.seq.checked_add(1).filter(|end| *end > self.next_seq) else {
            self.copies += 1;
            return;
        };
        self.updates += 1;
        self.next_seq = end;
        self.outstanding.on_sent(now, update.seq, end);
        update.frames.iter().for_each(|frame| self.on_frame(now, update, &frame));
        if let Some(age) = newest_age(update)
            && (age > Span::ZERO || update.is_of_parts())
            && self.ages.len() < self.max_outstanding
        {
            self.ages.push_back((update.seq, age));
        }
    }

    fn on_frame(&mut self, now: Time, update: &Update<'_>, frame: &Frame<'_>) {
        let Frame::Part(part) = frame else { return };
        let number = part.id.number(update.seq);
        let is_new = self.in_parts.back().is_none_or(|last| last.number < number);
        if is_new && self.in_parts.len() < self.max_outstanding {
            let generated_at = part.id.generated_at(update.sent_at);
            self.in_parts.push_back(InParts { number, generated_at, at: now });
        }
    }

    /// Whether a number is so far from those before it that it may be damaged. Of two consecutive
    /// numbers that are near each other, the second one is accepted.
    fn is_stray(&mut self, seq: u64) -> bool {
        let is_near = |other: u64| seq.abs_diff(other) < JUMP;
        if self.updates == 0 || is_near(self.next_seq) {
            self.stray = None;
            return false;
        }
        if self.stray.replace(seq).is_none_or(|stray| !is_near(stray)) {
            return true;
        }
        // The accepted numbers were damaged, or a long part of the session is missing.
        self.outstanding.clear_before(u64::MAX);
        (self.next_seq, self.stray) = (seq, None);
        false
    }

    pub(super) fn on_ack(&mut self, now: Time, ack: &Ack) {
        self.ended_at = now.max(self.ended_at);
        let mut whole_left_at = None;
        match self.outstanding.holding(ack.seq) {
            Some(update) if now < update.at => self.early_acks += 1,
            Some(update) => {
                self.acks += 1;
                self.round_trips.record(now.since(update.at + ack.hold));
                whole_left_at = Some(update.at);
                self.outstanding.clear_before(update.end);
            }
            None => self.late_acks += 1,
        }
        let is_near = ack.seq < self.next_seq.saturating_add(JUMP);
        let received_at = self
            .clock_offset
            .filter(|_| is_near)
            .map(|offset| ClockOffset::translate(ack.received_at, offset.nanos().wrapping_neg()));
        // For an update that was not captured, assume a state sampled at departure.
        let age = self.age_of(ack.seq).or_else(|| ack.parts.is_none().then_some(Span::ZERO));
        let whole = age.map(|age| {
            let left_at = whole_left_at.map(|left_at| left_at - age);
            (left_at, ack.sent_at - age)
        });
        let completed = ack.parts.and_then(|parts| self.completed(parts.newest?));
        let in_parts = completed.map(|state| (Some(state.at), state.generated_at));
        for (left_at, generated_at) in whole.into_iter().chain(in_parts) {
            if let Some(left_at) = left_at {
                self.at_source.on_update(now, left_at);
            }
            if let Some(received_at) = received_at {
                self.at_monitor.on_update(received_at, generated_at);
            }
        }
    }

    /// The state in parts that is complete now, if it was not before.
    fn completed(&mut self, number: u64) -> Option<InParts> {
        let is_older = |state: &InParts| state.number <= number;
        let mut last = None;
        while let Some(state) = self.in_parts.front().copied().filter(is_older) {
            self.in_parts.pop_front();
            last = Some(state);
        }
        last.filter(|state| state.number == number)
    }

    /// The age of an update's state at departure, if known. Entries before it are removed.
    fn age_of(&mut self, seq: u64) -> Option<Span> {
        while self.ages.front().is_some_and(|(before, _)| *before < seq) {
            self.ages.pop_front();
        }
        self.ages.front().filter(|(first, _)| *first == seq).map(|(_, age)| *age)
    }

    pub(super) fn report(&self, capture_began_at: Time) -> SessionReport {
        let duration = self.ended_at.since(self.began_at);
        let rate = self.updates as f64 / duration.as_secs_f64();
        SessionReport {
            session: format!("{:016x}", self.id.0),
            name: self.name.clone(),
            source: self.source,
            monitor: self.monitor,
            start_s: self.began_at.since(capture_began_at).as_secs_f64(),
            duration_s: duration.as_secs_f64(),
            updates: self.updates,
            copies: self.copies,
            acks: self.acks,
            late_acks: self.late_acks,
            strays: self.strays,
            early_acks: self.early_acks,
            untracked: self.outstanding.untracked(),
            updates_per_s: (!duration.is_zero()).then_some(rate),
            rtt: self.round_trips.times(),
            age_at_source: self.at_source.ages(),
            age_at_monitor: self.at_monitor.ages(),
        }
    }
}

/// The age of the newest state that an update contains completely, or declares to be still the
/// newest.
fn newest_age(update: &Update<'_>) -> Option<Span> {
    let ages = update.frames.iter().filter_map(|frame| match frame {
        Frame::State { id, .. } | Frame::Again(id) => Some(id.age),
        _ => None,
    });
    ages.min()
}
