//! The newest states of each source, from the monitor's thread to those of the destinations.
//!
//! ```text
//!   monitor::Watch ─► Board ─► Relayed: the newest state of each topic and key, shared by all destinations
//!                        └───► Inbox of each destination: which sources have changed
//! ```
//!
//! **Bounds.** A newer state replaces an older one, and an inbox has one entry per place of the
//! monitor. The bytes of keyed and topic states, and of records that are not done, are charged to a
//! budget: at most [`max_large`](freshline_core::session::MonitorParams::max_large) for all sources
//! together, plus a quarter for networks (with the same token or certificate) that hold little, as
//! at the monitor. A state without room is left out and counted, and the state before it stays. A
//! record without room stays with its source. States of sources without topics, one each, are
//! bounded by the number of sources, as at the monitor.
//!
//! **A state or record whose age is unknown is held back.** A destination counts the age from the
//! generation, so an update must carry the age of its state at departure. The state of an opening
//! has no known age yet; the source's next update brings it, one round trip later. Records stay at
//! the monitor until then.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshline_core::session::{
    Cursor, End, NextRecord, RemovedTopic, SourceKey, StateAge, TakenRecord, TopicRecord,
};
use freshline_core::state::{Budget, Party};
use freshline_core::unit::{Span, Time};

use super::parting::Parting;
use super::records::{Outlet, Records};
use super::states::{FORMER, Put, Relayed, Which};
use crate::monitor::{Record, RecordRoom, Watch};
use crate::waker::Waker;

/// The places of the monitor that have changed, with their current sources.
pub(super) type Changes = HashMap<usize, Option<Arc<Relayed>>>;

/// The changes that a destination's thread has not processed yet.
#[derive(Debug)]
pub(super) struct Inbox {
    changes: Mutex<Changes>,
    waker: Arc<Waker>,
}

impl Inbox {
    /// `waker` wakes the destination's thread.
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        Self { changes: Mutex::default(), waker }
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, place: usize, source: Option<Arc<Relayed>>) {
        let mut changes = self.changes();
        let is_awake = !changes.is_empty();
        changes.insert(place, source);
        drop(changes);
        if !is_awake {
            // This fails only if the thread has ended.
            let _ = self.waker.wake();
        }
    }

    /// Takes the changes since the last call.
    pub(super) fn take(&self) -> Changes {
        std::mem::take(&mut self.changes())
    }
}

/// The monitor's side.
pub(super) struct Board {
    /// By place in the monitor.
    sources: Vec<Option<Arc<Relayed>>>,
    /// The parties that are charged for the sources, by place.
    parties: Vec<Party>,
    inboxes: Vec<Arc<Inbox>>,
    /// For the states of topics and keys, and for records.
    budget: Budget,
    /// [`Budget::shrinks`] at the monitor's last query for free room.
    shrinks: u64,
    /// Topics with dropped records that are not done.
    dropped: VecDeque<Cursor>,
    /// Deadlines after which state of a former session is dropped, by place.
    takeovers: BTreeMap<usize, Time>,
    outlet: Outlet,
    tally: Tally,
}

/// Counts the states that are not forwarded.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    old_states: AtomicU64,
    left_out: AtomicU64,
}

impl Tally {
    /// States that were not newer than a state already forwarded under their name.
    pub(super) fn old_states(&self) -> u64 {
        self.0.old_states.load(Ordering::Relaxed)
    }

    /// States for which there was no room.
    pub(super) fn left_out(&self) -> u64 {
        self.0.left_out.load(Ordering::Relaxed)
    }
}

/// A state in the monitor.
struct Arrived<'a> {
    which: Which,
    age: Option<Span>,
    bounded: Option<StateAge>,
    bytes: &'a [u8],
}

impl<'a> Arrived<'a> {
    /// The state of a source's first topic.
    fn first(now: Time, record: &'a Record) -> Self {
        let name = record.topic(0).map_or("", |topic| topic.name());
        Self {
            which: Which::new(name, None),
            age: record.state_age(now),
            bounded: record.bounded_age(now),
            bytes: record.payload().unwrap_or_default(),
        }
    }

    /// The state of another topic, or of a key; `None` without a name or a state.
    fn of(now: Time, topic: &'a TopicRecord) -> Option<Self> {
        (!topic.name().is_empty()).then_some(())?;
        Some(Self {
            which: Which::new(topic.name(), topic.key()),
            age: topic.state_age(now),
            bounded: topic.bounded_age(now),
            bytes: topic.payload()?,
        })
    }
}

impl Board {
    /// `max_bytes` bounds the states of topics and keys, and the records; `waker` wakes the monitor's thread.
    pub(super) fn new(inboxes: Vec<Arc<Inbox>>, max_bytes: usize, waker: Arc<Waker>) -> Self {
        Self {
            sources: Vec::new(),
            parties: Vec::new(),
            inboxes,
            budget: Budget::of_parties(max_bytes),
            shrinks: 0,
            dropped: VecDeque::new(),
            takeovers: BTreeMap::new(),
            outlet: Outlet::new(waker),
            tally: Tally::default(),
        }
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// Announces a changed place to all destinations.
    fn publish(&self, place: usize) {
        let source = self.sources.get(place).and_then(Option::as_ref);
        self.inboxes.iter().for_each(|inbox| inbox.put(place, source.cloned()));
    }

    /// Charges and credits from now on belong to the party of the source in this place.
    fn enter(&mut self, place: usize) {
        self.budget.enter(self.party(place));
    }

    fn party(&self, place: usize) -> Party {
        self.parties.get(place).copied().unwrap_or_default()
    }

    fn leave_out(&self, number: usize) {
        self.tally.0.left_out.fetch_add(number as u64, Ordering::Relaxed);
    }

    fn relayed(&self, name: &str, session: &str) -> Arc<Relayed> {
        let records = Records::new(self.inboxes.len(), self.outlet.clone());
        Arc::new(Relayed::new(name, session, records))
    }

    /// Handles a new state, or a newly known age of a state.
    fn put(&mut self, now: Time, source: SourceKey, arrived: &Arrived<'_>) {
        let Arrived { which, age, bounded, bytes } = arrived;
        let place = source.index();
        let relayed = self.sources.get(place).and_then(Option::clone);
        let (Some(relayed), Some(age)) = (relayed, *age) else { return };
        self.enter(place);
        let error = bounded.map_or(Span::MAX, |bounded| bounded.max() - age);
        let at = (now - age, error);
        let mut put = relayed.put(which, at, bytes, &mut self.budget);
        if put == Put::Clash {
            put = self.renew(place, &relayed).put(which, at, bytes, &mut self.budget);
        }
        match put {
            Put::New => self.publish(place),
            Put::Old => _ = self.tally.0.old_states.fetch_add(1, Ordering::Relaxed),
            Put::LeftOut | Put::Clash => self.leave_out(1),
        }
    }

    /// Ends the source's sessions at the destinations and starts new ones under its name, with the
    /// states of its present session. The caller must have entered its party in the budget.
    fn renew(&mut self, place: usize, before: &Relayed) -> Arc<Relayed> {
        let renewed = self.relayed(&before.name, &before.label);
        before.hand_over(&renewed, &mut self.budget);
        self.end(before, Parting::of(End::Idle, &before.name));
        self.sources[place] = Some(Arc::clone(&renewed));
        self.publish(place);
        renewed
    }

    /// Ends the source's sessions at the destinations. Its unfinished records are handed out again.
    /// The caller must have entered its party in the budget.
    fn end(&mut self, source: &Relayed, parting: Parting) {
        self.dropped.extend(source.end(parting, &mut self.budget));
    }
}

impl Watch for Board {
    fn opened(&mut self, now: Time, source: SourceKey, record: &Record) {
        let place = source.index();
        if self.sources.len() <= place {
            self.sources.resize(place + 1, None);
            self.parties.resize(place + 1, Party::default());
        }
        self.takeovers.remove(&place);
        self.enter(place);
        self.parties[place] = record.peer.origin().with_credential(record.credential()).party();
        if let Some(former) = self.sources[place].take() {
            if !record.name.is_empty() && former.name == record.name {
                self.takeovers.insert(place, now + FORMER);
                former.on_taken_over();
                // The source may have moved to another network.
                self.budget.pass(former.share(), self.parties[place]);
                self.sources[place] = Some(former);
                return;
            }
            self.end(&former, Parting::Close);
        }
        self.sources[place] = Some(self.relayed(&record.name, &record.label().to_string()));
        self.publish(place);
    }

    fn fresh(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.put(now, source, &Arrived::first(now, record));
    }

    fn fresh_topic(&mut self, now: Time, source: SourceKey, _: &Record, topic: &TopicRecord) {
        match Arrived::of(now, topic) {
            Some(arrived) => self.put(now, source, &arrived),
            None => self.leave_out(1),
        }
    }

    fn removed(&mut self, _now: Time, source: SourceKey, _: &Record, removed: &RemovedTopic) {
        let place = source.index();
        self.enter(place);
        let Some(relayed) = self.sources.get(place).and_then(Option::as_ref) else { return };
        let which = Which::new(&removed.name, Some(&removed.key));
        if relayed.remove(&which, &mut self.budget) {
            self.publish(place);
        }
    }

    fn room_for_record(&self, source: SourceKey, topic: &str, next: &NextRecord) -> RecordRoom {
        let place = source.index();
        let relayed = self.sources.get(place).and_then(Option::as_ref);
        let Some(relayed) = relayed.filter(|_| next.is_age_known) else { return RecordRoom::Full };
        let room = relayed.room_for_record(topic, next, (&self.budget, self.party(place)));
        if room == RecordRoom::Never {
            self.leave_out(1);
        }
        room
    }

    fn has_room_again(&mut self) -> bool {
        let shrinks = self.budget.shrinks();
        std::mem::replace(&mut self.shrinks, shrinks) != shrinks
    }

    fn record(
        &mut self,
        now: Time,
        source: SourceKey,
        _: &Record,
        _topic: &str,
        taken: &TakenRecord,
    ) {
        let place = source.index();
        self.enter(place);
        let relayed = self.sources.get(place).and_then(Option::clone);
        let put = relayed.as_ref().zip(taken.age).map(|(relayed, age)| {
            let at = (now - age.estimate, taken.label_error());
            relayed.put_record(source, taken, at, &mut self.budget)
        });
        if put == Some(Put::New) {
            return self.publish(place);
        }
        if let Some(relayed) = relayed.filter(|_| put == Some(Put::Clash)) {
            if !relayed.records.continues(taken) {
                // The source no longer has these records.
                self.leave_out(relayed.records.queued_with(taken));
            }
            // Other states of the source that arrive meanwhile cannot take the topic's place.
            self.renew(place, &relayed).expect_records(taken);
        }
        // The record is handed out again, after the records that were dropped before it.
        self.dropped.push_back(taken.cursor.clone());
    }

    fn poll_record_done(&mut self) -> Option<(SourceKey, Cursor)> {
        let (source, cursor) = self.outlet.poll()?;
        self.enter(source.index());
        if let Some(Some(relayed)) = self.sources.get(source.index()) {
            relayed.records.settle(&mut self.budget);
        }
        Some((source, cursor))
    }

    fn poll_records_dropped(&mut self) -> Option<Cursor> {
        self.dropped.pop_front()
    }

    fn aged(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.put(now, source, &Arrived::first(now, record));
    }

    fn aged_topic(&mut self, now: Time, source: SourceKey, record: &Record, topic: &TopicRecord) {
        self.fresh_topic(now, source, record, topic);
    }

    fn gone(&mut self, _now: Time, source: SourceKey, why: End) {
        let place = source.index();
        self.takeovers.remove(&place);
        self.enter(place);
        let Some(relayed) = self.sources.get_mut(place).and_then(Option::take) else { return };
        self.end(&relayed, Parting::of(why, &relayed.name));
        self.publish(place);
    }

    fn turn(&mut self, now: Time) {
        let due = self.takeovers.iter().filter(|(_, at)| **at <= now);
        for place in due.map(|(place, _)| *place).collect::<Vec<_>>() {
            self.takeovers.remove(&place);
            self.enter(place);
            let relayed = self.sources.get(place).and_then(Option::as_ref);
            if relayed.is_some_and(|relayed| relayed.drop_former(&mut self.budget)) {
                self.publish(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use freshline_core::session::{self, Admission, MonitorParams, RecordChunk, Secret, StreamId};
    use freshline_core::wire::{
        Frame, Frames, OffsetEstimate, Opening, SessionId, StateId, TopicKey, TopicName,
        TopicStream, Update,
    };

    use super::super::states::tests::relayed;
    use super::*;
    use crate::monitor::{Books, Sender};

    const NOW: Time = Time::from_nanos(1_000_000_000_000);

    /// A relay's monitor and board, with one destination.
    struct World {
        monitor: session::Monitor<Sender>,
        books: Books,
        board: Board,
        inbox: Arc<Inbox>,
        seq: u64,
    }

    impl World {
        fn new(max_bytes: usize) -> Self {
            let waker = || Arc::new(Waker::new(|| Ok(())));
            let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
            let inbox = Arc::new(Inbox::new(waker()));
            Self {
                monitor: session::Monitor::new(params, Secret::new([1; 16])),
                books: Books::new(9, Span::from_secs(9)),
                board: Board::new(vec![Arc::clone(&inbox)], max_bytes, waker()),
                inbox,
                seq: 0,
            }
        }

        /// Opens the session of a source of this network; the session has the source's number.
        fn open(&mut self, source: u64) {
            let name = format!("source-{source}");
            let opening = Opening { cookie: Default::default(), name: &name, token: b"" };
            self.seq = 0;
            self.tell(source, Some(opening), Frames::NONE);
        }

        fn hear(&mut self, source: u64, frame: Frame<'_>) {
            self.tell(source, None, Frames::one(frame));
        }

        fn tell(&mut self, source: u64, opening: Option<Opening<'_>>, frames: Frames<'_>) {
            let update = Update {
                session: SessionId(source),
                seq: self.seq,
                sent_at: NOW,
                clock_offset: Some(OffsetEstimate::new(0, Span::from_millis(1))),
                wants_ack: false,
                wants_return: false,
                ack_mark: None,
                opening,
                frames,
            };
            self.seq += 1;
            let mut datagram = [0; 2_000];
            let len = update.write(&mut datagram).expect("it fits");
            let (peer, Self { monitor, books, board, .. }) = (Sender::of_network(source), self);
            monitor.handle_datagram(NOW, peer, &datagram[..len]).expect("it is legal");
            while let Some(event) = monitor.poll_event() {
                books.on_event(NOW, monitor, event, board);
            }
            books.hand_out_records(NOW, monitor, board);
            board.turn(NOW);
        }

        /// Puts a key of this number, with a state.
        fn put_key(&mut self, source: u64, number: u16, bytes: &[u8]) {
            let bytes_of_key = number.to_be_bytes();
            let key = Some(TopicKey { behind: 0, bytes: &bytes_of_key });
            let name = TopicName { topic: number, name: "tf", key, stream: None };
            self.hear(source, Frame::Name(name));
            self.hear(
                source,
                Frame::State { id: StateId { topic: number, ..StateId::FRESH }, bytes },
            );
        }

        fn name_records(&mut self, source: u64, topic: u16) {
            let stream = Some(TopicStream { id: StreamId(7), first: 0 });
            let name = TopicName { topic, name: "log", key: None, stream };
            self.hear(source, Frame::Name(name));
        }

        fn put_record(&mut self, source: u64, topic: u16, number: u64) {
            let (age, bytes) = (Span::ZERO, &b"record"[..]);
            self.hear(
                source,
                Frame::Record(RecordChunk { topic, number, is_last: true, age, bytes }),
            );
        }

        /// Records of this source that the destination has not received yet.
        fn records(&self, source: u64) -> usize {
            let name = format!("source-{source}");
            let mut sources = self.board.sources.iter().flatten();
            let relayed = sources.find(|it| *it.name == *name).expect("it is there");
            let new = relayed.records.after(0, |_| Some(0));
            new.iter().map(|topic| topic.records.len()).sum()
        }
    }

    #[test]
    fn a_source_that_takes_all_the_memory_it_can_leaves_others_room() {
        let mut world = World::new(100_000);
        world.open(1);
        for number in 1..=200 {
            world.put_key(1, number, &[1; 1_000]);
        }
        let left_out = world.board.tally().left_out();
        assert!(left_out > 100, "{left_out}");
        world.open(2);
        world.put_key(2, 1, &[2; 1_000]);
        assert_eq!(world.board.tally().left_out(), left_out, "the state of another network");
        world.name_records(2, 9);
        world.put_record(2, 9, 0);
        assert_eq!(world.records(2), 1);
        // Its share is free again when it ends.
        let used = world.board.budget.used();
        let keys: Vec<_> = world.monitor.records().map(|(key, _)| key).collect();
        keys.iter().for_each(|key| world.board.gone(NOW, *key, End::Closed));
        assert!(used > 100_000 && world.board.budget.used() == 0);
    }

    #[test]
    fn a_session_at_a_destination_begins_anew_for_other_topics_once_and_only_if_they_have_room() {
        for (max_bytes, renewals) in [(100, 0), (100_000, 1)] {
            let mut world = World::new(max_bytes);
            world.open(1);
            // In turns, a state without a topic arrives, although the source has topics, and then a
            // record.
            let mut sources: Vec<Arc<Relayed>> = Vec::new();
            for number in 0..10 {
                world.hear(1, Frame::State { id: StateId::FRESH, bytes: b"state" });
                sources.extend(world.inbox.take().into_values().flatten());
                world.name_records(1, 9);
                world.put_record(1, 9, number);
                sources.extend(world.inbox.take().into_values().flatten());
            }
            sources.dedup_by(|a, b| Arc::ptr_eq(a, b));
            assert_eq!(sources.len() - 1, renewals, "of {max_bytes} bytes");
            assert_eq!(world.records(1), 10 * renewals);
        }
    }

    #[test]
    fn an_inbox_has_one_entry_per_place_and_wakes_its_thread_once() {
        let woken = Arc::new(AtomicUsize::new(0));
        let theirs = Arc::clone(&woken);
        let waker = Waker::new(move || {
            theirs.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let inbox = Inbox::new(Arc::new(waker));
        let [first, second] = [(); 2].map(|()| Arc::new(relayed()));
        for source in [Some(&first), None, Some(&second), Some(&second)] {
            inbox.put(7, source.cloned());
        }
        let changes = inbox.take();
        let now_there = changes.get(&7).and_then(Option::as_ref).expect("a source");
        assert!(Arc::ptr_eq(now_there, &second) && changes.len() == 1);
        inbox.put(3, None);
        assert_eq!((inbox.take().len(), woken.load(Ordering::Relaxed)), (1, 2));
    }
}
