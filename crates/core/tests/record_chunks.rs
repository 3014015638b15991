//! Chunks of records that no source writes are refused at the monitor, so that a relay can cut each
//! record into the same chunks again; and the driver's knowledge of records that it could not take
//! at once.

#[path = "common/session.rs"]
mod driven;

use freshline_core::session::{
    Admission, Monitor, MonitorEvent, MonitorParams, RecordChunk, Secret, SourceKey, StreamId,
};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{
    Cookie, Frame, Frames, Message, OffsetEstimate, Opening, SessionId, TopicName, TopicStream,
    Update,
};

const NOW: Time = Time::from_nanos(9_999);

const WHOLE: [u8; RecordChunk::MAX_LEN] = [7; RecordChunk::MAX_LEN];

/// The chunks of a record of the maximum length.
const MAX_CHUNKS: u64 = (RecordChunk::MAX_RECORD / RecordChunk::MAX_LEN) as u64;

struct World {
    monitor: Monitor<u8>,
    source: SourceKey,
    seq: u64,
    /// Whether updates carry the clocks' offset.
    has_offset: bool,
}

impl World {
    /// A source has opened a session with a topic of records.
    fn new() -> Self {
        let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
        let mut monitor = Monitor::new(params, Secret::new([1; 16]));
        let opening = Opening { cookie: Cookie::default(), name: "robot", token: b"" };
        tell(&mut monitor, 0, (None, Some(opening)), Frames::NONE);
        let source = monitor.records().next().expect("it is open").0;
        let mut world = Self { monitor, source, seq: 0, has_offset: false };
        let stream = Some(TopicStream { id: StreamId(7), first: 0 });
        world.tell(Frame::Name(TopicName { topic: 0, name: "log", key: None, stream }));
        world
    }

    /// Whether there was room for the frame, and whether there are more records.
    fn tell(&mut self, frame: Frame<'_>) -> (bool, bool) {
        self.seq += 1;
        let offset = OffsetEstimate::new(0, Span::from_nanos(64));
        let offset = self.has_offset.then_some(offset);
        tell(&mut self.monitor, self.seq, (offset, None), Frames::one(frame))
    }

    fn chunk(&mut self, number: u64, is_last: bool, bytes: &[u8]) -> (bool, bool) {
        let chunk = RecordChunk { topic: 0, number, is_last, age: Span::ZERO, bytes };
        self.tell(Frame::Record(chunk))
    }

    fn has_more(&mut self) -> bool {
        let events: Vec<_> = std::iter::from_fn(|| self.monitor.poll_event()).collect();
        events.iter().any(|event| matches!(event, MonitorEvent::Record { topic: 0, .. }))
    }
}

fn tell(
    monitor: &mut Monitor<u8>,
    seq: u64,
    (clock_offset, opening): (Option<OffsetEstimate>, Option<Opening<'_>>),
    frames: Frames<'_>,
) -> (bool, bool) {
    let update = Update {
        session: SessionId(5),
        seq,
        sent_at: Time::from_nanos(9),
        clock_offset,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening,
        frames,
    };
    let mut datagram = [0; 1_200];
    let len = update.write(&mut datagram).expect("it fits");
    let heard = driven::tell(monitor, NOW, 1, &datagram[..len]);
    let is_more = |event: &MonitorEvent<u8>| matches!(event, MonitorEvent::Record { topic: 0, .. });
    let has_more = heard.events.iter().any(is_more);
    match Message::parse(&heard.reply) {
        Ok(Message::Ack(ack)) => (!ack.parts.unwrap_or_default().no_room, has_more),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_chunk_that_is_short_within_its_record_is_refused_and_counted() {
    let mut world = World::new();
    for len in [0, 1, RecordChunk::MAX_LEN - 1] {
        assert_eq!(world.chunk(0, false, &WHOLE[..len]), (false, false), "{len} bytes");
    }
    assert_eq!(world.monitor.counters().bad_chunks, 3);
    assert_eq!(world.chunk(0, false, &WHOLE), (true, false));
    assert_eq!(world.chunk(1, true, b""), (true, true));
    let taken = world.monitor.take_record(NOW, world.source, 0).expect("it is complete");
    assert_eq!((taken.number, taken.cursor.next, taken.bytes.len()), (0, 2, WHOLE.len()));
    assert_eq!(world.monitor.counters().bad_chunks, 3);
}

#[test]
fn a_record_that_is_too_long_is_refused_in_whatever_order_its_chunks_come() {
    let in_order: Vec<u64> = (0..MAX_CHUNKS + 9).collect();
    let reversed: Vec<u64> = in_order.iter().rev().copied().collect();
    for order in [in_order, reversed] {
        let mut world = World::new();
        order.iter().for_each(|number| _ = world.chunk(*number, false, &WHOLE));
        world.chunk(MAX_CHUNKS + 9, true, b"");
        assert!(world.monitor.peek_record(world.source, 0).is_none(), "it is too long");
        assert!(world.monitor.counters().bad_chunks > 0);
        // If its end is where it must be, it is a record of the maximum length.
        assert_eq!(world.chunk(MAX_CHUNKS - 1, true, &WHOLE), (true, true));
        let taken = world.monitor.take_record(NOW, world.source, 0).expect("it is complete");
        assert_eq!(taken.bytes.len(), RecordChunk::MAX_RECORD);
    }
}

#[test]
fn the_driver_learns_of_records_again_that_it_can_take_only_now() {
    let mut world = World::new();
    for number in 0..3 {
        assert_eq!(world.chunk(number, true, b"record"), (true, true));
    }
    assert!(!world.monitor.peek_record(world.source, 0).expect("complete").is_age_known);
    // Their age is known once an update has the clocks' offset.
    world.has_offset = true;
    assert_eq!(world.tell(Frame::Cursor(0)), (true, true));
    assert_eq!(world.tell(Frame::Cursor(0)), (true, false), "once");
    // A driver that had no room has some when a record is done.
    let taken = world.monitor.next_record(NOW, world.source, 0).expect("complete");
    world.monitor.handle_record_done(world.source, &taken.cursor);
    assert!(world.has_more());
    while world.monitor.take_record(NOW, world.source, 0).is_some() {}
    assert!(world.has_more(), "when the second one was done there was the third");
    let all_done = world.chunk(1, true, b"record");
    assert_eq!(all_done, (true, false), "there are no more");
}
