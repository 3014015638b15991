//! A monitor by itself: names, senders, memory.

use super::*;
use crate::wire::Frames;

const AT: Time = Time::ZERO;

fn monitor(max_sources: usize) -> Monitor<u32> {
    let params =
        MonitorParams { admission: Admission::Proven, max_sources, ..MonitorParams::default() };
    Monitor::new(params, Secret::new([7; 16]))
}

fn one_of_ten(a: &u32, b: &u32) -> Relation {
    if a % 10 == b % 10 { Relation::Same } else { Relation::Other }
}

fn open(monitor: &mut Monitor<u32>, session: u64, name: &str) -> bool {
    open_from(0, monitor, session, name)
}

fn open_from(peer: u32, monitor: &mut Monitor<u32>, session: u64, name: &str) -> bool {
    open_unpolled(peer, monitor, session, name);
    let events = core::iter::from_fn(|| monitor.poll_event());
    events.last().is_some_and(|last| matches!(last, MonitorEvent::Fresh { opened: true, .. }))
}

#[test]
fn a_source_that_comes_back_under_its_name_replaces_itself_alone() {
    let mut monitor = monitor(3);
    for (session, name) in [(1, "robot"), (2, ""), (3, "meter"), (4, "robot")] {
        assert!(open(&mut monitor, session, name));
    }
    let mut sessions: Vec<u64> = monitor.records().map(|(_, r)| r.session.0).collect();
    sessions.sort_unstable();
    assert_eq!(sessions, [2, 3, 4]);
    assert_eq!(monitor.counters().superseded, 1);
    assert!(!open(&mut monitor, 5, ""), "nameless sources do not replace others");
    assert_eq!((monitor.by_session.len(), monitor.by_name.len()), (3, 2));
}

#[test]
fn a_session_goes_on_from_elsewhere_but_not_from_somebody_else() {
    let mut monitor = monitor(3).with_relation(one_of_ten);
    assert!(open(&mut monitor, 1, "robot"));
    let update = Update {
        session: SessionId(1),
        seq: 1,
        sent_at: Time::ZERO,
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening: None,
        frames: Frames::fresh(b"state"),
    };
    let (mut datagram, mut out) = ([0; 200], Vec::new());
    let len = update.write(&mut datagram).unwrap();
    assert!(monitor.poll_transmit(AT, &mut out).is_some(), "the ack of the opening");
    let close = Close { session: SessionId(1), reason: CloseReason::Done }.bytes();
    for theirs in [&datagram[..len], &close] {
        assert_eq!(monitor.handle_datagram(AT, 11, theirs), Err(Ignored::Misplaced));
        assert!(monitor.poll_event().is_none() && monitor.poll_transmit(AT, &mut out).is_none());
    }
    monitor.handle_datagram(AT, 20, &datagram[..len]).unwrap();
    assert!(matches!(monitor.poll_event(), Some(MonitorEvent::Fresh { opened: false, .. })));
    monitor.handle_datagram(AT, 10, &close).unwrap();
    assert!(monitor.is_empty());
}

#[test]
fn the_ack_of_an_update_is_taken_once_and_not_for_a_later_one_without_an_ack() {
    let mut monitor = monitor(1);
    open_unpolled(0, &mut monitor, 1, "robot");
    let session = SessionId(1);
    let ack = monitor.take_ack(session).expect("that of the opening");
    monitor.put_back(ack);
    let update = Update {
        session,
        seq: 1,
        sent_at: Time::ZERO,
        clock_offset: None,
        wants_ack: false,
        wants_return: false,
        ack_mark: None,
        opening: None,
        frames: Frames::fresh(b"state"),
    };
    let mut datagram = [0; 200];
    let len = update.write(&mut datagram).unwrap();
    // An update that does not request an ack, and an ignored datagram.
    for bytes in [&datagram[..len], b"FL"] {
        let _ = monitor.handle_datagram(AT, 0, bytes);
        assert!(monitor.take_ack(session).is_none(), "{bytes:?}");
    }
    assert!(monitor.poll_transmit(AT, &mut Vec::new()).is_some(), "it leaves by itself");
}

#[test]
fn a_name_goes_to_its_owners_next_session_but_not_to_somebody_elses() {
    let mut monitor = monitor(3).with_relation(one_of_ten);
    assert!(open_from(1, &mut monitor, 1, "robot"));
    assert!(!open_from(2, &mut monitor, 2, "robot"));
    assert_eq!((monitor.counters().refused, monitor.counters().superseded), (1, 0));
    assert!(open_from(2, &mut monitor, 3, "meter"));
    assert!(open_from(11, &mut monitor, 4, "robot"));
    assert_eq!((monitor.len(), monitor.counters().superseded), (2, 1));
}

#[test]
fn a_driver_that_never_polls_costs_bounded_memory_and_only_answers() {
    let mut monitor = monitor(3);
    for session in 0..3_000 {
        open_unpolled(0, &mut monitor, session, "");
    }
    let mut out = Vec::new();
    let answers = core::iter::from_fn(|| monitor.poll_transmit(AT, &mut out)).count();
    assert_eq!((answers, monitor.len()), (1024, 3));
}

#[test]
fn no_end_of_a_session_is_dropped_and_without_polls_no_more_sessions_are_opened() {
    let mut monitor = monitor(3);
    for session in 0..200 {
        open_unpolled(0, &mut monitor, session, "");
        let close = Close { session: SessionId(session), reason: CloseReason::Done };
        let _ = monitor.handle_datagram(AT, 0, &close.bytes());
    }
    // More events than the maximum.
    for _ in 0..1 << 16 {
        monitor.events.push(MonitorEvent::Challenged);
    }
    assert_eq!(monitor.counters().opened, 3 + 64);
    let events = core::iter::from_fn(|| monitor.poll_event());
    let gone = events.filter(|event| matches!(event, MonitorEvent::Gone { .. })).count();
    assert_eq!(gone, 3 + 64);
    assert!(open(&mut monitor, 3_000, ""), "it has polled");
}

fn open_unpolled(peer: u32, monitor: &mut Monitor<u32>, session: u64, name: &str) {
    let update = Update {
        session: SessionId(session),
        seq: 0,
        sent_at: Time::ZERO,
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening: Some(Opening { cookie: Default::default(), name, token: b"" }),
        frames: Frames::fresh(b"state"),
    };
    let mut datagram = [0; 200];
    let len = update.write(&mut datagram).unwrap();
    monitor.handle_datagram(AT, peer, &datagram[..len]).unwrap();
}

#[test]
fn a_monitor_that_closes_says_so_to_each_source() {
    let mut monitor = monitor(3);
    (1..3).for_each(|session| assert!(open_from(session, &mut monitor, session.into(), "")));
    let mut out = Vec::new();
    while monitor.poll_transmit(AT, &mut out).is_some() {}
    monitor.close(AT);
    for peer in 1..3 {
        let transmit = monitor.poll_transmit(AT, &mut out).unwrap();
        let close = Close { session: SessionId(peer), reason: CloseReason::ShuttingDown };
        assert_eq!((transmit.peer, &out[..transmit.len]), (peer as u32, &close.bytes()[..]));
    }
}

#[test]
fn hardly_more_records_are_allotted_than_used() {
    let mut monitor = monitor(1_000);
    for session in 0..1_000 {
        assert!(open(&mut monitor, session, ""));
        assert!(monitor.records.capacity() <= (session as usize * 17 / 16 + 16).min(1_000));
    }
    assert!(!open(&mut monitor, 1_000, ""));
}
