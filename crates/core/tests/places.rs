//! A monitor shares its places between parties: a party that takes all displaces only itself.

#[path = "common/session.rs"]
mod driven;

use freshline_core::session::{
    Admission, End, Monitor, MonitorEvent, MonitorParams, Origin, Secret,
};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{Close, CloseReason, Cookie, Frames, Opening, SessionId, Update};

/// An address: its network is the address without the last two digits.
type Address = u64;

const FLOODER: Address = 100;
const NEIGHBOUR: Address = 101;
const ELSEWHERE: Address = 200;

fn at(secs: u64) -> Time {
    Time::ZERO + Span::from_secs(secs)
}

fn origin(address: &Address) -> Origin {
    Origin { owner: 0, network: address / 100, address: *address }
}

fn monitor(params: MonitorParams) -> Monitor<Address> {
    let params = MonitorParams { admission: Admission::Proven, ..params };
    Monitor::new(params, Secret::new([7; 16])).with_origin(origin)
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Opened,
    /// In place of this session.
    OpenedFor(u64),
    Fresh,
    Challenged,
    Full,
}

/// An update of a session: with the opening if the session has not been opened.
struct Said<'a> {
    session: u64,
    name: &'a str,
    token: &'a [u8],
}

fn say(monitor: &mut Monitor<Address>, now: Time, from: Address, said: &Said<'_>) -> Outcome {
    let Said { session, name, token } = *said;
    let is_known = monitor.records().any(|(_, record)| record.session == SessionId(session));
    let opening = (!is_known).then_some(Opening { cookie: Cookie::default(), name, token });
    let update = Update {
        session: SessionId(session),
        seq: now.as_nanos(),
        sent_at: now,
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening,
        frames: Frames::fresh(b"state"),
    };
    let mut datagram = [0; 300];
    let len = update.write(&mut datagram).expect("it fits");
    use MonitorEvent::{Challenged, Fresh, Gone, Refused};
    match &driven::tell(monitor, now, from, &datagram[..len]).events[..] {
        [Gone { record, why: End::Displaced, .. }, Fresh { opened: true, .. }] => {
            Outcome::OpenedFor(record.session.0)
        }
        [Fresh { opened: true, .. }] => Outcome::Opened,
        [Fresh { .. }] => Outcome::Fresh,
        [Challenged] => Outcome::Challenged,
        [Refused { reason: CloseReason::Full, .. }] => Outcome::Full,
        other => panic!("{other:?}"),
    }
}

fn nameless(session: u64) -> Said<'static> {
    Said { session, name: "", token: b"" }
}

/// Opens sessions from `first` on until no more are accepted; returns their number.
fn fill(monitor: &mut Monitor<Address>, now: Time, from: Address, first: u64) -> u64 {
    let mut session = first;
    while say(monitor, now, from, &nameless(session)) == Outcome::Opened {
        session += 1;
    }
    session - first
}

#[test]
fn an_address_that_takes_all_places_keeps_no_other_one_out() {
    let max_sources = 1_000;
    let mut monitor = monitor(MonitorParams { max_sources, ..MonitorParams::default() });
    assert_eq!(fill(&mut monitor, at(0), FLOODER, 1_000), 1_000);
    let honest = [(1, NEIGHBOUR), (2, ELSEWHERE), (3, ELSEWHERE)];
    for (session, address) in honest {
        let told = say(&mut monitor, at(1), address, &nameless(session));
        assert!(matches!(told, Outcome::OpenedFor(1_000..)), "{told:?}");
    }
    // The flood goes on, and each of its sessions is alive.
    for round in 2..20 {
        for session in 1_000 * round..1_000 * round + 100 {
            assert_eq!(say(&mut monitor, at(round), FLOODER, &nameless(session)), Outcome::Full);
        }
        for (session, address) in honest {
            assert_eq!(say(&mut monitor, at(round), address, &nameless(session)), Outcome::Fresh);
        }
    }
    assert_eq!((monitor.len(), monitor.counters().displaced), (max_sources, 3));
}

#[test]
fn the_holder_of_one_token_does_not_keep_out_that_of_another_on_the_same_address() {
    let tokens = vec![b"one".to_vec(), b"two".to_vec()];
    let params = MonitorParams { max_sources: 100, tokens, ..MonitorParams::default() };
    let mut monitor = monitor(params);
    for session in 0..200 {
        say(&mut monitor, at(0), FLOODER, &Said { token: b"one", ..nameless(session) });
    }
    let other = |session| Said { session, name: "", token: b"two" };
    for session in 1_000..1_050 {
        let told = say(&mut monitor, at(1), FLOODER, &other(session));
        assert!(matches!(told, Outcome::OpenedFor(0..200)), "{told:?}");
    }
    assert_eq!(say(&mut monitor, at(1), FLOODER, &other(2_000)), Outcome::Full, "it has its half");
}

#[test]
fn a_source_that_was_known_returns_although_its_own_party_has_filled_the_monitor() {
    let params = MonitorParams { max_sources: 100, reserved: 6, ..MonitorParams::default() };
    let idle = params.idle;
    let mut monitor = monitor(params);
    let robot = |session| Said { session, name: "robot", token: b"" };
    for second in 0..70 {
        say(&mut monitor, at(second), FLOODER, &robot(1));
    }
    // It crashes, and is forgotten.
    let mut now = at(70);
    while monitor.poll_timeout().is_some_and(|due| due <= at(70) + idle * 2) {
        now = monitor.poll_timeout().unwrap_or(now);
        monitor.handle_timeout(now);
        while monitor.poll_event().is_some() {}
    }
    assert!(monitor.is_empty());
    assert_eq!(fill(&mut monitor, now, FLOODER, 1_000), 94, "the others are kept for it");
    let stranger = Said { session: 2, name: "stranger", token: b"" };
    assert_eq!(say(&mut monitor, now, FLOODER, &stranger), Outcome::Full);
    assert_eq!(say(&mut monitor, now, FLOODER, &robot(3)), Outcome::Opened);
    // Started again, it has the place of its former session.
    assert_eq!(say(&mut monitor, now, FLOODER, &robot(4)), Outcome::Opened);
    assert_eq!(monitor.len(), 95);
}

#[test]
fn an_address_holds_no_more_sources_than_one_may() {
    let params = MonitorParams { max_sources_per_peer: 3, ..MonitorParams::default() };
    let mut monitor = monitor(params);
    let robot = |session| Said { session, name: "robot", token: b"" };
    assert_eq!(say(&mut monitor, at(0), FLOODER, &robot(1)), Outcome::Opened);
    assert_eq!(fill(&mut monitor, at(0), FLOODER, 10), 2);
    assert_eq!(say(&mut monitor, at(0), FLOODER, &robot(2)), Outcome::Opened, "it was restarted");
    assert_eq!(fill(&mut monitor, at(0), NEIGHBOUR, 20), 3);
    let counters = monitor.counters();
    assert_eq!((counters.capped, counters.refused, counters.superseded), (2, 2, 1));
}

#[test]
fn a_name_brings_an_address_no_more_sources_than_one_may_hold() {
    let params = MonitorParams { max_sources_per_peer: 3, ..MonitorParams::default() };
    let mut monitor = monitor(params);
    let robot = |session| Said { session, name: "robot", token: b"" };
    assert_eq!(say(&mut monitor, at(0), ELSEWHERE, &robot(1)), Outcome::Opened);
    assert_eq!(fill(&mut monitor, at(0), FLOODER, 10), 3);
    assert_eq!(say(&mut monitor, at(0), FLOODER, &robot(2)), Outcome::Full, "it holds three");
    assert_eq!(say(&mut monitor, at(0), NEIGHBOUR, &robot(3)), Outcome::Opened);
    assert_eq!((monitor.counters().capped, monitor.counters().superseded), (2, 1));
}

#[test]
fn a_name_is_known_where_its_session_was_opened_and_not_where_updates_came_from() {
    let params = MonitorParams { max_sources: 100, reserved: 6, ..MonitorParams::default() };
    let mut monitor = monitor(params);
    let robot = |session| Said { session, name: "robot", token: b"" };
    for second in 0..70 {
        say(&mut monitor, at(second), FLOODER, &robot(1));
    }
    // The address of a datagram alone proves nothing.
    assert_eq!(say(&mut monitor, at(70), ELSEWHERE, &robot(1)), Outcome::Fresh);
    let close = Close { session: SessionId(1), reason: CloseReason::Done }.bytes();
    let now = at(71);
    driven::tell(&mut monitor, now, ELSEWHERE, &close);
    assert!(monitor.is_empty());
    assert_eq!(fill(&mut monitor, now, ELSEWHERE, 1_000), 94);
    assert_eq!(say(&mut monitor, now, ELSEWHERE, &robot(2)), Outcome::Full);
    assert_eq!(fill(&mut monitor, now, FLOODER, 2_000), 0);
    assert_eq!(say(&mut monitor, now, FLOODER, &robot(3)), Outcome::Opened);
}

#[test]
fn a_session_that_ends_before_it_has_come_is_no_fault() {
    let mut monitor = monitor(MonitorParams::default());
    let robot = |session| Said { session, name: "robot", token: b"" };
    assert_eq!(say(&mut monitor, at(9), FLOODER, &robot(1)), Outcome::Opened);
    assert_eq!(say(&mut monitor, at(7), FLOODER, &robot(2)), Outcome::Opened);
}

#[test]
fn live_sources_of_the_party_with_most_give_way_until_both_hold_as_many() {
    let tokens = vec![b"one".to_vec(), b"two".to_vec()];
    let params = MonitorParams { max_sources: 100, tokens, ..MonitorParams::default() };
    let mut monitor = monitor(params);
    let fleet = |n| Said { token: b"one", ..nameless(n) };
    for second in 0..120 {
        for n in 0..100 {
            let told = say(&mut monitor, at(second), 1_000 + 100 * n, &fleet(n));
            assert_eq!(told, if second == 0 { Outcome::Opened } else { Outcome::Fresh });
        }
    }
    let mut displaced = 0;
    for session in 1_000..1_200 {
        match say(&mut monitor, at(120), FLOODER, &Said { token: b"two", ..nameless(session) }) {
            Outcome::OpenedFor(0..100) => displaced += 1,
            told => assert_eq!(told, Outcome::Full),
        }
    }
    assert_eq!(displaced, 50);
}
