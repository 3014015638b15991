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
use super::held::{Arrival, By, LargeStates, Since, error};
use super::latest::StateAge;
use crate::state::Budget;
use crate::unit::{Span, Time};
use crate::wire::{RecordChunk, StateId, StreamId, TopicStream};

/// How far the application is with the records of a topic: what a monitor needs to go on there after a
/// restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The name of the source; may be empty.
    pub source: Box<str>,
    /// The name of the topic.
    pub topic: Box<str>,
    /// The stream.
    pub stream: StreamId,
    /// The application has got all chunks with lower numbers.
    pub next: u64,
}

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

/// What has been counted of all streams.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecordCounts {
    pub(super) taken: u64,
    pub(super) repeated: u64,
    pub(super) lost: u64,
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

/// Cursors of streams by the names of source and topic, of sessions that have ended as well; of a source
/// without a name by the stream alone. Beyond a bound the one that has not moved for longest is forgotten.
#[derive(Debug)]
pub(super) struct Cursors {
    max: usize,
    by_name: BTreeMap<Box<str>, Kept>,
    /// The names by the time of their last change.
    by_use: BTreeMap<u64, Box<str>>,
    uses: u64,
}

#[derive(Debug)]
struct Kept {
    stream: StreamId,
    next: u64,
    /// What was handed out is below.
    given: u64,
    used: u64,
}

/// Between the names of source and topic, as neither has one.
const BETWEEN: char = '\0';

impl Cursors {
    pub(super) fn new(max: usize) -> Self {
        Self { max, by_name: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// The application was there before a restart of the monitor.
    pub(super) fn restore(&mut self, cursor: &Cursor) {
        self.keep(cursor, cursor.next, cursor.next);
    }

    /// The application is done with all below a cursor, of a stream of which something was handed out. If another
    /// stream has taken its place since, that one counts.
    pub(super) fn set(&mut self, cursor: &Cursor) {
        let Cursor { source, topic, stream, .. } = cursor;
        let kept = self.by_name.get(&name_of(source, topic, *stream));
        if kept.is_some_and(|kept| kept.stream != *stream) {
            return;
        }
        let (next, given) = self.kept(cursor).map_or((0, 0), |kept| (kept.next, kept.given));
        self.keep(cursor, next.max(cursor.next), given.max(cursor.next));
    }

    /// All below a cursor is handed out, and all below `done` is done with.
    fn give(&mut self, cursor: &Cursor, done: u64) {
        let next = self.kept(cursor).map_or(done, |kept| kept.next);
        self.keep(cursor, next, cursor.next);
    }

    fn kept(&self, cursor: &Cursor) -> Option<&Kept> {
        let Cursor { source, topic, stream, .. } = cursor;
        self.by_name.get(&name_of(source, topic, *stream)).filter(|kept| kept.stream == *stream)
    }

    fn keep(&mut self, cursor: &Cursor, next: u64, given: u64) {
        let Cursor { source, topic, stream, .. } = cursor;
        let name = name_of(source, topic, *stream);
        self.uses += 1;
        let kept = Kept { stream: *stream, next, given, used: self.uses };
        let name = match self.by_name.get_mut(&name) {
            Some(before) => {
                let name = self.by_use.remove(&before.used).unwrap_or(name);
                *before = kept;
                name
            }
            None => {
                self.by_name.insert(name.clone(), kept);
                name
            }
        };
        self.by_use.insert(self.uses, name);
        if self.by_name.len() > self.max
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.by_name.remove(&oldest);
        }
    }

    /// What is done, and what is handed out.
    fn get(&self, source: &str, topic: &str, stream: StreamId) -> Option<(u64, u64)> {
        let kept = self.by_name.get(&name_of(source, topic, stream))?;
        (kept.stream == stream).then_some((kept.next, kept.given))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Cursor> {
        self.by_name.iter().filter_map(|(name, Kept { stream, next, .. })| {
            let (source, topic) = name.rsplit_once(BETWEEN)?;
            let source = if source.starts_with(BETWEEN) { "" } else { source };
            let (source, topic) = (source.into(), topic.into());
            Some(Cursor { source, topic, stream: *stream, next: *next })
        })
    }
}

fn name_of(source: &str, topic: &str, stream: StreamId) -> Box<str> {
    let name = match source {
        "" => alloc::format!("{BETWEEN}{:x}{BETWEEN}{topic}", stream.0),
        source => alloc::format!("{source}{BETWEEN}{topic}"),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(source: &str, topic: &str, stream: u64, next: u64) -> Cursor {
        Cursor { source: source.into(), topic: topic.into(), stream: StreamId(stream), next }
    }

    #[test]
    fn cursors_are_found_by_names_and_stream_and_without_a_name_by_the_stream() {
        let mut cursors = Cursors::new(9);
        let all = [cursor("", "log", 3, 5), cursor("", "log", 4, 6), cursor("robot", "log", 1, 7)];
        all.iter().for_each(|cursor| cursors.restore(cursor));
        assert_eq!(cursors.get("robot", "log", StreamId(1)), Some((7, 7)));
        assert_eq!(cursors.get("robot", "log", StreamId(2)), None, "another stream begins anew");
        assert_eq!(cursors.get("", "log", StreamId(4)), Some((6, 6)));
        assert_eq!(cursors.iter().collect::<Vec<_>>(), all);
    }

    #[test]
    fn of_too_many_the_one_that_has_not_moved_for_longest_is_forgotten() {
        let mut cursors = Cursors::new(2);
        cursors.restore(&cursor("a", "log", 1, 1));
        cursors.restore(&cursor("b", "log", 1, 1));
        cursors.restore(&cursor("a", "log", 1, 2));
        cursors.restore(&cursor("c", "log", 1, 1));
        let left: Vec<_> = cursors.iter().map(|cursor| cursor.source).collect();
        assert_eq!(left, ["a".into(), "c".into()]);
        assert_eq!(cursors.by_use.len(), 2);
    }

    #[test]
    fn what_is_done_late_of_a_former_stream_does_not_take_the_place_of_the_present_one() {
        let mut cursors = Cursors::new(9);
        cursors.give(&cursor("robot", "log", 1, 5), 0);
        cursors.give(&cursor("robot", "log", 2, 3), 1);
        cursors.set(&cursor("robot", "log", 1, 5));
        assert_eq!(cursors.get("robot", "log", StreamId(2)), Some((1, 3)));
        cursors.set(&cursor("robot", "log", 2, 2));
        assert_eq!(cursors.get("robot", "log", StreamId(2)), Some((2, 3)));
    }
}
