//! The streams of records of one source at its monitor: holds chunks, which arrive in any order,
//! until the application has processed their records, which it receives in order.
//!
//! ```text
//!      done      handed out      whole records     a record begins         missing   out of order
//!   ──────────┼──────────────┼──────────────────┼───────────────────────┼─────────────┼───────────────
//!             cursor         given              complete                contiguous
//! ```
//!
//! All held chunks are charged to the [`Budget`] of states in parts, and each stream is bounded by
//! [`RecordChunk::WINDOW`]. If the budget is used up, the lowest missing chunk replaces the highest
//! ones, as otherwise several streams could wait for each other (deadlock).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

use super::change::Change;
use super::clock_offset::{ClockOffset, drift};
use super::cursors::Cursor;
use super::held::{Arrival, By, LargeStates, Since, error};
use super::latest::StateAge;
use super::nameless;
use crate::state::Budget;
use crate::unit::{Span, Time};
use crate::wire::{OffsetEstimate, RecordChunk, StateId, StreamId, TopicStream, Update};

/// A record as delivered to the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenRecord {
    /// The number of its first chunk; later records of the stream have greater numbers.
    pub number: u64,
    /// The cursor after this record is processed. If the application stores it by then, each record
    /// reaches the application exactly once across a restart of the monitor.
    pub cursor: Cursor,
    /// When it was generated, on the source's clock.
    pub generated_at: Time,
    /// Its age, by the source's clock and the clock offset, as that of a state; `None` until an
    /// update of the session has carried the offset. It excludes time for which the source's clock
    /// stopped, and no maximum age withholds a record. Its uncertainty is [`Span::MAX`] if the
    /// source knows no bound, as for a record from before its machine slept.
    pub age: Option<StateAge>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl TakenRecord {
    /// The maximum error by which the estimate of its age can be too low, without the clock drift
    /// over that age, which each further monitor adds itself. A relay adds it to the error of its
    /// own session ([`Source::handle_label_error`](super::Source::handle_label_error)). Zero if no
    /// bound is known, so that such a record does not make the ages of states in the same update
    /// unbounded.
    pub fn label_error(&self) -> Span {
        let bounded = self.age.filter(|age| age.uncertainty < Span::MAX);
        bounded.map_or(Span::ZERO, |age| age.uncertainty - drift(age.estimate))
    }
}

/// Information on the next record of a topic before it is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextRecord {
    /// Its stream.
    pub stream: StreamId,
    /// The number of its first chunk.
    pub number: u64,
    /// The application has processed all chunks below this number, and has received those between
    /// this and `number`, possibly in another session.
    pub done: u64,
    /// Its length in bytes.
    pub len: usize,
    /// Whether [`TakenRecord::age`] is known.
    pub is_age_known: bool,
}

/// The maximum number of chunks from the cursor on that can be held: more would be beyond the
/// window at any length.
const MAX_AHEAD: u64 = (RecordChunk::WINDOW / RecordChunk::COST) as u64;

/// The maximum number of chunks of a record.
const MAX_CHUNKS: u64 = (RecordChunk::MAX_RECORD / RecordChunk::MAX_LEN) as u64;

/// The memory of a chunk in addition to its bytes: with its entry in a tree, whose nodes may be
/// half empty, and the allocator's overhead.
const COST_OF_CHUNK: usize = 2 * (size_of::<Held>() + size_of::<u64>()) + 16;

/// The memory of a stream in addition to its name and its chunks.
const COST: usize = 2 * size_of::<Stream>() + nameless::COST;

/// A received chunk.
#[derive(Debug)]
struct Held {
    bytes: Box<[u8]>,
    is_last: bool,
    generated_at: Time,
    since: Option<Since>,
    /// When the record was generated, on the monitor's clock, and the error of that time.
    estimate: Option<(Time, Span)>,
}

impl Held {
    fn new(by: &By<'_>, chunk: &RecordChunk<'_>) -> Self {
        let id = StateId { topic: chunk.topic, behind: 0, age: chunk.age };
        let generated_at = chunk.generated_at(by.update.sent_at);
        let estimate = by.update.clock_offset.map(|offset| {
            let at = ClockOffset::translate_past(generated_at, offset.nanos(), by.received_at);
            (at, error(offset, id))
        });
        let (is_last, since) = (chunk.is_last, Since::of(by, id));
        Self { bytes: chunk.bytes.into(), is_last, generated_at, since, estimate }
    }

    /// For a chunk that arrived without the clock offset, uses the offset known since.
    fn age(&self, now: Time, known: Option<&Known>) -> Option<StateAge> {
        let (estimate, since) = match (self.estimate, known) {
            (None, Some(known)) => known.judge(self.generated_at, now),
            (estimate, _) => (estimate, self.since),
        };
        let estimate = estimate.map(|(at, error)| (now.since(at), error));
        let unbounded = |(estimate, _)| StateAge { estimate, uncertainty: Span::MAX };
        match since {
            Some(since) => Some(StateAge::of(estimate, since, now)),
            None => estimate.map(unbounded),
        }
    }
}

/// The clock offset of the last update of the session with one.
#[derive(Debug, Clone, Copy)]
struct Known {
    sent_at: Time,
    offset: OffsetEstimate,
}

impl Known {
    /// When a record was generated, on the monitor's clock, with the error, and a lower bound of
    /// that time.
    fn judge(&self, generated_at: Time, now: Time) -> (Option<(Time, Span)>, Option<Since>) {
        let Self { sent_at, offset } = *self;
        let id = StateId { age: sent_at.since(generated_at), ..StateId::FRESH };
        let at = ClockOffset::translate_past(generated_at, offset.nanos(), now);
        (Some((at, error(offset, id))), Since::of_sent(sent_at, offset, id))
    }
}

#[derive(Debug)]
struct Stream {
    topic: u16,
    name: Box<str>,
    id: StreamId,
    cursor: u64,
    given: u64,
    complete: u64,
    contiguous: u64,
    chunks: BTreeMap<u64, Held>,
    /// The cached information on the next record, without the parts that change.
    next: Option<NextRecord>,
    /// Their size in the window.
    bytes: usize,
    /// The bytes charged to the budget.
    share: usize,
}

impl Stream {
    fn on_chunk(
        &mut self,
        by: &By<'_>,
        chunk: &RecordChunk<'_>,
        large: &mut LargeStates,
    ) -> Arrival {
        let RecordChunk { number, bytes, .. } = *chunk;
        if number < self.cursor || self.chunks.contains_key(&number) {
            large.records.repeated += 1;
            return Arrival::Part;
        }
        // Numbers are determined by lengths, as a relay cuts the record into the same chunks again.
        let is_short = bytes.len() < RecordChunk::MAX_LEN && !chunk.is_last;
        if is_short || bytes.len() > RecordChunk::MAX_LEN {
            large.records.bad += 1;
            return Arrival::NoRoom;
        }
        let cost = RecordChunk::cost(bytes.len());
        let is_beyond =
            number - self.cursor >= MAX_AHEAD || self.bytes + cost > RecordChunk::WINDOW;
        if is_beyond || !self.charge(chunk, &mut large.budget) {
            return Arrival::NoRoom;
        }
        self.bytes += cost;
        self.chunks.insert(number, Held::new(by, chunk));
        if self.advance(large) {
            large.changes.push(Change::Record(self.topic));
        }
        if self.chunks.contains_key(&number) { Arrival::Part } else { Arrival::NoRoom }
    }

    /// Charges the budget for a chunk; returns whether there is room. The lowest missing chunk
    /// displaces others if necessary.
    fn charge(&mut self, chunk: &RecordChunk<'_>, budget: &mut Budget) -> bool {
        let mut wanted = self.share + chunk.bytes.len() + COST_OF_CHUNK;
        // As many of the highest chunks are dropped as needed, in one step, so that no other party
        // takes the freed room.
        let is_lowest = chunk.number == self.contiguous;
        let higher =
            self.chunks.range((Excluded(chunk.number), Unbounded)).rev().filter(|_| is_lowest);
        let mut freed = higher.map(|(number, held)| (*number, held.bytes.len() + COST_OF_CHUNK));
        let mut from = None;
        while !budget.resize(&mut self.share, wanted) {
            let Some((number, bytes)) = freed.next() else { return false };
            (from, wanted) = (Some(number), wanted - bytes);
        }
        let dropped = from.map(|from| self.chunks.split_off(&from)).unwrap_or_default();
        self.bytes -=
            dropped.values().map(|held| RecordChunk::cost(held.bytes.len())).sum::<usize>();
        true
    }

    fn drop_chunk(&mut self, number: u64, budget: &mut Budget) -> Option<Held> {
        let held = self.chunks.remove(&number)?;
        self.bytes -= RecordChunk::cost(held.bytes.len());
        let kept = self.share - held.bytes.len() - COST_OF_CHUNK;
        // A reduction always succeeds.
        let _ = budget.resize(&mut self.share, kept);
        Some(held)
    }

    /// Advances to complete records; returns whether there are more now. A chunk that makes a
    /// record too long is dropped.
    fn advance(&mut self, large: &mut LargeStates) -> bool {
        let before = self.complete;
        while let Some(held) = self.chunks.get(&self.contiguous) {
            if !held.is_last && self.contiguous + 1 - self.complete >= MAX_CHUNKS {
                self.drop_chunk(self.contiguous, &mut large.budget);
                large.records.bad += 1;
                break;
            }
            self.contiguous += 1;
            if held.is_last {
                self.complete = self.contiguous;
            }
        }
        self.complete > before
    }

    /// The source no longer has chunks below `first`.
    fn skip(&mut self, first: u64, large: &mut LargeStates) {
        if first <= self.cursor {
            return;
        }
        large.records.lost = large.records.lost.saturating_add(first - self.cursor);
        while let Some((number, _)) = self.chunks.first_key_value().filter(|(at, _)| **at < first) {
            let number = *number;
            self.drop_chunk(number, &mut large.budget);
        }
        (self.cursor, self.given) = (first, self.given.max(first));
        (self.complete, self.contiguous) = (self.complete.max(first), self.contiguous.max(first));
        if self.advance(large) {
            large.changes.push(Change::Record(self.topic));
        }
    }

    fn peek(&mut self, known: Option<&Known>) -> Option<NextRecord> {
        let Self { id: stream, given: number, cursor: done, complete, chunks, next, .. } = self;
        let (number, done) = (*number, *done);
        if number >= *complete {
            return None;
        }
        // Cached: a driver without room asks often, and a record can have thousands of chunks.
        let next = match next {
            Some(next) if next.number == number => next,
            next => {
                let (mut len, mut is_age_known) = (0, false);
                for held in chunks.range(number..*complete).map(|(_, held)| held) {
                    len += held.bytes.len();
                    is_age_known |= held.estimate.is_some();
                    if held.is_last {
                        break;
                    }
                }
                next.insert(NextRecord { stream: *stream, number, done, len, is_age_known })
            }
        };
        let is_age_known = next.is_age_known || known.is_some();
        Some(NextRecord { done, is_age_known, ..*next })
    }

    fn next(
        &mut self,
        now: Time,
        (source, known): (&str, Option<&Known>),
        large: &mut LargeStates,
    ) -> Option<TakenRecord> {
        let number = self.given;
        if number >= self.complete {
            return None;
        }
        let (mut bytes, mut generated_at, mut age) = (Vec::new(), Time::ZERO, None);
        for (number, held) in self.chunks.range(number..self.complete) {
            bytes.extend_from_slice(&held.bytes);
            generated_at = held.generated_at;
            age = age.or_else(|| held.age(now, known));
            self.given = number + 1;
            if held.is_last {
                break;
            }
        }
        large.records.taken += 1;
        let (name, next) = (self.name.clone(), self.given);
        let party = large.cursors.party_of(source);
        let cursor = Cursor { source: source.into(), party, topic: name, stream: self.id, next };
        large.cursors.give(&cursor, self.cursor);
        Some(TakenRecord { number, cursor, generated_at, age, bytes })
    }

    /// The application has processed all chunks below `next`, possibly received in a former
    /// session.
    fn on_done(&mut self, next: u64, large: &mut LargeStates) {
        if next <= self.cursor {
            return;
        }
        while let Some((number, _)) = self.chunks.first_key_value().filter(|(at, _)| **at < next) {
            let number = *number;
            self.drop_chunk(number, &mut large.budget);
        }
        (self.cursor, self.given) = (next, self.given.max(next));
        (self.complete, self.contiguous) = (self.complete.max(next), self.contiguous.max(next));
        self.advance(large);
        if self.complete > self.given {
            // Reported again, as a driver that had no room for them may have some now.
            large.changes.push(Change::Record(self.topic));
        }
    }

    /// The application has dropped records that were handed out and not processed.
    fn give_again(&mut self, changes: &mut Vec<Change>) {
        self.given = self.cursor;
        if self.complete > self.given {
            changes.push(Change::Record(self.topic));
        }
    }
}

/// The streams of one source.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// In the order of the topics' numbers.
    all: Vec<Stream>,
    known: Option<Known>,
}

impl Streams {
    /// The topic with this name has this stream. Returns whether there is room for it: a topic has
    /// one stream per session.
    pub(super) fn announce(
        &mut self,
        (source, name): (&str, &str),
        topic: u16,
        stream: TopicStream,
        large: &mut LargeStates,
    ) -> bool {
        let TopicStream { id, first } = stream;
        let place = match self.place(topic) {
            Ok(place) if self.all[place].id != id => return false,
            Ok(place) => place,
            Err(place) => {
                let mut share = 0;
                if !large.budget.resize(&mut share, COST + name.len()) {
                    return false;
                }
                let (cursor, given) = large.cursors.get(source, name, id).unwrap_or((first, first));
                let new = Stream {
                    topic,
                    name: name.into(),
                    id,
                    cursor,
                    given,
                    complete: cursor,
                    contiguous: cursor,
                    chunks: BTreeMap::new(),
                    next: None,
                    bytes: 0,
                    share,
                };
                self.all.insert(place, new);
                if source.is_empty() {
                    large.nameless.insert(id);
                }
                place
            }
        };
        self.all[place].skip(first, large);
        true
    }

    /// An update has arrived, which may carry the clock offset. With the first one, the ages of
    /// earlier records become known.
    pub(super) fn note_clock_offset(&mut self, update: &Update<'_>, changes: &mut Vec<Change>) {
        let Some(offset) = update.clock_offset else { return };
        let known = Known { sent_at: update.sent_at, offset };
        if self.known.replace(known).is_none() {
            let aged = self.all.iter().filter(|stream| stream.complete > stream.given);
            changes.extend(aged.map(|stream| Change::Record(stream.topic)));
        }
    }

    pub(super) fn on_chunk(
        &mut self,
        by: &By<'_>,
        chunk: &RecordChunk<'_>,
        large: &mut LargeStates,
    ) -> Arrival {
        match self.place(chunk.topic) {
            Ok(place) => self.all[place].on_chunk(by, chunk, large),
            Err(_) => Arrival::NoRoom,
        }
    }

    pub(super) fn next(
        &mut self,
        now: Time,
        (source, topic): (&str, u16),
        large: &mut LargeStates,
    ) -> Option<TakenRecord> {
        let place = self.sync((source, topic), large)?;
        self.all[place].next(now, (source, self.known.as_ref()), large)
    }

    /// The name of a topic's stream.
    pub(super) fn name(&self, topic: u16) -> Option<&str> {
        Some(&self.all[self.place(topic).ok()?].name)
    }

    pub(super) fn peek(
        &mut self,
        (source, topic): (&str, u16),
        large: &mut LargeStates,
    ) -> Option<NextRecord> {
        let place = self.sync((source, topic), large)?;
        self.all[place].peek(self.known.as_ref())
    }

    /// Updates a stream to its cursor, as a restarted source without a name has the same stream in
    /// two sessions until the former one ends. Returns its index.
    pub(super) fn sync(
        &mut self,
        (source, topic): (&str, u16),
        large: &mut LargeStates,
    ) -> Option<usize> {
        let place = self.place(topic).ok()?;
        let stream = &mut self.all[place];
        if let Some((next, given)) = large.cursors.get(source, &stream.name, stream.id) {
            stream.on_done(next, large);
            stream.given = stream.given.max(given);
        }
        Some(place)
    }

    /// The application has processed the records up to this cursor; returns whether the stream is
    /// there.
    pub(super) fn on_done(&mut self, cursor: &Cursor, large: &mut LargeStates) -> bool {
        self.find(cursor).map(|stream| stream.on_done(cursor.next, large)).is_some()
    }

    /// The application has dropped records of this cursor's stream that were handed out and not
    /// processed; returns whether the stream is there.
    pub(super) fn give_again(&mut self, cursor: &Cursor, changes: &mut Vec<Change>) -> bool {
        self.find(cursor).map(|stream| stream.give_again(changes)).is_some()
    }

    fn find(&mut self, cursor: &Cursor) -> Option<&mut Stream> {
        let is_it =
            |stream: &&mut Stream| stream.id == cursor.stream && stream.name == cursor.topic;
        self.all.iter_mut().find(is_it)
    }

    /// The number below which the application has processed all chunks.
    pub(super) fn cursor(&self, topic: u16) -> Option<u64> {
        self.place(topic).ok().map(|place| self.all[place].cursor)
    }

    /// The session ends: records that were not taken will be sent again.
    pub(super) fn release(&mut self, source: &str, large: &mut LargeStates) {
        for mut stream in self.all.drain(..) {
            large.budget.release(&mut stream.share);
            if source.is_empty() {
                large.nameless.remove(stream.id);
            }
        }
    }

    fn place(&self, topic: u16) -> Result<usize, usize> {
        self.all.binary_search_by_key(&topic, |stream| stream.topic)
    }
}
