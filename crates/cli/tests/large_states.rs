//! States of any length from a source to a monitor, as processes over loopback: they arrive whole, over both
//! transports and through losses.

#[path = "common/lines.rs"]
mod lines;
#[path = "common/process.rs"]
mod process;

use std::io::{BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use freshline_net::framing::Framing;
use lines::lines;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use process::Process;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

/// The maximum length of a state that either end accepts by default.
const MAX: usize = 8 << 20;

fn freshline(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(words.split_whitespace()).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for a line with this beginning; returns the rest.
fn says(said: &Receiver<String>, start: &str) -> String {
    loop {
        let line = said.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it prints {start}"));
        if let Some(rest) = line.strip_prefix(start) {
            return rest.to_owned();
        }
    }
}

/// A monitor that writes states as binary frames.
struct Monitor {
    _process: Process,
    frames: BufReader<ChildStdout>,
    /// Its URL, and the flags by which a source trusts it.
    url: String,
    _state: tempfile::TempDir,
}

impl Monitor {
    fn start(scheme: &str, flags: &str) -> Self {
        let state = tempfile::tempdir().unwrap();
        let mut command = freshline(&format!("monitor {scheme}://127.0.0.1:0 --out - {flags}"));
        command.args(["--out-format", "u32"]);
        if scheme == "quic" {
            command.arg("--state-dir").arg(state.path());
        }
        let mut child = command.spawn().unwrap();
        let frames = BufReader::new(child.stdout.take().unwrap());
        let said = lines(child.stderr.take().unwrap());
        let process = Process(child);
        let mut url = says(&said, "listening at ").split(';').next().unwrap().to_owned();
        if scheme == "quic" {
            url = format!("{url} --pin {}", says(&said, "fingerprint "));
        }
        // The rest of its output is read, so that it never blocks on a full pipe.
        std::thread::spawn(move || said.iter().count());
        Self { _process: process, frames, url, _state: state }
    }

    /// The next state that it writes.
    fn next(&mut self) -> Vec<u8> {
        Framing::U32.read(&mut self.frames, MAX).unwrap().expect("a state")
    }
}

/// A source of the frames that are written to it.
struct Source {
    process: Process,
    states: ChildStdin,
}

impl Source {
    fn start(url: &str, flags: &str) -> Self {
        let words = format!("source {url} --name camera --latest - --framing u32 --json {flags}");
        let mut child = freshline(&words).stderr(Stdio::null()).spawn().unwrap();
        let states = child.stdin.take().unwrap();
        Self { process: Process(child), states }
    }

    fn put(&mut self, state: &[u8]) {
        self.states.write_all(&(state.len() as u32).to_be_bytes()).unwrap();
        self.states.write_all(state).unwrap();
    }

    /// Its report, after the end of its states.
    fn report(self) -> Value {
        let Self { mut process, states } = self;
        drop(states);
        let out = process.0.stdout.take().unwrap();
        serde_json::from_reader(out).expect("a report")
    }
}

/// The printed text with its wrapped lines joined again: lines are wrapped at spaces, and after hyphens.
fn unwrapped(printed: &[u8]) -> String {
    String::from_utf8_lossy(printed).replace("-\n  │ ", "-").replace("\n  │ ", " ")
}

/// A state of this length, whose bytes depend on the number and their place.
fn state(number: u64, len: usize) -> Vec<u8> {
    let mut word = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word.to_le_bytes()
    };
    let mut state: Vec<u8> = std::iter::repeat_with(next).take(len.div_ceil(8)).flatten().collect();
    state.truncate(len);
    state
}

/// Puts states one after the other, each when the one before has been written, and checks that the same
/// bytes are written.
fn arrive(monitor: &mut Monitor, source: &mut Source, lens: &[usize]) {
    for (number, len) in (0..).zip(lens) {
        let put = state(number, *len);
        source.put(&put);
        let written = monitor.next();
        assert!(written == put, "state {number} of {len} bytes: {} bytes differ", written.len());
    }
}

fn count(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key} in {report}"))
}

#[test]
fn states_up_to_the_limit_arrive_whole_over_both_transports() {
    for scheme in ["udp", "quic"] {
        let mut monitor = Monitor::start(scheme, "");
        let mut source = Source::start(&monitor.url, "--law fixed --rate 5000/s");
        arrive(&mut monitor, &mut source, &[100, 100_000, MAX, 0, 5_000]);
        let report = source.report();
        assert_eq!(count(&report, "large_states"), 3, "{scheme}: {report}");
        assert_eq!(count(&report, "abandoned_states"), 0, "{scheme}: {report}");
        let parts = count(&report, "parts");
        assert!(parts > MAX as u64 / 1_452, "{scheme}: {report}");
        eprintln!("{scheme}: {parts} parts, {} for repair", count(&report, "repair_parts"));
    }
}

#[test]
fn states_arrive_whole_through_losses() {
    let mut monitor = Monitor::start("udp", "");
    let to = monitor.url.strip_prefix("udp://").unwrap();
    let hop = "rate=100mbit,delay=2ms,loss=0.05,queue=1000p";
    let words = format!("emulate udp --listen 127.0.0.1:0 --to {to} --hop {hop} --seed 7");
    let mut path = freshline(&words).spawn().unwrap();
    let said = lines(path.stderr.take().unwrap());
    let _path = Process(path);
    let first = said.recv_timeout(PATIENCE).expect("it prints where it listens");
    let url = format!("udp://{}", first.split(' ').next().unwrap());
    let mut source = Source::start(&url, "--law fixed --rate 1000/s");
    arrive(&mut monitor, &mut source, &[100_000; 5]);
    let report = source.report();
    assert_eq!(count(&report, "large_states"), 5, "{report}");
    assert!(count(&report, "repair_parts") > 0, "losses are repaired: {report}");
}

#[test]
fn a_state_that_newer_ones_replace_is_never_torn() {
    let mut monitor = Monitor::start("udp", "");
    let mut source = Source::start(&monitor.url, "--law fixed --rate 2000/s");
    let put = |number| state(number, 50_000 + 1_000 * number as usize);
    for number in 0..200 {
        source.put(&put(number));
        std::thread::sleep(Duration::from_millis(5));
    }
    let (mut last, mut written) = (None, 0);
    while last != Some(199) {
        let arrived = monitor.next();
        let number = (arrived.len() as u64 - 50_000) / 1_000;
        assert!(arrived == put(number), "state {number} is torn");
        assert!(last < Some(number), "state {number} after {last:?}");
        (last, written) = (Some(number), written + 1);
    }
    assert!(written > 3, "{written} states");
}

#[test]
fn a_state_beyond_the_limit_is_reported_with_the_flag_that_helps() {
    let monitor = Monitor::start("udp", "");
    let url = &monitor.url;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("state");
    std::fs::write(&file, state(0, 20_001)).unwrap();
    let flags = "--max-state 20000B --duration 2s";
    for what in ["--read", "--sample"] {
        let path = file.display();
        let given = if what == "--read" { format!("{path}") } else { format!("cat {path}") };
        let words = format!("source {url} {flags} {what}");
        let done = freshline(&words).arg(given).output().unwrap();
        let said = unwrapped(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{what}: {said}");
        assert!(said.contains("longer than the limit of 20000 bytes"), "{what}: {said}");
        assert!(said.contains("--max-state"), "{what}: {said}");
    }
    let said = |words: &str, stdin: &[u8]| {
        let mut child = freshline(&format!("source {url} {words}")).spawn().unwrap();
        // It may have ended already.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        let done = child.wait_with_output().unwrap();
        (done.status.code(), unwrapped(&done.stderr))
    };
    for framing in ["lines", "null", "u32"] {
        let words = format!("{flags} --latest - --framing {framing}");
        let (code, said) = said(&words, &[b'x'; 30_000]);
        assert_eq!(code, Some(1), "{framing}: {said}");
        assert!(said.contains("20000") && said.contains("(--max-state)"), "{framing}: {said}");
    }
    let (code, said) = said("--size 9MiB", b"");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--max-state"), "{said}");
}

#[test]
fn a_line_of_a_large_state_has_its_length_and_a_command_gets_it_all() {
    let directory = tempfile::tempdir().unwrap();
    let (out, sum) = (directory.path().join("out"), directory.path().join("sum"));
    let socket = directory.path().join("socket");
    let mut command = freshline("monitor udp://127.0.0.1:0 --json");
    command.arg("--socket").arg(&socket);
    command.args(["--exec", &format!("cat > {}; mv {0} {}", out.display(), sum.display())]);
    let mut child = command.spawn().unwrap();
    let said = lines(child.stderr.take().unwrap());
    let mut monitor = Process(child);
    let url = says(&said, "listening at ").split(';').next().unwrap().to_owned();
    let mut source = Source::start(&url, "--law fixed --rate 5000/s");
    let put = state(1, MAX);
    source.put(&put);
    let end = std::time::Instant::now() + PATIENCE;
    while !sum.exists() {
        assert!(std::time::Instant::now() < end, "the command gets no state");
        // Before it is complete, nothing is shown of it.
        let line = snapshot(&socket);
        assert!(line.is_none_or(|line| line["payload"].is_null()), "an empty state is shown");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(std::fs::read(&sum).unwrap() == put, "the command gets other bytes");
    let line = snapshot(&socket).expect("the source");
    assert_eq!((&line["payload"], &line["payload_bytes"]), (&Value::Null, &MAX.into()));
    drop(source);
    kill(Pid::from_raw(monitor.0.id() as i32), Signal::SIGTERM).unwrap();
    let report: Value = serde_json::from_reader(monitor.0.stdout.take().unwrap()).unwrap();
    let sources = [&report["sources"], &report["ended"]];
    let sources: Vec<_> = sources.iter().flat_map(|all| all.as_array().unwrap()).collect();
    assert_eq!(sources[0]["payload_bytes"], MAX, "{report}");
    assert!(report.to_string().len() < 10_000, "no payload is printed");
}

/// The first line of a snapshot, if there is a source.
fn snapshot(socket: &std::path::Path) -> Option<Value> {
    let stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    serde_json::Deserializer::from_reader(stream).into_iter().next().transpose().unwrap()
}
