//! The monitor's cursors: the progress of applications with records, which outlives sessions.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::state::Party;
use crate::wire::StreamId;

/// The progress of the application with the records of a topic, from which a monitor can continue
/// after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The name of the source; may be empty.
    pub source: Box<str>,
    /// For a source without a name, its party: the stream of another party with the same number is
    /// a different one. `None` for a source with a name, and if the party is unknown: then it
    /// applies to each party without its own cursor.
    pub party: Option<Party>,
    /// The name of the topic.
    pub topic: Box<str>,
    /// The stream.
    pub stream: StreamId,
    /// The application has received all chunks with lower numbers.
    pub next: u64,
}

/// Counts over all streams.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecordCounts {
    pub(super) taken: u64,
    pub(super) repeated: u64,
    pub(super) lost: u64,
    /// Invalid chunks.
    pub(super) bad: u64,
}

/// The key of a stream: its source and topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// By the names of source and topic.
    Named(Box<str>, Box<str>),
    /// For a source without a name: the stream, the topic's name, and the party if known.
    Nameless(StreamId, Box<str>, Option<Party>),
}

impl Key {
    fn of(source: &str, topic: &str, stream: StreamId, party: Option<Party>) -> Self {
        match source {
            "" => Self::Nameless(stream, topic.into(), party),
            source => Self::Named(source.into(), topic.into()),
        }
    }

    fn of_cursor(cursor: &Cursor) -> Self {
        Self::of(&cursor.source, &cursor.topic, cursor.stream, cursor.party)
    }
}

/// Cursors of streams by the names of source and topic, also of ended sessions; for a source
/// without a name, by its party and stream. Beyond the maximum, the cursor that has not moved for
/// the longest time is dropped.
#[derive(Debug)]
pub(super) struct Cursors {
    max: usize,
    /// The party of the present source.
    party: Party,
    kept: BTreeMap<Key, Kept>,
    /// The keys by the time of their last change.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
}

#[derive(Debug)]
struct Kept {
    stream: StreamId,
    next: u64,
    /// All chunks below this number were handed out.
    given: u64,
    used: u64,
}

impl Cursors {
    pub(super) fn new(max: usize) -> Self {
        let party = Party::default();
        Self { max, party, kept: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// Sets the party of the present source, for a source without a name.
    pub(super) fn enter(&mut self, party: Party) {
        self.party = party;
    }

    /// The party for a cursor of the present source.
    pub(super) fn party_of(&self, source: &str) -> Option<Party> {
        source.is_empty().then_some(self.party)
    }

    /// Restores the cursors from before a restart of the monitor. For each topic the last cursor
    /// counts, and for a source without a name, the last one per party: parties have the same
    /// numbers in all processes.
    pub(super) fn restore(&mut self, cursors: impl IntoIterator<Item = Cursor>) {
        for cursor in cursors {
            self.keep(&cursor, cursor.next, cursor.next);
        }
    }

    /// The application has processed all chunks below a cursor of a stream with handed-out records.
    /// If another stream has replaced it since, the cursor is ignored.
    pub(super) fn set(&mut self, cursor: &Cursor) {
        let kept = self.kept.get(&Key::of_cursor(cursor));
        if kept.is_some_and(|kept| kept.stream != cursor.stream) {
            return;
        }
        let (next, given) = self.kept(cursor).map_or((0, 0), |kept| (kept.next, kept.given));
        self.keep(cursor, next.max(cursor.next), given.max(cursor.next));
    }

    /// All chunks below a cursor are handed out, and all below `done` are processed.
    pub(super) fn give(&mut self, cursor: &Cursor, done: u64) {
        let next = self.kept(cursor).map_or(done, |kept| kept.next);
        self.keep(cursor, next, cursor.next.max(next));
    }

    /// Records of the cursor's stream that were handed out and are not processed are handed out
    /// again.
    pub(super) fn give_again(&mut self, cursor: &Cursor) {
        let kept = self.kept.get_mut(&Key::of_cursor(cursor));
        if let Some(kept) = kept.filter(|kept| kept.stream == cursor.stream) {
            kept.given = kept.next;
        }
    }

    fn kept(&self, cursor: &Cursor) -> Option<&Kept> {
        self.find(Key::of_cursor(cursor), cursor.stream)
    }

    /// For a source without a name, the cursor of an unknown party applies until the party's own
    /// one has moved.
    fn find(&self, key: Key, stream: StreamId) -> Option<&Kept> {
        let kept = self.kept.get(&key).or_else(|| match key {
            Key::Nameless(stream, topic, Some(_)) => {
                self.kept.get(&Key::Nameless(stream, topic, None))
            }
            _ => None,
        });
        kept.filter(|kept| kept.stream == stream)
    }

    fn keep(&mut self, cursor: &Cursor, next: u64, given: u64) {
        let key = Key::of_cursor(cursor);
        self.uses += 1;
        let kept = Kept { stream: cursor.stream, next, given, used: self.uses };
        let key = match self.kept.get_mut(&key) {
            Some(before) => {
                let key = self.by_use.remove(&before.used).unwrap_or(key);
                *before = kept;
                key
            }
            None => {
                self.kept.insert(key.clone(), kept);
                key
            }
        };
        self.by_use.insert(self.uses, key);
        if self.kept.len() > self.max
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.kept.remove(&oldest);
        }
    }

    /// The numbers below which all chunks are processed, and are handed out, in a stream of the
    /// present source.
    pub(super) fn get(&self, source: &str, topic: &str, stream: StreamId) -> Option<(u64, u64)> {
        let kept = self.find(Key::of(source, topic, stream, self.party_of(source)), stream)?;
        Some((kept.next, kept.given))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Cursor> {
        self.kept.iter().map(|(key, Kept { stream, next, .. })| {
            let (source, topic, party) = match key {
                Key::Named(source, topic) => (source.clone(), topic, None),
                Key::Nameless(_, topic, party) => (Box::default(), topic, *party),
            };
            Cursor { source, party, topic: topic.clone(), stream: *stream, next: *next }
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn cursor(source: &str, topic: &str, stream: u64, next: u64) -> Cursor {
        let (source, topic, stream) = (source.into(), topic.into(), StreamId(stream));
        Cursor { source, party: None, topic, stream, next }
    }

    #[test]
    fn cursors_are_found_by_names_and_stream_and_without_a_name_by_the_stream() {
        let mut cursors = Cursors::new(9);
        let all = [cursor("", "log", 3, 5), cursor("", "log", 4, 6), cursor("robot", "log", 1, 7)];
        cursors.restore(all.clone());
        assert_eq!(cursors.get("robot", "log", StreamId(1)), Some((7, 7)));
        assert_eq!(cursors.get("robot", "log", StreamId(2)), None, "another stream begins at 0");
        assert_eq!(cursors.get("", "log", StreamId(4)), Some((6, 6)));
        let (named, nameless) = (all[2].clone(), all[..2].iter().cloned());
        let expected: Vec<_> = [named].into_iter().chain(nameless).collect();
        assert_eq!(cursors.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_party_neither_moves_nor_sees_the_cursor_of_another_partys_stream() {
        let (mut cursors, mine, theirs) = (Cursors::new(9), Party(1, 0), Party(2, 0));
        let of = |party, next| Cursor { party: Some(party), ..cursor("", "log", 3, next) };
        let next = |cursors: &mut Cursors, party| {
            cursors.enter(party);
            cursors.get("", "log", StreamId(3))
        };
        cursors.restore([cursor("", "log", 3, 5)]);
        assert_eq!(next(&mut cursors, mine), Some((5, 5)), "it is where it was before the restart");
        cursors.give(&of(theirs, 900), 5);
        cursors.set(&of(theirs, 900));
        assert_eq!(next(&mut cursors, mine), Some((5, 5)));
        cursors.give(&of(mine, 9), 5);
        cursors.set(&of(mine, 7));
        assert_eq!(next(&mut cursors, mine), Some((7, 9)));
        assert_eq!(next(&mut cursors, theirs), Some((900, 900)));
        // The same after a restart, in whatever order they return.
        let kept: Vec<_> = cursors.iter().collect();
        assert_eq!(kept, [cursor("", "log", 3, 5), of(mine, 7), of(theirs, 900)]);
        let mut restarted = Cursors::new(9);
        restarted.restore(kept);
        assert_eq!(next(&mut restarted, theirs), Some((900, 900)));
        assert_eq!(next(&mut restarted, mine), Some((7, 7)));
        assert_eq!(
            next(&mut restarted, Party(3, 0)),
            Some((5, 5)),
            "its cursor may be from before"
        );
    }

    #[test]
    fn of_too_many_the_one_that_has_not_moved_for_longest_is_forgotten() {
        let mut cursors = Cursors::new(2);
        cursors.restore([cursor("a", "log", 1, 1)]);
        cursors.restore([cursor("b", "log", 1, 1)]);
        cursors.restore([cursor("a", "log", 1, 2)]);
        cursors.restore([cursor("c", "log", 1, 1)]);
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
