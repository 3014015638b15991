//! Names with addresses that do not answer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use freshline_net::bond::Sending;
use freshline_net::dial::Remote;
use socket2::{Domain, Socket, Type};

use super::ends::{Bond, Running, Who, client, server_at};
use super::hosts::with_hosts;

const NAME: &str = "server.test";
const BOTH: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Addresses of this host, in the resolver's order.
fn addresses(count: u8) -> Vec<IpAddr> {
    (1..=count).map(|last| Ipv4Addr::new(127, 0, 0, last).into()).collect()
}

/// Sockets that fill a listener's queue, so that it answers no other client.
fn full(at: SocketAddr) -> io::Result<Vec<Socket>> {
    let listener = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    listener.bind(&at.into())?;
    listener.listen(0)?;
    let clients = (0..4).map(|_| {
        let client = Socket::new(Domain::for_address(at), Type::STREAM, None).unwrap();
        client.set_nonblocking(true).unwrap();
        let _ = client.connect(&at.into());
        client
    });
    let clients: Vec<_> = clients.collect();
    Ok(clients.into_iter().chain([listener]).collect())
}

/// `open` at the last address, on a port of its choice, and `silence` at that port of the other addresses.
fn at_one_port<T, U>(
    ips: &[IpAddr],
    open: impl Fn(SocketAddr) -> (T, u16),
    silence: impl Fn(SocketAddr) -> io::Result<U>,
) -> (T, Vec<U>, u16) {
    let (live, dead) = ips.split_last().unwrap();
    // Sockets of other tests may have the port there.
    for _ in 0..20 {
        let (opened, port) = open((*live, 0).into());
        let silent = dead.iter().map(|ip| silence((*ip, port).into()));
        if let Ok(silent) = silent.collect() {
            return (opened, silent, port);
        }
    }
    panic!("no port is free at all of {ips:?}");
}

/// A listener at the last address, and full ones at the others.
fn listener_at_last(ips: &[IpAddr]) -> (TcpListener, Vec<Vec<Socket>>, u16) {
    let listen = |at: SocketAddr| {
        let listener = TcpListener::bind(at).unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    };
    at_one_port(ips, listen, full)
}

/// A server at the last address, and sockets that do not answer at the others.
fn server_at_last(ips: &[IpAddr], who: &Who, client: &Who) -> (Running, Vec<UdpSocket>, u16) {
    let serve = |at| {
        let server = server_at(at, who, &[client], Sending::default(), &[]);
        let port = server.at[0].port();
        (server, port)
    };
    at_one_port(ips, serve, UdpSocket::bind)
}

#[test]
fn an_address_that_does_not_answer_holds_a_name_up_for_a_moment_only() {
    with_hosts(|hosts| {
        hosts.set(NAME, &BOTH);
        // The address that comes first is the dead one.
        let ips: Vec<_> = (NAME, 1).to_socket_addrs().unwrap().map(|at| at.ip()).collect();
        assert!(ips.len() == 2 && BOTH.iter().all(|ip| ips.contains(ip)), "{ips:?}");
        let (_answers, _full, port) = listener_at_last(&ips);
        let target = format!("{NAME}:{port}");
        let bond = Bond::new(Sending::default(), &[&target], &[]);
        bond.client.wait(|report| report.links == 1);
        let began_at = Instant::now();
        assert_eq!(bond.connect(&target).0, 200);
        // With one address after the other, the wait would be 3 s; 250 ms are intended.
        assert!(began_at.elapsed() < Duration::from_millis(2_900), "{:?}", began_at.elapsed());
    });
}

#[test]
fn a_destination_is_reached_by_the_last_of_its_eight_addresses() {
    with_hosts(|hosts| {
        for dead in [1, 3, 7] {
            let ips = addresses(dead + 1);
            hosts.set(NAME, &ips);
            let (_answers, _full, port) = listener_at_last(&ips);
            let target = format!("{NAME}:{port}");
            let bond = Bond::new(Sending::default(), &[&target], &[]);
            bond.client.wait(|report| report.links == 1);
            // One after the other, 3 s each, the server would have given up before.
            assert_eq!(bond.connect(&target).0, 200, "{dead} dead addresses");
        }
    });
}

#[test]
fn a_server_is_reached_by_whichever_address_of_its_name_answers() {
    with_hosts(|hosts| {
        hosts.set(NAME, &BOTH);
        let (ours, theirs) = (Who::new(), Who::new());
        for ip in BOTH {
            let server = server_at((ip, 0).into(), &theirs, &[&ours], Sending::default(), &[]);
            let name = Remote::new(NAME, server.at[0].port());
            let client = client(&ours, theirs.pin(), name, Sending::default(), &[]);
            client.wait(|report| report.links == 1);
        }
    });
}

#[test]
fn a_server_is_reached_by_the_last_of_its_eight_addresses() {
    with_hosts(|hosts| {
        let (ours, theirs) = (Who::new(), Who::new());
        let ips = addresses(8);
        hosts.set(NAME, &ips);
        let (_server, _silent, port) = server_at_last(&ips, &theirs, &ours);
        let name = Remote::new(NAME, port);
        let client = client(&ours, theirs.pin(), name, Sending::default(), &[]);
        client.wait(|report| report.links == 1);
    });
}

#[test]
fn a_name_all_of_whose_addresses_are_dead_is_looked_up_again() {
    with_hosts(|hosts| {
        let (ours, theirs) = (Who::new(), Who::new());
        let ips = addresses(9);
        let (live, dead) = ips.split_last().unwrap();
        hosts.set(NAME, dead);
        let (_server, _silent, port) = server_at_last(&ips, &theirs, &ours);
        let name = Remote::new(NAME, port);
        let client = client(&ours, theirs.pin(), name, Sending::default(), &[]);
        thread::sleep(Duration::from_secs(1));
        assert_eq!(client.watcher.report().links, 0);
        hosts.set(NAME, &[*live]);
        client.wait(|report| report.links == 1);
    });
}

#[test]
fn a_name_without_an_address_is_waited_for() {
    let (ours, theirs) = (Who::new(), Who::new());
    let nowhere = Remote::new("no-such-name.invalid", 9);
    let client = client(&ours, theirs.pin(), nowhere, Sending::default(), &[]);
    thread::sleep(Duration::from_secs(1));
    // It would have ended with an error, which is found when it is dropped.
    assert_eq!(client.watcher.report().links, 0);
}
