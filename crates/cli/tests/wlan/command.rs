//! Flags, files, and the end of a run.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::kit::{Daemon, FRESHLINE, port_in};
use crate::promtool;

fn freshline(words: &str) -> Output {
    Command::new(FRESHLINE).args(words.split(' ')).output().unwrap()
}

fn said(done: &Output) -> String {
    let said = String::from_utf8_lossy(&done.stderr);
    said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    for (words, why) in [
        ("serve udp://127.0.0.1:0", "--file"),
        ("serve udp://127.0.0.1:0 --size 1kB --law fixed", "--rate and --law fixed belong"),
        ("serve udp://127.0.0.1:0 --size 1kB --law linear --delay 1ms", "--delay belongs to"),
        (
            "serve udp://127.0.0.1:0 --size 1kB --law fixed --rate 1mbit --level 3",
            "--level belongs",
        ),
        ("serve udp://127.0.0.1:0 --size 1kB --gain 1mbit", "--gain belongs to --law linear"),
        (
            "serve udp://127.0.0.1:0 --size 1kB --law linear --inner-gain 0.5",
            "--inner-gain belongs",
        ),
        ("serve udp://127.0.0.1:0 --size 1kB --inner-gain 2", "`inner_gain` is 2, which is not"),
        (
            "serve udp://127.0.0.1:0 --size 1kB --law algorithm2 --level 65",
            "`level` is 65, which is not",
        ),
        ("serve udp://127.0.0.1:0 --size 1kB --level 64", "`level` is 64, which is not"),
        ("serve udp://127.0.0.1:0 --size 1kB --packet-size 60B", "packets of 60 bytes"),
        ("serve udp://127.0.0.1:0 --size 1kB --token-file /dev/null", "do not apply to udp://"),
        ("serve udp://127.0.0.1:0 --file /nowhere", "cannot read /nowhere"),
        ("serve udp://127.0.0.1:0 --size 1kB --loop", "belongs to --file"),
        ("receive udp://127.0.0.1:9", "give --interface wlan0"),
        ("receive udp://127.0.0.1:9 --interface lo", "lo is no Wi-Fi interface"),
        ("receive udp://127.0.0.1:9 --interface flnone9", "no interface `flnone9`"),
        ("receive udp://127.0.0.1:9 --interface lo --mcs-rate 9mbit", "cannot be used with"),
        ("receive udp://127.0.0.1:9 --mcs-rate 9mbit --counting mac", "give --capture"),
        ("receive udp://127.0.0.1:9 --capture /nowhere/air --counting svm", "without --counting"),
        (
            "receive udp://127.0.0.1:9 --capture /nowhere/air --max-packets 9",
            "--max-packets is for",
        ),
        ("receive udp://127.0.0.1:9 --capture /nowhere/air", "cannot open the capture"),
        ("receive udp://127.0.0.1:9 --capture flnone9", "no interface `flnone9`"),
        (
            "receive udp://127.0.0.1:9 --mcs-rate 9mbit --weights /nowhere/w",
            "cannot read the weights",
        ),
        ("receive udp://127.0.0.1:9 --mcs-rate 9mbit --weights /dev/null", "cannot be understood"),
        (
            "receive udp://127.0.0.1:9 --mcs-rate 9mbit --level-weights x",
            "belongs to --counting svm",
        ),
        ("receive udp://127.0.0.1:9 --mcs-rate 9mbit --max-packets 0", "0 is not in 1..=1024"),
        (
            "receive udp://127.0.0.1:9 --mcs-rate 9mbit --counting svm --max-packets 128",
            "frames of up to 64 packets",
        ),
        ("receive udp://127.0.0.1:9 --mcs-rate 0mbit", "--mcs-rate must be above zero"),
        ("receive udp://127.0.0.1:9 --mcs-rate 9mbit --out - --json", "would mix"),
        ("receive udp://127.0.0.1:9 --mcs-rate 9mbit --pin sha256:00", "sha256"),
        ("receive quic://127.0.0.1:9 --mcs-rate 9mbit", "--pin"),
        ("receive udp://127.0.0.1:9 --mcs-rate 9mbit --packet-log /nowhere/p", "cannot write"),
    ] {
        let done = freshline(&format!("wlan {words}"));
        assert_eq!(done.status.code(), Some(2), "{words}: {}", said(&done));
        assert!(said(&done).contains(why), "{words}: {}", said(&done));
    }
}

#[test]
fn a_capture_cannot_look_into_quic() {
    let pin = format!("sha256:{}", "00".repeat(32));
    let words = format!("wlan receive quic://127.0.0.1:9 --pin {pin} --capture /nowhere/air");
    let done = freshline(&words);
    assert_eq!(done.status.code(), Some(2), "{}", said(&done));
    assert!(said(&done).contains("QUIC encrypts"), "{}", said(&done));
}

#[test]
fn a_file_goes_through_and_packets_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    let [sent, came, packets] =
        ["sent", "came", "packets.csv"].map(|name| folder.path().join(name));
    let bytes: Vec<u8> = (0..200_000u32).map(|at| (at / 249 + at) as u8).collect();
    std::fs::write(&sent, &bytes).unwrap();
    let (sent, out) = (sent.to_str().unwrap(), came.to_str().unwrap());
    let words = ["wlan", "serve", "quic://127.0.0.1:0", "--file", sent, "--json"];
    let law = ["--law", "fixed", "--rate", "20mbit"];
    let server = Daemon::start(&[&words[..], &law].concat(), "at quic://");
    let done = freshline(&format!(
        "wlan receive quic://127.0.0.1:{} --pin {} --mcs-rate 54mbit --out {out} --packet-log {} \
         --json --name viewer --duration 20s",
        server.port,
        server.fingerprint.as_ref().unwrap(),
        packets.display(),
    ));
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert!(std::fs::read(&came).unwrap() == bytes);
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&told["payload_bytes"], &told["missing"]), (&200_000.into(), &0.into()));
    let log = std::fs::read_to_string(packets).unwrap();
    let mut lines = log.lines();
    assert_eq!(lines.next(), Some("seq,sent_ns,kernel_ns,received_ns,bytes,delay_ns"));
    let seqs = lines.map(|line| line.split(',').next().unwrap().parse::<u64>().unwrap());
    let packets = told["packets"].as_u64().unwrap();
    assert!(seqs.eq(0..packets), "{log}");
    let report = server.end();
    assert_eq!(report["ended"][0]["client"], "viewer");
    assert_eq!((&report["joined"], &report["left"]), (&1.into(), &1.into()));
}

/// The metrics at `http://127.0.0.1:PORT/metrics`.
fn metrics(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_tell_of_clients_while_they_are_there() {
    let words = ["wlan", "serve", "udp://127.0.0.1:0", "--size", "1kB", "--metrics", "127.0.0.1:0"];
    let law = ["--law", "fixed", "--rate", "2mbit", "--report-interval", "100ms", "--json"];
    let server = Daemon::start(&[&words[..], &law].concat(), "metrics at http://");
    let port = port_in(&server.said, "at udp://").unwrap();
    let mut client = Command::new(FRESHLINE)
        .args(["wlan", "receive", &format!("udp://127.0.0.1:{port}"), "--mcs-rate", "54mbit"])
        .args(["--name", "viewer"])
        .spawn()
        .unwrap();
    let named = "client=\"viewer\"";
    let told = (0..400).map(|_| {
        thread::sleep(Duration::from_millis(50));
        metrics(server.port)
    });
    // Once it has reported, all is known of it.
    let level = format!("freshline_downlink_level{{{named}");
    let told = told.into_iter().find(|told| told.contains(&level)).expect("it reports");
    assert!(told.contains(&format!("freshline_downlink_rate_bytes_per_second{{{named}")), "{told}");
    assert!(told.contains("freshline_downlink_clients 1"), "{told}");
    let mut lines = told.lines().filter(|line| line.contains(named));
    assert!(told.contains("number=\"1\"") && lines.all(|line| !line.contains("session")), "{told}");
    promtool::check(told.split_once("\r\n\r\n").unwrap().1);
    kill(Pid::from_raw(client.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(client.wait().unwrap().success());
    let gone = (0..400).any(|_| {
        thread::sleep(Duration::from_millis(50));
        !metrics(server.port).contains(named)
    });
    assert!(gone, "a client that has left is in the sums only");
    let report = server.end();
    assert_eq!((&report["law"], &report["left"]), (&"fixed".into(), &1.into()));
    assert_eq!(report["ended"][0]["client"], "viewer");
}
