//! A monitor's reports of its sessions, and the delivery of their events and records to the
//! watcher.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use freshline_core::session::{self, End, MonitorEvent, NextRecord, SourceKey};
use freshline_core::unit::{Span, Time};

use super::details::Details;
use super::{Record, RecordRoom, Sender, Watch};
use crate::refusal::{Refusal, Refusals};

/// Maximum number of topics without room that are asked for again per turn, so that the work of a
/// turn does not grow with their number.
const LOOKS: usize = 64;

/// The time between two such turns.
const PAUSE: Span = Span::from_millis(1);

/// A topic of a source.
type Place = (SourceKey, u16);

/// Topics that may have records to hand out, served in turn.
#[derive(Default)]
struct Turns {
    ready: BTreeSet<Place>,
    /// The topic that was served last.
    last: Option<Place>,
    /// Topics for which there was no room.
    blocked: BTreeSet<Place>,
    /// The blocked topic that was last asked for again.
    looked_at: Option<Place>,
    /// Set if there may be room now: the value of `looked_at` at that time. All blocked topics are
    /// asked for again, once around up to this one.
    look_to: Option<Option<Place>>,
    /// When to ask again, at the earliest.
    next_look: Time,
}

/// The next place of a set after the last one, or else its first.
fn next_of(places: &BTreeSet<Place>, last: Option<Place>) -> Option<Place> {
    let after = last.map(|last| (Excluded(last), Unbounded));
    let next = after.and_then(|after| places.range(after).next());
    next.or_else(|| places.first()).copied()
}

impl Turns {
    /// The topic whose turn is next.
    fn next(&mut self) -> Option<Place> {
        self.last = next_of(&self.ready, self.last);
        self.last
    }

    /// A topic has records, or may have room now.
    fn wake(&mut self, place: Place) {
        self.blocked.remove(&place);
        self.ready.insert(place);
    }

    fn block(&mut self, place: Place) {
        self.ready.remove(&place);
        self.blocked.insert(place);
    }

    /// There may be room again for any of the blocked topics.
    fn look_again(&mut self) {
        self.look_to = (!self.blocked.is_empty()).then_some(self.looked_at);
    }

    /// Unblocks some of them, if it is time.
    fn unblock(&mut self, now: Time) {
        let Some(end) = self.look_to.filter(|_| now >= self.next_look) else { return };
        self.next_look = now + PAUSE;
        for _ in 0..LOOKS {
            let Some(place) = next_of(&self.blocked, self.looked_at) else {
                self.look_to = None;
                return;
            };
            // From the last one to this one, in the order of the places; the least follows the
            // greatest.
            let (last, here) = (self.looked_at, Some(place));
            self.wake(place);
            self.looked_at = here;
            let is_around =
                if last < here { last < end && end <= here } else { last < end || end <= here };
            if is_around {
                self.look_to = None;
                return;
            }
        }
    }

    /// Removes the topics of a source that is gone.
    fn forget(&mut self, source: SourceKey) {
        for places in [&mut self.ready, &mut self.blocked] {
            let of_source = places.range((source, 0)..=(source, u16::MAX)).copied();
            for place in of_source.collect::<Vec<_>>() {
                places.remove(&place);
            }
        }
    }
}

/// Reports of the sources, and counts of refusals.
pub(crate) struct Books {
    pub(super) details: Details,
    pub(super) refusals: Refusals,
    turns: Turns,
    /// Whether invalid parts of records were reported.
    has_bad_chunks: bool,
}

impl Books {
    /// See [`MonitorConfig`](super::MonitorConfig) for the two settings.
    pub(crate) fn new(detailed: usize, forget: Span) -> Self {
        let details = Details::new(detailed, forget);
        let (refusals, turns) = (Refusals::default(), Turns::default());
        Self { details, refusals, turns, has_bad_chunks: false }
    }

    /// Delivers an event; returns whether it is an update of an open session.
    pub(crate) fn on_event(
        &mut self,
        now: Time,
        sessions: &session::Monitor<Sender>,
        event: MonitorEvent<Sender>,
        watch: &mut dyn Watch,
    ) -> bool {
        let Self { details, refusals, turns, .. } = self;
        let mut is_known = false;
        match event {
            MonitorEvent::Fresh { source, opened, is_repeat, brings_age } => {
                is_known = true;
                let Some(record) = sessions.record(source) else { return is_known };
                if opened {
                    details.insert(source, record);
                    watch.opened(now, source, record);
                }
                details.on_fresh(source, record, now);
                if !is_repeat {
                    watch.fresh(now, source, record);
                } else if brings_age {
                    watch.aged(now, source, record);
                }
            }
            MonitorEvent::Opened { source } => {
                is_known = true;
                let Some(record) = sessions.record(source) else { return is_known };
                details.insert(source, record);
                watch.opened(now, source, record);
            }
            MonitorEvent::Topic { source, topic } => {
                let Some(record) = sessions.record(source) else { return is_known };
                if let Some(topic) = record.topic(topic) {
                    watch.fresh_topic(now, source, record, topic);
                }
            }
            MonitorEvent::TopicAged { source, topic } => {
                let Some(record) = sessions.record(source) else { return is_known };
                if let Some(topic) = record.topic(topic) {
                    watch.aged_topic(now, source, record, topic);
                }
            }
            MonitorEvent::Record { source, topic } => turns.wake((source, topic)),
            MonitorEvent::Removed { source, topic } => {
                if let Some(record) = sessions.record(source) {
                    watch.removed(now, source, record, &topic);
                }
            }
            MonitorEvent::Withheld { source } => {
                is_known = true;
                let Some(record) = sessions.record(source) else { return is_known };
                details.on_fresh(source, record, now);
            }
            MonitorEvent::Freshness(alarm) if alarm.is_stale => watch.stale(now, &alarm),
            MonitorEvent::Freshness(alarm) => watch.recovered(now, &alarm),
            MonitorEvent::Part { .. } | MonitorEvent::Stale { .. } => is_known = true,
            MonitorEvent::Challenged => {}
            MonitorEvent::Refused { at_peer_limit: true, .. } => {
                refusals.count(Refusal::PeerLimit);
            }
            MonitorEvent::Refused { reason, .. } => {
                Refusal::of(reason).into_iter().for_each(|reason| refusals.count(reason));
            }
            MonitorEvent::Gone { source, record, why } => {
                self.on_gone(now, source, record, why, watch);
            }
        }
        is_known
    }

    fn on_gone(
        &mut self,
        now: Time,
        source: SourceKey,
        record: Box<Record>,
        why: End,
        watch: &mut dyn Watch,
    ) {
        self.turns.forget(source);
        let replaced = watch.replaced(source);
        match why {
            End::Closed | End::Revoked => self.details.end(source, &record, now, replaced),
            End::Displaced | End::Idle => self.details.expire(source, record, now, replaced),
        }
        if why == End::Displaced {
            self.refusals.count(Refusal::Displaced);
        }
        watch.gone(now, source, why);
    }

    /// Hands out records as long as there is room for them, one topic after the other. The work is
    /// proportional to the number of topics with a new or finished record, plus a bounded number of
    /// topics that had no room.
    pub(crate) fn hand_out_records(
        &mut self,
        now: Time,
        sessions: &mut session::Monitor<Sender>,
        watch: &mut dyn Watch,
    ) {
        self.settle_records(now, sessions, watch);
        self.turns.unblock(now);
        while let Some((source, topic)) = self.turns.next() {
            let next = sessions.peek_record(source, topic);
            let Some((record, next)) = sessions.record(source).zip(next) else {
                self.turns.ready.remove(&(source, topic));
                continue;
            };
            let name = record.record_topic(topic).unwrap_or_default();
            match watch.room_for_record(source, name, &next) {
                RecordRoom::Free => {}
                RecordRoom::Full => {
                    self.turns.block((source, topic));
                    continue;
                }
                RecordRoom::Never => {
                    self.turns.ready.remove(&(source, topic));
                    continue;
                }
            }
            let taken = sessions.next_record(now, source, topic);
            if let Some((taken, record)) = taken.as_ref().zip(sessions.record(source)) {
                watch.record(now, source, record, &taken.cursor.topic, taken);
                // Before the next record of this topic is taken.
                let are_dropped = self.settle_records(now, sessions, watch);
                let is_back = |next: NextRecord| next.number == taken.number;
                if are_dropped && sessions.peek_record(source, topic).is_some_and(is_back) {
                    // It was dropped at once, and would be again in this turn.
                    self.turns.block((source, topic));
                    self.turns.look_again();
                }
            }
        }
        self.report_bad_chunks(sessions);
    }

    /// Passes on which records are done or dropped; returns whether some were dropped.
    fn settle_records(
        &mut self,
        now: Time,
        sessions: &mut session::Monitor<Sender>,
        watch: &mut dyn Watch,
    ) -> bool {
        let (mut are_done, mut are_dropped) = (false, false);
        while let Some((source, cursor)) = watch.poll_record_done() {
            sessions.handle_record_done(source, &cursor);
            are_done = true;
        }
        while let Some(cursor) = watch.poll_records_dropped() {
            sessions.hand_out_again(&cursor);
            are_dropped = true;
        }
        if watch.has_room_again() || are_done || are_dropped {
            self.turns.look_again();
        }
        // Topics that have records to hand out as a result.
        while let Some(event) = sessions.poll_event() {
            self.on_event(now, sessions, event, watch);
        }
        are_dropped
    }

    /// Reports once that a source sends invalid parts of records.
    fn report_bad_chunks(&mut self, sessions: &session::Monitor<Sender>) {
        if !self.has_bad_chunks && sessions.counters().bad_chunks > 0 {
            self.has_bad_chunks = true;
            tracing::warn!(
                "a source sends invalid parts of records: they are refused and counted (bad_chunks)"
            );
        }
    }

    /// When to call [`Books::hand_out_records`], and [`Details::handle_timeout`], next.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let look = self.turns.look_to.is_some().then_some(self.turns.next_look);
        Time::earliest([self.details.poll_timeout(), look])
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;

    use freshline_core::path::PathId;
    use freshline_core::session::{
        Admission, Cursor, MonitorParams, RecordChunk, Secret, StreamId, TakenRecord,
    };
    use freshline_core::wire::{Frame, Frames, Opening, SessionId, TopicName, TopicStream, Update};

    use super::*;

    /// Topics of the source, each with one record.
    const TOPICS: u16 = 1_000;

    /// An application with room for a limited number of records.
    #[derive(Default)]
    struct Application {
        now: Time,
        room: Cell<usize>,
        asked: Cell<usize>,
        taken: RefCell<Vec<u16>>,
        done: VecDeque<(SourceKey, Cursor)>,
        /// Whether records are dropped as soon as they are handed out.
        drops: bool,
        dropped: VecDeque<Cursor>,
    }

    impl Watch for Application {
        fn room_for_record(&self, _: SourceKey, _: &str, _: &NextRecord) -> RecordRoom {
            self.asked.set(self.asked.get() + 1);
            RecordRoom::now_if(self.room.get() > 0)
        }

        fn record(
            &mut self,
            _: Time,
            source: SourceKey,
            _: &Record,
            topic: &str,
            taken: &TakenRecord,
        ) {
            if self.drops {
                return self.dropped.push_back(taken.cursor.clone());
            }
            self.room.set(self.room.get() - 1);
            self.taken.get_mut().push(topic.parse().expect("its number"));
            self.done.push_back((source, taken.cursor.clone()));
        }

        fn poll_record_done(&mut self) -> Option<(SourceKey, Cursor)> {
            // Records that are handed out in this turn are done in the next one.
            if self.room.get() > 0 { self.done.pop_front() } else { None }
        }

        fn poll_records_dropped(&mut self) -> Option<Cursor> {
            self.dropped.pop_front()
        }
    }

    fn tell(
        sessions: &mut session::Monitor<Sender>,
        seq: u64,
        opening: Option<Opening<'_>>,
        frames: Frames<'_>,
    ) {
        let update = Update {
            session: SessionId(1),
            seq,
            sent_at: Time::ZERO,
            clock_offset: None,
            wants_ack: false,
            wants_return: false,
            ack_mark: None,
            opening,
            frames,
        };
        let mut datagram = [0; 200];
        let len = update.write(&mut datagram).expect("it fits");
        let peer = Sender::by(PathId(0));
        sessions.handle_datagram(Time::ZERO, peer, &datagram[..len]).expect("it is legal");
    }

    /// A session with a record of each topic.
    fn sessions() -> session::Monitor<Sender> {
        let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
        let mut sessions = session::Monitor::new(params, Secret::new([1; 16]));
        let opening = Opening { cookie: Default::default(), name: "robot", token: b"" };
        tell(&mut sessions, 0, Some(opening), Frames::NONE);
        for topic in 0..TOPICS {
            let (name, seq) = (topic.to_string(), 2 * u64::from(topic));
            let stream = Some(TopicStream { id: StreamId(7), first: 0 });
            let name = Frame::Name(TopicName { topic, name: &name, key: None, stream });
            tell(&mut sessions, seq + 1, None, Frames::one(name));
            let (is_last, age) = (true, Span::ZERO);
            let chunk = RecordChunk { topic, number: 0, is_last, age, bytes: b"record" };
            tell(&mut sessions, seq + 2, None, Frames::one(Frame::Record(chunk)));
        }
        sessions
    }

    /// As if a record of a former stream were done.
    fn some_done(sessions: &session::Monitor<Sender>) -> (SourceKey, Cursor) {
        let source = sessions.records().next().expect("it is open").0;
        let (name, topic, stream) = ("robot".into(), "former".into(), StreamId(1));
        (source, Cursor { source: name, party: None, topic, stream, next: 1 })
    }

    #[test]
    fn topics_without_room_are_asked_for_again_whatever_joins_them_meanwhile() {
        let source = sessions().records().next().expect("there is one").0;
        let place = |number: usize| (source, number as u16);
        let mut turns = Turns::default();
        (1_000..1_200).for_each(|number| turns.block(place(number)));
        turns.look_again();
        let mut asked = BTreeSet::new();
        for step in 0..10 {
            turns.unblock(Time::ZERO + PAUSE * step as u64);
            // The other topics have no room any more, and the topics that were asked for have none
            // again.
            let ready = std::mem::take(&mut turns.ready);
            ready.into_iter().for_each(|place| {
                turns.block(place);
                asked.insert(place);
            });
            (step * 100..step * 100 + 64).for_each(|number| turns.block(place(number)));
        }
        assert!((1_000..1_200).all(|number| asked.contains(&place(number))));
        assert_eq!(turns.look_to, None, "it ends");
    }

    /// Turns are 1 ms apart.
    fn turn(books: &mut Books, sessions: &mut session::Monitor<Sender>, watch: &mut Application) {
        watch.now += Span::from_millis(1);
        while let Some(event) = sessions.poll_event() {
            books.on_event(watch.now, sessions, event, watch);
        }
        books.hand_out_records(watch.now, sessions, watch);
    }

    #[test]
    fn records_that_are_dropped_at_once_come_again_in_a_later_turn() {
        let (mut books, mut sessions) = (Books::new(9, Span::from_secs(9)), sessions());
        let room = Cell::new(usize::from(TOPICS));
        let mut application = Application { drops: true, room, ..Application::default() };
        turn(&mut books, &mut sessions, &mut application);
        assert_eq!(application.asked.replace(0), usize::from(TOPICS), "each one once");
        turn(&mut books, &mut sessions, &mut application);
        assert!(application.asked.replace(0) <= LOOKS);
        application.drops = false;
        for _ in 0..usize::from(TOPICS) / LOOKS + 2 {
            turn(&mut books, &mut sessions, &mut application);
        }
        assert_eq!(application.taken.get_mut().len(), usize::from(TOPICS));
    }

    #[test]
    fn each_turn_asks_for_the_room_of_few_records_and_each_gets_its_turn() {
        let (mut books, mut sessions) = (Books::new(9, Span::from_secs(9)), sessions());
        let mut application = Application::default();
        for _ in 0..100 {
            turn(&mut books, &mut sessions, &mut application);
        }
        let (asked, all) = (application.asked.replace(0), usize::from(TOPICS));
        assert!((all..all + 100).contains(&asked), "without room: {asked}");
        // From now on there is room for one record per turn, in which the record before is done.
        application.room.set(1);
        application.done.push_back(some_done(&sessions));
        for number in 0..20 * all {
            turn(&mut books, &mut sessions, &mut application);
            let asked = application.asked.replace(0);
            assert!(asked <= LOOKS + 3, "{asked} in turn {number}");
            application.room.set(1);
        }
        let mut taken = application.taken.take();
        taken.sort_unstable();
        assert_eq!(taken, (0..TOPICS).collect::<Vec<_>>());
    }
}
