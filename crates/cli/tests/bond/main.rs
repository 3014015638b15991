//! `freshline bond` as a user meets it, on the running kernel, between two hosts in namespaces.

// Not all of it is for a command that needs no rights.
#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;
mod cut;
mod departures;
mod flood;
#[path = "../common/hosts.rs"]
mod hosts;
mod net;
#[path = "../common/orphans.rs"]
mod orphans;
#[path = "../common/process.rs"]
mod process;
mod programs;
#[path = "../common/promtool.rs"]
mod promtool;
mod seen;
mod sum;
#[path = "../common/two_paths.rs"]
mod two_paths;
mod ways;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::assert_fails;
use net::{Net, Process, can_run, download, ended, made_up};

/// Another program's packets fill the queue of one path: the bond notices it, and takes the other
/// path.
#[test]
#[ignore = "long: measures rates in real time"]
fn a_device_queue_is_seen_and_gone_around() {
    if !can_run() {
        return;
    }
    let net = Net::new([10, 10]);
    net.serve(|mut stream: TcpStream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let _server = net.server("--allow 10.79.9.9:8000");
    let _client = net.client("--metrics 127.0.0.1:9099");
    let mut upload = net.connect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let piece = [0; 16 * 1024];
            while !stop.load(Ordering::Relaxed) {
                upload.write_all(&piece).unwrap();
            }
        });
        std::thread::sleep(Duration::from_secs(3));
        let sent = |metrics: &str, path: &str| number(metrics, "bond_path_sent_bytes_total", path);
        let [free_a, free_b] = [net.metrics(), {
            std::thread::sleep(Duration::from_secs(2));
            net.metrics()
        }];
        scope.spawn(|| net.flood("10.79.1.2:9", Duration::from_secs(4)));
        std::thread::sleep(Duration::from_secs(1));
        let [busy_a, busy_b] = [net.metrics(), {
            std::thread::sleep(Duration::from_secs(2));
            net.metrics()
        }];
        let rate = |from: &str, to: &str| {
            ["v1", "v2"].map(|path| (sent(to, path) - sent(from, path)) * 8e-6 / 2.0)
        };
        let [free, busy] = [rate(&free_a, &free_b), rate(&busy_a, &busy_b)];
        let queue = number(&busy_b, "bond_path_queue_packets", "v1");
        println!(
            "flood | bulk | v1, v2 in Mbit/s: {free:.1?} | with a flood on v1 {busy:.1?} | {queue} packets wait"
        );
        stop.store(true, Ordering::Relaxed);
        assert!(queue > 20.0, "{busy_b}");
        assert!(busy[0] < free[0] / 2.0 && busy[1] > 6.0, "{free:?} {busy:?}");
    });
}

/// A metric of one path.
#[track_caller]
fn number(metrics: &str, name: &str, interface: &str) -> f64 {
    let number = number_if(metrics, name, interface);
    number.unwrap_or_else(|| panic!("no {name} of {interface} in {metrics}"))
}

/// The same, if there is one.
fn number_if(metrics: &str, name: &str, interface: &str) -> Option<f64> {
    let labels = format!("interface=\"{interface}\"");
    let name = format!("freshline_{name}{{");
    let mut lines = metrics.lines();
    let line = lines.find(|line| line.starts_with(&name) && line.contains(&labels));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
}

/// A stream's end is passed on while the other direction goes on.
#[test]
fn an_end_is_passed_on_and_the_answer_comes_after_it() {
    if !can_run() {
        return;
    }
    let net = Net::beside([50, 50]);
    net.serve(|mut stream: TcpStream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all.reverse();
        stream.write_all(&all).unwrap();
    });
    let _server = net.server("--allow 10.79.9.9:8000");
    let _client = net.client("");
    let mut stream = net.connect();
    stream.write_all(b"desrever").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "reversed");
}

#[test]
fn private_destinations_are_closed_unless_they_are_allowed() {
    if !can_run() {
        return;
    }
    let net = Net::beside([50, 50]);
    net.serve(made_up);
    for (allow, is_open) in [
        ("", false),
        ("--allow 10.79.9.9:8001", false),
        ("--allow 10.80.0.0/16", false),
        ("--allow 10.79.9.9:8000", true),
    ] {
        let _server = net.server(allow);
        let _client = net.client("");
        let mut stream = net.connect();
        let mut byte = [0];
        let _ = stream.write_all(&1u64.to_be_bytes());
        let got = stream.read(&mut byte);
        // A reset, or the end.
        assert_eq!(matches!(got, Ok(1)), is_open, "`{allow}`: {got:?}");
    }
}

#[test]
fn neighbours_with_public_addresses_are_closed_unless_they_are_allowed() {
    if !can_run() {
        return;
    }
    let net = Net::beside([50, 50]);
    // Of the network of one of the server's interfaces, in both families; and one behind a router.
    for (host, four, six) in [("s", "11.7.2.1", "2600:77::1"), ("c", "11.7.2.9", "2600:77::9")] {
        net.ip(host, &format!("addr add {four}/24 dev v1"));
        net.ip(host, &format!("addr add {six}/64 dev v1 nodad"));
    }
    net.ip("c", "addr add 11.9.9.9/32 dev lo");
    net.ip("s", "route add 11.9.9.9 via 10.79.1.1");
    for to in ["11.7.2.9:8000", "[2600:77::9]:8000", "11.9.9.9:8000"] {
        net.serve_at("c", to, made_up);
    }
    for (allow, to, is_open) in [
        ("", "11.7.2.9:8000", false),
        ("", "[2600:77::9]:8000", false),
        ("", "11.9.9.9:8000", true),
        ("--allow 11.7.2.0/24", "11.7.2.9:8000", true),
        ("--allow 2600:77::/64", "[2600:77::9]:8000", true),
    ] {
        let _server = net.server(allow);
        let mut client = net.client_of("c", &format!("--via v2 --forward 127.0.0.1:8001={to}"));
        let _client = Process::start(&mut client, "listening").0;
        let mut stream = net.connect();
        let _ = stream.write_all(&1u64.to_be_bytes());
        let got = stream.read(&mut [0]);
        assert_eq!(matches!(got, Ok(1)), is_open, "`{allow}`, {to}: {got:?}");
    }
}

#[test]
fn strangers_cannot_use_the_relay() {
    if !can_run() {
        return;
    }
    let net = Net::beside([50, 50]);
    let _server = net.server("");
    let forward = "--forward 127.0.0.1:8001=10.79.9.9:8000 --duration 20s";
    let stranger = ended(net.client_of("x", &format!("--via v1,v2 {forward}")));
    assert_fails(&stranger, 1, "does not trust our certificate");
    // And the reverse: a server with a certificate other than the pinned one.
    let whom = net.pin("x");
    let options = format!("client --pin {whom} {forward} 10.79.9.9:3775");
    let state = tempfile::tempdir().unwrap();
    let mut command = net.bond("c", &options);
    command.arg("--state-dir").arg(state.path().join("c"));
    assert_fails(&ended(command), 1, "is pinned");
}

#[test]
fn a_thousand_connections_are_carried_at_once_and_one_that_does_not_read_stops_none() {
    if !can_run() {
        return;
    }
    let net = Net::beside([100, 100]);
    net.serve(made_up);
    let server = net.server("--allow 10.79.9.9:8000");
    let client = net.client("");
    // They request much and read nothing.
    let lazy: Vec<_> = (0..8).map(|_| net.ask(100_000_000)).collect();
    std::thread::sleep(Duration::from_millis(500));
    let began_at = Instant::now();
    let mut streams: Vec<_> = (0..1000).map(|_| net.connect()).collect();
    for stream in &mut streams {
        stream.write_all(&10_000u64.to_be_bytes()).unwrap();
    }
    for (index, mut stream) in streams.into_iter().enumerate() {
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), 10_000, "connection {index}");
    }
    println!(
        "thousand | all had their 10 kB after {:.1?} | client {}, server {}",
        began_at.elapsed(),
        client.cost(),
        server.cost(),
    );
    drop(lazy);
}

#[test]
fn the_summary_and_the_metrics_tell_of_both_paths() {
    if !can_run() {
        return;
    }
    let net = Net::beside([50, 50]);
    net.serve(made_up);
    let _server = net.server("--allow 10.79.9.9:8000");
    let forward = "--via v1,v2 --forward 127.0.0.1:8001=10.79.9.9:8000 --metrics 127.0.0.1:9099";
    let client = net.client_of("c", &format!("{forward} --duration 4s --json"));
    let asked = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(1500));
            download(net.connect(), 3_000_000);
            std::thread::sleep(Duration::from_millis(400));
            net.metrics()
        });
        let done = ended(client);
        common::assert_succeeded(&done);
        let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(report["streams"], 1);
        assert_eq!(report["paths"].as_array().unwrap().len(), 2, "{report}");
        let of = |index: usize| report["paths"][index]["received_bytes"].as_u64().unwrap();
        assert!(of(0) + of(1) > 3_000_000 && of(0).min(of(1)) > 100_000, "{report}");
        assert_eq!(report["paths"][0]["queue_packets"], 0, "{report}");
        assert_eq!(report["paths"][0]["queue_source"], "qdisc", "{report}");
        assert_eq!(report["paths"][0]["queueing_delay_source"], "stamps", "{report}");
        assert!(report["paths"][0].get("service_time_ms").is_some(), "{report}");
        asked.join().unwrap()
    });
    promtool::check(asked.split_once("\r\n\r\n").unwrap().1);
    for interface in ["v1", "v2"] {
        assert_eq!(number(&asked, "bond_path_up", interface), 1.0);
        assert_eq!(number(&asked, "bond_path_queue_visible", interface), 1.0);
        assert!(number(&asked, "bond_path_received_bytes_total", interface) > 100_000.0);
    }
}

#[test]
fn a_server_that_would_take_everybody_does_not_start() {
    let mut command = std::process::Command::new(common::FRESHLINE);
    command.args(["bond", "server", "127.0.0.1:0"]);
    assert_fails(&ended(command), 2, "give --client-pin or --client-ca");
}
