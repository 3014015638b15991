//! Readers of the states of a monitor that the application runs itself.

use std::fmt;

use freshline_core::session::{
    Alarm, Cursor, End, MaxAge, NextRecord, RemovedTopic, SourceKey, TakenRecord, TopicRecord,
};
use freshline_core::unit::Time;
use freshline_net::monitor::{Record, RecordRoom, Watch};

use crate::clock::Clock;
use crate::store::{Board, Store};
use crate::subscription::Subscription;

/// Subscriptions to a monitor that the application runs itself ([`driver`](crate::driver)), for readers on other
/// threads. A [`Monitor`](crate::Monitor) has its own.
#[derive(Debug, Clone)]
pub struct Readers {
    board: Board,
}

impl Default for Readers {
    fn default() -> Self {
        Self { board: Board::new(Clock::real()) }
    }
}

impl Readers {
    /// No readers.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Monitor::observe`](crate::Monitor::observe).
    pub fn observe(&self, pattern: &str) -> Subscription {
        self.board.observe(pattern)
    }

    /// What the monitor runs with: `watch`, and the readers. They receive no state that is older than the first of
    /// `max_ages` that matches. When it is dropped, the subscriptions end.
    pub fn watch<'a, W: Watch>(&self, max_ages: Vec<MaxAge>, watch: &'a mut W) -> Watched<'a, W> {
        Watched { store: self.board.store(max_ages), board: self.board.clone(), watch }
    }
}

/// A [`Watch`] whose states go to [`Readers`], too.
pub struct Watched<'a, W> {
    store: Store,
    board: Board,
    /// What decides on records, and counts.
    watch: &'a mut W,
}

impl<W> fmt::Debug for Watched<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.board).finish()
    }
}

impl<W> Drop for Watched<'_, W> {
    fn drop(&mut self) {
        self.board.close();
    }
}

impl<W: Watch> Watch for Watched<'_, W> {
    fn fresh(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.store.fresh(now, source, record);
        self.watch.fresh(now, source, record);
    }

    fn fresh_topic(&mut self, now: Time, source: SourceKey, record: &Record, topic: &TopicRecord) {
        self.store.fresh_topic(now, source, record, topic);
        self.watch.fresh_topic(now, source, record, topic);
    }

    fn removed(&mut self, now: Time, source: SourceKey, record: &Record, removed: &RemovedTopic) {
        self.store.removed(now, source, record, removed);
        self.watch.removed(now, source, record, removed);
    }

    fn room_for_record(&self, source: SourceKey, topic: &str, next: &NextRecord) -> RecordRoom {
        self.watch.room_for_record(source, topic, next)
    }

    fn has_room_again(&mut self) -> bool {
        self.watch.has_room_again()
    }

    fn record(
        &mut self,
        now: Time,
        source: SourceKey,
        record: &Record,
        topic: &str,
        taken: &TakenRecord,
    ) {
        self.store.show_record(now, record, topic, taken);
        self.watch.record(now, source, record, topic, taken);
    }

    fn poll_record_done(&mut self) -> Option<(SourceKey, Cursor)> {
        self.watch.poll_record_done()
    }

    fn poll_records_dropped(&mut self) -> Option<Cursor> {
        self.watch.poll_records_dropped()
    }

    fn aged(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.store.aged(now, source, record);
        self.watch.aged(now, source, record);
    }

    fn aged_topic(&mut self, now: Time, source: SourceKey, record: &Record, topic: &TopicRecord) {
        self.store.aged_topic(now, source, record, topic);
        self.watch.aged_topic(now, source, record, topic);
    }

    fn stale(&mut self, now: Time, alarm: &Alarm) {
        self.watch.stale(now, alarm);
    }

    fn recovered(&mut self, now: Time, alarm: &Alarm) {
        self.watch.recovered(now, alarm);
    }

    fn opened(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.store.opened(now, source, record);
        self.watch.opened(now, source, record);
    }

    fn gone(&mut self, now: Time, source: SourceKey, why: End) {
        self.store.gone(now, source, why);
        self.watch.gone(now, source, why);
    }

    fn turn(&mut self, now: Time) {
        self.watch.turn(now);
    }

    fn replaced(&self, source: SourceKey) -> u64 {
        self.watch.replaced(source)
    }
}
