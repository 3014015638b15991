//! The output of a source: the update that is due, its copies for other paths, and the close.

use alloc::vec::Vec;

use super::memory::SentUpdate;
use super::opener::Opener;
use super::topics::{Load, Slot};
use super::transfers::Symbol;
use super::{Reach, Source, SourceParams, Transmit};
use crate::dscp::Dscp;
use crate::path::{PathId, PathSet};
use crate::session::paths::Route;
use crate::source::{Limit, Phase};
use crate::unit::{Span, Time};
use crate::wire::{Close, CloseReason, Frame, Frames, Opening, StateId, Update};

/// The pending datagrams of an update or a close.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// The last update, and the paths on which it has not been sent yet.
    copies: Option<(Leaving, PathSet)>,
    /// The number of the path on which the next close is sent.
    close_by: Option<u8>,
}

impl Outgoing {
    pub(super) fn close(&mut self) {
        self.close_by = self.close_by.or(Some(0));
    }

    pub(super) fn is_closing(&self) -> bool {
        self.close_by.is_some()
    }

    /// The session is another one.
    pub(super) fn forget_copies(&mut self) {
        self.copies = None;
    }

    /// The next copy, and its path.
    fn next_copy(&mut self) -> Option<(Leaving, PathId)> {
        let (leaving, paths) = self.copies.as_mut()?;
        let next = paths.iter().next().map(|path| {
            *paths = paths.without(path);
            (*leaving, path)
        });
        if next.is_none() {
            self.copies = None;
        }
        next
    }
}

/// An update that is being sent, on one or several paths.
#[derive(Debug, Clone, Copy)]
struct Leaving {
    seq: u64,
    sent_at: Time,
    content: Content,
}

/// The content of an update.
#[derive(Debug, Clone, Copy)]
enum Content {
    /// The state that is ready, whole.
    Whole(StateId),
    Part(Symbol),
    /// The last state by its number alone.
    Again(StateId),
    /// The choice of [`Topics`](super::topics::Topics).
    Topics(Load),
    /// No state: an opening, as the monitor keeps no part of a state before it accepts the session;
    /// or an update of a source with topics that does not repeat a state, as its acks report which
    /// states have arrived.
    Nothing,
}

impl Source {
    /// Writes the next datagram that may be sent now to the front of `out`, which grows to its
    /// length; call until it returns `None`.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        if self.outgoing.is_closing() {
            return self.write_close(out);
        }
        if let Some((leaving, path)) = self.outgoing.next_copy() {
            return self.write_copy(now, leaving, path, out);
        }
        self.write_update(now, out)
    }

    fn write_update(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        let may_leave = self.opener.is_open() || self.opener.is_ready();
        if !(may_leave && self.is_ready(now) && self.is_due(now)) {
            return None;
        }
        let Some(route) = self.route(now) else {
            self.states.on_no_path();
            return None;
        };
        let (seq, path) = (self.acks.next_seq(), route.first);
        let content = self.choose(now, seq)?;
        let leaving = Leaving { seq, sent_at: now, content };
        let is_part = matches!(content, Content::Part(_));
        let wants_ack = self.wants_ack(now, path)
            || (is_part && self.transfers.wants_ack())
            || self.topics.wants_ack();
        let dscp = self.mark(content);
        let (len, payload_len) = self.write(&leaving, path, wants_ack, false, out)?;
        match wants_ack {
            true => {
                self.paths.on_sent(now, path, seq, false);
                self.opener.on_sent_by(path);
            }
            false => self.paths.on_sent_without_ack_request(now, path),
        }
        self.counters.ack_requests += u64::from(wants_ack);
        if is_part {
            self.transfers.on_ack_request(wants_ack);
        }
        self.counters.payload_bytes += payload_len as u64;
        self.on_sent(now, content, payload_len, wants_ack);
        let copies = if self.topics.is_urgent() {
            self.other_paths(path)
        } else {
            route.copies.without(path)
        };
        self.outgoing.copies = (!copies.is_empty()).then_some((leaving, copies));
        Some(Transmit { path, len, dscp, seq: Some(seq), is_copy: false })
    }

    fn write_copy(
        &mut self,
        now: Time,
        leaving: Leaving,
        path: PathId,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let seq = leaving.seq;
        let (len, _) = self.write(&leaving, path, true, true, out)?;
        self.paths.on_sent(now, path, seq, true);
        self.opener.on_sent_by(path);
        Some(Transmit {
            path,
            len,
            dscp: self.mark(leaving.content),
            seq: Some(seq),
            is_copy: true,
        })
    }

    /// Chooses the content of update `seq`, which is due.
    fn choose(&mut self, now: Time, seq: u64) -> Option<Content> {
        if self.topics.has_any() {
            return self.choose_topics(now, seq);
        }
        let Some(generated_at) = self.states.ready_generated_at() else {
            return self.next_symbol(now);
        };
        // A part continues a state that has begun: the limits on the rate of states do not apply to
        // it.
        if self.has_symbol() && now < self.law.not_before() {
            return self.next_symbol(now);
        }
        let number = self.states.ready_number();
        let behind = seq - number.unwrap_or(seq);
        let id = StateId { topic: 0, behind, age: now.since(generated_at) };
        let is_repeat = self.states.is_repeat_ready();
        if !self.is_ready_large() {
            if !is_repeat {
                self.transfers.abandon();
            }
            return Some(Content::Whole(id));
        }
        if !self.opener.is_open() {
            return Some(Content::Nothing);
        }
        // A state without a path, or in an opening, has not begun although it is the last one.
        let has_begun = number.is_some() && self.transfers.current_number() == number;
        if !has_begun && (is_repeat || self.may_begin(now, generated_at)) {
            self.begin(now, seq, generated_at);
        }
        // If no symbol is known to be missing, send the state's number: its ack names the missing
        // symbols.
        self.next_symbol(now).or(Some(Content::Again(id)))
    }

    fn choose_topics(&mut self, now: Time, seq: u64) -> Option<Content> {
        self.topics.clear();
        if !self.opener.is_open() {
            return Some(Content::Nothing);
        }
        let limit = self.law.limited_by();
        let is_found = limit.is_none() && self.law.adapts();
        let are_bytes_scarce = is_found || limit == Some(Limit::MaxBandwidth);
        // The time per byte is known for a single path only, and a configured bandwidth is a limit
        // by the user.
        let is_rate_found = is_found
            && self.paths.count() == 1
            && !self.law.has_max_bandwidth()
            && self.law.phase() == Phase::Steering;
        let is_ahead = self.is_ahead(now);
        let slot = Slot {
            now,
            seq,
            max_whole: self.max_whole(),
            cut: self.cut(),
            room: self.room(0),
            may_begin: now >= self.law.not_before() && !is_ahead,
            is_ahead,
            are_records_due: self.are_records_due(now),
            are_bytes_scarce,
            is_rate_found,
            bounded_from: self.acks.clock_offset().bounded_from().unwrap_or(Time::ZERO),
            period: self.law.rate().period(),
            srtt: self.acks.srtt().unwrap_or(self.params.first_wait),
        };
        let is_empty_wanted = self.is_empty_wanted();
        let law = &mut self.law;
        let begins = |(symbols, age_slots)| law.on_begin(now, symbols, age_slots);
        match self.topics.choose(&slot, is_empty_wanted, begins) {
            true => Some(Content::Topics(self.topics.load())),
            false => is_empty_wanted.then_some(Content::Nothing),
        }
    }

    fn next_symbol(&mut self, now: Time) -> Option<Content> {
        let srtt = self.acks.srtt().unwrap_or(self.params.first_wait);
        self.transfers.on_slot(self.law.rate().period(), srtt);
        self.transfers.next(now).map(Content::Part)
    }

    /// Whether the ready large state begins; otherwise the previous one continues.
    fn may_begin(&self, now: Time, generated_at: Time) -> bool {
        let symbols = self.states.ready_state().len().div_ceil(self.symbol_len().into());
        self.transfers.should_replace(now, generated_at, symbols as u32)
    }

    /// The ready large state begins with update `seq`.
    fn begin(&mut self, now: Time, seq: u64, generated_at: Time) {
        self.states.take(seq);
        let cut = self.cut();
        let (number, state) = (self.states.number(seq), self.states.last());
        // `put` has refused states that cannot be cut.
        let _ = self.transfers.begin(number, generated_at, state, cut);
        let (symbols, age_slots) = self.transfers.cost();
        self.law.on_begin(now, symbols, age_slots);
        self.counters.abandoned_states = self.transfers.abandoned();
    }

    /// Writes an update to the front of `out`; returns its length, and the number of bytes of
    /// states in it.
    fn write(
        &mut self,
        leaving: &Leaving,
        by: PathId,
        wants_ack: bool,
        is_copy: bool,
        out: &mut Vec<u8>,
    ) -> Option<(usize, usize)> {
        let Leaving { seq, sent_at, content } = *leaving;
        let Self { params, session, opener, states, transfers, topics, acks, .. } = self;
        let label_error = self.label_errors[0].max(self.label_errors[1]);
        let (frames, payload_len, age) = match content {
            Content::Whole(id) => {
                // A copy carries the last state; a newer one may be ready by now.
                let bytes = if is_copy { states.last() } else { states.ready_state() };
                (Frames::one(Frame::State { id, bytes }), bytes.len(), id.age)
            }
            Content::Part(symbol) => {
                let part = transfers.part(symbol, seq, sent_at)?;
                (Frames::one(Frame::Part(part)), part.bytes.len(), part.id.age)
            }
            Content::Again(id) => (Frames::one(Frame::Again(id)), 0, id.age),
            Content::Topics(load) => {
                let frames = Frames::appended(topics.frames());
                (frames, load.bytes, max_age(&frames))
            }
            Content::Nothing => (Frames::NONE, 0, Span::ZERO),
        };
        let opening = opener.must_open(by).then(|| opening(params, opener, by));
        let update = Update {
            session: *session,
            seq,
            sent_at,
            clock_offset: acks.clock_offset().estimate(sent_at, sent_at - age, label_error),
            wants_ack,
            wants_return: params.wants_return,
            ack_mark: params.ack_mark,
            opening,
            frames,
        };
        // The fast path: usually there is room.
        let len = update.write(out).or_else(|| {
            grow(out, update.len());
            update.write(out)
        });
        Some((len?, payload_len))
    }

    fn write_close(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let number = self.outgoing.close_by.filter(|by| usize::from(*by) < self.paths.count())?;
        self.outgoing.close_by = Some(number + 1);
        let close = Close { session: self.session, reason: CloseReason::Done }.bytes();
        grow(out, close.len());
        out[..close.len()].copy_from_slice(&close);
        let (path, dscp) = (PathId(number), Dscp::DEFAULT);
        Some(Transmit { path, len: close.len(), dscp, seq: None, is_copy: false })
    }

    /// The paths of the update that is due now; `None` if no path is up. An opening takes all
    /// paths: the first answer counts.
    fn route(&mut self, now: Time) -> Option<Route> {
        if self.opener.is_open() {
            // A single path is taken at any interval.
            let has_choice = self.paths.count() > 1;
            let interval = if has_choice { self.law.rate().period() } else { Span::ZERO };
            return self.paths.route(now, interval, self.acks.clock_offset().nanos());
        }
        let by = self.opener.prompted_by();
        let challenged = self.paths.up().filter(|path| by.contains(*path));
        Route::over(challenged).or_else(|| Route::over(self.paths.up()))
    }

    /// All paths that are up but this one.
    fn other_paths(&self, path: PathId) -> PathSet {
        self.paths.up().filter(|other| *other != path).fold(PathSet::EMPTY, PathSet::with)
    }

    pub(super) fn opening(&self, by: PathId) -> Opening<'_> {
        opening(&self.params, &self.opener, by)
    }

    /// Whether the update that is sent now asks for an ack. All openings do, and updates sent when
    /// an answer of the monitor is overdue, such as repeated states.
    fn wants_ack(&self, now: Time, by: PathId) -> bool {
        self.opener.must_open(by)
            || self.paths.want_every_ack()
            || self.law.wants_ack(now)
            || self.repeat_at().is_some_and(|at| at <= now)
    }

    /// The code point of an update that is sent now. Only an update with a whole state is marked: a
    /// router that replaces marked packets by newer ones of their flow would destroy a state in
    /// parts.
    fn mark(&self, content: Content) -> Dscp {
        match (self.opener.reach(), content) {
            (Reach::Open, Content::Whole(_)) => self.params.dscp,
            _ => Dscp::DEFAULT,
        }
    }

    fn on_sent(&mut self, now: Time, content: Content, payload_len: usize, wants_ack: bool) {
        self.on_pace(now);
        let seq = self.acks.next_seq();
        let (generated_at, whole) = match content {
            Content::Whole(_) => (self.states.take(seq), payload_len),
            // The ack reports whether the monitor has the state.
            Content::Again(_) => {
                self.states.take(seq);
                (None, 0)
            }
            Content::Part(symbol) => {
                self.states.on_part();
                self.counters.parts += 1;
                self.counters.repair_parts += u64::from(self.transfers.on_sent(now, seq, symbol));
                (None, 0)
            }
            Content::Topics(load) => {
                self.states.on_session_changed();
                self.counters.parts += u64::from(load.is_part);
                (None, load.whole)
            }
            // Ask for a state again: the present one would be as old as the outage.
            Content::Nothing => {
                self.states.on_no_path();
                (None, 0)
            }
        };
        if self.topics.has_any() {
            self.counters.repair_parts += self.topics.on_sent(now, seq, wants_ack);
            self.counters.abandoned_states = self.topics.abandoned();
        }
        if !matches!(content, Content::Whole(_)) {
            self.marks.on_unmarked(seq);
        }
        let carried = match content {
            Content::Topics(_) => self.topics.frames().len(),
            _ => payload_len,
        };
        // Both are shorter than a datagram.
        let (payload_len, len) = (whole as u32, carried as u32);
        self.acks.on_sent(SentUpdate { generated_at, sent_at: now, payload_len, len });
        self.liveness.on_sent(now);
        self.counters.sent += 1;
        if self.opener.is_open() {
            match content {
                Content::Part(_) | Content::Topics(Load { is_part: true, .. }) => {
                    self.law.on_part(now, seq);
                }
                Content::Whole(_) | Content::Topics(Load { has_state: true, .. }) => {
                    self.law.on_whole(now, seq);
                }
                // The limit of states does not count them.
                Content::Topics(Load { has_records: true, .. }) => self.law.on_part(now, seq),
                _ => self.law.on_sent(now, seq),
            }
        } else {
            match content {
                Content::Nothing => self.law.on_empty_opening(now),
                _ => self.law.on_opening(now),
            }
            self.marks.on_unmarked(seq);
            let earliest = self.earliest_opening();
            self.opener.on_sent(now, earliest);
        }
    }
}

fn opening<'a>(params: &'a SourceParams, opener: &Opener, by: PathId) -> Opening<'a> {
    Opening { cookie: opener.cookie(by), name: &params.name, token: &params.token }
}

/// The age of the oldest state in these frames; without a state, of the oldest record, as records
/// may be far older.
fn max_age(frames: &Frames<'_>) -> Span {
    let oldest = frames.iter().filter_map(|frame| frame.id()).map(|id| id.age).max();
    let oldest = oldest.or_else(|| frames.iter().filter_map(|frame| frame.record_age()).max());
    oldest.unwrap_or_default()
}

fn grow(out: &mut Vec<u8>, len: usize) {
    if out.len() < len {
        out.resize(len, 0);
    }
}
