//! Records: how the application takes them, and its cursors.

use core::hash::Hash;

use super::Monitor;
use crate::session::cursors::Cursor;
use crate::session::held::LargeStates;
use crate::session::record::{Record, SourceKey};
use crate::session::streams::{NextRecord, TakenRecord};
use crate::unit::Time;

impl<P: Copy + Hash> Monitor<P> {
    /// The same, continuing at the application's cursors from before a restart; call it before any
    /// datagram has arrived. If a topic has several cursors, the last one counts; for a source
    /// without a name, each party has its own.
    #[must_use]
    pub fn with_cursors(mut self, cursors: impl IntoIterator<Item = Cursor>) -> Self {
        self.large.cursors.restore(cursors);
        self
    }

    /// The next record of a topic, which counts as processed at once; `None` if no record is
    /// complete.
    pub fn take_record(&mut self, now: Time, source: SourceKey, topic: u16) -> Option<TakenRecord> {
        let taken = self.next_record(now, source, topic)?;
        self.handle_record_done(source, &taken.cursor);
        Some(taken)
    }

    /// Information on the record that [`Monitor::next_record`] will return; `None` if no record is
    /// complete.
    pub fn peek_record(&mut self, source: SourceKey, topic: u16) -> Option<NextRecord> {
        let record = self.records.get_mut(source.index())?;
        self.large.enter(&self.places.origin(source.0), source.0);
        let next = record.peek_record(topic, &mut self.large);
        self.report_topics(source);
        next
    }

    /// The next record of a topic, for an application that reports later when it has processed it
    /// ([`Monitor::handle_record_done`]); `None` if no record is complete. Until then its source
    /// keeps the record, so that it is not lost if the process ends; all kept records are within
    /// the window of the stream.
    pub fn next_record(&mut self, now: Time, source: SourceKey, topic: u16) -> Option<TakenRecord> {
        let record = self.records.get_mut(source.index())?;
        self.large.enter(&self.places.origin(source.0), source.0);
        let taken = record.next_record(now, topic, &mut self.large);
        self.report_topics(source);
        taken
    }

    /// The application has processed the record that came with this cursor, and all before it. The
    /// next acks report this to the source. `source` is the source of the record, whose session may
    /// have ended since.
    pub fn handle_record_done(&mut self, source: SourceKey, cursor: &Cursor) {
        self.large.cursors.set(cursor);
        let is_there = self.act_on(source.0, cursor, Record::on_records_done);
        if !is_there {
            // The source has reopened its session.
            self.each_with(cursor, Record::on_records_done);
        }
    }

    /// The application has dropped records of this cursor's stream that were handed out and not
    /// processed, as a relay does when its sessions to other monitors end: they are handed out
    /// again, in order, before all later records. Received ones are available at once
    /// ([`MonitorEvent::Record`](super::MonitorEvent)), the others when the source has sent them
    /// again. The cursor's `next` is ignored.
    pub fn hand_out_again(&mut self, cursor: &Cursor) {
        self.large.cursors.give_again(cursor);
        self.each_with(cursor, Record::give_records_again);
    }

    /// Calls a function on each source's record that has the stream: the one of the name, or those
    /// of the party.
    fn each_with(
        &mut self,
        cursor: &Cursor,
        act: fn(&mut Record<P>, &Cursor, &mut LargeStates) -> bool,
    ) {
        let keys = match cursor.source.is_empty() {
            true => self.large.nameless.of(cursor),
            false => self.find_named(&cursor.source).into_iter().collect(),
        };
        for key in keys {
            self.act_on(key, cursor, act);
        }
    }

    /// Calls a function on a source's record, if it may have the stream; returns whether it has.
    fn act_on(
        &mut self,
        key: u32,
        cursor: &Cursor,
        act: fn(&mut Record<P>, &Cursor, &mut LargeStates) -> bool,
    ) -> bool {
        let Self { records, large, places, .. } = self;
        large.enter(&places.origin(key), key);
        let is_theirs = |record: &&mut Record<P>| {
            record.name == cursor.source && large.cursors.party_of(&record.name) == cursor.party
        };
        let record = records.get_mut(key as usize).filter(is_theirs);
        let is_there = record.is_some_and(|record| act(record, cursor, large));
        if is_there {
            self.report_topics(SourceKey(key));
        }
        is_there
    }

    /// The cursor of each topic of which the application has received records: the most recent
    /// `max_sources` topics, but at least 1024.
    pub fn cursors(&self) -> impl Iterator<Item = Cursor> {
        self.large.cursors.iter()
    }

    pub(super) fn count_records(&mut self) {
        let counts = &self.large.records;
        self.counters.records = counts.taken;
        self.counters.repeated_records = counts.repeated;
        self.counters.lost_records = counts.lost;
        self.counters.bad_chunks = counts.bad;
    }
}
