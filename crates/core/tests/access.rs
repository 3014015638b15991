//! Rules decide which credential opens a session under which name, on each path anew; a change of the
//! rules ends the sessions that they do not permit any more.

use freshline_core::session::{
    Access, Admission, Clocked, Monitor, MonitorParams, Relation, Secret, Verdict,
};
use freshline_core::unit::Time;
use freshline_core::wire::{Ack, CloseReason, Cookie, Message, Opening, SessionId, Update};

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

/// What becomes of an update of a session by a connection.
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
        generated_at: Time::from_nanos(seq),
        clock_offset: None,
        wants_ack: true,
        ack_mark: None,
        opening,
        payload: b"state",
    };
    let (mut datagram, mut reply) = ([0; 300], [0; Ack::LEN]);
    let len = update.write(&mut datagram).expect("it fits");
    let at = Clocked { received_at: Time::ZERO, now: Time::ZERO };
    let from = (connection, Some(&RULES as &dyn Access));
    let receipt = monitor.on_checked_datagram(at, from, None, &datagram[..len], &mut reply);
    match receipt.verdict {
        Verdict::Fresh { opened: true, .. } => Ok("opened"),
        Verdict::Fresh { .. } => Ok("fresh"),
        Verdict::Challenged => Ok("challenged"),
        Verdict::Ignored(_) => Ok("ignored"),
        Verdict::Refused(reason) => {
            let said = Message::parse(&reply[..receipt.reply]);
            assert!(matches!(said, Ok(Message::Close(close)) if close.reason == reason));
            Err(reason)
        }
        _ => panic!("{:?}", receipt.verdict),
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

    let mut ended = Vec::new();
    let number = monitor.revoke(
        Time::ZERO,
        |record| record.credential() != 0,
        |_, record| ended.push((record.peer, record.name.to_string())),
    );
    assert_eq!((number, &ended[..]), (1, &[(1, "robot-7".to_owned())][..]));
    assert_eq!((monitor.len(), monitor.counters().revoked), (1, 1));
    assert_eq!(send(&mut monitor, 1, (1, 1), None), Ok("challenged"), "it is unknown now");
    assert_eq!(send(&mut monitor, 2, (2, 1), two), Ok("opened"));
    assert_eq!(send(&mut monitor, 3, (3, 1), None), Ok("fresh"));
}
