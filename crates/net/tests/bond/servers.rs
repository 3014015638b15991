//! Servers that end, start again, or are replaced by others.

use std::thread;
use std::time::Duration;

use freshline_net::bond::Sending;

use super::ends::{LOCALHOST, Who, assert_echoes, client, echo, serve, server, server_at};

#[test]
fn a_client_returns_to_its_server_and_to_no_other_one_at_the_same_address() {
    let (ours, theirs, others) = (Who::new(), Who::new(), Who::new());
    let there = serve(LOCALHOST, echo);
    let (allow, sending) = ([&*there.to_string()], Sending::default());
    let first = server(&theirs, &[&ours], sending, &allow);
    let at = first.at[0];
    let client = client(&ours, theirs.pin(), at, sending, &[there]);
    let program = || std::net::TcpStream::connect(client.at[1]).unwrap();
    client.wait(|report| report.links == 1);
    assert_echoes(program());
    drop(first);
    client.wait(|report| report.links == 0);
    // Another one takes the port: it is asked, and is not trusted.
    let other = server_at(at, &others, &[&ours], sending, &allow);
    let waiting = program();
    thread::sleep(Duration::from_secs(2));
    assert_eq!((client.watcher.report().links, other.watcher.report().links), (0, 0));
    drop(other);
    let _second = server_at(at, &theirs, &[&ours], sending, &allow);
    client.wait(|report| report.links == 1);
    // So does the program that came meanwhile.
    assert_echoes(waiting);
    assert_echoes(program());
}
