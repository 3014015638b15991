//! The CPU cost of the ends without a slow link: over loopback, by one path and by two, compared
//! with two relays of plain TCP in a row, in turn on the same machine.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use super::net::{Net, Running, can_run, is_whole};

/// Enough to see that all arrives; the figures of the documentation come from [`WHOLE`].
const SAMPLE: Run = Run { bytes: 10_000_000, rounds: 1 };
/// If all is asked for ([`is_whole`]).
const WHOLE: Run = Run { bytes: 500_000_000, rounds: 3 };
const PIECE: usize = 64 * 1024;

#[derive(Clone, Copy)]
struct Run {
    /// Bytes carried per row and round.
    bytes: usize,
    rounds: usize,
}

/// Sends as much as is asked for.
fn plenty(mut stream: TcpStream) {
    let mut asked = [0; 8];
    if stream.read_exact(&mut asked).is_err() {
        return;
    }
    let piece = [7; PIECE];
    let mut left = usize::try_from(u64::from_be_bytes(asked)).unwrap();
    while left > 0 {
        let len = piece.len().min(left);
        stream.write_all(&piece[..len]).unwrap();
        left -= len;
    }
}

/// Asks for `bytes` over `connections` connections at once, and reads them; the goodput in Mbit/s.
fn fetch(net: &Net, at: &str, bytes: usize, connections: usize) -> f64 {
    let part = bytes / connections;
    let streams: Vec<_> = (0..connections).map(|_| net.connect_to(at)).collect();
    let began_at = Instant::now();
    thread::scope(|scope| {
        for mut stream in streams {
            scope.spawn(move || {
                stream.write_all(&(part as u64).to_be_bytes()).unwrap();
                let (mut got, mut piece) = (0, vec![0; PIECE]);
                loop {
                    match stream.read(&mut piece).unwrap() {
                        0 => break,
                        len => got += len,
                    }
                }
                assert_eq!(got, part);
            });
        }
    });
    bytes as f64 * 8e-6 / began_at.elapsed().as_secs_f64()
}

/// Forwards connections at `at` to `to`, by plain TCP.
fn relay(net: &Net, at: &str, to: &'static str) {
    let listener = net.within("c", || TcpListener::bind(at).unwrap());
    thread::spawn(move || {
        for near in listener.incoming() {
            let near = near.unwrap();
            let far = TcpStream::connect(to).unwrap();
            let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
            thread::spawn(move || carry(near, far));
            thread::spawn(move || carry(back.0, back.1));
        }
    });
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut piece = vec![0; PIECE];
    while let Ok(len) = from.read(&mut piece) {
        if len == 0 || to.write_all(&piece[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// Runs over a bond with these paths.
fn bonded(net: &Net, via: &str, bytes: usize, connections: usize) -> (f64, String) {
    let (server, client) = (net.pin("s"), net.pin("c"));
    let options =
        |who: &str| format!("--state-dir {} --max-window 2MB --congestion cubic", net.state(who));
    let words = format!(
        "server 127.0.0.1:3775 {} --client-pin {client} --allow 127.0.0.1:8000",
        options("s")
    );
    let far = Running::start(net.bond("c", &words), "fingerprint");
    let words = format!(
        "client {} --via {via} --pin {server} --forward 127.0.0.1:8001=127.0.0.1:8000 127.0.0.1:3775",
        options("c")
    );
    let near = Running::start(net.bond("c", &words), "listening");
    // Both paths are there before it begins.
    thread::sleep(std::time::Duration::from_secs(1));
    let mbps = fetch(net, "127.0.0.1:8001", bytes, connections);
    (mbps, format!("client {}, server {}", near.cost(), far.cost()))
}

#[test]
#[ignore = "long: measures rates in real time"]
fn loopback_is_carried_by_one_path_and_by_two() {
    if !can_run() {
        return;
    }
    let net = Net::new([100, 100]);
    net.ip("c", "addr add 127.0.0.2/8 dev lo");
    net.serve_at("c", "127.0.0.1:8000", plenty);
    // Threads take the namespace of the thread that made them.
    net.within("c", || {
        relay(&net, "127.0.0.1:8011", "127.0.0.1:8000");
        relay(&net, "127.0.0.1:8010", "127.0.0.1:8011");
    });
    let Run { bytes, rounds } = if is_whole() { WHOLE } else { SAMPLE };
    let mut best = ROWS.map(|_| 0.0f64);
    for _ in 0..rounds {
        for ((name, via, connections), best) in ROWS.iter().zip(&mut best) {
            let (mbps, cost) = match via {
                Some(via) => bonded(&net, via, bytes, *connections),
                None => (fetch(&net, "127.0.0.1:8010", bytes, *connections), String::new()),
            };
            println!("loopback | {name} | {mbps:.0} Mbit/s | {cost}");
            *best = best.max(mbps);
        }
    }
    for ((name, ..), mbps) in ROWS.iter().zip(best) {
        let part = mbps / best[1];
        println!("loopback, best of {rounds} | {name} | {mbps:.0} Mbit/s | {part:.2} of one path");
    }
}

/// The rows: name, paths of the bond (if any), and number of connections at once.
const ROWS: [(&str, Option<&str>, usize); 4] = [
    ("two relays of TCP", None, 1),
    ("bond, one path", Some("127.0.0.1"), 1),
    ("bond, two paths", Some("127.0.0.1,127.0.0.2"), 1),
    ("bond, two paths, 4 connections", Some("127.0.0.1,127.0.0.2"), 4),
];
