//! The records of a source, until all destinations have them.
//!
//! ```text
//!   monitor ─► put ─► queue of a topic ─► after: a session each ─► on_done ─► Outlet ─► monitor: done
//! ```
//!
//! The monitor is done with a record when the applications at **all** destinations have received
//! it. Until then its source keeps it, so a relay that ends loses no record. Stream IDs and chunk
//! numbers stay unchanged: a destination recognizes a record that it already has, even after
//! restarts.
//!
//! **Bounds.** A queue holds copies of the records in the monitor until they are done, at most
//! [`RecordChunk::WINDOW`] per topic, charged to the same budget as states. A record without room
//! stays at the monitor, and so with its source. A queue is dropped when its source ends or its
//! sessions restart: the monitor is notified and hands out the unfinished records again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshline_core::session::{Cursor, NextRecord, SourceKey, TakenRecord};
use freshline_core::state::{Budget, Party};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{RecordChunk, StreamId};

use crate::monitor::RecordRoom;
use crate::waker::Waker;

/// The overhead per record besides its bytes, with its place in a queue that grows by doubling.
const COST: usize = 2 * size_of::<Queued>() + 32;

/// The overhead per topic besides its name and its records.
const COST_OF_TOPIC: usize = 2 * size_of::<Topic>() + 64;

/// A record that is not done.
#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) number: u64,
    /// The number of the record after it.
    pub(super) end: u64,
    /// When it was generated, on this host's clock, and by how much that time can be too late.
    pub(super) generated_at: Time,
    pub(super) label_error: Span,
    pub(super) bytes: Arc<[u8]>,
}

/// Passes finished records to the monitor's thread.
#[derive(Debug, Clone)]
pub(super) struct Outlet {
    done: Arc<Mutex<VecDeque<(SourceKey, Cursor)>>>,
    waker: Arc<Waker>,
}

impl Outlet {
    /// `waker` wakes the monitor's thread.
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        Self { done: Arc::default(), waker }
    }

    fn done(&self) -> MutexGuard<'_, VecDeque<(SourceKey, Cursor)>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, source: SourceKey, cursor: Cursor) {
        self.done().push_back((source, cursor));
        // This fails only if the thread has ended.
        let _ = self.waker.wake();
    }

    pub(super) fn poll(&self) -> Option<(SourceKey, Cursor)> {
        self.done().pop_front()
    }
}

/// The records of one topic.
#[derive(Debug)]
struct Topic {
    source: SourceKey,
    /// The cursor of the last record that arrived.
    last: Cursor,
    queue: VecDeque<Queued>,
    /// All chunks below this number are done, per destination.
    done: Vec<u64>,
    /// The queued bytes, and the bytes that they count for the window.
    bytes: usize,
    window: usize,
    /// The maximum label error since the queue was last empty.
    label_error: Span,
}

impl Topic {
    /// All chunks below this number are done at all destinations.
    fn all_done(&self) -> u64 {
        self.done.iter().min().copied().unwrap_or_default()
    }

    fn has_room(&self, len: usize) -> bool {
        let window = self.window + RecordChunk::cost_of_record(len);
        self.queue.is_empty() || window <= RecordChunk::WINDOW
    }

    fn push(&mut self, record: Queued) {
        self.bytes += COST + record.bytes.len();
        self.window += RecordChunk::cost_of_record(record.bytes.len());
        self.label_error = self.label_error.max(record.label_error);
        self.queue.push_back(record);
    }

    fn pop_done(&mut self, all: u64) -> Option<Queued> {
        self.queue.front().filter(|record| record.end <= all)?;
        let record = self.queue.pop_front()?;
        self.bytes -= COST + record.bytes.len();
        self.window -= RecordChunk::cost_of_record(record.bytes.len());
        if self.queue.is_empty() {
            self.label_error = Span::ZERO;
        }
        Some(record)
    }
}

/// All topics.
#[derive(Debug, Default)]
struct Held {
    topics: BTreeMap<Arc<str>, Topic>,
    /// Its share of the budget.
    share: usize,
}

impl Held {
    /// The share of the budget that it should have.
    fn cost(&self, destinations: usize) -> usize {
        let topics = self.topics.iter();
        let costs =
            topics.map(|(name, topic)| cost_of_topic(name.len(), destinations) + topic.bytes);
        costs.sum()
    }
}

fn cost_of_topic(name: usize, destinations: usize) -> usize {
    COST_OF_TOPIC + name + destinations * size_of::<u64>()
}

/// The records of one source.
#[derive(Debug)]
pub(super) struct Records {
    held: Mutex<Held>,
    destinations: usize,
    outlet: Outlet,
}

/// Records of one topic that are new to a session.
pub(super) struct New {
    pub(super) topic: Arc<str>,
    pub(super) stream: StreamId,
    /// In order and without gaps; at least one.
    pub(super) records: Vec<Queued>,
}

impl Records {
    pub(super) fn new(destinations: usize, outlet: Outlet) -> Self {
        Self { held: Mutex::default(), destinations, outlet }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- the monitor's side ----

    /// Whether all records before the next one of a topic are here, or done. Otherwise another
    /// session has them: a former session of a source without a name, which may not have ended yet.
    pub(super) fn has_former(&self, topic: &str, next: &NextRecord) -> bool {
        let held = self.held();
        let topic = held.topics.get(topic).filter(|topic| topic.last.stream == next.stream);
        next.number <= next.done.max(topic.map_or(0, |topic| topic.last.next))
    }

    /// Whether the party's budget has room for the next record of a topic.
    pub(super) fn room_for(
        &self,
        topic: &str,
        next: &NextRecord,
        (budget, party): (&Budget, Party),
    ) -> RecordRoom {
        let held = self.held();
        let (has_room, more) = match held.topics.get(topic) {
            Some(topic) => (topic.has_room(next.len), 0),
            None => (true, cost_of_topic(topic.len(), self.destinations)),
        };
        let wanted = more + COST + next.len;
        room(wanted, budget, || has_room && budget.allows(party, wanted))
    }

    /// Like [`Self::room_for`] when this share of the budget, and all other records, are dropped
    /// first.
    pub(super) fn room_for_first(
        &self,
        topic: &str,
        next: &NextRecord,
        share: usize,
        (budget, party): (&Budget, Party),
    ) -> RecordRoom {
        let wanted = cost_of_topic(topic.len(), self.destinations) + COST + next.len;
        room(wanted, budget, || budget.allows(party, wanted.saturating_sub(share)))
    }

    /// Its share of the budget.
    pub(super) fn share(&self) -> usize {
        self.held().share
    }

    /// Whether a record is the next one of its topic, or has arrived before.
    pub(super) fn continues(&self, taken: &TakenRecord) -> bool {
        self.held().topics.get(&*taken.cursor.topic).is_none_or(|topic| {
            topic.last.stream == taken.cursor.stream && taken.number <= topic.last.next
        })
    }

    /// Appends the next record of a topic; returns whether there is room for it. A record that has
    /// arrived before is in the queue, or done.
    pub(super) fn put(
        &self,
        source: SourceKey,
        taken: &TakenRecord,
        (generated_at, label_error): (Time, Span),
        budget: &mut Budget,
    ) -> bool {
        let (cursor, number) = (&taken.cursor, taken.number);
        let mut held = self.held();
        let known = held.topics.get(&*cursor.topic);
        if known.is_none_or(|topic| number >= topic.last.next) {
            let more = known.map_or(cost_of_topic(cursor.topic.len(), self.destinations), |_| 0);
            let wanted = held.cost(self.destinations) + more + COST + taken.bytes.len();
            if !budget.resize(&mut held.share, wanted) {
                return false;
            }
        }
        let topic = held.topics.entry((*cursor.topic).into()).or_insert_with(|| Topic {
            source,
            last: Cursor { next: number, ..cursor.clone() },
            queue: VecDeque::new(),
            done: vec![number; self.destinations],
            bytes: 0,
            window: 0,
            label_error: Span::ZERO,
        });
        topic.source = source;
        if number < topic.last.next {
            if cursor.next <= topic.all_done() {
                // The monitor has forgotten that.
                self.outlet.put(source, cursor.clone());
            }
            return true;
        }
        topic.last = cursor.clone();
        let (end, bytes) = (cursor.next, taken.bytes.as_slice().into());
        topic.push(Queued { number, end, generated_at, label_error, bytes });
        true
    }

    /// Adjusts the share of the budget to the present content: less than before if records are
    /// done.
    pub(super) fn settle(&self, budget: &mut Budget) {
        let mut held = self.held();
        let cost = held.cost(self.destinations).min(held.share);
        // A smaller share always fits.
        let _ = budget.resize(&mut held.share, cost);
    }

    /// The number of queued records of this record's topic.
    pub(super) fn queued_with(&self, taken: &TakenRecord) -> usize {
        self.held().topics.get(&*taken.cursor.topic).map_or(0, |topic| topic.queue.len())
    }

    /// Drops all records; returns the cursors of the topics with unfinished records.
    pub(super) fn clear(&self, budget: &mut Budget) -> Vec<Cursor> {
        let mut held = self.held();
        budget.release(&mut held.share);
        let topics = std::mem::take(&mut held.topics).into_values();
        let dropped = topics.filter(|topic| !topic.queue.is_empty());
        dropped.map(|topic| topic.last).collect()
    }

    // ---- the destinations' side ----

    /// By how much the label of any record can be too late.
    pub(super) fn label_error(&self) -> Span {
        let held = self.held();
        held.topics.values().map(|topic| topic.label_error).max().unwrap_or(Span::ZERO)
    }

    /// The records that a session at a destination has not taken yet; it has taken all below
    /// `taken` of a topic, or none.
    pub(super) fn after(
        &self,
        destination: usize,
        taken: impl Fn(&Arc<str>) -> Option<u64>,
    ) -> Vec<New> {
        let held = self.held();
        let new = held.topics.iter().filter_map(|(name, topic)| {
            let done = topic.done.get(destination).copied();
            let from = taken(name).or(done).unwrap_or_default();
            let place = topic.queue.partition_point(|record| record.number < from);
            let records: Vec<_> = topic.queue.range(place..).cloned().collect();
            let (topic, stream) = (Arc::clone(name), topic.last.stream);
            (!records.is_empty()).then_some(New { topic, stream, records })
        });
        new.collect()
    }

    /// A destination is done with all chunks of a topic below this one.
    pub(super) fn on_done(&self, destination: usize, name: &Arc<str>, done: u64) {
        let mut held = self.held();
        let Some(topic) = held.topics.get_mut(name) else { return };
        if let Some(known) = topic.done.get_mut(destination) {
            *known = done.max(*known);
        }
        let all = topic.all_done();
        if let Some(last) = std::iter::from_fn(|| topic.pop_done(all)).last() {
            self.outlet.put(topic.source, Cursor { next: last.end, ..topic.last.clone() });
        }
    }
}

/// Whether there is room for this many bytes: now, later or never.
fn room(wanted: usize, budget: &Budget, has_room: impl FnOnce() -> bool) -> RecordRoom {
    if wanted > budget.limit() { RecordRoom::Never } else { RecordRoom::now_if(has_room()) }
}

#[cfg(test)]
mod tests {
    use freshline_core::session::{
        Admission, Monitor, MonitorParams, Secret, Source, SourceParams,
    };
    use freshline_core::source::Fixed;
    use freshline_core::unit::UpdateRate;

    use super::*;

    /// A record of one chunk.
    fn taken(number: u64) -> TakenRecord {
        let cursor = Cursor {
            source: "robot".into(),
            party: None,
            topic: "log".into(),
            stream: StreamId(7),
            next: number + 1,
        };
        let generated_at = Time::ZERO;
        TakenRecord { number, cursor, generated_at, age: None, bytes: number.to_string().into() }
    }

    /// The key of a source that has opened a session.
    fn source_key() -> SourceKey {
        let law = Box::new(Fixed::new(UpdateRate::saturating(1.0)));
        let (params, now) = (SourceParams::default(), Time::ZERO);
        let mut source = Source::new(params, Secret::new([1; 16]), law, now).expect("legal");
        let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
        let mut monitor = Monitor::new(params, Secret::new([2; 16]));
        source.put(now, now, b"state").expect("it fits");
        source.handle_timeout(now);
        while source.poll_event().is_some() {}
        let mut out = Vec::new();
        let transmit = source.poll_transmit(now, &mut out).expect("an opening");
        monitor.handle_datagram(now, 1, &out[..transmit.len]).expect("it is legal");
        monitor.records().next().expect("a session").0
    }

    fn numbers(records: &Records, destination: usize, taken: Option<u64>) -> Vec<u64> {
        let new = records.after(destination, |_| taken);
        new.iter().flat_map(|new| &new.records).map(|record| record.number).collect()
    }

    #[test]
    fn a_record_is_done_once_all_destinations_are_and_comes_again_without_effect() {
        let outlet = Outlet::new(Arc::new(Waker::new(|| Ok(()))));
        let (records, source) = (Records::new(2, outlet.clone()), source_key());
        let (topic, budget) = ("log".into(), &mut Budget::new(1 << 20));
        for number in [5, 6, 7, 5, 6] {
            assert!(records.put(source, &taken(number), (Time::ZERO, Span::ZERO), budget));
        }
        let used = budget.used();
        assert_eq!(numbers(&records, 0, None), [5, 6, 7]);
        assert_eq!(numbers(&records, 1, Some(7)), [7]);
        records.on_done(0, &topic, 8);
        assert!(outlet.poll().is_none(), "the other one has none");
        assert_eq!(numbers(&records, 0, None), [] as [u64; 0], "a restarted session");
        records.on_done(1, &topic, 7);
        let (_, cursor) = outlet.poll().expect("two records are done");
        assert_eq!((cursor.next, numbers(&records, 1, None)), (7, vec![7]));
        assert!(records.continues(&taken(8)) && !records.continues(&taken(9)), "a gap");
        records.on_done(1, &topic, 8);
        assert_eq!(outlet.poll().map(|(_, cursor)| cursor.next), Some(8));
        records.settle(budget);
        assert!(budget.used() < used, "finished records cost nothing");
        assert!(records.put(source, &taken(7), (Time::ZERO, Span::ZERO), budget));
        assert_eq!(outlet.poll().map(|(_, cursor)| cursor.next), Some(8), "it was done before");
        assert!(records.clear(budget).is_empty() && budget.used() == 0);
        assert!(records.put(source, &taken(8), (Time::ZERO, Span::ZERO), budget));
        let dropped = records.clear(budget);
        assert_eq!(dropped.iter().map(|cursor| cursor.next).collect::<Vec<_>>(), [9]);
    }
}
