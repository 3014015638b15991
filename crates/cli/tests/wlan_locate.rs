//! `freshline wlan locate` as a user meets it, on captures that the emulator made.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn freshline(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(args);
    command
}

fn locate(file: &Path, args: &[&str]) -> Output {
    freshline(&["wlan", "locate"]).arg(file).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The air around a client that receives `mbps` of numbered datagrams over `hop`, for two seconds.
fn air(hop: &str, mbps: f64, file: &Path) {
    const PAYLOAD: usize = 1_000;
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap().to_string();
    let cell = "standard=802.11ac,rate=mcs4,width=40MHz";
    let mut emulator = freshline(&["emulate", "udp", "--listen", "127.0.0.1:0", "--to", &to])
        .args(["--wlan", cell, "--reverse-hop", hop, "--duration", "3s", "--radiotap"])
        .arg(file)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    // Stays open to the end: the emulator prints more later.
    let mut stderr = BufReader::new(emulator.stderr.take().unwrap());
    stderr.read_line(&mut first).unwrap();
    let relay = first.split(' ').next().unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(b"hello", relay).unwrap();
    let (_, client_of_relay) = server.recv_from(&mut [0; 100]).unwrap();

    // As iperf2 numbers them.
    let mut datagram = [0; PAYLOAD];
    let (start, mut sent) = (Instant::now(), 0u32);
    while start.elapsed() < Duration::from_secs(2) {
        let due = start.elapsed().as_secs_f64() * mbps * 1e6 / (8 * (PAYLOAD + 28)) as f64;
        while f64::from(sent) < due {
            datagram[..4].copy_from_slice(&sent.to_be_bytes());
            server.send_to(&datagram, client_of_relay).unwrap();
            sent += 1;
        }
        thread::sleep(Duration::from_micros(300));
    }
    assert!(emulator.wait().unwrap().success());
}

/// The fraction of frames for which the bottleneck was before the Wi-Fi, and the flow.
fn backhaul(file: &Path) -> (f64, serde_json::Value) {
    let done = locate(file, &["--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let document: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let flow = document["flows"][0].clone();
    let frames = |place: Option<&str>| -> f64 {
        let intervals = flow["intervals"].as_array().unwrap().iter();
        let intervals =
            intervals.filter(|interval| place.is_none_or(|place| interval["place"] == place));
        intervals.map(|interval| interval["frames"].as_f64().unwrap()).sum()
    };
    (frames(Some("backhaul")) / frames(None), flow)
}

#[test]
fn the_hop_that_loses_packets_is_told_from_the_wifi() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("air.pcap");
    // Half of the datagrams fit through the hop.
    air("rate=30mbit,queue=50p", 60.0, &file);
    let (part, flow) = backhaul(&file);
    assert!(part > 0.9, "{flow}");
    assert_eq!((&flow["numbers"], &flow["by_radio"]), (&"iperf2".into(), &true.into()));
    let table = text(&locate(&file, &[]).stdout);
    assert!(table.contains("losses by iperf2's numbers, frames by the radio"), "{table}");
    assert!(table.contains("backhaul"), "{table}");

    // The same through one that is faster than the Wi-Fi.
    air("rate=500mbit", 60.0, &file);
    let (part, flow) = backhaul(&file);
    assert!(part < 0.1, "{flow}");

    // A file that is cut is printed as far as it goes.
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let done = locate(&file, &["--json"]);
    assert_eq!(done.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(document["error"].as_str().unwrap().contains("ends within packet"));
}

#[test]
fn what_holds_no_flow_is_misuse_and_prints_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture");
    let header = |link: u32| {
        let mut bytes =
            vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0];
        bytes.extend(link.to_le_bytes());
        bytes
    };
    for (bytes, message) in [
        (b"[[forward.hop]]\nrate = 3".to_vec(), "not a pcap or pcapng file"),
        (header(127), "no flow has 200 packets or more among 0 frames"),
    ] {
        fs::write(&file, bytes).unwrap();
        let done = locate(&file, &["--json"]);
        assert_eq!(done.status.code(), Some(2));
        assert!(done.stdout.is_empty());
        assert!(text(&done.stderr).contains(message), "{}", text(&done.stderr));
    }
    fs::write(&file, header(127)).unwrap();
    let refused =
        freshline(&["wlan", "locate", "--weights"]).arg(&file).arg(&file).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(locate(Path::new("/nowhere/air.pcap"), &[]).status.code(), Some(2));
}
