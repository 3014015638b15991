//! A distant server, for one client and for many at once.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use freshline_net::bond::Sending;

use super::ends::{Who, client, server};

/// Clients that connect at once: the server asks those beyond eight handshakes to prove their
/// addresses.
const CLIENTS: usize = 12;

/// Passes datagrams to `to` and back, each after `delay`, and counts Retry packets (RFC 9000, section
/// 17.2.5); where a client reaches it.
fn delay(to: SocketAddr, delay: Duration, retries: Arc<AtomicUsize>) -> SocketAddr {
    let [near, far] = [0, 1].map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let at = near.local_addr().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let (mut queue, mut client) = (VecDeque::new(), at);
        let mut buffer = [0; 2048];
        loop {
            while let Ok((len, from)) = near.recv_from(&mut buffer) {
                client = from;
                queue.push_back((Instant::now() + delay, true, buffer[..len].to_vec()));
            }
            while let Ok((len, _)) = far.recv_from(&mut buffer) {
                retries.fetch_add(usize::from(buffer[0] & 0xf0 == 0xf0), Ordering::Relaxed);
                queue.push_back((Instant::now() + delay, false, buffer[..len].to_vec()));
            }
            while queue.front().is_some_and(|(at, ..)| *at <= Instant::now()) {
                let Some((_, is_up, datagram)) = queue.pop_front() else { break };
                let (socket, to) = if is_up { (&far, to) } else { (&near, client) };
                let _ = socket.send_to(&datagram, to);
            }
            thread::sleep(Duration::from_millis(5));
        }
    });
    at
}

/// Connects many clients at once over a path with this RTT.
fn connects(rtt: Duration) {
    let (ours, theirs) = (Who::new(), Who::new());
    let server = server(&theirs, &[&ours], Sending::default(), &[]);
    let retries = Arc::new(AtomicUsize::new(0));
    let clients = (0..CLIENTS).map(|_| {
        let far = delay(server.at[0], rtt / 2, Arc::clone(&retries));
        client(&ours, theirs.pin(), far, Sending::default(), &[])
    });
    let clients: Vec<_> = clients.collect();
    // The slowest handshake with Retry takes four round trips, after a first attempt of 3 s.
    let are_up = || clients.iter().filter(|client| client.watcher.report().links == 1).count();
    let is_done = (0..600).any(|_| {
        thread::sleep(Duration::from_millis(100));
        are_up() == CLIENTS
    });
    let retries = retries.load(Ordering::Relaxed);
    println!("{rtt:?}: {} of {CLIENTS} clients, {retries} Retry packets", are_up());
    assert!(is_done, "{rtt:?}: {} of {CLIENTS} are connected", are_up());
    assert!(retries > 0 || rtt < Duration::from_secs(1), "{rtt:?}: no client got a Retry packet");
}

#[test]
fn many_clients_at_once_reach_a_server_with_and_without_retry_however_far_it_is() {
    thread::scope(|scope| {
        for ms in [100, 1_500, 5_000] {
            scope.spawn(move || connects(Duration::from_millis(ms)));
        }
    });
}

#[test]
fn a_server_behind_a_round_trip_of_nearly_two_seconds_is_reached() {
    let (ours, theirs) = (Who::new(), Who::new());
    let server = server(&theirs, &[&ours], Sending::default(), &[]);
    let far = delay(server.at[0], Duration::from_millis(900), Arc::default());
    let client = client(&ours, theirs.pin(), far, Sending::default(), &[]);
    client.wait(|report| report.links == 1);
}
