//! Records of a topic of kind `every`: each arrives, in order, although the source and the monitor
//! are killed and restarted.

#[path = "common/lines.rs"]
mod lines;
#[path = "common/monitor.rs"]
mod monitor;
#[path = "common/process.rs"]
mod process;

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use monitor::{PATIENCE, freshline, listening};
use process::Process;
use serde_json::Value;

/// Records of each run of the source.
const RECORDS: usize = 3_000;

fn start_monitor(url: &str, dir: &Path, flags: &[&str]) -> (Process, String) {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (out, journal) = (path("out"), path("journal"));
    let words = ["monitor", url, "--out", &out, "--journal", &journal];
    let (monitor, _, url) = listening(&mut freshline(&[&words, flags].concat()));
    (monitor, url)
}

/// A source that is given these records on its standard input.
fn start_source(url: &str, dir: &Path, records: std::ops::Range<usize>) -> Process {
    let (spool, pose) = (dir.join("spool"), dir.join("pose"));
    // A topic that ends as well, so that the source ends with the records.
    std::fs::write(&pose, "here\n").unwrap();
    let pose = format!("pose,latest={}", pose.display());
    let topics = ["--topic", &pose, "--topic", "log,kind=every,records=-"];
    let flags = ["--law", "fixed", "--rate", "100/s", "--spool", spool.to_str().unwrap()];
    let words = [&["source", url, "--name", "robot"], &topics[..], &flags[..]].concat();
    let mut source = freshline(&words).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = source.stdin.take().unwrap();
    std::thread::spawn(move || {
        for number in records {
            if writeln!(stdin, "record {number}").is_err() {
                return;
            }
        }
    });
    Process(source)
}

/// The records that the monitor has written, with their numbers.
fn written(dir: &Path) -> Vec<(u64, usize)> {
    let text = std::fs::read_to_string(dir.join("out")).unwrap_or_default();
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        let payload = line["payload"].as_str()?.strip_prefix("record ")?;
        assert_eq!((&line["source"], &line["topic"]), (&"robot".into(), &"log".into()));
        Some((line["record"].as_u64()?, payload.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began_at = Instant::now();
    while !is_so() {
        assert!(began_at.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn has_spooled(dir: &Path, number: usize) -> bool {
    let last = format!("record {number}");
    let files = std::fs::read_dir(dir.join("spool")).into_iter().flatten().flatten();
    let mut texts = files.filter_map(|file| std::fs::read(file.path()).ok());
    texts.any(|text| text.windows(last.len()).any(|part| part == last.as_bytes()))
}

#[test]
fn each_record_arrives_once_and_in_order_although_both_ends_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (monitor, url) = start_monitor("udp://127.0.0.1:0", dir, &[]);
    let source = start_source(&url, dir, 0..RECORDS);
    wait_until("records arrive", || written(dir).len() > 100);
    // Killed, both of them: a process that is dropped here gets SIGKILL.
    drop(monitor);
    wait_until("all are in the spool", || has_spooled(dir, RECORDS - 1));
    drop(source);
    let (_monitor, _) = start_monitor(&url, dir, &[]);
    let before = written(dir).len();
    assert!(before < RECORDS, "some are still to come");
    let mut source = start_source(&url, dir, RECORDS..2 * RECORDS);
    wait_until("all arrive", || written(dir).last().is_some_and(|last| last.1 == 2 * RECORDS - 1));
    let status = source.0.wait().unwrap();
    assert!(status.success(), "it ends once all are done");
    let mut all = written(dir);
    let (len, mut next) = (all.len(), 0);
    all.retain(|(number, _)| {
        *number >= next && {
            next = number + 1;
            true
        }
    });
    assert!(len - all.len() <= 256, "{} came again after the monitor was killed", len - all.len());
    assert!(all.iter().map(|record| record.1).eq(0..2 * RECORDS), "{} of {len}", all.len());
}

#[test]
fn a_command_runs_once_for_each_record_and_holds_up_the_source_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let ran = dir.join("ran");
    let exec = format!(
        "test $FRESHLINE_TOPIC = log && {{ cat >> {0}; echo \" as $FRESHLINE_RECORD\" >> {0}; }}; true",
        ran.display()
    );
    let (_monitor, url) = start_monitor("udp://127.0.0.1:0", dir, &["--exec", &exec]);
    let mut source = start_source(&url, dir, 0..40);
    assert!(source.0.wait().unwrap().success());
    let ran = std::fs::read_to_string(ran).unwrap();
    let expected: String = (0..40).map(|number| format!("record {number} as {number}\n")).collect();
    assert_eq!(ran, expected);
    assert_eq!(written(dir).len(), 40);
}

#[test]
fn what_was_read_of_a_stream_that_fails_arrives_before_the_source_ends_with_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (_monitor, url) = start_monitor("udp://127.0.0.1:0", dir, &[]);
    let words = ["source", &url, "--name", "robot", "--topic", "log,kind=every,records=-"];
    let mut source = freshline(&[&words[..], &["--law", "fixed", "--rate", "50/s"]].concat());
    let mut source = Process(source.stdin(Stdio::piped()).spawn().unwrap());
    let mut stdin = source.0.stdin.take().unwrap();
    for number in 0..500 {
        writeln!(stdin, "record {number}").unwrap();
    }
    // The record is not text.
    stdin.write_all(b"\x01\n").unwrap();
    drop(stdin);
    assert_eq!(source.0.wait().unwrap().code(), Some(1));
    assert!(written(dir).iter().map(|record| record.1).eq(0..500));
}
