//! Flags, files and ends.

use std::process::{Command, Output};

use serde_json::Value;

use crate::kit::{Daemon, FRESHLINE};

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
        ("serve udp://127.0.0.1:0 --size 1kB --level 64", "`level` is 64, which is not"),
        ("serve udp://127.0.0.1:0 --size 1kB --packet 60B", "packets of 60 bytes"),
        ("serve udp://127.0.0.1:0 --size 1kB --token-file /dev/null", "mean nothing on udp://"),
        ("serve udp://127.0.0.1:0 --file /nowhere", "cannot read /nowhere"),
        ("serve udp://127.0.0.1:0 --size 1kB --loop", "--file"),
        ("receive udp://127.0.0.1:9", "--mcs-rate"),
        ("receive udp://127.0.0.1:9 --mcs-rate 0mbit", "--mcs-rate must be above zero"),
        ("receive udp://127.0.0.1:9 --mcs-rate 9mbit --out - --json", "would mix"),
        ("receive udp://127.0.0.1:9 --mcs-rate 9mbit --pin sha256:00", "sha256"),
        ("receive quic://127.0.0.1:9 --mcs-rate 9mbit", "--pin"),
        ("receive udp://127.0.0.1:9 --mcs-rate 9mbit --packets /nowhere/p", "cannot write"),
    ] {
        let done = freshline(&format!("wlan {words}"));
        assert_eq!(done.status.code(), Some(2), "{words}: {}", said(&done));
        assert!(said(&done).contains(why), "{words}: {}", said(&done));
    }
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
        "wlan receive quic://127.0.0.1:{} --pin {} --mcs-rate 54mbit --out {out} --packets {} \
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
    let seqs = lines.map(|line| line.split(',').next().unwrap().parse().unwrap());
    let packets = told["packets"].as_u64().unwrap();
    assert!(seqs.eq(0..packets), "{log}");
    let report = server.end();
    assert_eq!(report["ended"][0]["client"], "viewer");
    assert_eq!((&report["joined"], &report["left"]), (&1.into(), &1.into()));
}

#[test]
fn metrics_tell_of_clients() {
    let words = ["wlan", "serve", "udp://127.0.0.1:0", "--size", "1kB", "--metrics", "127.0.0.1:0"];
    let law = ["--law", "fixed", "--rate", "2mbit", "--interval", "100ms", "--json"];
    let server = Daemon::start(&[&words[..], &law].concat(), "at udp://");
    let done = freshline(&format!(
        "wlan receive udp://127.0.0.1:{} --mcs-rate 54mbit --name viewer --duration 500ms --json",
        server.port
    ));
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(told["packets"].as_u64() > Some(0), "{told}");
    let report = server.end();
    assert_eq!(report["law"], "fixed");
    assert_eq!(report["ended"][0]["client"], "viewer");
}
