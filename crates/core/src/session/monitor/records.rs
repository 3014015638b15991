//! Records: how the application takes them, and where it is.

use core::hash::Hash;

use super::Monitor;
use crate::session::cursors::Cursor;
use crate::session::held::LargeStates;
use crate::session::record::{Record, SourceKey};
use crate::session::streams::{NextRecord, TakenRecord};
use crate::unit::Time;

impl<P: Copy + Hash> Monitor<P> {
    /// The same that goes on where the application was with records before a restart, before any datagram has
    /// come. Of several cursors of one topic the last one counts; of a source without a name each party has its own.
    #[must_use]
    pub fn with_cursors(mut self, cursors: impl IntoIterator<Item = Cursor>) -> Self {
        self.large.cursors.restore(cursors);
        self
    }

    /// The next record of a topic, with which the application is done at once; `None` if none is complete.
    pub fn take_record(&mut self, now: Time, source: SourceKey, topic: u16) -> Option<TakenRecord> {
        let taken = self.next_record(now, source, topic)?;
        self.handle_record_done(source, &taken.cursor);
        Some(taken)
    }

    /// What is known of the record that [`Monitor::next_record`] gives; `None` if none is complete.
    pub fn peek_record(&mut self, source: SourceKey, topic: u16) -> Option<NextRecord> {
        let record = self.records.get_mut(source.index())?;
        self.large.enter(&self.places.origin(source.0), source.0);
        let next = record.peek_record(topic, &mut self.large);
        self.report_topics(source);
        next
    }

    /// The next record of a topic, for an application that says later when it is done with it
    /// ([`Monitor::handle_record_done`]); `None` if none is complete. Until then its source keeps the record, so
    /// that it is not lost if the process ends, and all that is kept is within the window of the stream.
    pub fn next_record(&mut self, now: Time, source: SourceKey, topic: u16) -> Option<TakenRecord> {
        let record = self.records.get_mut(source.index())?;
        self.large.enter(&self.places.origin(source.0), source.0);
        let taken = record.next_record(now, topic, &mut self.large);
        self.report_topics(source);
        taken
    }

    /// The application is done with the record that came with this cursor, and with all before it: the source
    /// learns that with the next acks. `source` is the source of the record, whose session may have ended since.
    pub fn handle_record_done(&mut self, source: SourceKey, cursor: &Cursor) {
        self.large.cursors.set(cursor);
        let is_there = self.act_on(source.0, cursor, Record::on_records_done);
        if !is_there {
            // It has opened its session again.
            self.each_with(cursor, Record::on_records_done);
        }
    }

    /// The application has dropped the records of this cursor's stream that it was given and is not done with, as
    /// a relay does when its sessions to other monitors end: they are handed out again, in order, before all that
    /// it was not given. Those that have come are so at once ([`MonitorEvent::Record`](super::MonitorEvent)), the
    /// others once the source has sent them again. Of the cursor its `next` does not count.
    pub fn hand_out_again(&mut self, cursor: &Cursor) {
        self.large.cursors.give_again(cursor);
        self.each_with(cursor, Record::give_records_again);
    }

    /// Does something with each record that has the stream: that of the name, or those of the party.
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

    /// Does something with a record, if it may have the stream; whether it has it.
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

    /// How far the application is with the records of each topic of which it has got any, as far as is known:
    /// of `max_sources` topics, but at least 1024, those whose records it has got last.
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
