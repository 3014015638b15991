//! Records in the hands of applications, and which of them are done.
//!
//! A cursor means that all records before it are done, and an application may finish them in any
//! order: a record is reported as done once all before it are. An unread record is delivered again,
//! with those after it, once the application holds none of its stream; until then no newer one of
//! the stream is delivered.

use std::collections::{BTreeMap, VecDeque};

use freshline_core::session::{Cursor, SourceKey};
use freshline_core::state::Party;

/// The records of all streams.
#[derive(Default)]
pub(crate) struct Records {
    streams: BTreeMap<Stream, VecDeque<Given>>,
    next_id: u64,
    /// The topics whose newer records wait until unread ones have been delivered again; few at
    /// most.
    held_up: Vec<(SourceKey, Box<str>)>,
    /// The application has all records before these.
    done: VecDeque<(SourceKey, Cursor)>,
    /// Topics of which all records that are not done are delivered again.
    dropped: VecDeque<(SourceKey, Cursor)>,
}

/// Names of source and topic, and the stream, with the party that it counts for.
type Stream = (Box<str>, Box<str>, u64, Option<Party>);

/// A record that was handed out, in the order of the stream.
struct Given {
    id: u64,
    source: SourceKey,
    cursor: Cursor,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The application, or a reader's queue, holds it.
    InHand,
    Done,
    Unread,
}

fn stream(cursor: &Cursor) -> Stream {
    (cursor.source.clone(), cursor.topic.clone(), cursor.stream.0, cursor.party)
}

impl Records {
    /// Takes note of a delivered record; returns a number for it.
    pub(crate) fn give(&mut self, source: SourceKey, cursor: &Cursor) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let given = self.streams.entry(stream(cursor)).or_default();
        // A re-opened session may deliver records again.
        if given.back().is_some_and(|last| last.cursor.next >= cursor.next) {
            given.clear();
            self.held_up.retain(|(held, topic)| (*held, &**topic) != (source, &*cursor.topic));
        }
        given.push_back(Given { id, source, cursor: cursor.clone(), fate: Fate::InHand });
        id
    }

    /// The application has dropped a record, read or unread.
    pub(crate) fn end(&mut self, cursor: &Cursor, id: u64, was_read: bool) {
        let stream = stream(cursor);
        let Some(given) = self.streams.get_mut(&stream) else { return };
        let Ok(at) = given.binary_search_by_key(&id, |given| given.id) else { return };
        let place = (given[at].source, cursor.topic.clone());
        given[at].fate = if was_read { Fate::Done } else { Fate::Unread };
        if !was_read {
            self.held_up.push(place);
        }
        while given.front().is_some_and(|first| first.fate == Fate::Done) {
            let done = given.pop_front();
            self.done.extend(done.map(|done| (done.source, done.cursor)));
        }
        if given.iter().any(|given| given.fate == Fate::InHand) {
            return;
        }
        let unread = given.pop_front();
        self.dropped.extend(unread.map(|unread| (unread.source, unread.cursor)));
        self.streams.remove(&stream);
    }

    /// Whether newer records of a topic have to wait until unread ones have been delivered again.
    pub(crate) fn is_held_up(&self, source: SourceKey, topic: &str) -> bool {
        self.held_up.iter().any(|(held, name)| *held == source && **name == *topic)
    }

    /// See [`Watch::poll_record_done`](freshline_net::monitor::Watch::poll_record_done).
    pub(crate) fn poll_done(&mut self) -> Option<(SourceKey, Cursor)> {
        self.done.pop_front()
    }

    /// See [`Watch::poll_records_dropped`](freshline_net::monitor::Watch::poll_records_dropped).
    pub(crate) fn poll_dropped(&mut self) -> Option<Cursor> {
        let (source, cursor) = self.dropped.pop_front()?;
        // From here on the session delivers the first of them next.
        self.held_up.retain(|(held, topic)| (*held, &**topic) != (source, &*cursor.topic));
        Some(cursor)
    }
}

#[cfg(test)]
mod tests {
    use freshline_core::session::{
        Admission, Monitor, MonitorParams, Secret, Source, SourceEvent, SourceParams,
    };
    use freshline_core::source::Fixed;
    use freshline_core::unit::{Time, UpdateRate};
    use freshline_core::wire::StreamId;

    use super::*;

    /// The key of a source that has just opened its session.
    fn source() -> SourceKey {
        let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
        let mut monitor = Monitor::new(params, Secret::new([1; 16]));
        let law = Box::new(Fixed::new(UpdateRate::saturating(1.0)));
        let params = SourceParams::default();
        let mut source = Source::new(params, Secret::new([2; 16]), law, Time::ZERO).unwrap();
        source.handle_timeout(Time::ZERO);
        while let Some(event) = source.poll_event() {
            if matches!(event, SourceEvent::StateWanted(_)) {
                source.put(Time::ZERO, Time::ZERO, b"it").unwrap();
            }
        }
        let mut out = Vec::new();
        let left = source.poll_transmit(Time::ZERO, &mut out).expect("it opens");
        monitor.handle_datagram(Time::ZERO, 1_u8, &out[..left.len]).unwrap();
        monitor.records().next().expect("it is open").0
    }

    fn cursor(next: u64) -> Cursor {
        let (source, topic) = ("robot".into(), "log".into());
        Cursor { source, party: None, topic, stream: StreamId(7), next }
    }

    /// The cursors that are done, and whether records are delivered again.
    fn news(records: &mut Records) -> (Vec<u64>, bool) {
        let done = std::iter::from_fn(|| records.poll_done()).map(|(_, cursor)| cursor.next);
        let done = done.collect();
        (done, records.poll_dropped().is_some())
    }

    #[test]
    fn a_record_is_done_once_all_before_it_are() {
        let (source, mut records) = (source(), Records::default());
        let ids = [1, 2, 3].map(|next| records.give(source, &cursor(next)));
        records.end(&cursor(3), ids[2], true);
        records.end(&cursor(2), ids[1], true);
        assert_eq!(news(&mut records), (vec![], false), "the first is in hand");
        records.end(&cursor(1), ids[0], true);
        assert_eq!(news(&mut records), (vec![1, 2, 3], false));
        assert!(records.streams.is_empty());
    }

    #[test]
    fn unread_records_come_again_once_none_is_in_hand() {
        let (source, mut records) = (source(), Records::default());
        let ids = [1, 2, 3].map(|next| records.give(source, &cursor(next)));
        records.end(&cursor(2), ids[1], false);
        assert!(records.is_held_up(source, "log") && !records.is_held_up(source, "other"));
        records.end(&cursor(1), ids[0], true);
        assert_eq!(news(&mut records), (vec![1], false), "the third is in hand");
        records.end(&cursor(3), ids[2], true);
        assert!(records.is_held_up(source, "log"), "the session has not restarted");
        assert_eq!(news(&mut records), (vec![], true));
        assert!(!records.is_held_up(source, "log"));
        // They are delivered again, with other numbers; a late end of the first round changes
        // nothing.
        let again = [2, 3].map(|next| records.give(source, &cursor(next)));
        records.end(&cursor(2), ids[1], true);
        assert_eq!(news(&mut records), (vec![], false));
        again.iter().zip([2, 3]).for_each(|(id, next)| records.end(&cursor(next), *id, true));
        assert_eq!(news(&mut records), (vec![2, 3], false));
    }
}
