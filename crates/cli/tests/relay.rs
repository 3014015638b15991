//! Chains of relays, as processes over loopback: each has a clock of its own, as on several hosts.

#[path = "common/lines.rs"]
mod lines;
#[path = "common/process.rs"]
mod process;

use std::io::Write;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lines::lines;
use process::Process;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

fn freshline(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Starts a command, and returns its standard error.
fn start(command: &mut Command) -> (Process, Receiver<String>) {
    let mut child = command.spawn().unwrap();
    let said = lines(child.stderr.take().unwrap());
    (Process(child), said)
}

/// The rest of a line that begins so.
fn says(said: &Receiver<String>, start: &str) -> String {
    let mut all = Vec::new();
    loop {
        let line = said.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {start}: {all:#?}"));
        if let Some(rest) = line.strip_prefix(start) {
            // The rest of its output is read, so that it never blocks on a full pipe.
            return rest.to_owned();
        }
        all.push(line);
    }
}

/// A monitor or a relay that listens, and its address.
struct Listening {
    process: Process,
    address: String,
    said: Receiver<String>,
}

impl Listening {
    fn start(command: &mut Command) -> Self {
        let (process, said) = start(command);
        let line = says(&said, "listening at ");
        let address = line.split(';').next().unwrap().split_once("://").unwrap().1.to_owned();
        Self { process, address, said }
    }

    fn relay(url: &str, to: &str, flags: &str) -> Self {
        Self::start(&mut freshline(&format!("relay {url} {to} --law fixed --rate 50/s {flags}")))
    }
}

/// A path to an address, of this delay in either direction.
fn path(to: &str, delay: &str) -> (Process, String) {
    let words = format!("emulate udp --listen 127.0.0.1:0 --to {to} --hop delay={delay}");
    let (process, said) = start(&mut freshline(&format!("{words} --reverse-hop delay={delay}")));
    let line = said.recv_timeout(PATIENCE).expect("it prints its address");
    (process, line.split(" -> ").next().unwrap().to_owned())
}

/// A monitor that prints states as lines of JSON.
fn monitor(at: &str) -> (Listening, Receiver<String>) {
    let mut command = freshline(&format!("monitor udp://{at} --out -"));
    let mut monitor = Listening::start(command.stdout(Stdio::piped()));
    let states = lines(monitor.process.0.stdout.take().unwrap());
    (monitor, states)
}

/// The next state whose age is known.
fn next(states: &Receiver<String>) -> Value {
    loop {
        let line = states.recv_timeout(PATIENCE).expect("a state arrives");
        let state: Value = serde_json::from_str(&line).unwrap();
        if state["age_ms"].is_number() {
            return state;
        }
    }
}

/// A source of the lines that are written to it.
fn source(address: &str) -> (Process, ChildStdin) {
    let words = format!("source udp://{address} --name robot --latest - --law fixed --rate 50/s");
    let mut child = freshline(&words).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let states = child.stdin.take().unwrap();
    (Process(child), states)
}

fn unix_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1e3
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A relay's certificate directory with a token, and the flags of either side.
fn credentials(folder: &Path) -> [String; 2] {
    let file = folder.join("token");
    let mut command = freshline("token new");
    command.arg(&file).args(["--name", "robot"]).stdout(Stdio::piped());
    let line = command.output().unwrap().stdout;
    let accepted = folder.join("credentials");
    std::fs::write(&accepted, line).unwrap();
    let listens = format!("--state-dir {} --credentials {}", folder.display(), accepted.display());
    [listens, format!("--to-token-file {}", file.display())]
}

#[test]
fn after_three_hops_the_age_is_that_of_the_whole_chain() {
    const DELAYS: [&str; 3] = ["100ms", "150ms", "200ms"];
    const SUM_MS: f64 = 450.0;
    let folder = tempfile::tempdir().unwrap();
    let [listens, shows] = credentials(folder.path());
    let (end, states) = monitor("127.0.0.1:0");
    let (_third, to) = path(&end.address, DELAYS[2]);
    let second = Listening::relay("quic://127.0.0.1:0", &format!("udp://{to}"), &listens);
    let pin = says(&second.said, "fingerprint ");
    let (_second, to) = path(&second.address, DELAYS[1]);
    let flags = format!("--pin {pin} {shows}");
    let first = Listening::relay("udp://127.0.0.1:0", &format!("quic://{to}"), &flags);
    let (_first, to) = path(&first.address, DELAYS[0]);
    let (_source, mut stamps) = source(&to);
    std::thread::spawn(move || {
        // Until the source has ended.
        while writeln!(stamps, "{}", unix_ms()).is_ok() {
            std::thread::sleep(Duration::from_millis(30));
        }
    });
    // On a busy machine both directions of a hop are late by different times, and the estimates of clock
    // offsets with them: a later window is better, with round trips that had less of this.
    let is_true = |window| {
        let (shown, truth) = ages(&states);
        println!("{window}: {shown:.1} ms shown, {truth:.1} ms in truth, {SUM_MS} ms of delays");
        // The stamp in a line is in whole ms.
        assert!(truth > SUM_MS - 1.0, "{truth}");
        (shown - truth).abs() < 0.05 * truth
    };
    assert!((1..=5).any(is_true), "the ages are not true");
}

/// The median of the ages of the next 100 states as they are shown, and in truth, in ms.
fn ages(states: &Receiver<String>) -> (f64, f64) {
    let (mut shown, mut true_ages) = (Vec::new(), Vec::new());
    while shown.len() < 100 {
        let state = next(states);
        assert_eq!(state["source"], "robot");
        let sampled: f64 = state["payload"].as_str().unwrap().parse().unwrap();
        shown.push(state["age_ms"].as_f64().unwrap());
        true_ages.push(state["unix_ms"].as_f64().unwrap() - sampled);
    }
    (median(&mut shown), median(&mut true_ages))
}

#[test]
fn a_monitor_that_was_killed_gets_the_newest_state_though_there_is_no_newer_one() {
    let at = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let relay = Listening::relay("udp://127.0.0.1:0", &format!("udp://{at}"), "");
    let (_source, mut stream) = source(&relay.address);
    writeln!(stream, "the only state").unwrap();
    let mut last_age = 0.0;
    for _ in 0..3 {
        let (_monitor, states) = monitor(&at);
        let state = next(&states);
        assert_eq!(state["payload"], "the only state");
        let age = state["age_ms"].as_f64().unwrap();
        assert!(age > last_age, "its age goes on: {age} ms after {last_age} ms");
        last_age = age;
    }
}

#[test]
fn a_source_that_was_killed_and_returns_with_other_topics_has_these_at_the_end_of_a_chain() {
    let (end, states) = monitor("127.0.0.1:0");
    let second = Listening::relay("udp://127.0.0.1:0", &format!("udp://{}", end.address), "");
    let first = Listening::relay("udp://127.0.0.1:0", &format!("udp://{}", second.address), "");
    for ((flags, input), topic, key) in [
        (("--latest -", "plain\n"), Value::Null, Value::Null),
        (("--topic pose,latest=-", "here\n"), "pose".into(), Value::Null),
        (("--topic pose,kind=keyed,latest=-", "left\there\n"), "pose".into(), "left".into()),
        (("--topic pose,kind=every,records=-", "a record\n"), "pose".into(), Value::Null),
        (("--latest -", "plain again\n"), Value::Null, Value::Null),
    ] {
        let words = format!("source udp://{} --name robot {flags} --law fixed", first.address);
        let mut command = freshline(&format!("{words} --rate 50/s"));
        let mut source = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        source.stdin.as_mut().unwrap().write_all(input.as_bytes()).unwrap();
        // Killed at the end of this turn; the next one takes its name over.
        let _source = Process(source);
        loop {
            let state = next(&states);
            if (&state["topic"], &state["key"]) == (&topic, &key) {
                break;
            }
        }
    }
}

/// The next records are these lines, in this order and each once.
fn gets(records: &Receiver<String>, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let line = records.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {number}"));
        let record: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(record["payload"], number.to_string(), "{line}");
        assert_eq!((&record["source"], &record["topic"]), (&"robot".into(), &"log".into()));
    }
}

#[test]
fn each_record_is_at_each_destination_once_and_in_order_whichever_relay_is_killed() {
    let free = || UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let [first_at, second_at, late_at] = [free(), free(), free()];
    let (end, at_end) = monitor("127.0.0.1:0");
    let first = || {
        let to = format!("udp://{second_at} udp://{late_at}");
        Listening::relay(&format!("udp://{first_at}"), &to, "")
    };
    let to_end = format!("udp://{}", end.address);
    let second = || Listening::relay(&format!("udp://{second_at}"), &to_end, "");
    let (one, other) = (first(), second());
    let words = format!("source udp://{first_at} --name robot --topic log,kind=every,records=-");
    let mut source = freshline(&format!("{words} --law fixed --rate 50/s"));
    let mut source = source.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut log = source.stdin.take().unwrap();
    let mut source = Process(source);
    let mut write = |numbers| {
        let lines: String = std::ops::Range::map(numbers, |it: u32| format!("{it}\n")).collect();
        log.write_all(lines.as_bytes()).unwrap();
    };
    write(0..300);
    gets(&at_end, 0..300);
    drop(one);
    let _one = first();
    write(300..600);
    let (_late, at_late) = monitor(&late_at);
    gets(&at_end, 300..600);
    gets(&at_late, 0..600);
    drop(other);
    write(600..900);
    let _other = second();
    gets(&at_end, 600..900);
    gets(&at_late, 600..900);
    // The source ends once both monitors are known to have each of its records.
    drop(log);
    assert!(source.0.wait().unwrap().success());
}

#[test]
fn what_cannot_be_a_relay_is_refused_with_a_reason() {
    let pin = format!("--pin sha256:{}", "00".repeat(32));
    for (words, why) in [
        ("udp://127.0.0.1:0", "<DESTINATION>"),
        ("udp://127.0.0.1:4999 udp://127.0.0.1:4999", "itself"),
        ("udp://127.0.0.1:0 udp://127.0.0.1:9 udp://127.0.0.1:9", "twice"),
        ("udp://127.0.0.1:0 http://127.0.0.1:9", "neither udp nor quic"),
        ("udp://127.0.0.1:0 udp://127.0.0.1", "udp:// needs a port"),
        ("udp://127.0.0.1:0 quic://127.0.0.1:9", "needs a certificate to trust"),
        (&format!("udp://127.0.0.1:0 udp://127.0.0.1:9 {pin}"), "--ca need a destination"),
        ("udp://127.0.0.1:0 udp://127.0.0.1:9 --max-payload 1GiB", "65536 parts"),
        ("udp://127.0.0.1:0 udp://127.0.0.1:9 --keep-alive 0s", "above zero"),
        ("udp://127.0.0.1:0 udp://127.0.0.1:9 --rate 5/s", "belong together"),
        ("udp://0.0.0.0:0 udp://127.0.0.1:9", "--insecure"),
        (&format!("udp://127.0.0.1:0 quic://127.0.0.1:0 {pin}"), "nothing can listen at"),
    ] {
        let done = freshline(&format!("relay {words} --duration 1s")).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        let said =
            said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
        assert_eq!(done.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(why), "{words}: {said}");
    }
}
