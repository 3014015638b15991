//! Records: how the application takes them, and where it is.

use core::hash::Hash;

use super::Monitor;
use crate::session::cursors::Cursor;
use crate::session::record::SourceKey;
use crate::session::streams::TakenRecord;
use crate::unit::Time;

impl<P: Copy + Hash> Monitor<P> {
    /// The same that goes on where the application was with records before a restart, before any datagram has
    /// come. Of several cursors of one topic the last one counts.
    #[must_use]
    pub fn with_cursors(mut self, cursors: impl IntoIterator<Item = Cursor>) -> Self {
        cursors.into_iter().for_each(|cursor| self.large.cursors.restore(&cursor));
        self
    }

    /// The next record of a topic, with which the application is done at once; `None` if none is complete.
    pub fn take_record(&mut self, now: Time, source: SourceKey, topic: u16) -> Option<TakenRecord> {
        let taken = self.next_record(now, source, topic)?;
        self.handle_record_done(source, &taken.cursor);
        Some(taken)
    }

    /// The next record of a topic, for an application that says later when it is done with it
    /// ([`Monitor::handle_record_done`]); `None` if none is complete. Until then its source keeps the record, so
    /// that it is not lost if the process ends, and all that is kept is within the window of the stream.
    pub fn next_record(&mut self, now: Time, source: SourceKey, topic: u16) -> Option<TakenRecord> {
        let record = self.records.get_mut(source.index())?;
        let taken = record.next_record(now, topic, &mut self.large);
        self.count_records();
        taken
    }

    /// The application is done with the record that came with this cursor, and with all before it: the source
    /// learns that with the next acks. `source` is whose it was, whatever has become of the session.
    pub fn handle_record_done(&mut self, source: SourceKey, cursor: &Cursor) {
        self.large.cursors.set(cursor);
        let named = self.find_named(&cursor.source).map(|key| key as usize);
        let Self { records, large, .. } = self;
        let is_done = [Some(source.index()), named].into_iter().flatten().any(|key| {
            let record = records.get_mut(key).filter(|record| record.name == cursor.source);
            record.is_some_and(|record| record.on_records_done(cursor, large))
        });
        if !is_done && cursor.source.is_empty() {
            // It has opened its session again under another key.
            let mut nameless = records.iter_mut().filter(|(_, record)| record.name.is_empty());
            nameless.any(|(_, record)| record.on_records_done(cursor, large));
        }
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
    }
}
