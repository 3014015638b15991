//! Records on their way through the outputs.
//!
//! ```text
//!   Monitor::next_record ─► lines ──┐
//!                       └─► command ┴─► all are done: journal ─► Monitor::handle_record_done ─► ack
//! ```
//!
//! Until then the source keeps the record. So whatever ends the process, each record is written, or its command
//! has run; the ones that were done and not in the journal yet are so once more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use freshline_core::session::{Cursor, SourceKey, StateAge, TakenRecord};
use freshline_core::unit::Span;
use serde_json::{Map, Value};

use super::held::shown_source;
use super::journal::Journal;
use super::{Names, state};
use crate::monitor::Record;
use crate::waker::Waker;

/// Records that are handed out and not done at a time; no more are taken from the monitor then.
const MAX_OPEN: usize = 256;

/// How long what has failed rests.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// A record, and whose it is.
pub(super) struct Given<'a> {
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

    /// The record as JSON; a payload that is not text is given in base64.
    pub(super) fn line(&self) -> Map<String, Value> {
        let Self { record, topic, taken, .. } = *self;
        let (source, session) = (self.source_name(), record.label().to_string());
        let names = Names { source: &source, session: &session, topic: Some(topic), key: None };
        let ms = |of: fn(StateAge) -> Span| taken.age.map(|age| of(age).as_millis_f64());
        let ages = (ms(|age| age.estimate), ms(|age| age.uncertainty));
        let payload = (Some(&taken.bytes[..]), Some(taken.bytes.len() as u64));
        let mut line = state(names, record.newest_seq, ages, payload);
        line.insert("record".into(), taken.number.into());
        line
    }
}

/// What an output holds of a record until it is done with it. Dropped before, it leaves the record to its source.
#[derive(Clone)]
pub(super) struct Ticket(Arc<Slip>);

struct Slip {
    source: SourceKey,
    cursor: Cursor,
    /// Outputs that are not done with it.
    left: AtomicUsize,
    desk: Arc<Desk>,
}

impl Ticket {
    /// An output is done with the record. The last one waits until it is in the journal.
    pub(super) fn done(self) {
        let Slip { source, cursor, left, desk } = &*self.0;
        if left.fetch_sub(1, Ordering::AcqRel) == 1 && desk.note(cursor) {
            let _ = desk.done.send((*source, cursor.clone()));
            desk.wake();
        }
    }

    /// Whether the outputs end.
    pub(super) fn is_over(&self) -> bool {
        self.0.desk.is_over.load(Ordering::Relaxed)
    }
}

/// What the threads of the outputs share.
struct Desk {
    done: Sender<(SourceKey, Cursor)>,
    journal: Option<Journal>,
    waker: Option<Arc<Waker>>,
    is_over: AtomicBool,
}

impl Desk {
    /// Writes a cursor down; whether that is done, and not the end.
    fn note(&self, cursor: &Cursor) -> bool {
        let Some(journal) = &self.journal else { return true };
        let mut has_failed = false;
        while let Err(error) = journal.append(cursor) {
            if !std::mem::replace(&mut has_failed, true) {
                tracing::warn!("{error}; records are not taken until it can be written");
            }
            if self.is_over.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(RETRY);
        }
        true
    }

    fn wake(&self) {
        // It fails only when the monitor has ended.
        let _ = self.waker.as_ref().map(|waker| waker.wake());
    }
}

/// The records that the outputs of a monitor have, and are done with.
pub(super) struct Records {
    desk: Arc<Desk>,
    done: Receiver<(SourceKey, Cursor)>,
    open: usize,
}

impl Records {
    pub(super) fn new(journal: Option<Journal>, waker: Option<Arc<Waker>>) -> Self {
        let (sender, done) = channel();
        let is_over = AtomicBool::new(false);
        Self { desk: Arc::new(Desk { done: sender, journal, waker, is_over }), done, open: 0 }
    }

    /// Whether a further one can be taken.
    pub(super) fn has_room(&self) -> bool {
        self.open < MAX_OPEN
    }

    /// What each of so many outputs, at least one, holds of a record until it is done with it.
    pub(super) fn ticket(&mut self, source: SourceKey, cursor: &Cursor, outputs: usize) -> Ticket {
        self.open += 1;
        let (cursor, left) = (cursor.clone(), AtomicUsize::new(outputs));
        Ticket(Arc::new(Slip { source, cursor, left, desk: Arc::clone(&self.desk) }))
    }

    /// A record for which there is no output.
    pub(super) fn pass(&mut self, source: SourceKey, cursor: &Cursor) {
        self.open += 1;
        let _ = self.desk.done.send((source, cursor.clone()));
        self.desk.wake();
    }

    /// The next one with which all outputs are done.
    pub(super) fn poll_done(&mut self) -> Option<(SourceKey, Cursor)> {
        let done = self.done.try_recv().ok()?;
        self.open -= 1;
        Some(done)
    }

    /// The outputs end: what cannot be written now is left to the sources.
    pub(super) fn finish(&self) {
        self.desk.is_over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use freshline_core::session::{Admission, Monitor, MonitorParams, Secret, StreamId};
    use freshline_core::unit::Time;
    use freshline_core::wire::{Frames, Opening, SessionId, Update};

    use super::*;

    pub(in super::super) fn cursor(next: u64) -> Cursor {
        Cursor { source: "robot".into(), topic: "log".into(), stream: StreamId(1), next }
    }

    /// The cursors that are done.
    pub(in super::super) fn done(records: &mut Records) -> Vec<u64> {
        std::iter::from_fn(|| records.poll_done()).map(|(_, cursor)| cursor.next).collect()
    }

    #[test]
    fn a_record_is_done_and_written_down_when_all_outputs_are_done_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (journal, _) = Journal::open(&path).unwrap();
        let mut records = Records::new(Some(journal), None);
        let tickets = [1, 2, 3].map(|next| records.ticket(source(), &cursor(next), 2));
        for ticket in &tickets {
            ticket.clone().done();
        }
        assert_eq!(done(&mut records), [0; 0], "one of two is done");
        let [first, second, third] = tickets;
        first.done();
        second.done();
        drop(third);
        assert_eq!(done(&mut records), [1, 2], "the third one stays with its source");
        drop(records);
        assert_eq!(Journal::open(&path).unwrap().1, [cursor(2)]);
    }

    #[test]
    fn no_more_are_taken_than_the_outputs_can_hold() {
        let mut records = Records::new(None, None);
        let mut tickets = Vec::new();
        while records.has_room() {
            tickets.push(records.ticket(source(), &cursor(tickets.len() as u64), 1));
        }
        assert_eq!(tickets.len(), MAX_OPEN);
        tickets.pop().into_iter().for_each(Ticket::done);
        assert!(!records.has_room(), "nobody has looked");
        assert_eq!(done(&mut records), [MAX_OPEN as u64 - 1]);
        assert!(records.has_room());
    }

    /// That of the only source of some monitor.
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
