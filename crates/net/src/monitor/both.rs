//! Two watchers of one monitor.

use std::ops::DerefMut;

use freshline_core::session::{
    Alarm, Cursor, End, NextRecord, RemovedTopic, SourceKey, TakenRecord, TopicRecord,
};
use freshline_core::unit::Time;

use super::{Record, RecordRoom, Watch};

/// Passes events to two watchers. The first one takes records and alarms; the other one only sees
/// records ([`Watch::see_record`]).
#[derive(Debug)]
pub struct Both<A, B> {
    /// Decides when a record is done.
    pub first: A,
    /// Only observes.
    pub other: B,
}

impl<A, B> Watch for Both<A, B>
where
    A: DerefMut<Target: Watch>,
    B: DerefMut<Target: Watch>,
{
    fn fresh(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.first.fresh(now, source, record);
        self.other.fresh(now, source, record);
    }

    fn fresh_topic(&mut self, now: Time, source: SourceKey, record: &Record, topic: &TopicRecord) {
        self.first.fresh_topic(now, source, record, topic);
        self.other.fresh_topic(now, source, record, topic);
    }

    fn removed(&mut self, now: Time, source: SourceKey, record: &Record, removed: &RemovedTopic) {
        self.first.removed(now, source, record, removed);
        self.other.removed(now, source, record, removed);
    }

    fn room_for_record(&self, source: SourceKey, topic: &str, next: &NextRecord) -> RecordRoom {
        self.first.room_for_record(source, topic, next)
    }

    fn has_room_again(&mut self) -> bool {
        self.first.has_room_again()
    }

    fn record(
        &mut self,
        now: Time,
        source: SourceKey,
        record: &Record,
        topic: &str,
        taken: &TakenRecord,
    ) {
        self.first.record(now, source, record, topic, taken);
        self.other.see_record(now, source, record, topic, taken);
    }

    fn poll_record_done(&mut self) -> Option<(SourceKey, Cursor)> {
        self.first.poll_record_done()
    }

    fn poll_records_dropped(&mut self) -> Option<Cursor> {
        self.first.poll_records_dropped()
    }

    fn aged(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.first.aged(now, source, record);
        self.other.aged(now, source, record);
    }

    fn aged_topic(&mut self, now: Time, source: SourceKey, record: &Record, topic: &TopicRecord) {
        self.first.aged_topic(now, source, record, topic);
        self.other.aged_topic(now, source, record, topic);
    }

    fn stale(&mut self, now: Time, alarm: &Alarm) {
        self.first.stale(now, alarm);
    }

    fn recovered(&mut self, now: Time, alarm: &Alarm) {
        self.first.recovered(now, alarm);
    }

    fn opened(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.first.opened(now, source, record);
        self.other.opened(now, source, record);
    }

    fn gone(&mut self, now: Time, source: SourceKey, why: End) {
        self.first.gone(now, source, why);
        self.other.gone(now, source, why);
    }

    fn turn(&mut self, now: Time) {
        self.first.turn(now);
        self.other.turn(now);
    }

    fn replaced(&self, source: SourceKey) -> u64 {
        self.first.replaced(source) + self.other.replaced(source)
    }
}
