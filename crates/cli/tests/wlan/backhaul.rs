//! A backhaul that is slower than the law's rate, over real sockets.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::kit::{Behind, Daemon, Length, MCS_RATE, alone, can_run, client, late_ms, receive};
use crate::verdict::Verdict;

/// The report of a server at 40 Mbit/s on a client behind 8 Mbit/s after some seconds, and the
/// fraction of its packets that the backhaul dropped.
fn behind_8_mbit(guard: &[&str]) -> (Value, f64) {
    let law = ["--law", "fixed", "--rate", "40mbit"];
    let server = Daemon::server("udp", &[&law[..], guard].concat());
    let backhaul = Daemon::relay(server.port, &["--reverse-hop", "rate=8mbit,queue=50p"]);
    let mut client = receive(backhaul.port, 60, &["--mcs-rate", MCS_RATE]);
    thread::sleep(Duration::from_secs(8));
    let told = server.end();
    let _ = client.kill();
    let _ = client.wait();
    let carried = backhaul.end();
    let hop = &carried["reverse"]["hops"][0];
    let lost = hop["drops"]["queue_full"].as_f64().unwrap() / hop["packets_in"].as_f64().unwrap();
    (told["clients"][0].clone(), lost)
}

#[test]
#[ignore = "long: measures rates in real time"]
fn with_a_guard_the_rate_follows_what_a_slow_backhaul_carries() {
    let _alone = alone();
    let (alone, lost) = behind_8_mbit(&["--no-guard"]);
    assert_eq!((&alone["rate_bps"], &alone["limit_bps"]), (&40_000_000.into(), &Value::Null));
    let (guarded, lost_with) = behind_8_mbit(&[]);
    println!("limit {}, lost {lost:.3} without and {lost_with:.3} with", guarded["limit_bps"]);
    assert_eq!(guarded["limited"], true, "{guarded}");
    assert_eq!(guarded["rate_bps"], guarded["limit_bps"], "{guarded}");
    // A host that is late sends less, and a step upwards may just be tried.
    let limit = guarded["limit_bps"].as_f64().unwrap();
    assert!((0.5e6..12e6).contains(&limit), "{guarded}");
    assert!(lost_with < lost / 2.0, "{lost_with} for {lost}");
}

/// Results of a client behind a slow backhaul and an access point, in a namespace of its own.
#[derive(Debug)]
struct Row {
    /// The maximum rate sent in any 5 s after the first 10, and the rate received in this time, as
    /// fractions of the backhaul's rate, with IP headers.
    offered: f64,
    carried: f64,
    /// The fraction of packets that did not arrive in the whole run.
    loss: f64,
    /// How late the emulator was.
    late_ms: f64,
}

impl Row {
    fn measure(mbps: f64, queue: &str, settings: &[&str], seconds: u32) -> Self {
        let server = Daemon::server("udp", settings);
        let length = Length { warm_up: 10, all: seconds };
        let words = client("udp", "$FRESHLINE_HOST", server.port, &server, length);
        let hop = format!("[[reverse.hop]]\nrate = '{mbps}mbit'\nqueue = '{queue}'");
        let script = format!("{words} --packet-log FOLDER/packets >FOLDER/told");
        let behind = Behind::run_over(&hop, &script);
        server.end();
        let told: Value = serde_json::from_str(&behind.file("told")).unwrap();
        let packets: Vec<Packet> = behind.file("packets").lines().filter_map(Packet::of).collect();
        let link = mbps * 1e6;
        let row = Self {
            offered: offered(&packets) / link,
            carried: carried(&packets) / link,
            loss: told["loss"].as_f64().unwrap_or(f64::NAN),
            late_ms: late_ms(&behind.told),
        };
        println!(
            "{mbps} Mbit/s, {queue}, {} | offered {:.3}, carried {:.3}, lost {:.3} | late by {:.2} ms",
            settings.join(" "),
            row.offered,
            row.carried,
            row.loss,
            row.late_ms
        );
        row
    }
}

/// A packet that came.
struct Packet {
    seq: f64,
    /// In s.
    sent: f64,
    /// With IP and UDP headers.
    bits: f64,
}

impl Packet {
    fn of(line: &str) -> Option<Self> {
        // The delay is not known at first.
        let fields: Vec<f64> =
            line.split(',').take(5).map(|field| field.parse().ok()).collect::<Option<_>>()?;
        let [seq, sent, _, _, bytes] = fields[..] else { return None };
        Some(Self { seq, sent: sent * 1e-9, bits: (bytes + 28.0) * 8.0 })
    }
}

/// Those sent after the first 10 s.
fn settled(packets: &[Packet]) -> &[Packet] {
    let from = packets[0].sent + 10.0;
    &packets[packets.partition_point(|packet| packet.sent < from)..]
}

/// The maximum rate sent over 5 s, in bit/s: sequence numbers count lost packets, too.
fn offered(packets: &[Packet]) -> f64 {
    let packets = settled(packets);
    let until = |from: &Packet| packets.partition_point(|packet| packet.sent < from.sent + 5.0);
    let windows = packets.iter().filter_map(|from| Some((from, packets.get(until(from))?)));
    windows
        .map(|(from, to)| (to.seq - from.seq) * from.bits / (to.sent - from.sent))
        .fold(0.0, f64::max)
}

/// The rate received in this time, in bit/s.
fn carried(packets: &[Packet]) -> f64 {
    let packets = settled(packets);
    let (Some(first), Some(last)) = (packets.first(), packets.last()) else { return 0.0 };
    packets.iter().map(|packet| packet.bits).sum::<f64>() / (last.sent - first.sent)
}

/// Beyond this the emulator, and so the server, got the processor too rarely to use a path.
const TIMELY_MS: f64 = 3.0;

#[test]
#[ignore = "long: measures rates in real time"]
fn a_slow_backhaul_before_the_access_point_is_used_and_not_overloaded() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let measure = || {
        let row = Row::measure(10.0, "100p", &[], 22);
        assert!(row.offered <= 1.1, "{row:?}");
        Verdict::of(row.carried >= 0.9, row.late_ms, TIMELY_MS)
    };
    assert!(measure().or_again(measure));
}

/// Prints the table of docs/downlink.md; takes six minutes.
#[test]
#[ignore = "figures for the documentation"]
fn figures_of_slow_backhauls() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    for law in [&["--law", "nonlinear"][..], &["--law", "linear"]] {
        for (mbps, queue) in [(5.0, "20p"), (10.0, "1000p"), (30.0, "100p"), (30.0, "fq_codel")] {
            let row = Row::measure(mbps, queue, law, 40);
            assert!(row.offered <= 1.1, "{row:?}");
        }
    }
}
