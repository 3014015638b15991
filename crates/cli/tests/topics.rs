//! Several topics of one source, as processes over loopback: each arrives under its name, at its own rate.

#[path = "common/lines.rs"]
mod lines;
#[path = "common/process.rs"]
mod process;

use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use lines::lines;
use process::Process;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

fn freshline(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn refused(words: &[&str]) -> String {
    let url = ["source", "udp://127.0.0.1:9"];
    let Output { status, stderr, .. } = freshline(&[&url, words].concat()).output().unwrap();
    assert_eq!(status.code(), Some(2), "{words:?}");
    String::from_utf8_lossy(&stderr).into_owned()
}

#[test]
fn each_topic_arrives_under_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("battery");
    std::fs::write(&file, "87 %").unwrap();
    let ran = dir.path().join("ran");
    let exec = format!("echo $FRESHLINE_SOURCE/$FRESHLINE_TOPIC >> {}", ran.display());
    let monitor = ["monitor", "udp://127.0.0.1:0", "--out", "-", "--exec", &exec];
    let mut monitor = freshline(&monitor).spawn().unwrap();
    let states = lines(monitor.stdout.take().unwrap());
    let said = lines(monitor.stderr.take().unwrap());
    let _monitor = Process(monitor);
    let url = loop {
        let line = said.recv_timeout(PATIENCE).expect("it listens");
        if let Some(rest) = line.strip_prefix("listening at ") {
            break rest.split(';').next().unwrap().to_owned();
        }
    };
    let battery = format!("battery,max-rate=2/s,read={}", file.display());
    let topics = [
        "--topic",
        "pose,weight=10,size=40",
        "--topic",
        "map,size=20000",
        "--topic",
        &battery,
        "--topic",
        "said,sample=echo a,b",
    ];
    let flags = ["--law", "fixed", "--rate", "200/s", "--duration", "3s", "--json"];
    let words = [&["source", &url, "--name", "robot"], &topics[..], &flags[..]].concat();
    let source = freshline(&words).output().unwrap();
    assert!(source.status.success(), "{}", String::from_utf8_lossy(&source.stderr));
    let report: Value = serde_json::from_slice(&source.stdout).unwrap();

    let mut seen = BTreeMap::<String, Vec<Value>>::new();
    while let Ok(line) = states.recv_timeout(Duration::from_secs(1)) {
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["source"], "robot");
        seen.entry(line["topic"].as_str().unwrap_or("none").to_owned()).or_default().push(line);
    }
    let names: Vec<&str> = seen.keys().map(String::as_str).collect();
    assert_eq!(names, ["battery", "map", "pose", "said"]);
    assert!(seen["battery"].iter().all(|line| line["payload"] == "87 %"));
    assert!((2..=8).contains(&seen["battery"].len()), "{}", seen["battery"].len());
    assert!(seen["said"].iter().all(|line| line["payload"] == "a,b\n"));
    assert!(seen["map"].iter().all(|line| line["payload_base64"].as_str().unwrap().len() > 26_000));
    assert!(seen["pose"].len() > seen["map"].len(), "{} {}", seen["pose"].len(), seen["map"].len());
    for topic in report["topics"].as_array().unwrap() {
        assert!(topic["delivered"].as_u64().unwrap() > 0, "{topic}");
        assert!(topic["age_mean_ms"].as_f64().unwrap() < 2_000.0, "{topic}");
    }
    let ran = std::fs::read_to_string(ran).unwrap();
    for name in names {
        assert!(ran.lines().any(|line| line == format!("robot/{name}")), "{name}: {ran}");
    }
}

#[test]
fn topics_that_cannot_be_are_refused_with_the_reason() {
    assert!(refused(&["--topic", "pose"]).contains("read=FILE"));
    assert!(refused(&["--topic", "pose,weight=0,size=9"]).contains("weight"));
    assert!(refused(&["--topic", "a,size=9", "--topic", "a,size=9"]).contains("two topics"));
    assert!(refused(&["--topic", "a,read=/nowhere/a"]).contains("/nowhere/a"));
    let twice = ["--topic", "a,latest=-", "--topic", "b,latest=-"];
    assert!(refused(&twice).contains("standard input"));
    assert!(refused(&["--topic", "a,size=9", "--read", "/proc/loadavg"]).contains("--read"));
    assert!(refused(&["--read", "/proc/loadavg", "--framing", "u32"]).contains("--latest"));
}
