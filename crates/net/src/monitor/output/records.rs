//! Records in the outputs, from the monitor until they are done.
//!
//! ```text
//!   Monitor::next_record ─► lines ──┐
//!                       └─► command ┴─► all are done: journal ─► Monitor::handle_record_done ─► ack
//! ```
//!
//! Until then the source keeps the record. So however the process ends, each record is written, or
//! its command has run; records that were done and not yet in the journal come once more. A cursor
//! says that all records before it are done: so a record counts as done only after all earlier ones
//! of its stream.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use freshline_core::session::{Cursor, SourceKey, StateAge, TakenRecord};
use freshline_core::unit::Span;
use serde_json::{Map, Value};

use super::held::shown_source;
use super::journal::Journal;
use super::{Names, state};
use crate::monitor::Record;
use crate::monitor::which::Which;
use crate::waker::Waker;

/// Maximum number of records per source that are handed out and not done; at the maximum, no more
/// are taken from the monitor.
const MAX_OF_SOURCE: usize = 64;

/// Approximate maximum bytes of such records of all sources.
const MAX_BYTES: usize = 64 << 20;

/// The time before a failed write, or command, is repeated.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// A record with its source.
pub(super) struct Given<'a> {
    /// Its number, in the order of handing out.
    pub(super) number: u64,
    pub(super) source: SourceKey,
    pub(super) record: &'a Record,
    pub(super) topic: &'a str,
    pub(super) taken: &'a TakenRecord,
}

impl Given<'_> {
    /// The name of the source, or the label of its session if it has none.
    pub(super) fn source_name(&self) -> String {
        shown_source(&self.record.name, self.record.label())
    }

    /// Identifies it for outputs, among states and other records.
    pub(super) fn which(&self) -> Which {
        Which::Record(self.number)
    }

    /// The record as JSON; a payload that is not text is given in base64.
    pub(super) fn line(&self) -> Map<String, Value> {
        let Self { record, topic, taken, .. } = *self;
        let (source, session) = (self.source_name(), record.label().to_string());
        let names = Names { source: &source, session: &session, topic: Some(topic), key: None };
        let ms = |of: fn(StateAge) -> Span| taken.age.map(|age| of(age).as_millis_f64());
        let is_bounded = taken.age.is_some_and(|age| age.uncertainty < Span::MAX);
        let uncertainty = ms(|age| age.uncertainty).filter(|_| is_bounded);
        let ages = (ms(|age| age.estimate), uncertainty);
        let payload = (Some(&taken.bytes[..]), Some(taken.bytes.len() as u64));
        let mut line = state(names, record.newest_seq, ages, payload);
        line.insert("record".into(), taken.number.into());
        line
    }
}

/// An output's hold on a record until it is done with it. If a ticket is dropped before, the record
/// stays with its source, and so do all later records of its stream.
#[derive(Clone)]
pub(super) struct Ticket(Arc<Slip>);

struct Slip {
    number: u64,
    /// The number of outputs that have a ticket, and of the ones that are done.
    outputs: usize,
    done: AtomicUsize,
    desk: Arc<Desk>,
}

impl Ticket {
    /// An output is done with the record.
    pub(super) fn done(self) {
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the outputs are ending.
    pub(super) fn is_over(&self) -> bool {
        self.0.desk.is_over.load(Ordering::Relaxed)
    }
}

impl Drop for Slip {
    fn drop(&mut self) {
        let is_done = self.done.load(Ordering::Relaxed) == self.outputs;
        let _ = self.desk.ended.send((self.number, is_done));
        self.desk.wake();
    }
}

/// The state that the threads of the outputs share.
struct Desk {
    ended: Sender<(u64, bool)>,
    waker: Option<Arc<Waker>>,
    is_over: AtomicBool,
}

impl Desk {
    fn wake(&self) {
        // It fails only when the monitor has ended.
        let _ = self.waker.as_ref().map(|waker| waker.wake());
    }
}

/// A record that outputs, or the journal, hold.
struct Open {
    number: u64,
    source: SourceKey,
    cursor: Cursor,
    /// Identifies the names of source and topic, the party of a source without a name, and the
    /// stream.
    stream: u64,
    bytes: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Outputs have it.
    Given,
    Done,
    /// An output has dropped it.
    Dropped,
    /// It is being written to the journal.
    Noted,
}

/// The records that the outputs of a monitor hold, or are done with.
pub(super) struct Records {
    desk: Arc<Desk>,
    ended: Receiver<(u64, bool)>,
    /// In the order in which they were handed out.
    open: VecDeque<Open>,
    of_source: HashMap<SourceKey, usize>,
    bytes: usize,
    given: u64,
    hasher: RandomState,
    notes: Option<Notes>,
    done: VecDeque<(SourceKey, Cursor)>,
}

impl Records {
    pub(super) fn new(journal: Option<Journal>, waker: Option<Arc<Waker>>) -> Self {
        let (sender, ended) = channel();
        let desk = Arc::new(Desk { ended: sender, waker, is_over: AtomicBool::new(false) });
        let notes = journal.map(|journal| Notes::new(journal, Arc::clone(&desk)));
        let (open, done, hasher) = (VecDeque::new(), VecDeque::new(), RandomState::new());
        let of_source = HashMap::new();
        Self { desk, ended, open, of_source, bytes: 0, given: 0, hasher, notes, done }
    }

    /// The number of the record that is handed out next.
    pub(super) fn next_number(&self) -> u64 {
        self.given
    }

    /// Whether a further record of a source can be taken.
    pub(super) fn has_room(&self, source: SourceKey) -> bool {
        let of_source = self.of_source.get(&source).copied().unwrap_or(0);
        of_source < MAX_OF_SOURCE && self.bytes < MAX_BYTES
    }

    /// The ticket of each of `outputs` outputs, at least one, for a record.
    pub(super) fn ticket(
        &mut self,
        source: SourceKey,
        cursor: &Cursor,
        bytes: usize,
        outputs: usize,
    ) -> Ticket {
        let (number, cursor) = (self.given, cursor.clone());
        self.given += 1;
        let bytes = bytes + size_of::<Open>();
        self.bytes += bytes;
        *self.of_source.entry(source).or_default() += 1;
        let Cursor { source: name, party, topic, stream, .. } = &cursor;
        let party = party.map(|party| (party.0, party.1));
        let stream = self.hasher.hash_one((name, party, topic, stream.0));
        self.open.push_back(Open { number, source, cursor, stream, bytes, state: State::Given });
        let (done, desk) = (AtomicUsize::new(0), Arc::clone(&self.desk));
        Ticket(Arc::new(Slip { number, outputs, done, desk }))
    }

    /// Passes a record for which there is no output.
    pub(super) fn pass(&mut self, source: SourceKey, cursor: &Cursor) {
        self.given += 1;
        self.done.push_back((source, cursor.clone()));
        self.desk.wake();
    }

    /// The next record that is done for good, in order per stream.
    pub(super) fn poll_done(&mut self) -> Option<(SourceKey, Cursor)> {
        if self.done.is_empty() {
            self.settle();
        }
        self.done.pop_front()
    }

    /// Handles records with which outputs and the journal are done.
    pub(super) fn settle(&mut self) {
        let mut has_news = false;
        while let Ok((number, is_done)) = self.ended.try_recv() {
            let state = if is_done { State::Done } else { State::Dropped };
            has_news |= is_done;
            if let Ok(place) = self.open.binary_search_by_key(&number, |open| open.number) {
                self.open[place].state = state;
            }
        }
        while let Some(number) = self.notes.as_ref().and_then(|notes| notes.written.try_recv().ok())
        {
            if let Ok(place) = self.open.binary_search_by_key(&number, |open| open.number) {
                self.release(place);
            }
        }
        if !has_news {
            return;
        }
        // A cursor says that all records before it are done, too.
        let (mut held_up, mut at) = (HashSet::new(), 0);
        while let Some(open) = self.open.get(at) {
            match (&self.notes, open.state) {
                (_, State::Noted) => at += 1,
                (Some(notes), State::Done) if !held_up.contains(&open.stream) => {
                    let _ = notes.writer.send((open.number, open.cursor.clone()));
                    self.open[at].state = State::Noted;
                    at += 1;
                }
                (None, State::Done) if !held_up.contains(&open.stream) => self.release(at),
                _ => {
                    held_up.insert(open.stream);
                    at += 1;
                }
            }
        }
    }

    /// A record is done for good.
    fn release(&mut self, place: usize) {
        let Some(open) = self.open.remove(place) else { return };
        self.bytes -= open.bytes;
        if let Entry::Occupied(mut of_source) = self.of_source.entry(open.source) {
            *of_source.get_mut() -= 1;
            if *of_source.get() == 0 {
                of_source.remove();
            }
        }
        self.done.push_back((open.source, open.cursor));
    }

    /// The outputs end: records that cannot be written now are left to the sources.
    pub(super) fn finish(&self) {
        self.desk.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits until all finished records are written to the journal.
    pub(super) fn join(mut self) {
        self.settle();
        let Some(Notes { writer, written, thread }) = self.notes.take() else { return };
        drop(writer);
        let _ = thread.join();
        drop(written);
    }
}

/// Writes cursors to the journal on a thread of its own, as a disk can be slow.
struct Notes {
    writer: Sender<(u64, Cursor)>,
    /// The numbers of the records written.
    written: Receiver<u64>,
    thread: JoinHandle<()>,
}

impl Notes {
    fn new(journal: Journal, desk: Arc<Desk>) -> Self {
        let (writer, cursors) = channel::<(u64, Cursor)>();
        let (sender, written) = channel();
        let thread = std::thread::spawn(move || {
            for (number, cursor) in cursors {
                if !note(&journal, &cursor, &desk.is_over) || sender.send(number).is_err() {
                    return;
                }
                desk.wake();
            }
        });
        Self { writer, written, thread }
    }
}

/// Writes a cursor, again and again until that succeeds or the outputs end; returns whether it
/// succeeded.
fn note(journal: &Journal, cursor: &Cursor, is_over: &AtomicBool) -> bool {
    let mut has_failed = false;
    while let Err(error) = journal.append(cursor) {
        if !std::mem::replace(&mut has_failed, true) {
            tracing::warn!("{error}; records stay with their sources until it can be written");
        }
        if is_over.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(RETRY);
    }
    true
}

#[cfg(test)]
pub(super) mod tests {
    use freshline_core::session::{Admission, Monitor, MonitorParams, Secret, StreamId};
    use freshline_core::unit::Time;
    use freshline_core::wire::{Frames, Opening, SessionId, Update};

    use super::*;
    use crate::clock::Clock;

    pub(in super::super) fn cursor(next: u64) -> Cursor {
        let (source, topic, stream) = ("robot".into(), "log".into(), StreamId(1));
        Cursor { source, party: None, topic, stream, next }
    }

    /// The cursors that are done.
    pub(in super::super) fn done(records: &mut Records) -> Vec<u64> {
        std::iter::from_fn(|| records.poll_done()).map(|(_, cursor)| cursor.next).collect()
    }

    fn done_in_time(records: &mut Records, count: usize) -> Vec<u64> {
        let (clock, mut all) = (Clock::new(), Vec::new());
        let began_at = clock.now();
        while all.len() < count {
            assert!(clock.now().since(began_at) < Span::from_secs(25), "{all:?}");
            all.extend(done(records));
        }
        all
    }

    #[test]
    fn a_record_is_done_when_all_outputs_are_and_all_earlier_ones_and_is_written_down() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (journal, _) = Journal::open(&path).unwrap();
        let mut records = Records::new(Some(journal), None);
        let [first, second, third, fourth] =
            [1, 2, 3, 4].map(|next| records.ticket(source(), &cursor(next), 9, 2));
        for ticket in [&first, &second, &third, &fourth] {
            ticket.clone().done();
        }
        assert_eq!(done(&mut records), [0; 0], "one of two is done");
        second.done();
        assert_eq!(done(&mut records), [0; 0], "the first one is not");
        first.done();
        assert_eq!(done_in_time(&mut records, 2), [1, 2]);
        drop(third);
        fourth.done();
        let other = Cursor { topic: "other".into(), ..cursor(9) };
        records.ticket(source(), &other, 9, 1).done();
        assert_eq!(done_in_time(&mut records, 1), [9], "a dropped record stays with its source");
        records.join();
        let (_, cursors) = Journal::open(&path).unwrap();
        assert_eq!(cursors, [cursor(2), other]);
    }

    #[test]
    fn no_more_are_taken_than_the_outputs_can_hold() {
        let mut records = Records::new(None, None);
        let mut tickets = Vec::new();
        while records.has_room(source()) {
            tickets.push(records.ticket(source(), &cursor(tickets.len() as u64), 9, 1));
        }
        assert_eq!(tickets.len(), MAX_OF_SOURCE);
        tickets.remove(0).done();
        assert_eq!(done(&mut records), [0]);
        assert!(records.has_room(source()));
    }

    /// The key of the only source of some monitor.
    pub(in super::super) fn source() -> SourceKey {
        let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
        let mut monitor = Monitor::new(params, Secret::new([1; 16]));
        let opening = Opening { cookie: Default::default(), name: "robot", token: b"" };
        let update = Update {
            session: SessionId(1),
            seq: 0,
            sent_at: Time::ZERO,
            clock_offset: None,
            wants_ack: false,
            wants_return: false,
            ack_mark: None,
            opening: Some(opening),
            frames: Frames::fresh(b"state"),
        };
        let mut datagram = [0; 200];
        let len = update.write(&mut datagram).unwrap();
        monitor.handle_datagram(Time::ZERO, 1, &datagram[..len]).unwrap();
        monitor.records().next().unwrap().0
    }
}
