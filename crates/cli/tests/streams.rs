//! States through standard input and output: binary frames stay whole from one stream to the other,
//! and subscribers get each state as it arrives.

#[path = "common/lines.rs"]
mod lines;
#[path = "common/process.rs"]
mod process;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use freshline_net::framing::Framing;
use lines::lines;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use process::Process;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

fn terminate(process: &Process) {
    kill(Pid::from_raw(process.0.id() as i32), Signal::SIGTERM).unwrap();
}

fn freshline(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(words.split_whitespace()).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A monitor, and the URL at which it listens.
fn monitor(flags: &str) -> (Process, String) {
    let mut child = freshline(&format!("monitor udp://127.0.0.1:0 {flags}")).spawn().unwrap();
    let said = lines(child.stderr.take().unwrap());
    let monitor = Process(child);
    loop {
        let line = said.recv_timeout(PATIENCE).expect("it prints its address");
        if let Some(url) = line.strip_prefix("listening at ") {
            let url = url.split(';').next().unwrap().to_owned();
            // The rest of its output is read, so that it never blocks on a full pipe.
            std::thread::spawn(move || said.iter().count());
            return (monitor, url);
        }
    }
}

/// A source of the newest state of its standard input.
fn source(url: &str, flags: &str) -> (Process, ChildStdin) {
    let words = format!("source {url} --name robot --latest - {flags} --law fixed --rate 100/s");
    let mut command = freshline(&words);
    let mut child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let states = child.stdin.take().unwrap();
    (Process(child), states)
}

fn frame(framing: Framing, state: &[u8]) -> Vec<u8> {
    match framing {
        Framing::U32 => [&(state.len() as u32).to_be_bytes()[..], state].concat(),
        // No state here has more than 254 bytes between two zeroes.
        Framing::Cobs => {
            let pieces = state.split(|byte| *byte == 0);
            let mut frame: Vec<u8> =
                pieces.flat_map(|piece| [&[piece.len() as u8 + 1], piece].concat()).collect();
            frame.push(0);
            frame
        }
        Framing::Lines | Framing::Null => unreachable!("no binary frames"),
    }
}

#[test]
fn binary_states_stay_whole_from_stream_to_stream() {
    for (name, framing) in [("u32", Framing::U32), ("cobs", Framing::Cobs)] {
        let (mut monitor, url) = monitor(&format!("--out - --out-format {name}"));
        let mut out = BufReader::new(monitor.0.stdout.take().unwrap());
        let (_source, mut states) = source(&url, &format!("--framing {name}"));
        for state in [&b"\x0a\x00\xff\x00\x0d"[..], b"", b"\x00", b"text\n"] {
            states.write_all(&frame(framing, state)).unwrap();
            let read = framing.read(&mut out, 1 << 16).unwrap();
            assert_eq!(read.as_deref(), Some(state), "{name}");
        }
        terminate(&monitor);
        assert_eq!(
            framing.read(&mut out, 1 << 16).unwrap(),
            None,
            "{name}: it ends with a whole frame"
        );
    }
}

/// The next line with a payload other than `before`: a state may come again as its age becomes known.
fn payload_after(reader: &mut impl BufRead, before: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "it ends after {before}");
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["source"], "robot");
        let payload = line["payload"].as_str().unwrap().to_owned();
        if payload != before {
            return payload;
        }
    }
}

fn subscribe(path: &Path) -> BufReader<UnixStream> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(stream)
}

#[test]
fn subscribers_get_the_newest_state_at_once_and_each_that_follows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("states");
    let (monitor, url) = monitor(&format!("--subscribe {}", path.display()));
    let mut early = subscribe(&path);
    let (_source, mut states) = source(&url, "");
    states.write_all(b"one\n").unwrap();
    assert_eq!(payload_after(&mut early, ""), "one");
    // A client that only reads may close its other half.
    let mut late = subscribe(&path);
    late.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(payload_after(&mut late, ""), "one", "the state that is there");
    // One that never reads delays no other.
    let _idle = subscribe(&path);
    for (before, state) in [("one", "two"), ("two", "three")] {
        states.write_all(format!("{state}\n").as_bytes()).unwrap();
        for reader in [&mut early, &mut late] {
            assert_eq!(payload_after(reader, before), state);
        }
    }
    terminate(&monitor);
    let mut rest = String::new();
    early.read_to_string(&mut rest).unwrap();
    assert!(rest.is_empty() || rest.ends_with("}\n"), "{rest}");
    drop(late);
    for _ in 0..200 {
        if !path.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the socket's file is left");
}

#[test]
fn a_slow_subscriber_is_not_far_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("states");
    let (_monitor, url) = monitor(&format!("--subscribe {}", path.display()));
    let (_source, mut states) = source(&url, "");
    states.write_all(b"0\n").unwrap();
    let (mut slow, mut fast) = (subscribe(&path), subscribe(&path));
    let mut before = "0".to_owned();
    for state in 1..=400 {
        states.write_all(format!("{state}\n").as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    while before != "400" {
        before = payload_after(&mut fast, &before);
    }
    // It begins to read now: first a few states in flight, then the newest.
    let mut read = 0;
    let mut before = String::new();
    while before != "400" {
        before = payload_after(&mut slow, &before);
        read += 1;
    }
    assert!(read < 100, "{read} states of which all but one are old");
}

#[test]
fn frames_without_ends_do_not_follow_others_in_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "torn").unwrap();
    let flags =
        format!("monitor udp://127.0.0.1:0 --out-format u32 --out {}", file.path().display());
    let done = freshline(&flags).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    let said: Vec<_> = said.split_whitespace().filter(|word| *word != "│").collect();
    assert_eq!(done.status.code(), Some(2), "{said:?}");
    assert!(said.join(" ").contains("choose a new file, or COBS"), "{said:?}");
}
