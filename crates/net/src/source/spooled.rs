//! Records from a stream to the application at a monitor, in virtual time: none is lost or
//! delivered twice, and they stay in order, with a full buffer and if the source is killed at any
//! moment.

use std::time::Duration;

use freshline_core::path::PathId;
use freshline_core::session::{
    self, Monitor, MonitorEvent, MonitorParams, Secret, SourceEvent, SourceKey, SourceParams,
    TakenRecord, TopicId, TopicKind, TopicParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::StreamId;
use tempfile::TempDir;

use super::feed::Feed;
use super::sampler::Records;
use super::sampler::records::ByHand;
use super::spool::SpoolDir;
use crate::clock::Anchor;

/// The buffer: 16 records of 64 bytes.
const BUFFER: u32 = 2048;

/// The wall clock at the start.
const WALL: Duration = Duration::from_secs(1_700_000_000);

/// A process of the source, with the time at which its clock began.
struct Process {
    source: session::Source,
    feed: Feed,
    stream: ByHand,
    /// Its clock's reading at the start of the test.
    ahead: Span,
}

impl Process {
    fn new(seed: u8, dir: Option<&TempDir>, now: Time, ahead: Span) -> Self {
        let spool = dir.map(|dir| SpoolDir::open(dir.path()).unwrap().topic("log").unwrap());
        let kind = match &spool {
            Some(spool) => spool.kind(BUFFER),
            None => TopicKind::Every { stream: StreamId(7), first: 0, max_bytes: BUFFER },
        };
        let params = SourceParams { name: "robot".into(), ..SourceParams::default() };
        let law = Box::new(Fixed::new(UpdateRate::saturating(100.0)));
        let own = now + ahead;
        let source = session::Source::new(params, Secret::new([seed; 16]), law, own).unwrap();
        let topics = vec![TopicParams { kind, ..TopicParams::new("log") }];
        let source = source.with_topics(topics).unwrap();
        let anchor = Anchor::at(own, wall(now));
        let (records, stream) = Records::by_hand(BUFFER, spool, anchor);
        let feed = Feed::new(vec![Box::new(records)], &source);
        let mut process = Self { source, feed, stream, ahead };
        process.feed.on_woken(own, &mut process.source);
        process
    }
}

/// The wall clock at `now`.
fn wall(now: Time) -> Duration {
    WALL + Duration::from(now.since(Time::ZERO))
}

struct World {
    now: Time,
    process: Process,
    monitor: Monitor<u8>,
    /// Whether the application takes records.
    takes: bool,
    has_records: Option<(SourceKey, u16)>,
    taken: Vec<TakenRecord>,
    /// Records that the writer of the stream was able to write.
    written: u8,
    /// How long before writing them it generated them.
    lag: Span,
}

impl World {
    fn new(dir: Option<&TempDir>) -> Self {
        Self {
            now: Time::ZERO,
            process: Process::new(1, dir, Time::ZERO, Span::ZERO),
            monitor: Monitor::new(MonitorParams::default(), Secret::new([2; 16])),
            takes: true,
            has_records: None,
            taken: Vec::new(),
            written: 0,
            lag: Span::ZERO,
        }
    }

    /// The writer writes its next record, if there is room.
    fn write(&mut self) -> bool {
        let Process { source, feed, stream, ahead } = &mut self.process;
        let (own, wall) = (self.now + *ahead, wall(self.now));
        let at = wall - Duration::from(self.lag);
        let stamp = format!("{}.{:09}\t", at.as_secs(), at.subsec_nanos());
        let record = [stamp.as_bytes(), &[self.written; 64]].concat();
        let has_room = stream.offer(&Anchor::at(own, wall), &record);
        self.written += u8::from(has_room);
        if stream.has_news() {
            feed.on_woken(own, source);
        }
        has_room
    }

    /// Takes the next step; returns whether there was one.
    fn step(&mut self) -> bool {
        let Process { source, feed, stream, ahead } = &mut self.process;
        if source.has_finished() {
            return false;
        }
        let due = source.poll_timeout().expect("it goes on").since(Time::ZERO + *ahead);
        self.now = self.now.max(Time::ZERO + due);
        let own = self.now + *ahead;
        source.handle_timeout(own);
        attend(own, source, feed);
        let mut out = Vec::new();
        while let Some(transmit) = source.poll_transmit(own, &mut out) {
            let _ = self.monitor.handle_datagram(self.now, 1, &out[..transmit.len]);
            while let Some(event) = self.monitor.poll_event() {
                if let MonitorEvent::Record { source, topic } = event {
                    self.has_records = Some((source, topic));
                }
            }
            while self.takes
                && let Some((source, topic)) = self.has_records
                && let Some(record) = self.monitor.take_record(self.now, source, topic)
            {
                self.taken.push(record);
            }
            let mut reply = Vec::new();
            while let Some(answer) = self.monitor.poll_transmit(self.now, &mut reply) {
                let reply = &reply[..answer.len];
                let _ = source.handle_datagram(own, PathId::FIRST, reply);
                attend(own, source, feed);
            }
        }
        if stream.has_news() {
            feed.on_woken(own, source);
        }
        true
    }

    fn kill_and_restart(&mut self, folder: &TempDir) {
        // The clock of the next process has another origin.
        self.now += Span::from_secs(60);
        self.process = Process::new(9, Some(folder), self.now, Span::from_secs(1_000));
    }

    #[track_caller]
    fn assert_each_once_in_order(&self, count: u8) {
        let firsts: Vec<u8> = self.taken.iter().map(|record| record.bytes[0]).collect();
        assert_eq!(firsts, (0..count).collect::<Vec<_>>());
    }
}

/// Serves the requests of the session.
fn attend(now: Time, source: &mut session::Source, feed: &mut Feed) {
    while let Some(event) = source.poll_event() {
        match event {
            SourceEvent::StateWanted(need) => {
                feed.answer(now, need, source).expect("the stream does not fail");
            }
            SourceEvent::RecordsDone { topic } => feed.on_records_done(now, topic, source),
            _ => {}
        }
    }
}

/// The spool as left by a killed process.
fn copied(dir: &TempDir) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

#[test]
fn a_full_buffer_holds_the_writer_up_and_loses_nothing() {
    let mut world = World::new(None);
    world.takes = false;
    for _ in 0..100 {
        while world.write() {}
        world.step();
    }
    assert_eq!((world.written, world.taken.len()), (16, 0), "as many as the buffer has room for");
    let tally = world.process.feed.records(TopicId::FIRST).unwrap();
    assert_eq!((tally.put, tally.queued), (16, 0));
    world.takes = true;
    for _ in 0..2_000 {
        if world.written < 200 {
            world.write();
        }
        world.step();
    }
    world.process.stream.end();
    world.process.feed.on_woken(world.now, &mut world.process.source);
    while world.step() {}
    world.assert_each_once_in_order(200);
    assert!(world.process.source.records(TopicId::FIRST).unwrap().bytes == 0);
}

#[test]
fn each_record_arrives_once_if_the_source_is_killed_at_any_step() {
    const COUNT: u8 = 60;
    let mut steps = 0;
    for kill_at in 0.. {
        let (dir, mut copy) = (tempfile::tempdir().unwrap(), None);
        let mut world = World::new(Some(&dir));
        let (mut has_ended, mut at) = (false, 0);
        loop {
            // Kills at any time between two events: a record is written, or the source takes a
            // step.
            for part in [0, 1] {
                if at == kill_at && copy.is_none() {
                    let folder = copy.insert(copied(&dir));
                    world.kill_and_restart(folder);
                    has_ended = false;
                }
                at += 1;
                match part {
                    0 if world.written < COUNT => drop(world.write()),
                    0 if !has_ended => {
                        has_ended = true;
                        world.process.stream.end();
                        let own = world.now + world.process.ahead;
                        world.process.feed.on_woken(own, &mut world.process.source);
                    }
                    _ => {}
                }
            }
            if !world.step() {
                break;
            }
        }
        world.assert_each_once_in_order(COUNT);
        steps = steps.max(at);
        if copy.is_none() {
            break;
        }
    }
    assert!(steps > 100, "{steps}");
}

#[test]
fn a_record_that_is_put_again_has_its_age() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(Some(&dir));
    world.now = Time::ZERO + Span::from_secs(45);
    world.lag = Span::from_secs(40);
    assert!(world.write());
    let copy = copied(&dir);
    world.kill_and_restart(&copy);
    while world.taken.is_empty() {
        world.step();
    }
    let at = Time::ZERO + Span::from_secs(5) + world.process.ahead;
    assert_eq!(world.taken[0].generated_at, at, "100 s before the process began");
    let tally = world.process.feed.invalid_stamps(Some(TopicId::FIRST));
    assert_eq!(tally, Some(0));
}
