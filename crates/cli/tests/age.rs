//! `freshline age` as a user meets it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use freshline_core::unit::{Bytes, Span, Time};
use freshline_core::wire::{Ack, Frames, SessionId, Update};
use freshline_lab::capture::{LinkType, PcapWriter};

/// An IPv4 packet from 10.0.0.1:7 to 10.0.0.2:8, or back.
fn packet(back: bool, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + transport.len()).unwrap().to_be_bytes();
    let (from, to) = if back { (2, 1) } else { (1, 2) };
    let header = [0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, protocol, 0, 0];
    [&header[..], &[10, 0, 0, from, 10, 0, 0, to], transport].concat()
}

fn ports(back: bool) -> [u8; 4] {
    if back { [0, 8, 0, 7] } else { [0, 7, 0, 8] }
}

fn tcp(back: bool, seq: u32, ack: u32, len: usize) -> Vec<u8> {
    let numbers = [seq.to_be_bytes(), ack.to_be_bytes()].concat();
    let rest = [0x50, 0x10, 0, 99, 0, 0, 0, 0];
    packet(back, 6, &[&ports(back)[..], &numbers, &rest, &vec![0; len]].concat())
}

fn udp(back: bool, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
    packet(back, 17, &[&ports(back)[..], &len, &[0, 0], payload].concat())
}

/// Ten segments and ten updates, one of each every 10 ms, acknowledged after 30 ms.
fn capture() -> Vec<u8> {
    let at = |millis: u64| Time::ZERO + Span::from_millis(millis);
    let mut packets = Vec::new();
    for number in 0..10 {
        let (sent_at, seq) = (at(10 * number), number as u32 * 100);
        let acked_at = sent_at + Span::from_millis(30);
        packets.push((sent_at, tcp(false, seq, 0, 100)));
        packets.push((acked_at, tcp(true, 0, seq + 100, 0)));
        let update = Update {
            session: SessionId(0xAB),
            seq: number,
            sent_at,
            clock_offset: None,
            wants_ack: true,
            wants_return: false,
            ack_mark: None,
            opening: None,
            frames: Frames::fresh(b"state"),
        };
        let mut bytes = [0; 100];
        let len = update.write(&mut bytes).unwrap();
        packets.push((sent_at, udp(false, &bytes[..len])));
        let ack = Ack {
            session: update.session,
            seq: number,
            sent_at,
            received_at: sent_at,
            hold: Span::ZERO,
            was_fresh: true,
            fresh: 1,
            stale: 0,
            missing: 0,
            marks: Default::default(),
            parts: None,
        };
        packets.push((acked_at, udp(true, &ack.bytes())));
    }
    packets.sort();
    let mut writer = PcapWriter::new(Vec::new(), LinkType::Raw).unwrap();
    for (at, bytes) in packets {
        writer.write(at, &bytes, Bytes::from(bytes.len())).unwrap();
    }
    writer.into_inner().unwrap()
}

/// The output of `freshline age` for a file with these bytes.
fn age(bytes: &[u8], args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.pcap");
    fs::write(&file, bytes).unwrap();
    run(&file, args)
}

fn run(file: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_freshline")).arg("age").arg(file).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn json_is_one_document_with_flows_and_sessions() {
    let done = age(&capture(), &["--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let document: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(document["error"], serde_json::Value::Null);
    assert_eq!(document["packets"]["read"], 40);
    let flow = &document["flows"][0];
    assert_eq!((&flow["from"], &flow["to"]), (&"10.0.0.1:7".into(), &"10.0.0.2:8".into()));
    assert_eq!((&flow["rtt"]["mean_ms"], &flow["age"]["mean_ms"]), (&30.0.into(), &35.0.into()));
    let session = &document["sessions"][0];
    assert_eq!(session["session"], "00000000000000ab");
    assert_eq!(session["age_at_source"]["mean_ms"], 35.0);
    assert_eq!(session["age_at_monitor"], serde_json::Value::Null, "no offset of clocks is known");
}

#[test]
fn the_table_has_a_row_a_flow_and_says_what_was_read() {
    let done = age(&capture(), &[]);
    assert_eq!(done.status.code(), Some(0));
    let out = text(&done.stdout);
    let row = out.lines().find(|line| line.starts_with("10.0.0.1:7 > 10.0.0.2:8")).unwrap();
    assert!(row.contains("30.00") && row.contains("35.00") && row.contains("40.00"), "{out}");
    assert!(out.contains("session 00000000000000ab"), "{out}");
    assert!(out.contains("40 packets in 0.120 s: 20 of TCP, 20 of sessions, 0 of other"), "{out}");
}

#[test]
fn a_cut_file_is_printed_as_far_as_it_goes_and_fails() {
    let whole = capture();
    let done = age(&whole[..whole.len() - 1], &["--json"]);
    assert_eq!(done.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(document["packets"]["read"], 39);
    assert!(document["error"].as_str().unwrap().contains("ends within packet 40"));
    assert!(text(&done.stderr).contains("ends within packet"), "{}", text(&done.stderr));
}

#[test]
fn flows_beyond_the_limit_are_counted() {
    let more = capture();
    // The same again with other ports, behind the first.
    let mut other = more[24..].to_vec();
    let mut at = 0;
    while at < other.len() {
        let len = u32::from_le_bytes(other[at + 8..at + 12].try_into().unwrap()) as usize;
        other[at + 16 + 20] = 9;
        at += 16 + len;
    }
    let done = age(&[more, other].concat(), &["--max-flows", "1"]);
    let out = text(&done.stdout);
    assert!(out.contains("10 packets belong to flows beyond --max-flows"), "{out}");
}

#[test]
fn what_is_no_capture_is_misuse_and_prints_nothing() {
    let foreign = age(b"[[forward.hop]]", &["--json"]);
    assert_eq!(foreign.status.code(), Some(2));
    assert!(foreign.stdout.is_empty());
    assert!(text(&foreign.stderr).contains("not a pcap or pcapng file"));
    let missing = run(Path::new("/nonexistent/capture.pcap"), &[]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("cannot open"));
}
