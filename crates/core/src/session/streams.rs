//! The streams of records of one source at its monitor: chunks that have come, in any order, until the
//! application is done with the records, which it gets in order.
//!
//! ```text
//!      done      handed out      whole records     a record begins         missing   out of order
//!   ──────────┼──────────────┼──────────────────┼───────────────────────┼─────────────┼───────────────
//!             cursor         given              complete                contiguous
//! ```
//!
//! All that is held is charged to the [`Budget`] of states in parts, and each stream is bounded by
//! [`RecordChunk::WINDOW`]. If the budget is used up, the lowest missing chunk takes the place of the highest
//! ones, as otherwise several streams could wait for each other.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::change::Change;
use super::clock_offset::ClockOffset;
use super::cursors::Cursor;
use super::held::{Arrival, By, LargeStates, Since, error};
use super::latest::StateAge;
use crate::state::Budget;
use crate::unit::{Span, Time};
use crate::wire::{RecordChunk, StateId, StreamId, TopicStream};

/// A record that the application gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenRecord {
    /// The number of its first chunk: those of later records of the stream are greater.
    pub number: u64,
    /// How far the application is once it is done with it. Written down by then, it makes each record reach the
    /// application once over a restart of the monitor.
    pub cursor: Cursor,
    /// When it was generated, on the source's clock.
    pub generated_at: Time,
    /// Its age, by the source's clock and the clocks' offset, as that of a state; `None` until an update has
    /// carried the offset. It does not count time for which the source's clock stood still, and no maximum age
    /// withholds a record.
    pub age: Option<StateAge>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Chunks from the cursor on that can be held: more would be beyond the window, whatever their length.
const MAX_AHEAD: u64 = (RecordChunk::WINDOW / RecordChunk::COST) as u64;

/// What a chunk costs besides its bytes: with its place in a tree, of which the nodes may be half empty, and
/// what an allocator adds.
const COST_OF_CHUNK: usize = 2 * (size_of::<Held>() + size_of::<u64>()) + 16;

/// What a stream costs besides its name and its chunks.
const COST: usize = 2 * size_of::<Stream>();

/// A chunk that has come.
#[derive(Debug)]
struct Held {
    bytes: Box<[u8]>,
    is_last: bool,
    generated_at: Time,
    since: Option<Since>,
    /// When the record was generated, on the monitor's clock, and by how much that may be wrong.
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

    fn age(&self, now: Time) -> Option<StateAge> {
        let estimate = self.estimate.map(|(at, error)| (now.since(at), error));
        Some(StateAge::of(estimate, self.since?, now))
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
    /// What they count for the window.
    bytes: usize,
    /// What the budget is charged.
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
        let cost = RecordChunk::cost(bytes.len());
        let is_beyond =
            number - self.cursor >= MAX_AHEAD || self.bytes + cost > RecordChunk::WINDOW;
        if is_beyond || bytes.len() > RecordChunk::MAX_LEN || !self.charge(chunk, &mut large.budget)
        {
            return Arrival::NoRoom;
        }
        self.bytes += cost;
        self.chunks.insert(number, Held::new(by, chunk));
        if self.advance() {
            large.changes.push(Change::Record(self.topic));
        }
        Arrival::Part
    }

    /// Charges the budget for a chunk; whether there is room, which the lowest missing one makes.
    fn charge(&mut self, chunk: &RecordChunk<'_>, budget: &mut Budget) -> bool {
        loop {
            let wanted = self.share + chunk.bytes.len() + COST_OF_CHUNK;
            if budget.resize(&mut self.share, wanted) {
                return true;
            }
            let highest = self.chunks.last_key_value().map(|(number, _)| *number);
            match highest
                .filter(|highest| chunk.number == self.contiguous && *highest > chunk.number)
            {
                Some(highest) => self.drop_chunk(highest, budget),
                None => return false,
            };
        }
    }

    fn drop_chunk(&mut self, number: u64, budget: &mut Budget) -> Option<Held> {
        let held = self.chunks.remove(&number)?;
        self.bytes -= RecordChunk::cost(held.bytes.len());
        let kept = self.share - held.bytes.len() - COST_OF_CHUNK;
        // Less always fits.
        let _ = budget.resize(&mut self.share, kept);
        Some(held)
    }

    /// Whether there are more whole records now.
    fn advance(&mut self) -> bool {
        let before = self.complete;
        while let Some(held) = self.chunks.get(&self.contiguous) {
            self.contiguous += 1;
            if held.is_last {
                self.complete = self.contiguous;
            }
        }
        self.complete > before
    }

    /// The source has no chunk below `first` any more.
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
        if self.advance() {
            large.changes.push(Change::Record(self.topic));
        }
    }

    fn next(&mut self, now: Time, source: &str, large: &mut LargeStates) -> Option<TakenRecord> {
        let number = self.given;
        if number >= self.complete {
            return None;
        }
        let (mut bytes, mut generated_at, mut age) = (Vec::new(), Time::ZERO, None);
        for (number, held) in self.chunks.range(number..self.complete) {
            bytes.extend_from_slice(&held.bytes);
            generated_at = held.generated_at;
            age = age.or_else(|| held.age(now));
            self.given = number + 1;
            if held.is_last {
                break;
            }
        }
        large.records.taken += 1;
        let (name, next) = (self.name.clone(), self.given);
        let cursor = Cursor { source: source.into(), topic: name, stream: self.id, next };
        large.cursors.give(&cursor, self.cursor);
        Some(TakenRecord { number, cursor, generated_at, age, bytes })
    }

    /// The application is done with all below `next`.
    fn on_done(&mut self, next: u64, large: &mut LargeStates) {
        let next = next.min(self.given);
        while let Some((number, _)) = self.chunks.first_key_value().filter(|(at, _)| **at < next) {
            let number = *number;
            self.drop_chunk(number, &mut large.budget);
        }
        self.cursor = self.cursor.max(next);
    }
}

/// The streams of one source.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// In the order of the topics' numbers.
    all: Vec<Stream>,
}

impl Streams {
    /// A topic that has this name has this stream. Gives whether there is room for it: a topic has one stream
    /// in a session.
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
                    bytes: 0,
                    share,
                };
                self.all.insert(place, new);
                place
            }
        };
        self.all[place].skip(first, large);
        true
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
        let place = self.place(topic).ok()?;
        self.all[place].next(now, source, large)
    }

    /// The application is done with the records up to this cursor; whether the stream is there.
    pub(super) fn on_done(&mut self, cursor: &Cursor, large: &mut LargeStates) -> bool {
        let is_it =
            |stream: &&mut Stream| stream.id == cursor.stream && stream.name == cursor.topic;
        let stream = self.all.iter_mut().find(is_it);
        stream.map(|stream| stream.on_done(cursor.next, large)).is_some()
    }

    /// The chunks that the application is done with.
    pub(super) fn cursor(&self, topic: u16) -> Option<u64> {
        self.place(topic).ok().map(|place| self.all[place].cursor)
    }

    /// The session ends: what is not taken comes again.
    pub(super) fn release(&mut self, budget: &mut Budget) {
        self.all.drain(..).for_each(|mut stream| budget.release(&mut stream.share));
    }

    fn place(&self, topic: u16) -> Result<usize, usize> {
        self.all.binary_search_by_key(&topic, |stream| stream.topic)
    }
}
