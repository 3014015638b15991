//! A session belongs to the party that opened it: knowledge of its id, or of the token of another
//! source, is not enough to speak for it.

#[path = "common/session.rs"]
mod driven;

use driven::{hear, next_update};
use freshline_core::path::PathId;
use freshline_core::session::{
    Admission, Monitor, MonitorEvent, MonitorParams, Names, Relation, Secret, Source, SourceEvent,
    SourceParams,
};
use freshline_core::source::{Fixed, Limits};
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{
    Challenge, Close, CloseReason, Cookie, Frames, Message, Opening, SessionId, Update,
};

const TOKENS: [&[u8]; 2] = [b"of robot", b"of meter"];

/// A monitor of connections, numbered as the peers are, that asks for one of [`TOKENS`].
fn monitor() -> Monitor<u64> {
    let params = MonitorParams {
        admission: Admission::Proven,
        tokens: TOKENS.map(Vec::from).to_vec(),
        ..MonitorParams::default()
    };
    Monitor::new(params, Secret::new([7; 16])).with_relation(|before, now| match before == now {
        true => Relation::Same,
        false => Relation::Unproven,
    })
}

struct Said {
    seq: u64,
    opening: Option<(&'static str, &'static [u8])>,
    payload: &'static [u8],
}

/// The monitor's reaction to an update of session 1 by a connection, in one word, and its answer.
fn say(monitor: &mut Monitor<u64>, connection: u64, said: Said) -> (&'static str, Vec<u8>) {
    let opening =
        said.opening.map(|(name, token)| Opening { cookie: Cookie::default(), name, token });
    let update = Update {
        session: SessionId(1),
        seq: said.seq,
        sent_at: Time::ZERO,
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening,
        frames: Frames::fresh(said.payload),
    };
    send(monitor, connection, &update)
}

fn send(
    monitor: &mut Monitor<u64>,
    connection: u64,
    update: &Update<'_>,
) -> (&'static str, Vec<u8>) {
    let mut datagram = [0; 300];
    let len = update.write(&mut datagram).expect("it fits");
    tell(monitor, connection, &datagram[..len])
}

fn tell(monitor: &mut Monitor<u64>, connection: u64, datagram: &[u8]) -> (&'static str, Vec<u8>) {
    use MonitorEvent::{Challenged, Fresh, Gone, Refused, Stale};
    let heard = driven::tell(monitor, Time::ZERO, connection, datagram);
    let verdict = match heard.event() {
        Some(Fresh { opened: true, .. }) => "opened",
        Some(Fresh { .. }) => "fresh",
        Some(Stale { .. }) => "stale",
        Some(Challenged) => "challenged",
        Some(Refused { reason: CloseReason::BadToken, .. }) => "bad token",
        Some(Refused { reason: CloseReason::NameTaken, .. }) => "name taken",
        Some(Refused { reason: CloseReason::BadName, .. }) => "bad name",
        Some(Refused { .. }) => "refused",
        Some(Gone { .. }) => "closed",
        Some(_) => "in parts",
        None => "ignored",
    };
    (verdict, heard.reply)
}

fn state(monitor: &Monitor<u64>) -> (Vec<u8>, u64) {
    let (_, record) = monitor.records().next().expect("a source");
    (record.payload().unwrap_or_default().to_vec(), record.newest_seq)
}

#[test]
fn who_knows_the_id_of_a_session_cannot_speak_for_it() {
    let mut monitor = monitor();
    let robot = Some(("robot", TOKENS[0]));
    let opened = say(&mut monitor, 1, Said { seq: 0, opening: robot, payload: b"true" });
    assert_eq!(opened.0, "opened");

    let lie = |opening| Said { seq: u64::MAX, opening, payload: b"lie" };
    for (opening, verdict) in [
        (None, "challenged"),
        (Some(("robot", &b""[..])), "bad token"),
        (Some(("robot", b"guessed")), "bad token"),
        (Some(("robot", TOKENS[1])), "ignored"),
    ] {
        assert_eq!(say(&mut monitor, 2, lie(opening)).0, verdict, "{opening:?}");
        let close = Close { session: SessionId(1), reason: CloseReason::Done };
        assert_eq!(tell(&mut monitor, 2, &close.bytes()).0, "ignored");
        assert_eq!(state(&monitor), (b"true".to_vec(), 0));
    }
    // Its own next connection opens, and goes on without; the first one still may, too.
    assert_eq!(say(&mut monitor, 3, Said { seq: 1, opening: robot, payload: b"new" }).0, "fresh");
    for (connection, seq) in [(3, 2), (1, 3), (3, 4)] {
        let said = Said { seq, opening: None, payload: b"newer" };
        assert_eq!(say(&mut monitor, connection, said).0, "fresh", "{connection}");
    }
    assert_eq!(say(&mut monitor, 2, lie(None)).0, "challenged");
}

#[test]
fn a_session_takes_connections_without_end_and_remembers_the_latest() {
    let mut monitor = monitor();
    let robot = Some(("robot", TOKENS[0]));
    for connection in 0..1_000 {
        let said = Said { seq: connection, opening: robot, payload: b"state" };
        say(&mut monitor, connection, said);
    }
    let goes_on = |connection: &u64| {
        let said = Said { seq: 0, opening: None, payload: b"state" };
        say(&mut monitor, *connection, said).0 != "challenged"
    };
    let known: Vec<u64> = (0..1_000).filter(goes_on).collect();
    assert!(known.iter().eq(&(1_000 - known.len() as u64..1_000).collect::<Vec<_>>()));
    assert!((32..=64).contains(&known.len()), "{} of 1000", known.len());
}

#[test]
fn a_name_does_not_pass_to_the_holder_of_another_token() {
    let mut monitor = monitor();
    let robot = |session, token| Update {
        session: SessionId(session),
        seq: 0,
        sent_at: Time::ZERO,
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening: Some(Opening { cookie: Cookie::default(), name: "robot", token }),
        frames: Frames::fresh(b"state"),
    };
    assert_eq!(send(&mut monitor, 1, &robot(1, TOKENS[0])).0, "opened");
    assert_eq!(send(&mut monitor, 2, &robot(2, TOKENS[1])).0, "name taken");
    assert_eq!(send(&mut monitor, 3, &robot(3, TOKENS[0])).0, "opened", "it was restarted");
    assert_eq!(monitor.len(), 1);
}

#[test]
fn names_that_are_a_trap_for_programs_are_refused_unless_any_name_is_taken() {
    let mut monitor = monitor();
    let mut open = |name: &'static str| {
        say(&mut monitor, 1, Said { seq: 0, opening: Some((name, TOKENS[0])), payload: b"" }).0
    };
    for name in ["../../x", "a/../b", "..", "$(id)", "-rf", "a b", "a;b", ".hidden", "/etc", "rö"]
    {
        assert_eq!(open(name), "bad name", "{name}");
    }
    for name in ["robot-7", "fleet/robot_7", "a..b", "7", "user@host:1+2"] {
        assert_ne!(open(name), "bad name", "{name}");
    }
    // These can not even be sent.
    for name in ["a\u{7f}", "a\u{85}", "a\u{202e}b", "a\u{2066}"] {
        let opening = Opening { cookie: Cookie::default(), name, token: b"" };
        assert!(opening.check().is_err(), "{name:?}");
    }
    let params = MonitorParams {
        admission: Admission::Proven,
        names: Names::Any,
        ..MonitorParams::default()
    };
    let mut any = Monitor::new(params, Secret::new([7; 16]));
    let said = Said { seq: 0, opening: Some(("Zoë's robot", b"")), payload: b"" };
    assert_eq!(say(&mut any, 1, said).0, "opened");
}

#[test]
fn a_source_that_is_slow_opens_all_the_same() {
    // One update in 100 s; a cookie is good for 30 to 60 s.
    let rate = UpdateRate::saturating(0.01);
    let params = SourceParams {
        limits: Limits { max_rate: Some(rate), ..Limits::NONE },
        ..SourceParams::default()
    };
    let law = Box::new(Fixed::new(rate));
    let mut source = Source::new(params, Secret::new([1; 16]), law, Time::ZERO).expect("no name");
    let mut monitor = Monitor::<u64>::new(MonitorParams::default(), Secret::new([7; 16]));
    let (mut verdicts, mut now) = (Vec::new(), Time::ZERO);
    for _ in 0..2 {
        let left;
        (now, left) = next_update(&mut source, now, b"state");
        assert!(now <= Time::ZERO + Span::from_secs(2), "{now:?}");
        let (verdict, answer) = tell(&mut monitor, 1, &left[0].1);
        verdicts.push(verdict);
        hear(&mut source, now, &answer);
    }
    assert_eq!(verdicts, ["challenged", "opened"]);
}

#[test]
fn acks_from_before_a_sleep_are_no_round_trips() {
    let law = Box::new(Fixed::new(UpdateRate::saturating(10.0)));
    let params = SourceParams { token: TOKENS[0].to_vec(), ..SourceParams::default() };
    let mut source = Source::new(params, Secret::new([1; 16]), law, Time::ZERO).expect("no name");
    let mut monitor = monitor();
    let mut update = |source: &mut Source, now| {
        let (now, left) = next_update(source, now, b"state");
        (now, tell(&mut monitor, 1, &left[0].1).1)
    };
    let (now, answer) = update(&mut source, Time::ZERO);
    assert_eq!(hear(&mut source, now, &answer), Some(SourceEvent::Opened));
    let (_, answer) = update(&mut source, now);
    // It sleeps for an hour before it can read the ack.
    let woken = Time::ZERO + Span::from_secs(3600);
    source.handle_resume(woken);
    assert!(source.handle_datagram(woken, PathId::FIRST, &answer).is_err());
    let (now, answer) = update(&mut source, woken);
    assert!(now <= woken + Span::from_secs(1), "{now:?}");
    let now = now + Span::from_millis(20);
    assert_eq!(hear(&mut source, now, &answer), Some(SourceEvent::Opened));
    assert!(source.counters().rtt_mean().is_some_and(|rtt| rtt < Span::from_millis(20)));
}

#[test]
fn a_path_that_flaps_does_not_push_out_the_one_that_stays() {
    let mut monitor = monitor();
    let robot = Some(("robot", TOKENS[0]));
    say(&mut monitor, 0, Said { seq: 0, opening: robot, payload: b"state" });
    for connection in 1..200 {
        let seq = 2 * connection;
        say(&mut monitor, connection, Said { seq, opening: robot, payload: b"state" });
        let steady = Said { seq: seq + 1, opening: None, payload: b"state" };
        assert_eq!(say(&mut monitor, 0, steady).0, "fresh", "after {connection}");
    }
}

#[test]
fn a_monitor_that_always_challenges_does_not_set_the_pace() {
    let rate = UpdateRate::saturating(5.0);
    let params = SourceParams {
        limits: Limits { max_rate: Some(rate), ..Limits::NONE },
        ..SourceParams::default()
    };
    let law = Box::new(Fixed::new(rate));
    let mut source = Source::new(params, Secret::new([1; 16]), law, Time::ZERO).expect("no name");
    let end = Time::ZERO + Span::from_secs(20);
    let (mut sent, mut last) = (0u32, None);
    let mut now = Time::ZERO;
    loop {
        (now, _) = next_update(&mut source, now, b"state");
        if now >= end {
            break;
        }
        // The monitor answers at once, each time with another cookie.
        assert!(last.is_none_or(|last| now >= last + rate.period()), "{sent}");
        (sent, last) = (sent + 1, Some(now));
        let cookie = Cookie(u128::from(sent).to_be_bytes());
        let challenge = Challenge { session: source.session(), cookie };
        assert_eq!(hear(&mut source, now, &challenge.bytes()), Some(SourceEvent::Challenged));
    }
    // Two openings per interval, and intervals grow to 2 s.
    assert!((10..=30).contains(&sent), "{sent} openings in 20 s");
    source.close();
    let mut out = Vec::new();
    let len = source.poll_transmit(now, &mut out).expect("a close").len;
    assert!(matches!(Message::parse(&out[..len]), Ok(Message::Close(_))));
    assert!(source.poll_transmit(now, &mut out).is_none() && source.poll_timeout().is_none());
}
