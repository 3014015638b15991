//! The records of one topic: records to be sent, in flight, and done.
//!
//! ```text
//!   put ─► new ─► in flight ─┬─► arrived ─► done: the cursor has passed it, and it is freed
//!                  ▲         └─ lost ─► again
//!                  └──────────────────────┘
//! ```
//!
//! Chunks are freed only by the monitor's **cursor**, as a restarted monitor has lost the chunks
//! that had arrived. When the session opens, all held chunks are sent again. Chunks that are sent
//! and not done are within [`RecordChunk::WINDOW`]. If all chunks have arrived and the cursor is
//! behind, a request for the cursor is sent after 1.5 round trips, then after twice that, up to 1
//! s. If the answers bring no progress for long, all of these chunks are sent again: a monitor
//! whose memory is full may have dropped some.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::acked_parts::AckedParts;
use super::again;
use super::slot::Slot;
use super::types::{RecordError, RecordsView, TopicKind, TopicParams};
use crate::unit::{Span, Time};
use crate::wire::{Frame, RecordChunk, StreamId, TopicName, TopicStream};

/// After this number of requests without progress, doubled each time, all arrived chunks are sent
/// again.
const STALLED: u32 = 8;

/// The maximum number of updates in flight that are remembered: the window has fewer, except with
/// repeats of urgent chunks.
const MAX_IN_FLIGHT: usize = 1 << 13;

#[derive(Debug)]
struct Chunk {
    bytes: Box<[u8]>,
    generated_at: Time,
    is_last: bool,
    has_arrived: bool,
    /// The last update with it, and how often it was sent, in this session.
    sent_in: Option<u64>,
    sent_times: u32,
}

/// The consecutive chunks of an update in flight; empty for a request for the cursor.
#[derive(Debug, Clone, Copy)]
struct Sent {
    seq: u64,
    sent_at: Time,
    /// The length of the datagram with all headers.
    bytes: usize,
    from: u64,
    to: u64,
    has_name: bool,
    /// Whether the ack contains the cursor.
    leads: bool,
    /// When chunks of an urgent topic are repeated.
    again_at: Option<Time>,
}

/// The records newly received by the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    /// Complete records.
    pub(super) records: u64,
    /// When the newest of them was generated.
    pub(super) generated_at: Time,
}

#[derive(Debug)]
pub(in super::super) struct Records {
    /// The topic's number.
    pub(super) number: u16,
    pub(super) params: Arc<TopicParams>,
    stream: StreamId,
    max_bytes: usize,
    /// The number of the first held chunk: all below are done.
    base: u64,
    chunks: VecDeque<Chunk>,
    /// Their size, with the cost per chunk.
    bytes: usize,
    /// Chunks from this number on were not sent in this session; `ahead` is the cost of the held
    /// chunks before it.
    new: u64,
    ahead: usize,
    /// Chunks to be sent again.
    again: BTreeSet<u64>,
    in_flight: VecDeque<Sent>,
    is_named: bool,
    /// Chunks are not sent before this time, as the monitor had no room.
    held_until: Time,
    /// When chunks were last sent, and when chunks or a request were.
    last_sent: Option<Time>,
    last_left: Option<Time>,
    /// Requests for the cursor since it last moved.
    asks: u32,
    srtt: Span,
    repeated: u64,
    /// Whether [`Records::done`] has grown and this was not reported to the driver yet.
    pub(super) has_news: bool,
    /// The content of the chosen update: chunks, whether the name, and whether a request for the
    /// cursor.
    chosen: Vec<u64>,
    names: bool,
    pub(super) asks_now: bool,
}

impl Records {
    /// `None` if the topic is not of records.
    pub(super) fn new(number: u16, params: &Arc<TopicParams>) -> Option<Self> {
        let TopicKind::Every { stream, first, max_bytes } = params.kind else { return None };
        Some(Self {
            number,
            params: Arc::clone(params),
            stream,
            max_bytes: max_bytes as usize,
            base: first,
            chunks: VecDeque::new(),
            bytes: 0,
            new: first,
            ahead: 0,
            again: BTreeSet::new(),
            in_flight: VecDeque::new(),
            is_named: false,
            held_until: Time::ZERO,
            last_sent: None,
            last_left: None,
            asks: 0,
            srtt: Span::ZERO,
            repeated: 0,
            has_news: false,
            chosen: Vec::new(),
            names: false,
            asks_now: false,
        })
    }

    // ---- inputs ----

    /// # Errors
    /// [`RecordError`] if it is too long, or if there is no room for it now.
    pub(super) fn put(&mut self, generated_at: Time, record: &[u8]) -> Result<u64, RecordError> {
        let max = RecordChunk::max_record_within(self.max_bytes);
        if record.len() > max {
            return Err(RecordError::TooLong { given: record.len(), max });
        }
        let count = RecordChunk::count(record.len()) as usize;
        let cost = RecordChunk::cost_of_record(record.len());
        if self.bytes + cost > self.max_bytes {
            let topic = self.params.name.clone();
            return Err(RecordError::Full { topic, bytes: self.bytes });
        }
        let first = self.end();
        for place in 0..count {
            let rest = &record[place * RecordChunk::MAX_LEN..];
            self.chunks.push_back(Chunk {
                bytes: rest[..rest.len().min(RecordChunk::MAX_LEN)].into(),
                generated_at,
                is_last: place + 1 == count,
                has_arrived: false,
                sent_in: None,
                sent_times: 0,
            });
        }
        self.bytes += cost;
        Ok(first)
    }

    pub(super) fn handle_timeout(&mut self, now: Time, passed: u64, patience: Span) {
        let is_lost = |sent: &Sent| sent.seq < passed && sent.sent_at + patience <= now;
        self.settle(|sent| is_lost(sent).then_some(false));
        // An overdue update may still arrive.
        for place in 0..self.in_flight.len() {
            let sent = &mut self.in_flight[place];
            if sent.again_at.is_some_and(|at| at <= now) {
                sent.again_at = None;
                let sent = *sent;
                self.send_again(&sent);
            }
        }
    }

    /// No ack has arrived for a long time: updates sent until `before` are considered lost.
    pub(super) fn on_silence(&mut self, before: Time) {
        self.settle(|sent| (sent.sent_at <= before).then_some(false));
    }

    /// The session is open, possibly at another monitor: its records are unknown.
    pub(super) fn on_opened(&mut self) {
        self.forget();
        self.held_until = Time::ZERO;
    }

    fn forget(&mut self) {
        for chunk in &mut self.chunks {
            (chunk.has_arrived, chunk.sent_in, chunk.sent_times) = (false, None, 0);
        }
        self.in_flight.clear();
        self.again.clear();
        (self.new, self.ahead) = (self.base, 0);
        (self.is_named, self.asks) = (false, 0);
    }

    /// The newest ack has arrived.
    pub(super) fn on_ack(&mut self, now: Time, ack: &AckedParts) -> Option<Done> {
        if ack.parts.no_room && self.is_in_flight(ack.seq) {
            self.held_until = now + again::NO_ROOM;
        }
        let leads = self.leads(ack.seq);
        self.settle(|sent| ack.verdict(sent.seq, sent.sent_at));
        match ack.parts.newest.filter(|_| leads) {
            Some(cursor) => self.on_cursor(cursor),
            // Without a cursor in the ack, the monitor does not know the stream and needs all
            // chunks.
            None if leads => {
                self.forget();
                None
            }
            None => None,
        }
    }

    /// An ack older than others has arrived.
    pub(super) fn on_late_ack(&mut self, ack: &AckedParts) -> Option<Done> {
        let leads = self.leads(ack.seq);
        self.settle(|sent| ack.parts.names(ack.seq, sent.seq).then_some(true));
        ack.parts.newest.filter(|_| leads).and_then(|cursor| self.on_cursor(cursor))
    }

    /// An ack of this update has arrived that does not report on others: the monitor does not
    /// support records.
    pub(super) fn on_lone_ack(&mut self, now: Time, seq: u64) {
        if self.is_in_flight(seq) {
            self.held_until = now + again::NO_ROOM;
            self.settle(|sent| (sent.seq == seq).then_some(false));
        }
    }

    // ---- sending ----

    /// Nothing is chosen.
    pub(super) fn clear(&mut self) {
        self.chosen.clear();
        (self.names, self.asks_now) = (false, false);
    }

    /// Appends chunks to be sent now, the lowest first, while `out` has room and they take at most
    /// `budget`; returns the number of bytes of records in them.
    pub(super) fn write(&mut self, slot: &Slot, budget: usize, out: &mut Vec<u8>) -> usize {
        self.srtt = slot.srtt;
        let (start, mut payload) = (out.len(), 0);
        let (mut chosen, mut ahead) = (core::mem::take(&mut self.chosen), self.ahead);
        let name = (!self.is_named).then(|| Frame::Name(self.name()));
        for number in self.again.iter().copied().chain(self.new..self.end()) {
            let Some(chunk) = self.chunk(number) else { continue };
            if number >= self.new {
                ahead += RecordChunk::cost(chunk.bytes.len());
            }
            let frame = Frame::Record(RecordChunk {
                topic: self.number,
                number,
                is_last: chunk.is_last,
                age: slot.now.since(chunk.generated_at),
                bytes: &chunk.bytes,
            });
            let name = name.filter(|_| chosen.is_empty());
            let end = out.len() + name.map_or(0, |name| name.len()) + frame.len();
            if ahead > RecordChunk::WINDOW || end > slot.room || end - start > budget {
                break;
            }
            name.into_iter().chain([frame]).for_each(|frame| frame.append_to(out));
            payload += chunk.bytes.len();
            chosen.push(number);
        }
        (self.names, self.chosen) = (!self.is_named && !chosen.is_empty(), chosen);
        payload
    }

    /// Appends a request for the cursor.
    pub(super) fn ask(&mut self, srtt: Span, out: &mut Vec<u8>) {
        self.srtt = srtt;
        Frame::Cursor(self.number).append_to(out);
        self.asks_now = true;
    }

    /// The chosen update was sent. `bytes` is its length with headers; `leads` is whether its ack
    /// will contain the cursor. Returns the number of records that end in it, and of bytes of
    /// records in it.
    pub(super) fn on_sent(
        &mut self,
        now: Time,
        (seq, bytes): (u64, usize),
        leads: bool,
    ) -> (u64, u64) {
        if !self.is_chosen() {
            return (0, 0);
        }
        let (mut sent_times, mut ends, mut payload) = (0, 0, 0);
        let (chosen, has_name) = (core::mem::take(&mut self.chosen), self.names);
        for number in &chosen {
            self.again.remove(number);
            let is_new = *number >= self.new;
            let Some(chunk) = self.chunk_mut(*number) else { continue };
            chunk.sent_in = Some(seq);
            chunk.sent_times = chunk.sent_times.saturating_add(1);
            sent_times = sent_times.max(chunk.sent_times);
            ends += u64::from(chunk.is_last);
            payload += chunk.bytes.len() as u64;
            let cost = RecordChunk::cost(chunk.bytes.len());
            if is_new {
                (self.new, self.ahead) = (number + 1, self.ahead + cost);
            } else {
                self.repeated += 1;
            }
        }
        let again_at = (self.params.is_urgent && sent_times > 0)
            .then(|| now + again::patience(self.srtt, sent_times));
        let sent = Sent { seq, sent_at: now, bytes, from: 0, to: 0, has_name, leads, again_at };
        for run in chosen.chunk_by(|one, next| one + 1 == *next) {
            let (from, to) = (run[0], run[run.len() - 1] + 1);
            self.remember(Sent { from, to, ..sent });
        }
        if chosen.is_empty() {
            // Other requests are in updates whose acks were needed anyway.
            if self.ask_at().is_some_and(|at| at <= now) {
                self.on_asked();
            }
            self.remember(Sent { again_at: None, ..sent });
        } else {
            self.last_sent = Some(now);
        }
        self.last_left = Some(now);
        self.chosen = chosen;
        self.clear();
        (ends, payload)
    }

    // ---- timers and requests ----

    /// From when on it has something to send; `None` if it has nothing.
    pub(super) fn ready_at(&self) -> Option<Time> {
        let chunks_at = self.has_next().then(|| self.not_before());
        Time::earliest([chunks_at, self.ask_at()])
    }

    /// Whether chunks may be sent now.
    pub(super) fn can_send(&self, now: Time) -> bool {
        self.has_next() && self.not_before() <= now
    }

    /// From when on chunks may be sent ahead of the law's pace.
    pub(super) fn hurried_at(&self) -> Option<Time> {
        (self.params.is_urgent && self.has_next()).then(|| self.not_before())
    }

    /// When it requests the cursor: all chunks that may be sent were sent and have arrived, and the
    /// cursor is behind.
    pub(super) fn ask_at(&self) -> Option<Time> {
        let is_quiet = !self.has_next() && self.base < self.new && !self.has_chunks_in_flight();
        let left = self.last_left.filter(|_| is_quiet)?;
        Some(left + again::patience(self.srtt, self.asks.saturating_add(1)))
    }

    pub(super) fn poll_timeout(&self, passed: u64, patience: Span) -> Option<Time> {
        let lost_at = self.in_flight.front().filter(|sent| sent.seq < passed);
        let lost_at = lost_at.map(|sent| sent.sent_at + patience);
        let again_at = || self.in_flight.iter().filter_map(|sent| sent.again_at).min();
        Time::earliest([lost_at, self.params.is_urgent.then(again_at).flatten()])
    }

    // ---- getters ----

    pub(in super::super) fn view(&self) -> RecordsView {
        RecordsView {
            stream: self.stream,
            next: self.end(),
            done: self.base,
            bytes: self.bytes,
            max_bytes: self.max_bytes,
            repeated: self.repeated,
        }
    }

    /// The longest record for which there is room.
    pub(in super::super) fn room(&self) -> usize {
        RecordChunk::max_record_within(self.max_bytes - self.bytes)
    }

    /// The application has received all chunks below this number.
    pub(in super::super) fn done(&self) -> u64 {
        self.base
    }

    /// Whether no record is held.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether the chosen update has its chunks or its request.
    pub(super) fn is_chosen(&self) -> bool {
        self.asks_now || !self.chosen.is_empty()
    }

    /// Whether the ack of this update contains the cursor.
    pub(super) fn leads(&self, seq: u64) -> bool {
        self.in_flight.iter().any(|sent| sent.seq == seq && sent.leads)
    }

    /// The key by which topics take turns: the generation time of the record whose chunk is next,
    /// then the time of the last chunk sent.
    pub(super) fn turn(&self) -> (Option<Time>, Option<Time>) {
        let next = self.again.first().copied().unwrap_or(self.new);
        (self.chunk(next).map(|chunk| chunk.generated_at), self.last_sent)
    }

    /// The approximate number of bytes of chunks to be sent.
    pub(super) fn wanted(&self) -> usize {
        self.bytes - self.ahead + self.again.len() * (RecordChunk::MAX_LEN + RecordChunk::COST)
    }

    // ---- steps ----

    /// The next number.
    fn end(&self) -> u64 {
        self.base + self.chunks.len() as u64
    }

    fn name(&self) -> TopicName<'_> {
        let stream = TopicStream { id: self.stream, first: self.base };
        let Self { number: topic, params, .. } = self;
        TopicName { topic: *topic, name: &params.name, key: None, stream: Some(stream) }
    }

    fn chunk(&self, number: u64) -> Option<&Chunk> {
        self.chunks.get(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    fn chunk_mut(&mut self, number: u64) -> Option<&mut Chunk> {
        self.chunks.get_mut(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    /// Whether a chunk may be sent, within the window.
    fn has_next(&self) -> bool {
        let fits = |chunk: &Chunk| {
            self.ahead + RecordChunk::cost(chunk.bytes.len()) <= RecordChunk::WINDOW
        };
        !self.again.is_empty() || self.chunk(self.new).is_some_and(fits)
    }

    /// The earliest time for the next chunks.
    fn not_before(&self) -> Time {
        let period = self.params.max_rate.map(|rate| rate.period());
        let next = self.last_sent.zip(period).map(|(last, period)| last + period);
        next.map_or(self.held_until, |next| next.max(self.held_until))
    }

    /// The size of an update with chunks in flight, headers included, and when it was sent.
    pub(super) fn sent_in(&self, seq: u64) -> Option<(usize, Time)> {
        let is_it = |sent: &&Sent| sent.seq == seq && sent.from < sent.to;
        self.in_flight.iter().find(is_it).map(|sent| (sent.bytes, sent.sent_at))
    }

    fn is_in_flight(&self, seq: u64) -> bool {
        self.in_flight.iter().any(|sent| sent.seq == seq)
    }

    /// Whether an update with held chunks is in flight without a result.
    pub(super) fn has_chunks_in_flight(&self) -> bool {
        self.in_flight.iter().any(|sent| sent.from < sent.to && sent.to > self.base)
    }

    fn remember(&mut self, sent: Sent) {
        if self.in_flight.len() == MAX_IN_FLIGHT
            && let Some(oldest) = self.in_flight.pop_front()
        {
            self.send_again(&oldest);
        }
        self.in_flight.push_back(sent);
    }

    fn on_asked(&mut self) {
        self.asks = self.asks.saturating_add(1);
        if self.asks < STALLED || !self.asks.is_power_of_two() {
            return;
        }
        for number in self.base..self.new {
            let Some(chunk) = self.chunk_mut(number) else { return };
            chunk.has_arrived = false;
            self.again.insert(number);
        }
    }

    /// Settles updates in flight: arrived (`Some(true)`), or lost (`Some(false)`).
    fn settle(&mut self, verdict: impl Fn(&Sent) -> Option<bool>) {
        let mut in_flight = core::mem::take(&mut self.in_flight);
        in_flight.retain(|sent| {
            let verdict = verdict(sent);
            match verdict {
                Some(true) => self.on_arrived(sent),
                Some(false) => self.send_again(sent),
                None => {}
            }
            verdict.is_none()
        });
        self.in_flight = in_flight;
    }

    fn on_arrived(&mut self, sent: &Sent) {
        self.is_named |= sent.has_name;
        for number in sent.from.max(self.base)..sent.to {
            if let Some(chunk) = self.chunk_mut(number) {
                chunk.has_arrived = true;
                self.again.remove(&number);
            }
        }
    }

    /// Its chunks are to be sent again, unless another update has carried them since.
    fn send_again(&mut self, sent: &Sent) {
        for number in sent.from.max(self.base)..sent.to {
            let is_missing = |chunk: &Chunk| !chunk.has_arrived && chunk.sent_in == Some(sent.seq);
            if self.chunk(number).is_some_and(is_missing) {
                self.again.insert(number);
            }
        }
    }

    /// The application has received all chunks below the cursor. A cursor above the last put record
    /// is due to an earlier source of this stream, which had put more: the next record is numbered
    /// after those, as otherwise the monitor would consider it a duplicate.
    fn on_cursor(&mut self, cursor: u64) -> Option<Done> {
        if cursor <= self.base || cursor > RecordChunk::MAX_NUMBER {
            return None;
        }
        let mut done = Done { records: 0, generated_at: Time::ZERO };
        while self.base < cursor {
            let Some(chunk) = self.chunks.pop_front() else { break };
            let cost = RecordChunk::cost(chunk.bytes.len());
            self.bytes -= cost;
            if self.base < self.new {
                self.ahead -= cost;
            }
            done.records += u64::from(chunk.is_last);
            done.generated_at = chunk.generated_at;
            self.base += 1;
        }
        self.base = self.base.max(cursor);
        self.new = self.new.max(self.base);
        self.again = self.again.split_off(&self.base);
        (self.asks, self.has_news) = (0, true);
        Some(done)
    }
}
