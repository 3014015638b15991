//! How far applications are with records: the monitor's cursors, which outlive the sessions.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::wire::StreamId;

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

/// What has been counted of all streams.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecordCounts {
    pub(super) taken: u64,
    pub(super) repeated: u64,
    pub(super) lost: u64,
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
    pub(super) fn give(&mut self, cursor: &Cursor, done: u64) {
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
    pub(super) fn get(&self, source: &str, topic: &str, stream: StreamId) -> Option<(u64, u64)> {
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
    use alloc::vec::Vec;

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
