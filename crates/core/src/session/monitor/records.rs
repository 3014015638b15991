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
        cursors.into_iter().for_each(|cursor| self.large.cursors.set(&cursor));
        self
    }

    /// The next record of a topic, which the application gets with this call; `None` if none is complete.
    pub fn take_record(&mut self, now: Time, source: SourceKey, topic: u16) -> Option<TakenRecord> {
        let record = self.records.get_mut(source.index())?;
        let taken = record.take_record(now, topic, &mut self.large);
        self.count_records();
        taken
    }

    /// How far the application is with the records of each topic of which it has got any, as far as is known:
    /// of `max_sources` topics, but at least 1024, those whose records were taken last.
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
