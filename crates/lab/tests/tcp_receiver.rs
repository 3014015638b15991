//! A receiver's acks, and their times.

use freshline_core::unit::{Span, Time};
use freshline_lab::tcp::{Block, Echo, Flags, Receiver, ReceiverParams, Segment};

const FULL: u32 = 1448;

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// The `n`-th full segment, sent when it arrives.
fn data(now: Time, n: u64) -> Segment {
    let flags = Flags { ack: true, ect: true, ..Flags::default() };
    Segment { seq: n * u64::from(FULL), len: FULL, flags, sent_at: now, ..Segment::default() }
}

fn marked(now: Time, n: u64) -> Segment {
    let mut segment = data(now, n);
    segment.flags.ce = true;
    segment
}

/// A receiver that has opened with a SYN at 0 and answers `quick_acks` segments at once.
fn open(quick_acks: u32, ecn: Option<Echo>) -> Receiver {
    let mut receiver = Receiver::new(ReceiverParams { quick_acks, ecn, ..Default::default() });
    let flags = Flags { syn: true, ..Flags::default() };
    receiver.on_segment(at(0), &Segment { flags, ..Segment::default() });
    let answer = receiver.poll_transmit(at(0)).expect("an answer");
    assert!(answer.flags.syn && answer.flags.ack);
    receiver
}

fn blocks<const N: usize>(of_segments: [(u64, u64); N]) -> Vec<Block> {
    let full = u64::from(FULL);
    of_segments.map(|(start, end)| Block { start: start * full, end: end * full }).into()
}

#[test]
fn at_the_start_every_segment_is_acknowledged_and_then_every_second_one() {
    // The answer to the SYN takes one of the quick acks.
    let mut receiver = open(5, None);
    let acked: Vec<bool> = (0..10)
        .map(|n| {
            receiver.on_segment(at(n), &data(at(n), n));
            receiver.poll_transmit(at(n)).is_some()
        })
        .collect();
    assert_eq!(acked, [true, true, true, true, false, true, false, true, false, true]);
}

#[test]
fn a_lone_segment_is_acknowledged_after_40_ms() {
    let mut receiver = open(0, None);
    receiver.on_segment(at(10), &data(at(3), 0));
    assert_eq!(receiver.poll_transmit(at(10)), None);
    assert_eq!(receiver.poll_timeout(), Some(at(50)));
    receiver.handle_timeout(at(50));
    let ack = receiver.poll_transmit(at(50)).expect("an ack");
    assert_eq!((ack.ack, ack.echo), (u64::from(FULL), Some(at(3))));
}

#[test]
fn after_a_pause_segments_are_acknowledged_at_once_again() {
    let mut receiver = open(3, None);
    for n in 0..4 {
        receiver.on_segment(at(n), &data(at(n), n));
        receiver.poll_transmit(at(n));
    }
    receiver.on_segment(at(500), &data(at(500), 4));
    assert!(receiver.poll_transmit(at(500)).is_some());
}

#[test]
fn what_lies_beyond_holes_is_told_with_the_newest_first() {
    let mut receiver = open(0, None);
    let mut told = Vec::new();
    for n in [2, 4, 6, 8, 5] {
        receiver.on_segment(at(n), &data(at(n), n));
        let ack = receiver.poll_transmit(at(n)).expect("a hole is reported at once");
        assert_eq!(ack.ack, 0);
        told = ack.sack.as_slice().to_vec();
    }
    assert_eq!(told, blocks([(4, 7), (8, 9)]), "the fourth block did not fit before");
    receiver.on_segment(at(20), &data(at(20), 2));
    let ack = receiver.poll_transmit(at(20)).expect("an ack");
    assert_eq!(ack.sack.as_slice(), blocks([(2, 3), (4, 7), (8, 9)]));
}

#[test]
fn a_segment_that_arrives_twice_is_told_of_once() {
    let mut receiver = open(0, None);
    for n in [0, 1, 0] {
        receiver.on_segment(at(1), &data(at(1), n));
    }
    let ack = receiver.poll_transmit(at(1)).expect("an ack");
    assert_eq!(ack.sack.as_slice(), blocks([(0, 1)]));
    assert!(ack.sack.reports_duplicate(ack.ack));
    receiver.on_segment(at(2), &data(at(2), 3));
    let ack = receiver.poll_transmit(at(2)).expect("an ack");
    assert_eq!(ack.sack.as_slice(), blocks([(3, 4)]));
    assert!(!ack.sack.reports_duplicate(ack.ack));
}

#[test]
fn a_mark_is_echoed_until_the_window_was_reduced() {
    let mut receiver = open(100, Some(Echo::UntilReduced));
    let mut echo = |segment: Segment| {
        receiver.on_segment(at(1), &segment);
        receiver.poll_transmit(at(1)).expect("an ack").flags.ece
    };
    assert!(!echo(data(at(1), 0)));
    assert!(echo(marked(at(1), 1)));
    assert!(echo(data(at(1), 2)));
    let mut reduced = data(at(1), 3);
    reduced.flags.cwr = true;
    assert!(!echo(reduced));
}

#[test]
fn each_mark_is_echoed_in_the_ack_that_covers_it() {
    let mut receiver = open(0, Some(Echo::EachMark));
    receiver.on_segment(at(1), &data(at(1), 0));
    assert_eq!(receiver.poll_transmit(at(1)), None);
    // The mark changes: earlier data is acknowledged without an echo.
    receiver.on_segment(at(2), &marked(at(2), 1));
    let before = receiver.poll_transmit(at(2)).expect("an ack");
    assert_eq!((before.ack, before.flags.ece), (u64::from(FULL), false));
    receiver.on_segment(at(3), &marked(at(3), 2));
    let with = receiver.poll_transmit(at(3)).expect("an ack");
    assert_eq!((with.ack, with.flags.ece), (3 * u64::from(FULL), true));
}
