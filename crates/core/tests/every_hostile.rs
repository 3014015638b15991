//! Records in any order, with losses, copies and restarts of both ends: each reaches the application once and
//! in order. Hostile frames: memory stays within its bounds.

#[path = "common/session.rs"]
mod driven;

use std::collections::VecDeque;

use freshline_core::path::PathId;
use freshline_core::session::{
    Cursor, Monitor, MonitorEvent, MonitorParams, RecordChunk, Secret, Source, SourceKey,
    SourceParams, StreamId, TakenRecord, TopicId, TopicKind, TopicParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{
    Close, CloseReason, Cookie, Frame, Frames, Message, OffsetEstimate, Opening, SessionId,
    StateId, TopicName, TopicStream, Update,
};
use proptest::prelude::*;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

const STREAM: StreamId = StreamId(7);
const MAX_BYTES: u32 = 8 << 10;

/// Datagrams in flight that the network keeps.
const IN_FLIGHT: usize = 32;

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Put(usize),
    /// A datagram to the monitor, or to the source, arrives or is lost; a copy stays or does not.
    Network {
        to_monitor: bool,
        place: usize,
        arrives: bool,
        stays: bool,
    },
    /// The application takes this many records at most.
    Take(usize),
    /// It is done with this many of them at most.
    Finish(usize),
    /// The application drops the records that it has taken and not finished.
    Drop,
    RestartSource,
    RestartMonitor,
}

fn any_step() -> impl Strategy<Value = Step> {
    let network = (any::<(bool, bool, bool)>(), 0..IN_FLIGHT);
    prop_oneof![
        8 => (0..200_000_000_u64).prop_map(Step::Wait),
        1 => (0..5_000_000_000_u64).prop_map(Step::Wait),
        8 => prop_oneof![0..100_usize, Just(512), 513..3_000_usize].prop_map(Step::Put),
        24 => network.prop_map(|((to_monitor, arrives, stays), place)| {
            Step::Network { to_monitor, place, arrives, stays }
        }),
        4 => (1..9_usize).prop_map(Step::Take),
        4 => (1..9_usize).prop_map(Step::Finish),
        1 => Just(Step::Drop),
        1 => Just(Step::RestartSource),
        1 => Just(Step::RestartMonitor),
    ]
}

struct World {
    now: Time,
    source: Source,
    monitor: Monitor<u8>,
    /// To the source, and to the monitor.
    in_flight: [Vec<Vec<u8>>; 2],
    /// All records that were taken in, and where each begins.
    put: Vec<(u64, Vec<u8>)>,
    /// Number of records that the application has finished, and the cursors of those it holds
    /// unfinished.
    done: usize,
    taken: VecDeque<(SourceKey, Cursor)>,
    journal: Option<Cursor>,
    starts: u8,
}

fn new_source(first: u64, start: u8, now: Time) -> (Source, TopicId) {
    let law = Box::new(Fixed::new(UpdateRate::saturating(50.0)));
    let name = "robot".to_owned();
    let params = SourceParams { name, max_datagram: 1_200, ..SourceParams::default() };
    let source = Source::new(params, Secret::new([start; 16]), law, now).expect("it is legal");
    let kind = TopicKind::Every { stream: STREAM, first, max_bytes: MAX_BYTES };
    let log = TopicParams { kind, ..TopicParams::new("log") };
    let source = source.with_topics(vec![log]).expect("it is legal");
    (source, TopicId::FIRST)
}

fn new_monitor(journal: Option<Cursor>) -> Monitor<u8> {
    Monitor::new(MonitorParams::default(), Secret::new([1; 16])).with_cursors(journal)
}

impl World {
    fn new() -> Self {
        let now = Time::ZERO + Span::from_secs(9);
        Self {
            now,
            source: new_source(0, 0, now).0,
            monitor: new_monitor(None),
            in_flight: Default::default(),
            put: Vec::new(),
            done: 0,
            taken: VecDeque::new(),
            journal: None,
            starts: 0,
        }
    }

    fn known_done(&self) -> u64 {
        self.source.records_done(TopicId::FIRST)
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Wait(nanos) => self.wait(Span::from_nanos(nanos)),
            Step::Put(len) => {
                let bytes = vec![self.put.len() as u8; len];
                let topic = TopicId::FIRST;
                let room = self.source.record_room(topic);
                let given = self.source.put_record(self.now, topic, self.now, &bytes);
                assert!(given.is_ok() || room < len.max(1), "{given:?} with room for {room}");
                if let Ok(first) = given {
                    self.put.push((first, bytes));
                }
            }
            Step::Network { to_monitor, place, arrives, stays } => {
                self.network(usize::from(to_monitor), place, arrives, stays);
            }
            Step::Take(count) => self.take(count),
            Step::RestartSource => self.restart_source(),
            Step::Finish(count) => self.finish(count),
            Step::Drop => self.drop_taken(),
            Step::RestartMonitor => {
                self.monitor = new_monitor(self.journal.clone());
                self.taken.clear();
            }
        }
        let held = self.source.records(TopicId::FIRST).expect("it is of records").bytes;
        assert!(held <= MAX_BYTES as usize);
        assert!(self.monitor.large_memory() < 64 << 10, "{}", self.monitor.large_memory());
    }

    /// Advances time; the source runs as it wishes.
    fn wait(&mut self, length: Span) {
        let end = self.now + length;
        let mut turns = 0;
        loop {
            self.source.handle_timeout(self.now);
            while self.source.poll_event().is_some() {}
            let mut out = Vec::new();
            while let Some(transmit) = self.source.poll_transmit(self.now, &mut out) {
                assert!(transmit.len <= 1_200);
                let to_monitor = &mut self.in_flight[1];
                if to_monitor.len() == IN_FLIGHT {
                    to_monitor.remove(0);
                }
                to_monitor.push(out[..transmit.len].to_vec());
            }
            let next = self.source.poll_timeout().map_or(end, |at| at.max(self.now));
            if next >= end {
                self.now = end;
                return;
            }
            turns = if next == self.now { turns + 1 } else { 0 };
            assert!(turns < 100, "it spins at {:?}", self.now);
            self.now = next;
        }
    }

    fn network(&mut self, direction: usize, place: usize, arrives: bool, stays: bool) {
        let in_flight = &mut self.in_flight[direction];
        let Some(bytes) = in_flight.get(place).cloned() else { return };
        if !stays {
            in_flight.remove(place);
        }
        match (arrives, direction) {
            (false, _) => {}
            (true, 0) => drop(self.source.handle_datagram(self.now, PathId::FIRST, &bytes)),
            (true, _) => {
                let heard = driven::tell(&mut self.monitor, self.now, 1, &bytes);
                if !heard.reply.is_empty() {
                    self.in_flight[0].push(heard.reply);
                }
            }
        }
    }

    fn take(&mut self, count: usize) {
        let Some(source) = self.monitor.records().map(|(source, _)| source).next() else { return };
        for _ in 0..count {
            let next = self.monitor.peek_record(source, 0);
            let taken = self.monitor.next_record(self.now, source, 0);
            assert_eq!(next.map(|next| next.len), taken.as_ref().map(|taken| taken.bytes.len()));
            let Some(taken) = taken else { return };
            let number = self.done + self.taken.len();
            let (first, bytes) = &self.put[number];
            assert_eq!((taken.number, &taken.bytes), (*first, bytes), "record {number}");
            self.taken.push_back((source, taken.cursor));
        }
    }

    fn finish(&mut self, count: usize) {
        for (source, cursor) in self.taken.drain(..count.min(self.taken.len())) {
            self.monitor.handle_record_done(source, &cursor);
            self.done += 1;
            self.journal = Some(cursor);
        }
    }

    fn drop_taken(&mut self) {
        if let Some((_, cursor)) = self.taken.pop_back() {
            self.taken.clear();
            self.monitor.hand_out_again(&cursor);
        }
    }

    /// Another process puts the unfinished records again, under the same numbers.
    fn restart_source(&mut self) {
        self.starts += 1;
        let done = self.known_done();
        let next = self.source.records(TopicId::FIRST).expect("it is of records").next;
        let held: Vec<_> = self.put.iter().filter(|(first, _)| *first >= done).cloned().collect();
        let first = held.first().map_or(next, |(first, _)| *first);
        self.source = new_source(first, self.starts, self.now).0;
        for (first, bytes) in held {
            let given = self.source.put_record(self.now, TopicId::FIRST, self.now, &bytes);
            assert_eq!(given, Ok(first));
        }
    }

    /// From now on all that leaves arrives, and the application takes all.
    fn heals(&mut self) -> bool {
        for _ in 0..2_000 {
            self.wait(Span::from_millis(20));
            for direction in [1, 0] {
                while !self.in_flight[direction].is_empty() {
                    self.network(direction, 0, true, false);
                }
            }
            self.take(usize::MAX);
            self.finish(usize::MAX);
            let next = self.source.records(TopicId::FIRST).expect("it is of records").next;
            if self.done == self.put.len() && self.known_done() == next {
                return true;
            }
        }
        false
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_order_loss_copies_and_restarts_leave_each_record_once_and_in_order(
        steps in prop::collection::vec(any_step(), 1..300),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        prop_assert!(world.heals(), "{} of {}", world.done, world.put.len());
    }
}

fn open_monitor(max_large: usize) -> Monitor<u8> {
    let params = MonitorParams {
        max_large,
        admission: freshline_core::session::Admission::Proven,
        ..MonitorParams::default()
    };
    let mut monitor = Monitor::new(params, Secret::new([1; 16]));
    let opening = Opening { cookie: Cookie::default(), name: "robot", token: b"" };
    tell(&mut monitor, 0, Some(opening), &[]);
    monitor
}

/// Frames in one update, as hostile peers write it; returns the ack's cursor, and whether there was
/// no room.
fn tell(
    monitor: &mut Monitor<u8>,
    seq: u64,
    opening: Option<Opening<'_>>,
    frames: &[Frame<'_>],
) -> (Option<u64>, bool) {
    let mut datagram = vec![0; 70_000];
    let mut update = Update {
        session: SessionId(5),
        seq,
        sent_at: Time::from_nanos(9),
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening,
        frames: Frames::NONE,
    };
    let mut encoded = Vec::new();
    for frame in frames {
        update.frames = Frames::one(*frame);
        let len = update.write(&mut datagram).expect("it fits");
        let start = Update::HEADER_LEN + opening.map_or(0, |it| 18 + it.name.len());
        assert!(len >= start + frame.len());
        encoded.extend_from_slice(&datagram[start..start + frame.len()]);
    }
    update.frames = Frames::NONE;
    let len = update.write(&mut datagram).expect("it fits");
    let start = Update::HEADER_LEN + opening.map_or(0, |it| 18 + it.name.len());
    datagram[14..16].copy_from_slice(&(encoded.len() as u16).to_be_bytes());
    datagram[start..start + encoded.len()].copy_from_slice(&encoded);
    let len = len.max(start + encoded.len()).max(Update::MIN_LEN_OF_PARTS);
    let heard = driven::tell(monitor, Time::from_nanos(99), 1, &datagram[..len]);
    match Message::parse(&heard.reply) {
        Ok(Message::Ack(ack)) => {
            let parts = ack.parts.unwrap_or_default();
            (parts.newest, parts.no_room)
        }
        other => panic!("{other:?}"),
    }
}

fn name(topic: u16, name: &str, id: u64, first: u64) -> Frame<'_> {
    let stream = Some(TopicStream { id: StreamId(id), first });
    Frame::Name(TopicName { topic, name, key: None, stream })
}

fn chunk(topic: u16, number: u64, is_last: bool, bytes: &[u8]) -> Frame<'_> {
    Frame::Record(RecordChunk { topic, number, is_last, age: Span::ZERO, bytes })
}

fn source_of(monitor: &Monitor<u8>) -> freshline_core::session::SourceKey {
    monitor.records().next().expect("it is open").0
}

#[test]
fn chunks_of_unknown_streams_far_numbers_and_lengths_that_cannot_be_are_refused() {
    let mut monitor = open_monitor(1 << 20);
    assert_eq!(tell(&mut monitor, 1, None, &[chunk(3, 0, true, b"x")]), (None, true), "no stream");
    let announced = name(3, "log", 1, 0);
    assert_eq!(tell(&mut monitor, 2, None, &[announced, Frame::Cursor(3)]), (Some(0), false));
    let beyond = (RecordChunk::WINDOW / RecordChunk::COST) as u64;
    for number in [beyond, (1 << 62) - 1] {
        let refused = tell(&mut monitor, 3 + number % 7, None, &[chunk(3, number, true, b"x")]);
        assert!(refused.1, "{number} is beyond the window");
    }
    let long = [0; RecordChunk::MAX_LEN + 1];
    assert!(tell(&mut monitor, 20, None, &[chunk(3, 0, true, &long)]).1, "too long");
    let other = [name(3, "log", 2, 0), chunk(3, 0, true, b"x")];
    assert!(tell(&mut monitor, 21, None, &other).1, "a topic has one stream in a session");
    assert!(tell(&mut monitor, 22, None, &[name(4, "log", 9, 0)]).1, "the name is another topic's");
    let source = source_of(&monitor);
    let taken = monitor.take_record(Time::from_nanos(99), source, 3).expect("it is complete");
    assert_eq!((taken.number, &taken.bytes[..]), (0, &b"x"[..]), "a chunk of the known stream");
}

#[test]
fn records_that_the_source_does_not_have_any_more_are_skipped_and_counted() {
    let mut monitor = open_monitor(1 << 20);
    tell(&mut monitor, 1, None, &[name(3, "log", 1, 5), chunk(3, 5, true, b"five")]);
    tell(&mut monitor, 2, None, &[chunk(3, 9, true, b"nine"), chunk(3, 11, true, b"eleven")]);
    let huge = (1 << 62) - 9;
    assert_eq!(
        tell(&mut monitor, 3, None, &[name(3, "log", 1, 9), Frame::Cursor(3)]),
        (Some(9), false)
    );
    let source = source_of(&monitor);
    let mut take = || monitor.take_record(Time::from_nanos(99), source, 3).map(|it| it.bytes);
    assert_eq!((take(), take()), (Some(b"nine".to_vec()), None));
    assert_eq!(monitor.counters().lost_records, 4);
    let last = [name(3, "log", 1, huge), chunk(3, huge, true, b"end"), Frame::Cursor(3)];
    assert_eq!(tell(&mut monitor, 4, None, &last), (Some(huge), false));
    assert!(monitor.take_record(Time::from_nanos(99), source, 3).is_some());
    assert_eq!(tell(&mut monitor, 5, None, &[Frame::Cursor(3)]), (Some(huge + 1), false));
}

/// The session of [`open_monitor`] ends and is opened again.
fn reopen(monitor: &mut Monitor<u8>) {
    let close = Close { session: SessionId(5), reason: CloseReason::Done };
    let heard = driven::tell(monitor, Time::from_nanos(99), 1, &close.bytes()[..]);
    assert!(matches!(heard.event(), Some(MonitorEvent::Gone { .. })));
    tell(monitor, 0, Some(Opening { cookie: Cookie::default(), name: "robot", token: b"" }), &[]);
}

#[test]
fn what_is_done_after_the_session_was_opened_again_does_not_hold_up_what_follows() {
    let mut monitor = open_monitor(1 << 20);
    let now = Time::from_nanos(99);
    let halves = [chunk(3, 0, false, &[7; RecordChunk::MAX_LEN]), chunk(3, 1, true, b"re")];
    tell(&mut monitor, 1, None, &[name(3, "log", 1, 0), halves[0], halves[1]]);
    let source = source_of(&monitor);
    let taken = monitor.next_record(now, source, 3).expect("it is complete");
    reopen(&mut monitor);
    tell(&mut monitor, 1, None, &[name(3, "log", 1, 0), halves[0]]);
    monitor.handle_record_done(source, &taken.cursor);
    tell(&mut monitor, 2, None, &[chunk(3, 2, true, b"there")]);
    let next = monitor.next_record(now, source, 3).expect("it is complete");
    assert_eq!((next.number, &next.bytes[..]), (2, &b"there"[..]));
}

#[test]
fn records_that_the_application_has_dropped_come_again_in_this_session_and_in_a_later_one() {
    let mut monitor = open_monitor(1 << 20);
    let now = Time::from_nanos(99);
    let all = [0, 1, 2].map(|number| chunk(3, number, true, b"record"));
    tell(&mut monitor, 1, None, &[name(3, "log", 1, 0), all[0], all[1], all[2]]);
    let source = source_of(&monitor);
    let take = |monitor: &mut Monitor<u8>| {
        let taken = std::iter::from_fn(|| monitor.next_record(now, source, 3));
        taken.collect::<Vec<_>>()
    };
    let numbers = |taken: &[TakenRecord]| taken.iter().map(|it| it.number).collect::<Vec<_>>();
    let taken = take(&mut monitor);
    assert_eq!(numbers(&taken), [0, 1, 2]);
    monitor.handle_record_done(source, &taken[0].cursor);
    let drop_all = |monitor: &mut Monitor<u8>| {
        while monitor.poll_event().is_some() {}
        monitor.hand_out_again(&taken[2].cursor);
        matches!(monitor.poll_event(), Some(MonitorEvent::Record { topic: 3, .. }))
    };
    assert!(drop_all(&mut monitor), "the driver learns of it");
    assert_eq!(numbers(&take(&mut monitor)), [1, 2]);
    reopen(&mut monitor);
    let again = [name(3, "log", 1, 1), all[1], all[2]];
    tell(&mut monitor, 1, None, &again);
    assert!(take(&mut monitor).is_empty(), "the application has them");
    assert!(drop_all(&mut monitor), "it has them no more");
    assert_eq!(numbers(&take(&mut monitor)), [1, 2]);
    reopen(&mut monitor);
    assert!(!drop_all(&mut monitor), "nothing has come yet");
    tell(&mut monitor, 1, None, &again);
    assert_eq!(numbers(&take(&mut monitor)), [1, 2]);
    // Calls of the application for earlier records that reach the monitor late.
    drop_all(&mut monitor);
    monitor.handle_record_done(source, &taken[1].cursor);
    assert_eq!(numbers(&take(&mut monitor)), [2]);
    monitor.handle_record_done(source, &taken[2].cursor);
    assert!(!drop_all(&mut monitor) && take(&mut monitor).is_empty());
}

#[test]
fn a_record_that_came_without_the_clocks_offset_has_its_age_once_an_update_has_carried_it() {
    let mut monitor = open_monitor(1 << 20);
    tell(&mut monitor, 1, None, &[name(3, "log", 1, 0), chunk(3, 0, true, b"record")]);
    let source = source_of(&monitor);
    let next = |monitor: &mut Monitor<u8>| monitor.peek_record(source, 3).expect("complete");
    let first = next(&mut monitor);
    assert_eq!((first.len, first.is_age_known), (6, false));
    // The clock of the monitor is 1 µs ahead of the source's, give or take 64 ns.
    let update = Update {
        session: SessionId(5),
        seq: 2,
        sent_at: Time::from_nanos(5_009),
        clock_offset: Some(OffsetEstimate::new(1_024, Span::from_nanos(64))),
        wants_ack: false,
        wants_return: false,
        ack_mark: None,
        opening: None,
        frames: Frames::one(Frame::Cursor(3)),
    };
    let mut datagram = [0; 200];
    let len = update.write(&mut datagram).expect("it fits");
    driven::tell(&mut monitor, Time::from_nanos(6_100), 1, &datagram[..len]);
    assert!(next(&mut monitor).is_age_known);
    let taken = monitor.next_record(Time::from_nanos(10_033), source, 3).expect("complete");
    let age = taken.age.expect("it is known");
    // It was generated at 9 ns of the source's clock: 9 µs ago.
    assert_eq!(taken.generated_at, Time::from_nanos(9));
    let is_near = age.estimate.as_nanos().abs_diff(9_000) <= 70;
    assert!(is_near && age.uncertainty <= Span::from_nanos(80), "{age:?}");
    assert!(taken.label_error() <= age.uncertainty);
}

#[test]
fn a_record_in_a_copy_of_an_update_has_no_age_by_an_offset_that_cannot_be_right() {
    let mut monitor = open_monitor(1 << 20);
    // By this offset the update left a second after it came.
    let offset = OffsetEstimate::new(1_000_000_000, Span::from_nanos(64));
    let update = Update {
        session: SessionId(5),
        seq: 2,
        sent_at: Time::from_nanos(9),
        clock_offset: Some(offset),
        wants_ack: false,
        wants_return: false,
        ack_mark: None,
        opening: None,
        frames: Frames::one(chunk(3, 0, true, b"record")),
    };
    let mut datagram = [0; 200];
    let len = update.write(&mut datagram).expect("it fits");
    let tell_update = |monitor: &mut Monitor<u8>| {
        driven::tell(monitor, Time::from_nanos(99), 1, &datagram[..len]);
    };
    // The stream is not known yet, so its copy brings the record.
    tell_update(&mut monitor);
    tell(&mut monitor, 3, None, &[name(3, "log", 1, 0)]);
    tell_update(&mut monitor);
    let source = source_of(&monitor);
    assert!(!monitor.peek_record(source, 3).expect("complete").is_age_known);
    let taken = monitor.next_record(Time::from_nanos(99), source, 3).expect("complete");
    assert_eq!(taken.age, None);
}

#[test]
fn the_lowest_missing_chunk_finds_room_where_higher_ones_have_used_it_up() {
    let mut monitor = open_monitor(8_000);
    let bytes = [1; 400];
    tell(&mut monitor, 1, None, &[name(3, "log", 1, 0)]);
    let mut seq = 2;
    while !tell(&mut monitor, seq, None, &[chunk(3, seq, true, &bytes)]).1 {
        seq += 1;
    }
    assert!(seq > 5, "some found room");
    for number in [0, 1] {
        assert!(!tell(&mut monitor, 100 + number, None, &[chunk(3, number, true, &bytes)]).1);
    }
    let source = source_of(&monitor);
    let numbers = std::iter::from_fn(|| monitor.take_record(Time::from_nanos(99), source, 3));
    let numbers: Vec<_> = numbers.map(|taken| taken.number).collect();
    assert!(numbers.len() > 3 && numbers.is_sorted(), "{numbers:?}");
}

#[test]
fn a_hostile_peer_makes_a_monitor_hold_no_more_than_its_budget() {
    let limit = 200_000;
    let mut monitor = open_monitor(limit);
    let mut random = Pcg32::seed_from_u64(3);
    for seq in 1..20_000_u64 {
        let drawn = random.next_u32();
        let bytes = vec![1; drawn as usize % 600];
        let topic = (random.next_u32() % 300) as u16;
        let far = if drawn % 64 == 5 { random.next_u32() % 50 } else { 0 };
        let number = u64::from(random.next_u32() % 9) << far;
        let text = format!("log-{topic}");
        let frame = match drawn % 8 {
            0 | 1 => name(topic, &text, u64::from(topic), 0),
            2 => Frame::Cursor(topic),
            3 => Frame::State {
                id: StateId { topic: topic.max(1), ..StateId::FRESH },
                bytes: &bytes,
            },
            kind => chunk(topic, number, kind == 4, &bytes),
        };
        tell(&mut monitor, seq, None, &[frame]);
        assert!(monitor.large_memory() <= limit);
        if seq % 2 == 0 {
            let source = source_of(&monitor);
            while monitor.take_record(Time::from_nanos(99), source, topic).is_some() {}
        }
    }
    assert!(monitor.counters().records > 0 && monitor.cursors().count() <= 10_000);
    let source = source_of(&monitor);
    let session = monitor.record(source).expect("it is open").session;
    let close = Close { session, reason: CloseReason::Done };
    let heard = driven::tell(&mut monitor, Time::from_nanos(99), 1, &close.bytes()[..]);
    assert!(matches!(heard.event(), Some(MonitorEvent::Gone { .. })));
    assert_eq!(monitor.large_memory(), 0);
}
