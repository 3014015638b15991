//! Streams of records of sources without a name: a party can neither move nor see the cursor of
//! another party's stream, even if it knows the number of that stream.

#[path = "common/session.rs"]
mod driven;

use freshline_core::session::{
    Admission, Cursor, Monitor, MonitorEvent, MonitorParams, Origin, RecordChunk, Secret,
    SourceKey, StreamId,
};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{
    Close, CloseReason, Cookie, Frame, Frames, Opening, SessionId, TopicName, TopicStream, Update,
};

const NOW: Time = Time::from_nanos(99);

/// The stream of the good source, of which the hostile one has learnt the number.
const STREAM: StreamId = StreamId(7);

const GOOD: u8 = 1;
const HOSTILE: u8 = 2;

/// Peers 1 to 9 have networks of their own; 10 more is the same one with a token.
fn origin(peer: &u8) -> Origin {
    let owner = u64::from(*peer / 10);
    Origin { owner, network: u64::from(*peer), address: u64::from(*peer) }
}

fn monitor() -> Monitor<u8> {
    let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
    Monitor::new(params, Secret::new([1; 16])).with_origin(origin)
}

fn tell(
    monitor: &mut Monitor<u8>,
    peer: u8,
    (session, seq): (u64, u64),
    opening: Option<Opening<'_>>,
    frames: Frames<'_>,
) {
    let update = Update {
        session: SessionId(session),
        seq,
        sent_at: Time::from_nanos(9),
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening,
        frames,
    };
    let mut datagram = [0; 700];
    let len = update.write(&mut datagram).expect("it fits");
    driven::tell(monitor, NOW, peer, &datagram[..len]);
}

/// Opens a session without a name, which has the stream from chunk `first` on.
fn open(monitor: &mut Monitor<u8>, peer: u8, session: u64, first: u64) -> SourceKey {
    let known: Vec<_> = monitor.records().map(|(key, _)| key).collect();
    let opening = Opening { cookie: Cookie::default(), name: "", token: b"" };
    tell(monitor, peer, (session, 0), Some(opening), Frames::NONE);
    let stream = Some(TopicStream { id: STREAM, first });
    let name = Frame::Name(TopicName { topic: 0, name: "log", key: None, stream });
    tell(monitor, peer, (session, 1), None, Frames::one(name));
    let mut keys = monitor.records().map(|(key, _)| key);
    keys.find(|key| !known.contains(key)).expect("it is open")
}

fn close(monitor: &mut Monitor<u8>, peer: u8, session: u64) {
    let close = Close { session: SessionId(session), reason: CloseReason::Done };
    let heard = driven::tell(monitor, NOW, peer, &close.bytes()[..]);
    assert!(matches!(heard.event(), Some(MonitorEvent::Gone { .. })));
}

fn record(monitor: &mut Monitor<u8>, peer: u8, (session, seq): (u64, u64), number: u64) {
    let chunk = RecordChunk { topic: 0, number, is_last: true, age: Span::ZERO, bytes: b"record" };
    tell(monitor, peer, (session, seq), None, Frames::one(Frame::Record(chunk)));
}

fn numbers(monitor: &mut Monitor<u8>, source: SourceKey) -> Vec<(u64, Cursor)> {
    let taken = std::iter::from_fn(|| monitor.next_record(NOW, source, 0));
    taken.map(|taken| (taken.number, taken.cursor)).collect()
}

#[test]
fn records_of_a_hostile_party_with_the_same_stream_do_not_count_as_those_of_the_good_one() {
    let mut monitor = monitor();
    let good = open(&mut monitor, GOOD, 1, 0);
    let hostile = open(&mut monitor, HOSTILE, 2, 500);
    record(&mut monitor, HOSTILE, (2, 2), 500);
    let theirs = numbers(&mut monitor, hostile);
    assert_eq!(theirs.len(), 1);
    monitor.handle_record_done(hostile, &theirs[0].1);
    // Neither the hostile party's records nor their completion move the good party's stream.
    for number in 0..3 {
        record(&mut monitor, GOOD, (1, 2 + number), number);
    }
    let mine = numbers(&mut monitor, good);
    assert_eq!(mine.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
    monitor.handle_record_done(good, &mine[0].1);
    // Dropping the hostile party's record does not repeat the good party's, and vice versa.
    monitor.hand_out_again(&theirs[0].1);
    assert!(numbers(&mut monitor, good).is_empty());
    monitor.hand_out_again(&mine[2].1);
    assert!(numbers(&mut monitor, hostile).is_empty());
    assert_eq!(numbers(&mut monitor, good).len(), 2);
    // A record finished after the good session has ended counts for the good party alone, even if
    // another session has its place.
    close(&mut monitor, GOOD, 1);
    let other = open(&mut monitor, HOSTILE, 3, 0);
    assert_eq!(other, good, "the place is used again");
    record(&mut monitor, HOSTILE, (3, 2), 501);
    monitor.handle_record_done(good, &mine[2].1);
    assert_eq!(numbers(&mut monitor, other).len(), 1);
    let back = open(&mut monitor, GOOD, 4, 0);
    (2..5).for_each(|number| record(&mut monitor, GOOD, (4, number), number));
    assert_eq!(numbers(&mut monitor, back).len(), 2, "the first three are done");
}

#[test]
fn a_source_without_a_name_goes_on_elsewhere_by_its_token_and_otherwise_from_its_network() {
    for (before, after, is_known) in [(1, 1, true), (1, 2, false), (11, 12, true)] {
        let mut monitor = monitor();
        let source = open(&mut monitor, before, 1, 0);
        record(&mut monitor, before, (1, 2), 0);
        let taken = monitor.take_record(NOW, source, 0).expect("it is complete");
        assert_eq!(taken.number, 0);
        close(&mut monitor, before, 1);
        // Its last ack was lost, so the record is sent again.
        let source = open(&mut monitor, after, 2, 0);
        record(&mut monitor, after, (2, 2), 0);
        let again = numbers(&mut monitor, source);
        assert_eq!(again.is_empty(), is_known, "from {before} to {after}");
        // The same holds after a restart of the monitor, and no other party continues at its
        // cursor.
        let cursors: Vec<_> = monitor.cursors().collect();
        for (peer, is_known) in [(after, is_known), (3, false)] {
            let mut restarted = self::monitor().with_cursors(cursors.clone());
            let source = open(&mut restarted, peer, 3, 0);
            record(&mut restarted, peer, (3, 2), 0);
            assert_eq!(numbers(&mut restarted, source).is_empty(), is_known, "{after} as {peer}");
        }
    }
}
