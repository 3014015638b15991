//! `--max-age` and `--on-stale` with real processes: a source that is stopped and continues, one
//! that is killed, and states that are too old on arrival.

#[path = "common/lines.rs"]
mod lines;
#[path = "common/monitor.rs"]
mod monitor;
#[path = "common/process.rs"]
mod process;

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use lines::lines;
use monitor::{PATIENCE, freshline, monitor};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use process::Process;
use serde_json::Value;

/// The maximum age. Longer than a busy machine delays a state.
const LIMIT_MS: f64 = 2_000.0;

fn source(url: &str) -> Process {
    let words = [
        "source",
        url,
        "--name",
        "robot",
        "--law",
        "fixed",
        "--rate",
        "20/s",
        "--sample",
        "date +%s%N",
    ];
    let mut child = freshline(&words).spawn().unwrap();
    let said = lines(child.stderr.take().unwrap());
    std::thread::spawn(move || said.iter().count());
    Process(child)
}

fn signal(process: &Process, signal: Signal) {
    kill(Pid::from_raw(process.0.id().cast_signed()), signal).unwrap();
}

/// Reads until a line of which this is true; all states before it were fresh enough.
fn until(states: &Receiver<String>, is_it: impl Fn(&Value) -> bool) -> Value {
    let began_at = Instant::now();
    loop {
        assert!(began_at.elapsed() < PATIENCE, "it does not come");
        let line = states.recv_timeout(PATIENCE).expect("a line");
        let line: Value = serde_json::from_str(&line).expect("it is JSON");
        if line.get("event").is_none() {
            // The state contains its sampling time, by a clock that both processes share; a busy
            // machine may write the line late.
            let sampled: f64 = line["payload"].as_str().unwrap().trim().parse().unwrap();
            let age_ms = line["unix_ms"].as_f64().unwrap() - sampled / 1e6;
            assert!(age_ms <= LIMIT_MS + 1_000.0, "handed out at an age of {age_ms} ms: {line}");
            let bound =
                line["age_ms"].as_f64().unwrap() + line["age_uncertainty_ms"].as_f64().unwrap();
            assert!(bound <= LIMIT_MS, "{line}");
        }
        if is_it(&line) {
            return line;
        }
    }
}

fn is_event(line: &Value, event: &str) -> bool {
    line["event"] == event
}

fn is_state(line: &Value) -> bool {
    line.get("event").is_none()
}

/// The lines of a file, once there are as many.
fn ran(file: &std::path::Path, count: usize) -> Vec<String> {
    let began_at = Instant::now();
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if text.lines().count() >= count {
            return text.lines().map(str::to_owned).collect();
        }
        assert!(began_at.elapsed() < PATIENCE, "{text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_source_that_is_stopped_becomes_stale_and_hands_out_nothing_too_old_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ran");
    let socket = dir.path().join("states");
    let on_stale = format!(
        "echo $FRESHLINE_STATE $FRESHLINE_SOURCE $FRESHLINE_MAX_AGE_MS >> {}",
        file.display()
    );
    let rule = format!("rob*={LIMIT_MS}ms");
    let snapshot = socket.display().to_string();
    let flags = ["--max-age", &rule, "--on-stale", &on_stale, "--socket", &snapshot];
    let (_monitor, states, url) = monitor(&flags);
    let source = source(&url);
    until(&states, is_state);

    signal(&source, Signal::SIGSTOP);
    let stale = until(&states, |line| is_event(line, "stale"));
    assert_eq!((&stale["source"], &stale["max_age_ms"]), (&"robot".into(), &LIMIT_MS.into()));
    let age_ms = stale["age_ms"].as_f64().unwrap() + stale["age_uncertainty_ms"].as_f64().unwrap();
    assert!(age_ms >= LIMIT_MS, "{stale}");
    assert_eq!(ran(&file, 1), ["stale robot 2000.000"]);
    // A new client does not get the old state either.
    let mut text = String::new();
    let mut client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    std::io::Read::read_to_string(&mut client, &mut text).unwrap();
    let line: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&line["payload"], &line["is_fresh"]), (&Value::Null, &false.into()), "{line}");

    signal(&source, Signal::SIGCONT);
    until(&states, |line| is_event(line, "fresh"));
    until(&states, is_state);
    assert_eq!(ran(&file, 2)[1], "fresh robot 2000.000");

    // A killed source sends no goodbye.
    drop(source);
    until(&states, |line| is_event(line, "stale"));
    assert_eq!(ran(&file, 3).len(), 3);
}

#[test]
fn rules_that_cannot_be_are_refused() {
    let refused = |flags: &[&str]| {
        let words = [&["monitor", "udp://127.0.0.1:0"], flags].concat();
        let output = freshline(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&["--max-age", "robot"]).contains("write for example robot/pose=200ms"));
    assert!(refused(&["--max-age", "robot=0s"]).contains("above zero"));
    assert!(refused(&["--on-stale", "true"]).contains("--max-age"));
}
