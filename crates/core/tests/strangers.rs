//! Strangers at the monitor: neither a flood nor crafted datagrams make it store or reveal more
//! than it must.

#[path = "common/session.rs"]
mod driven;

use driven::{hear, next_update, turn};
use freshline_core::session::{
    Admission, End, Monitor, MonitorEvent, MonitorParams, Secret, Source, SourceEvent, SourceParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{
    Challenge, Close, CloseReason, Cookie, Frames, Message, Opening, SessionId, Update,
};
use rand::{Rng, RngExt};
use rand_pcg::Pcg64;

type Address = u64;

/// A million in a release build.
const FLOOD: u64 = if cfg!(debug_assertions) { 200_000 } else { 1_000_000 };

fn at(secs: u64) -> Time {
    Time::ZERO + Span::from_secs(secs)
}

fn monitor(params: MonitorParams) -> Monitor<Address> {
    Monitor::new(params, Secret::new([7; 16]))
}

/// Hands in a datagram; returns the verdict in words and the answer.
fn tell(
    monitor: &mut Monitor<Address>,
    now: Time,
    peer: Address,
    datagram: &[u8],
) -> (String, Vec<u8>) {
    use MonitorEvent::{Challenged, Fresh, Gone, Refused};
    let heard = driven::tell(monitor, now, peer, datagram);
    assert!(heard.reply.len() <= datagram.len(), "{heard:?} to {} bytes", datagram.len());
    let verdict = match heard.event() {
        Some(Fresh { opened: true, .. }) => "opened".into(),
        Some(Fresh { .. }) => "fresh".into(),
        Some(Refused { reason, .. }) => format!("Refused({reason:?})"),
        Some(Gone { why: End::Closed, .. }) => "Closed".into(),
        Some(Challenged) => "Challenged".into(),
        other => format!("{other:?}, {:?}", heard.result),
    };
    (verdict, heard.reply)
}

fn update<'a>(session: u64, seq: u64, opening: Option<Opening<'a>>) -> Update<'a> {
    Update {
        session: SessionId(session),
        seq,
        sent_at: Time::ZERO,
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening,
        frames: Frames::fresh(b"state"),
    }
}

fn bytes(update: &Update<'_>) -> Vec<u8> {
    let mut out = vec![0; update.len()];
    update.write(&mut out).expect("it fits");
    out
}

fn opening<'a>(cookie: Cookie, name: &'a str, token: &'a [u8]) -> Option<Opening<'a>> {
    Some(Opening { cookie, name, token })
}

/// Opens a session as an honest stranger does; returns the last verdict and answer.
fn knock(
    monitor: &mut Monitor<Address>,
    now: Time,
    session: u64,
    name: &str,
    token: &[u8],
) -> (String, Vec<u8>) {
    let first = bytes(&update(session, 0, opening(Cookie::default(), name, token)));
    let (verdict, answer) = tell(monitor, now, session, &first);
    assert_eq!(verdict, "Challenged");
    let Ok(Message::Challenge(Challenge { cookie, .. })) = Message::parse(&answer) else {
        panic!("no challenge but {answer:?}");
    };
    tell(monitor, now, session, &bytes(&update(session, 1, opening(cookie, name, token))))
}

#[test]
fn a_flood_without_cookies_is_not_remembered() {
    let mut rng = Pcg64::new(1, 1);
    let mut monitor = monitor(MonitorParams::default());
    assert_eq!(knock(&mut monitor, at(0), 1, "honest", b"").0, "opened");
    for flooded in 0..FLOOD {
        let datagram = match flooded % 4 {
            0 => {
                let mut garbage = vec![0; rng.random_range(0..200)];
                rng.fill_bytes(&mut garbage);
                garbage
            }
            1 => bytes(&update(rng.random(), rng.random(), None)),
            2 => bytes(&update(rng.random(), 0, opening(Cookie(rng.random()), "spoof", b""))),
            _ => {
                let mut ours =
                    bytes(&update(rng.random(), 0, opening(Cookie::default(), "x", b"")));
                let place = rng.random_range(0..ours.len());
                ours[place] ^= rng.random_range(1..=255_u8);
                ours
            }
        };
        tell(&mut monitor, at(1), rng.random_range(2..u64::MAX), &datagram);
        assert_eq!(monitor.len(), 1);
    }
    let (verdict, _) = tell(&mut monitor, at(1), 1, &bytes(&update(1, 2, None)));
    assert_eq!(verdict, "fresh", "the honest source is served as before");
    assert_eq!(monitor.counters().opened, 1);
}

#[test]
fn strangers_with_cookies_fill_the_monitor_but_not_more_until_they_are_idle() {
    let params = MonitorParams { max_sources: 100, ..MonitorParams::default() };
    let idle = params.idle;
    let mut monitor = monitor(params);
    for session in 0..1_000 {
        let (verdict, _) = knock(&mut monitor, at(0), session, "", b"");
        assert_eq!(verdict, if session < 100 { "opened" } else { "Refused(Full)" });
        assert!(monitor.len() <= 100);
    }
    // Source 0 goes on; all others fall silent and are forgotten after at most twice the idle
    // time.
    let mut expired = 0;
    let mut seq = 2;
    while let Some(now) = monitor.poll_timeout().filter(|now| now.since(at(0)) <= idle * 2) {
        tell(&mut monitor, now, 0, &bytes(&update(0, seq, None)));
        seq += 1;
        let before = expired;
        monitor.handle_timeout(now);
        while let Some(event) = monitor.poll_event() {
            let MonitorEvent::Gone { record, why: End::Idle, .. } = event else {
                panic!("{event:?}");
            };
            assert!(now.since(record.heard_at) >= idle, "too early");
            expired += 1;
        }
        assert!(expired - before <= 100 / 32, "a look costs little");
    }
    assert_eq!((expired, monitor.len()), (99, 1));
    assert_eq!(knock(&mut monitor, at(120), 5_000, "", b"").0, "opened", "there is room again");
}

#[test]
fn a_source_learns_that_the_monitor_is_full_and_gets_in_later() {
    let params = MonitorParams { max_sources: 1, ..MonitorParams::default() };
    let mut monitor = monitor(params);
    assert_eq!(knock(&mut monitor, at(0), 1, "first", b"").0, "opened");

    let law = Box::new(Fixed::new(UpdateRate::saturating(10.0)));
    let params = SourceParams { name: "second".into(), ..SourceParams::default() };
    let mut source = Source::new(params, Secret::new([2; 16]), law, at(0)).unwrap();
    let (mut events, mut now) = (Vec::new(), at(0));
    let leave = bytes(&update(1, 2, None));
    for attempt in 0..3 {
        if attempt == 2 {
            let close = Close { session: SessionId(1), reason: CloseReason::Done };
            let (verdict, answer) = tell(&mut monitor, at(1), 1, &close.bytes());
            assert!(verdict.starts_with("Closed") && answer.is_empty(), "{verdict}");
            assert_eq!(tell(&mut monitor, at(1), 1, &leave).0, "Challenged", "it is gone");
        }
        let left;
        (now, left) = next_update(&mut source, now, b"state");
        let (_, answer) = tell(&mut monitor, now, 2, &left[0].1);
        events.push(hear(&mut source, now, &answer).unwrap());
    }
    use SourceEvent::{Challenged, Closed, Opened};
    assert_eq!(events, [Challenged, Closed(CloseReason::Full), Opened]);
}

#[test]
fn two_sources_of_one_name_do_not_push_each_other_out_at_every_update() {
    let mut monitor = monitor(MonitorParams::default());
    let params = SourceParams { name: "robot-7".into(), ..SourceParams::default() };
    let mut sources = [1, 2].map(|seed| {
        let law = Box::new(Fixed::new(UpdateRate::saturating(100.0)));
        Source::new(params.clone(), Secret::new([seed; 16]), law, at(0)).expect("a short name")
    });
    for millis in 0..30_000 {
        let now = at(0) + Span::from_millis(millis);
        for (address, source) in (0..).zip(&mut sources) {
            loop {
                let left = turn(source, now, b"state", |_| ());
                for (_, datagram) in &left {
                    let (_, answer) = tell(&mut monitor, now, address, datagram);
                    hear(source, now, &answer);
                }
                if left.is_empty() {
                    break;
                }
            }
        }
    }
    let superseded = monitor.counters().superseded;
    assert!((5..50).contains(&superseded), "{superseded} times in 30 s");
}

#[test]
fn only_a_known_token_opens() {
    let tokens = vec![b"open sesame".to_vec(), b"also".to_vec()];
    let mut monitor = monitor(MonitorParams { tokens, ..MonitorParams::default() });
    for wrong in [&b""[..], b"open sesam", b"open sesame ", b"OPEN SESAME"] {
        let (verdict, answer) = knock(&mut monitor, at(0), 1, "", wrong);
        assert_eq!(verdict, "Refused(BadToken)");
        let told = Close { session: SessionId(1), reason: CloseReason::BadToken };
        assert_eq!(Message::parse(&answer), Ok(Message::Close(told)));
    }
    assert!(monitor.is_empty());
    assert_eq!(knock(&mut monitor, at(0), 1, "", b"open sesame").0, "opened");
    assert_eq!(knock(&mut monitor, at(0), 2, "", b"also").0, "opened");
}

#[test]
fn a_cookie_is_of_no_use_elsewhere_or_much_later() {
    let mut monitor = monitor(MonitorParams::default());
    let (_, answer) = tell(&mut monitor, at(0), 1, &bytes(&update(1, 0, None)));
    let Ok(Message::Challenge(challenge)) = Message::parse(&answer) else { panic!("{answer:?}") };
    let shown = |session| bytes(&update(session, 1, opening(challenge.cookie, "", b"")));
    assert_eq!(tell(&mut monitor, at(1), 2, &shown(1)).0, "Challenged", "another address");
    assert_eq!(tell(&mut monitor, at(1), 1, &shown(2)).0, "Challenged", "another session");
    assert_eq!(tell(&mut monitor, at(60), 1, &shown(1)).0, "Challenged", "a minute later");
    assert_eq!(tell(&mut monitor, at(59), 1, &shown(1)).0, "opened");
}

#[test]
fn where_the_transport_proves_addresses_no_cookie_is_asked_for() {
    let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
    let mut monitor = monitor(params);
    let first = bytes(&update(1, 0, opening(Cookie::default(), "", b"")));
    assert_eq!(tell(&mut monitor, at(0), 1, &first).0, "opened");
    // A party that sends for a session without opening it is challenged.
    assert_eq!(tell(&mut monitor, at(0), 2, &bytes(&update(2, 0, None))).0, "Challenged");
}

#[test]
fn updates_of_another_version_are_answered_and_nothing_else_is() {
    let mut monitor = monitor(MonitorParams::default());
    let mut foreign = bytes(&update(1, 0, None));
    foreign[2] = 1;
    let (verdict, answer) = tell(&mut monitor, at(0), 1, &foreign);
    assert_eq!(verdict, "Refused(Version)");
    let told = Close { session: SessionId(1), reason: CloseReason::Version };
    // The answer has the version of the asking party, so that it is understood.
    assert_eq!((answer[2], &answer[3..]), (1, &told.bytes()[3..]));
    // Two monitors of different versions must not talk to each other for ever.
    for kind in (0..=255).filter(|kind| *kind != 1) {
        foreign[3] = kind;
        assert_eq!(tell(&mut monitor, at(0), 1, &foreign).1, [], "type {kind}");
    }
    foreign[3] = 1;
    foreign.truncate(Close::LEN - 1);
    assert_eq!(tell(&mut monitor, at(0), 1, &foreign).1, [], "not even a close has room");
}

#[test]
fn a_payload_beyond_the_limit_is_refused_before_anything_is_held() {
    let mut monitor = monitor(MonitorParams { max_payload: 4, ..MonitorParams::default() });
    let (verdict, _) = tell(&mut monitor, at(0), 1, &bytes(&update(1, 0, None)));
    assert_eq!(verdict, "Refused(TooLarge)");
}

#[test]
fn session_ids_chosen_to_collide_find_each_its_own_record() {
    // Same low bits, same high bits, neighbours: ids that collide in tables without a secret.
    let sessions = || (0..64).flat_map(|i| [i << 58, i, (i << 32) | 0xFFFF_FFFF, !i]);
    let mut monitor = monitor(MonitorParams::default());
    let mut known = std::collections::BTreeSet::new();
    for session in sessions().filter(|session| known.insert(*session)) {
        assert_eq!(knock(&mut monitor, at(0), session, "", b"").0, "opened");
    }
    assert_eq!(monitor.len(), known.len());
    for session in known {
        assert_eq!(
            tell(&mut monitor, at(1), session, &bytes(&update(session, 5, None))).0,
            "fresh"
        );
        let close = Close { session: SessionId(session), reason: CloseReason::Done };
        assert!(tell(&mut monitor, at(1), session, &close.bytes()).0.starts_with("Closed"));
    }
    assert!(monitor.is_empty());
}
