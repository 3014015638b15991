//! Hostile clients that lie or flood, together with an honest one, at one emulated access point.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use freshline_core::unit::{BitRate, Span};
use freshline_core::wire::{Cookie, Join, Message, Opening, Report, SessionId};
use freshline_core::wlan;
use serde_json::Value;

use crate::kit::{Daemon, Length, TIMELY_MS, alone, at_once, client, late_ms};
use crate::verdict::{Verdict, failed};

const LENGTH: Length = Length { warm_up: 6, all: 14 };
/// The minimum duration of a run; also a stranger's interval between reports.
const INTERVAL: Duration = Duration::from_millis(500);

/// The behaviour of the client that competes with the honest one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Beside {
    /// The same.
    Honest,
    /// Claims frames of one packet at 3.4 Gbit/s, whatever comes, once an interval.
    Liar,
    /// The same after every packet, with a join for each.
    Flooder,
    /// Joins from other sessions as fast as its socket takes them, and takes no packets.
    Joins,
}

/// A client that is programmed here, until `end` is set.
fn stranger(port: u16, kind: Beside, end: &AtomicBool) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let join = |session, cookie| {
        let (mut bytes, opening) = ([0; 400], Opening { cookie, name: "", token: b"" });
        let len = Join { session, opening }.write(&mut bytes).unwrap();
        let _ = socket.send(&bytes[..len]);
    };
    let session = SessionId(0xbad);
    let mut cookie = Cookie::default();
    let (mut buffer, mut number, mut told_at) = ([0; 9000], 0, std::time::Instant::now());
    while !end.load(Ordering::Relaxed) {
        if kind == Beside::Joins {
            number += 1;
            join(SessionId(number), Cookie::default());
            thread::sleep(Duration::from_micros(100));
            continue;
        }
        let Ok(len) = socket.recv(&mut buffer) else {
            join(session, cookie);
            continue;
        };
        match Message::parse(&buffer[..len]) {
            Ok(Message::Challenge(challenge)) => {
                cookie = challenge.cookie;
                join(session, cookie);
            }
            Ok(Message::Packet(packet)) => {
                if kind == Beside::Liar && told_at.elapsed() < INTERVAL {
                    continue;
                }
                told_at = std::time::Instant::now();
                number += 1;
                let seen = wlan::Report {
                    level: 1.0,
                    deviation: 0.0,
                    frames: 100,
                    rate: BitRate::from_bps(3_400_000_000),
                    loss: 0.0,
                };
                let report = Report {
                    session,
                    number: number as u32,
                    newest_seq: packet.seq,
                    newest_sent_at: packet.sent_at,
                    newest_received_at: packet.sent_at,
                    hold: Span::ZERO,
                    received: number as u32,
                    seen: Some(seen),
                    marks: Default::default(),
                    delivered: None,
                    max_packets: None,
                };
                let _ = socket.send(&report.bytes());
                if kind == Beside::Flooder {
                    join(SessionId(number), Cookie::default());
                }
            }
            _ => {}
        }
    }
}

/// The honest client's results in such company.
#[derive(Debug, Clone, Copy)]
struct Got {
    goodput_mbps: f64,
    p50_ms: f64,
    p99_ms: f64,
    late_ms: f64,
}

fn beside(others: &[Beside]) -> Got {
    let server = Daemon::server("udp", &["--delay", "3ms", "--max-mcs-rate", "108mbit"]);
    let access_point = Daemon::access_point(server.port);
    let port = access_point.port;
    let words = client("udp", "127.0.0.1", port, &server, LENGTH);
    let start = || {
        let mut words = words.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let end = Arc::new(AtomicBool::new(false));
    let (mut honest, mut strangers) = (vec![start()], Vec::new());
    for kind in others.iter().copied() {
        if kind == Beside::Honest {
            honest.push(start());
        } else {
            let end = Arc::clone(&end);
            strangers.push(thread::spawn(move || stranger(port, kind, &end)));
        }
    }
    let told = honest.into_iter().map(|child| child.wait_with_output().unwrap().stdout);
    let told: Vec<Value> = told.map(|text| serde_json::from_slice(&text).unwrap()).collect();
    end.store(true, Ordering::Relaxed);
    strangers.into_iter().for_each(|stranger| stranger.join().unwrap());
    let late_ms = late_ms(&access_point.end());
    server.end();
    let number = |key: &str| told[0][key].as_f64().unwrap_or(f64::NAN);
    let got = Got {
        goodput_mbps: number("goodput_bps") * 1e-6,
        p50_ms: number("delay_p50_ms"),
        p99_ms: number("delay_p99_ms"),
        late_ms,
    };
    println!(
        "beside {others:?} | {:.1} Mbit/s | p50 {:.2} ms, p99 {:.2} ms | late by {:.2} ms",
        got.goodput_mbps, got.p50_ms, got.p99_ms, got.late_ms
    );
    got
}

#[test]
#[ignore = "long: measures delays in real time"]
fn who_lies_or_floods_takes_little_rate_of_others_and_lengthens_no_queue() {
    let _alone = alone();
    let fair = thread::scope(|scope| {
        let alone = scope.spawn(|| beside(&[]));
        if at_once(2) == 1 {
            alone.join().unwrap();
        }
        beside(&[Beside::Honest, Beside::Honest])
    });
    let held = |others: &[Beside; 2]| {
        let got = beside(others);
        // A round stays below T̄ with any clients; a busy channel and the noise of single runs cost up to half of
        // that in addition.
        // A client that reports small frames gets at most twice its share.
        let is_fair = got.goodput_mbps >= 0.4 * fair.goodput_mbps;
        let is_held = is_fair && got.p50_ms <= 1.5 * fair.p50_ms;
        Verdict::of(is_held, got.late_ms.max(fair.late_ms), TIMELY_MS)
    };
    let strangers = [
        [Beside::Liar, Beside::Honest],
        [Beside::Joins, Beside::Honest],
        [Beside::Flooder, Beside::Honest],
        [Beside::Liar, Beside::Flooder],
    ];
    let failed = failed(&strangers, at_once(2), held);
    assert!(failed.is_empty(), "{failed:?}");
}
