//! `freshline source` within its limits, to `freshline monitor` over loopback: a path on which only
//! the limits bound a law's rate.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn freshline(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command
}

/// A monitor that ends with the test, and where it listens.
struct Monitor {
    process: Child,
    address: String,
}

impl Monitor {
    fn start() -> Self {
        let mut monitor = freshline("monitor udp://127.0.0.1:0 --duration 60s");
        let mut process = monitor.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let line = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("udp://")));
        let line = line.expect("it prints its address").unwrap();
        let (_, address) = line.split_once("udp://").unwrap();
        let address = address.split(';').next().unwrap().trim().to_owned();
        // Its pipe must not fill up, nor be closed.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address }
    }

    /// A source's final report.
    fn hear(&self, words: &str) -> Value {
        let words = format!("source udp://{} --json {words}", self.address);
        let Output { status, stdout, stderr } = freshline(&words).output().unwrap();
        assert!(status.success(), "{words}: {}", String::from_utf8_lossy(&stderr));
        serde_json::from_slice(&stdout).unwrap()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn number(report: &Value, key: &str) -> f64 {
    report[key].as_f64().unwrap_or_else(|| panic!("{key} in {report}"))
}

#[test]
fn more_than_is_worth_it_is_not_sent_unless_asked_for() {
    let monitor = Monitor::start();
    for law in ["acp+d", "acp+", "acp", "tenth", "lazy"] {
        let report = monitor.hear(&format!("--size 50B --law {law} --duration 500ms"));
        let most = 1.0 + 1_000.0 * number(&report, "duration_s");
        assert!(number(&report, "sent") <= most, "{report}");
    }
    let report = monitor.hear("--size 50B --law lazy --min-age-gain 50ms --duration 1s");
    assert!(number(&report, "sent") <= 1.0 + 10.0 * number(&report, "duration_s"), "{report}");
    assert_eq!(report["limited_by"], "min_age_gain", "{report}");
    let report = monitor.hear("--size 50B --law lazy --min-age-gain 0 --duration 500ms");
    assert_ne!(report["limited_by"], "min_age_gain", "{report}");
}

#[test]
fn all_packets_count_for_the_bandwidth_from_the_first_one_on() {
    let monitor = Monitor::start();
    let report = monitor.hear("--size 400B --law lazy --max-bandwidth 20kbit --duration 1s");
    let earned = 2_500.0 * number(&report, "duration_s");
    // The burst is 3000 bytes; an update, and the goodbye, come on top.
    assert!(number(&report, "wire_bytes") <= earned + 3_000.0 + 500.0 + 100.0, "{report}");
    assert_eq!(report["limited_by"], "max_bandwidth", "{report}");
}

#[test]
fn a_file_that_does_not_change_is_sent_at_keep_alives_alone() {
    let monitor = Monitor::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state");
    fs::write(&file, "shut").unwrap();
    let report = monitor
        .hear(&format!("--read {} --on-change --keep-alive 200ms --duration 1s", file.display()));
    let (sent, unchanged) = (number(&report, "sent"), number(&report, "unchanged"));
    assert!(unchanged > 0.0 && number(&report, "updates_per_s") < 500.0, "{report}");
    assert!(sent >= 3.0, "{report}");
}

#[test]
fn limits_that_cannot_be_kept_are_refused_with_the_reason() {
    for (words, why) in [
        ("--max-bandwidth 100bit", "is too low to keep a session open; give at least 1kbit"),
        ("--max-bandwidth 200", "it has no unit; write for example `200mbit`"),
        ("--law fixed --rate 5/s --min-age-gain 1ms", "not to --law fixed"),
        ("--min-age-gain 5", "it has no unit; write for example `5s`"),
        ("--on-change --keep-alive 0s", "--keep-alive must be above zero"),
    ] {
        let words = format!("source udp://127.0.0.1:9 --size 1B {words}");
        let Output { status, stderr, .. } = freshline(&words).output().unwrap();
        let said = String::from_utf8_lossy(&stderr);
        let said =
            said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
        assert_eq!(status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(why), "{words}: {said}");
    }
}
