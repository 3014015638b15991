//! Ways in which a client counts packets per frame, over real sockets and an emulated access point.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::{Child, Command, Output};
use std::thread;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;

use crate::kit::{Daemon, FRESHLINE, MCS_RATE, alone, at_once, cell, late_ms, receive};
use crate::verdict::{Verdict, failed};

/// Later than this, frames are not those of the cell.
const TIMELY_MS: f64 = 3.0;

/// A client's report, and its text on standard error.
fn end(client: Child) -> (Value, String) {
    let Output { status, stdout, stderr } = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(status.success(), "{said}");
    (serde_json::from_slice(&stdout).unwrap(), said)
}

/// An access point whose air is captured.
fn captured_access_point(server: u16, air: &Path) -> Daemon {
    Daemon::relay(server, &["--wlan", &cell(), "--radiotap", air.to_str().unwrap()])
}

/// Packets in a frame that the only client's radio received.
fn true_level(told: &Value) -> f64 {
    let stations = told["wlan"]["stations"].as_array().unwrap();
    let client = stations.iter().find(|station| station["station"] == 1).unwrap();
    client["level_received"].as_f64().unwrap()
}

#[test]
#[ignore = "long: measures rates in real time"]
fn kernel_timestamps_hold_the_level_near_what_is_sought() {
    let _alone = alone();
    let measure = |how: &&str| {
        let server = Daemon::server("udp", &["--level", "16", "--delay", "20ms"]);
        let access_point = Daemon::access_point(server.port);
        let words = ["--mcs-rate", MCS_RATE, "--counting", how, "--warm-up", "6s"];
        let (told, _) = end(receive(access_point.port, 12, &words));
        let emulator = access_point.end();
        let was = true_level(&emulator);
        let late = late_ms(&emulator);
        drop(server);
        println!("{how}: level {:.1}, was {was:.1}, late by {late:.1} ms", told["level"]);
        let level = told["level"].as_f64().unwrap_or(0.0);
        // The whole run of the one has the start in it, which the other has not.
        let is_held = (8.0..32.0).contains(&level) && (0.5..2.0).contains(&(level / was));
        Verdict::of(is_held, late, TIMELY_MS)
    };
    assert_eq!(failed(&["logistic", "svm", "threshold"], at_once(3), measure), [&""; 0]);
}

#[test]
fn a_capture_that_is_written_live_tells_the_level_of_the_access_point() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let air = folder.path().join("air");
    mkfifo(&air, Mode::S_IRWXU).unwrap();
    // Both ends wait for each other; this is both, until both are there.
    let both = OpenOptions::new().read(true).write(true).open(&air).unwrap();
    // The client's mean ends with its last report, the access point's with the run: they are equal only
    // at a constant rate, and the guard raises it over the first seconds.
    let law = ["--no-guard", "--law", "fixed", "--rate", "80mbit"];
    let server = Daemon::server("udp", &law);
    let access_point = captured_access_point(server.port, &air);
    let log = folder.path().join("packets.csv");
    let words = ["--capture", air.to_str().unwrap(), "--packet-log", log.to_str().unwrap()];
    let client = receive(access_point.port, 6, &words);
    let (told, said) = {
        let client = thread::spawn(move || end(client));
        let told = client.join().unwrap();
        drop(both);
        told
    };
    let was = true_level(&access_point.end());
    let level = told["level"].as_f64().unwrap();
    println!("level {level:.3}, was {was:.3}: {}", told["capture"]);
    assert!(was > 1.5, "frames have several packets: {was}");
    assert!((level / was - 1.0).abs() < 0.02, "{level} {was}");
    let (packets, ours) = (&told["packets"], told["capture"]["ours"].as_u64().unwrap());
    assert!(ours as f64 > 0.95 * packets.as_f64().unwrap(), "{told}");
    assert_eq!(told["capture"]["unrated"], 0);
    // The line that counts packets without a frame is not a complaint.
    let complaints =
        said.lines().filter(|line| !line.starts_with("--packet-log")).collect::<String>();
    assert!(!complaints.contains("capture"), "{said}");
    frames_are_logged(&log, told["packets"].as_u64().unwrap(), was);
    let report = server.end();
    // The client's goodbye is lost if the access point ends while it is still in the uplink's queue:
    // then the server still counts the client as present.
    let clients = ["ended", "clients"].map(|list| report[list].as_array().unwrap());
    let client = clients.into_iter().flatten().next().unwrap_or_else(|| panic!("{report}"));
    let rate = client["mcs_rate_bps"].as_u64().unwrap_or_else(|| panic!("{report}"));
    assert!(rate.abs_diff(108_000_000) <= 1, "that of the radio: {rate}");
}

/// The log has all packets in their order, each with its stamp and nearly all with their frame.
fn frames_are_logged(log: &Path, packets: u64, level: f64) {
    let text = std::fs::read_to_string(log).unwrap();
    let mut lines = text.lines();
    let head = lines.next().unwrap();
    assert_eq!(head, "seq,sent_ns,kernel_ns,received_ns,bytes,delay_ns,frame");
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len() as u64, packets);
    assert!(rows.iter().all(|row| row.len() == 7 && !row[2].is_empty()));
    assert!(rows.is_sorted_by_key(|row| row[0].parse::<u64>().unwrap()), "in their order");
    let mut frames: Vec<&str> = rows.iter().map(|row| row[6]).filter(|it| !it.is_empty()).collect();
    assert!(frames.len() as f64 > 0.95 * rows.len() as f64, "{} of {packets}", frames.len());
    let known = frames.len() as f64;
    frames.dedup();
    let logged = known / frames.len() as f64;
    println!("logged {logged:.3} packets a frame, of {known}");
    assert!((logged / level - 1.0).abs() < 0.05, "{logged} {level}");
}

/// A client's text with such a capture, and whether it counted.
fn said_with(bytes: &[u8], stays_open: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    let air = folder.path().join("air.pcap");
    let mut open: Option<File> = None;
    if stays_open {
        mkfifo(&air, Mode::S_IRWXU).unwrap();
        let mut both = OpenOptions::new().read(true).write(true).open(&air).unwrap();
        std::io::Write::write_all(&mut both, bytes).unwrap();
        open = Some(both);
    } else {
        std::fs::write(&air, bytes).unwrap();
    }
    let server = Daemon::server("udp", &["--law", "fixed", "--rate", "1mbit"]);
    let client = receive(server.port, 5, &["--capture", air.to_str().unwrap()]);
    let (told, said) = end(client);
    drop(open);
    assert_eq!((&told["level"], &told["capture"]["ours"]), (&Value::Null, &0.into()), "{said}");
    assert!(told["packets"].as_u64() > Some(10), "packets come nevertheless: {told}");
    said
}

/// A pcap file of radiotap with such records, each with the length that it claims.
fn pcap(records: &[(u32, &[u8])]) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0];
    file.extend(127u32.to_le_bytes());
    for (claimed, record) in records {
        let len = claimed.to_le_bytes();
        file.extend([&[0; 8][..], &len, &len, record].concat());
    }
    file
}

#[test]
fn a_capture_that_shows_nothing_of_ours_is_said_once() {
    let radiotap: &[u8] = &[0, 0, 8, 0, 0, 0, 0, 0];
    // Data from an access point, in the clear and encrypted.
    let clear = [radiotap, &[0x08, 0x02], &[0; 40]].concat();
    let encrypted = [radiotap, &[0x08, 0x42], &[0; 40]].concat();
    thread::scope(|scope| {
        for (record, why) in
            [(clear, "only frames of other stations"), (encrypted, "encrypted: it must be")]
        {
            scope.spawn(move || {
                let said = said_with(&pcap(&[(50, &record)]), true);
                let times = said.matches("the capture has shown none of them (1 frames").count();
                assert_eq!(times, 1, "{said}");
                assert!(said.contains(why), "{said}");
            });
        }
    });
}

#[test]
fn damaged_captures_end_with_the_reason_and_packets_go_on() {
    let garbage: Vec<u8> = (0..20_000u32).map(|at| (at * 7919 / 13) as u8).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("garbage.pcap");
    std::fs::write(&file, &garbage).unwrap();
    let words = ["wlan", "receive", "udp://127.0.0.1:9", "--capture", file.to_str().unwrap()];
    let done = Command::new(FRESHLINE).args(words).output().unwrap();
    assert_eq!(done.status.code(), Some(2), "a file that is no capture is seen at once");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("pcap"), "{said}");
    let cut = pcap(&[(50, &[0; 20])]);
    let huge = pcap(&[(u32::MAX, &[0; 20]), (50, &garbage)]);
    thread::scope(|scope| {
        for (bytes, stays_open) in [(&cut, false), (&huge, false), (&huge, true)] {
            scope.spawn(move || {
                let said = said_with(bytes, stays_open);
                let is_told =
                    said.contains("damaged or cut") && said.contains("levels are not counted");
                assert!(is_told, "{stays_open}: {said}");
            });
        }
    });
}
