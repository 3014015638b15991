//! A relay's board beside another watcher of its monitor.

use freshline_core::session::{
    Cursor, End, NextRecord, RemovedTopic, SourceKey, TakenRecord, TopicRecord,
};
use freshline_core::unit::Time;

use super::board::Board;
use crate::monitor::{Record, RecordRoom, Watch};

/// What the monitor reports, to a board and to another watcher; records are for the board alone.
pub(super) struct Both<'a> {
    pub(super) board: &'a mut Board,
    pub(super) other: &'a mut dyn Watch,
}

impl Watch for Both<'_> {
    fn fresh(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.board.fresh(now, source, record);
        self.other.fresh(now, source, record);
    }

    fn fresh_topic(&mut self, now: Time, source: SourceKey, record: &Record, topic: &TopicRecord) {
        self.board.fresh_topic(now, source, record, topic);
        self.other.fresh_topic(now, source, record, topic);
    }

    fn removed(&mut self, now: Time, source: SourceKey, record: &Record, removed: &RemovedTopic) {
        self.board.removed(now, source, record, removed);
        self.other.removed(now, source, record, removed);
    }

    fn room_for_record(&self, source: SourceKey, topic: &str, next: &NextRecord) -> RecordRoom {
        self.board.room_for_record(source, topic, next)
    }

    fn has_room_again(&mut self) -> bool {
        self.board.has_room_again()
    }

    fn record(
        &mut self,
        now: Time,
        source: SourceKey,
        record: &Record,
        topic: &str,
        taken: &TakenRecord,
    ) {
        self.board.record(now, source, record, topic, taken);
    }

    fn poll_record_done(&mut self) -> Option<(SourceKey, Cursor)> {
        self.board.poll_record_done()
    }

    fn poll_records_dropped(&mut self) -> Option<Cursor> {
        self.board.poll_records_dropped()
    }

    fn aged(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.board.aged(now, source, record);
        self.other.aged(now, source, record);
    }

    fn aged_topic(&mut self, now: Time, source: SourceKey, record: &Record, topic: &TopicRecord) {
        self.board.aged_topic(now, source, record, topic);
        self.other.aged_topic(now, source, record, topic);
    }

    fn opened(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.board.opened(now, source, record);
        self.other.opened(now, source, record);
    }

    fn gone(&mut self, now: Time, source: SourceKey, why: End) {
        self.board.gone(now, source, why);
        self.other.gone(now, source, why);
    }

    fn turn(&mut self, now: Time) {
        self.board.turn(now);
        self.other.turn(now);
    }

    fn replaced(&self, source: SourceKey) -> u64 {
        self.other.replaced(source)
    }
}
