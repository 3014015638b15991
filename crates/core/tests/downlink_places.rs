//! A server of packets shares its client places between parties.
#![cfg(feature = "serde")]

use freshline_core::session::downlink::{Server, ServerEvent, ServerParams};
use freshline_core::session::{Admission, End, Origin, Secret};
use freshline_core::unit::Time;
use freshline_core::wire::{CloseReason, Cookie, Join, Opening, SessionId};
use freshline_core::wlan::DownlinkLawConfig;

/// The session that lost its place to the one that joins, if any; or `None` if that is refused.
fn join(server: &mut Server<u64>, from: u64, session: u64) -> Option<Option<u64>> {
    let opening = Opening { cookie: Cookie::default(), name: "", token: b"" };
    let mut datagram = [0; 400];
    let session = SessionId(session);
    let len = Join { session, opening }.write(&mut datagram).expect("it fits");
    server.handle_datagram(Time::ZERO, from, &datagram[..len]).expect("a join");
    let mut displaced = None;
    loop {
        match server.poll_event()? {
            ServerEvent::Gone { record, why: End::Displaced, .. } => {
                displaced = Some(record.session.0);
            }
            ServerEvent::Joined { is_new: true, .. } => return Some(displaced),
            ServerEvent::Refused(CloseReason::Full) => return None,
            other => panic!("{other:?}"),
        }
    }
}

fn server(law: &str, max_clients: usize) -> Server<u64> {
    let law: DownlinkLawConfig = toml::from_str(law).expect("a law");
    let admission = Admission::Proven;
    let params = ServerParams { admission, max_clients, ..ServerParams::default() };
    Server::new(params, law.build().expect("it makes sense"), Secret::new([7; 16]))
        .with_origin(|address| Origin { address: *address, ..Origin::default() })
}

fn an_address_displaces_itself(mut server: Server<u64>) {
    for session in 0..8 {
        assert_eq!(join(&mut server, 1, session), Some(None));
    }
    assert_eq!(join(&mut server, 1, 8), None);
    let mut left: Vec<u64> = (0..8).collect();
    for session in 100..104 {
        let gone = join(&mut server, 2, session).flatten().expect("one gives way");
        assert!(left.contains(&gone));
        left.retain(|session| *session != gone);
    }
    assert_eq!(join(&mut server, 2, 104), None, "it has its half");
    assert_eq!((server.clients().count(), server.counters().displaced), (8, 4));
}

#[test]
fn an_address_that_takes_all_places_displaces_itself_alone() {
    let law = "law = \"nonlinear\"\ndelay = \"2ms\"\nlevel = 32.0\ndownlink = { max_stations = 8 }";
    an_address_displaces_itself(server(law, usize::MAX));
}

#[test]
fn a_law_without_a_list_of_stations_has_as_many_places() {
    an_address_displaces_itself(server("law = \"fixed\"\nrate = \"10mbit\"", 8));
}
