//! A client's report on interfaces and addresses over which it has no path.

use std::net::{Ipv4Addr, UdpSocket};

use freshline_net::bond::{Sending, ViaState};
use freshline_net::via::{Via, ViaPath};

use super::ends::{Who, client_by, server};

#[test]
fn a_via_that_is_missing_or_never_answers_is_reported_and_counted() {
    let (ours, theirs) = (Who::new(), Who::new());
    let server = server(&theirs, &[&ours], Sending::default(), &[]);
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let vias = vec![
        Via::from("127.0.0.1").into(),
        Via::from("no-such-device").into(),
        ViaPath { via: Via::from("lo"), peer: Some(silent.local_addr().unwrap()) },
    ];
    let client = client_by(&ours, theirs.pin(), server.at[0], Sending::default(), &[], vias);
    client.wait(|report| {
        let states: Vec<_> = report.vias.iter().map(|via| via.state).collect();
        states == [ViaState::Up, ViaState::Missing, ViaState::Unanswered]
    });
    let report = client.watcher.report();
    let failures: Vec<_> = report.vias.iter().map(|via| via.failures).collect();
    assert!(failures[..2] == [0, 0] && failures[2] >= 1, "{failures:?}");
}
