//! Rules decide which credential opens a session under which name, separately on each path; a
//! change of the rules ends the sessions that they do not permit any more.

#[path = "common/session.rs"]
mod driven;

use freshline_core::session::{
    Access, Admission, End, Monitor, MonitorEvent, MonitorParams, Relation, Secret,
};
use freshline_core::unit::Time;
use freshline_core::wire::{CloseReason, Cookie, Frames, Message, Opening, SessionId, Update};

/// Tokens with the beginning of the names that each permits. The credential is the place in the list.
struct Rules(&'static [(&'static [u8], &'static str)]);

impl Access for Rules {
    fn check(&self, opening: &Opening<'_>) -> Result<u64, CloseReason> {
        let place = self.0.iter().position(|(token, _)| *token == opening.token);
        let place = place.ok_or(CloseReason::BadToken)?;
        let is_permitted = opening.name.starts_with(self.0[place].1);
        is_permitted.then_some(place as u64).ok_or(CloseReason::NotPermitted)
    }
}

const RULES: Rules = Rules(&[(b"one", "robot-"), (b"two", "robot-"), (b"three", "lidar-")]);

/// A monitor of connections, numbered as the peers are.
fn monitor() -> Monitor<u64> {
    let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
    Monitor::new(params, Secret::new([7; 16])).with_relation(|before, now| match before == now {
        true => Relation::Same,
        false => Relation::Unproven,
    })
}

/// The outcome of an update of a session by a connection.
fn send(
    monitor: &mut Monitor<u64>,
    connection: u64,
    (session, seq): (u64, u64),
    opening: Option<(&'static str, &'static [u8])>,
) -> Result<&'static str, CloseReason> {
    let opening = opening.map(|(name, token)| Opening { cookie: Cookie::default(), name, token });
    let update = Update {
        session: SessionId(session),
        seq,
        sent_at: Time::from_nanos(seq),
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening,
        frames: Frames::fresh(b"state"),
    };
    let mut datagram = [0; 300];
    let len = update.write(&mut datagram).expect("it fits");
    let from = (connection, Some(&RULES as &dyn Access));
    let heard = driven::tell_checked(monitor, Time::ZERO, from, &datagram[..len]);
    match heard.event() {
        Some(MonitorEvent::Fresh { opened: true, .. }) => Ok("opened"),
        Some(MonitorEvent::Fresh { .. }) => Ok("fresh"),
        Some(MonitorEvent::Challenged) => Ok("challenged"),
        Some(&MonitorEvent::Refused { reason, .. }) => {
            let said = Message::parse(&heard.reply);
            assert!(matches!(said, Ok(Message::Close(close)) if close.reason == reason));
            Err(reason)
        }
        None => Ok("ignored"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_path_opens_with_the_credential_of_the_session() {
    let mut monitor = monitor();
    let one = Some(("robot-7", &b"one"[..]));
    assert_eq!(send(&mut monitor, 1, (1, 0), one), Ok("opened"));
    for (opening, verdict) in [
        (None, Ok("challenged")),
        (Some(("robot-7", &b"none"[..])), Err(CloseReason::BadToken)),
        // It may use the name, but the session is another's.
        (Some(("robot-7", b"two")), Ok("ignored")),
        (Some(("robot-7", b"three")), Err(CloseReason::NotPermitted)),
        (Some(("lidar-1", b"one")), Err(CloseReason::NotPermitted)),
        (one, Ok("fresh")),
        (None, Ok("fresh")),
    ] {
        let seq = monitor.counters().datagrams;
        assert_eq!(send(&mut monitor, 2, (1, seq), opening), verdict, "{opening:?}");
    }
}

#[test]
fn a_name_stays_with_the_credential_that_has_it_until_that_is_revoked() {
    let mut monitor = monitor();
    let [one, two] = [&b"one"[..], b"two"].map(|token| Some(("robot-7", token)));
    assert_eq!(send(&mut monitor, 1, (1, 0), one), Ok("opened"));
    assert_eq!(send(&mut monitor, 2, (2, 0), two), Err(CloseReason::NameTaken));
    assert_eq!(send(&mut monitor, 3, (3, 0), Some(("lidar-1", b"three"))), Ok("opened"));

    assert_eq!(monitor.revoke(Time::ZERO, |record| record.credential() != 0), 1);
    let Some(MonitorEvent::Gone { record, why: End::Revoked, .. }) = monitor.poll_event() else {
        panic!("it is gone");
    };
    assert_eq!((record.peer, &*record.name), (1, "robot-7"));
    assert_eq!((monitor.len(), monitor.counters().revoked), (1, 1));
    assert_eq!(send(&mut monitor, 1, (1, 1), None), Ok("challenged"), "it is unknown now");
    assert_eq!(send(&mut monitor, 2, (2, 1), two), Ok("opened"));
    assert_eq!(send(&mut monitor, 3, (3, 1), None), Ok("fresh"));
}
