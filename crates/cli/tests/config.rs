//! Flags from a file: one file serves a monitor and a source, the command line takes precedence,
//! and mistakes are named.

#[path = "common/lines.rs"]
mod lines;
#[path = "common/monitor.rs"]
mod monitor;
#[path = "common/process.rs"]
mod process;

use std::path::Path;
use std::process::Command;

use monitor::{PATIENCE, freshline, listening};
use serde_json::Value;

fn with_file(command: &str, file: &Path, words: &[&str]) -> Command {
    let mut freshline = freshline(&[command, "--config"]);
    freshline.arg(file).args(words);
    freshline
}

#[test]
fn one_file_serves_a_monitor_and_a_source() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("freshline.toml");
    std::fs::write(&file, "[monitor]\nlisten = 'udp://127.0.0.1:0'\nout = '-'\n").unwrap();
    let (_monitor, states, url) = listening(&mut with_file("monitor", &file, &[]));
    let source = format!(
        "[source]\nurl = '{url}'\nname = 'of-the-file'\nlaw = 'fixed'\nrate = '50/s'\njson = true\n\
         duration = '1s'\n[[source.topic]]\nname = 'pose'\nsize = 40\n[[source.topic]]\n\
         sample = 'echo a,b'\nname = 'said'\nweight = 2.5\nmax-rate = '5/s'\n"
    );
    std::fs::write(&file, source).unwrap();
    let done = with_file("source", &file, &["--name", "robot"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(report["topics"].as_array().is_some_and(|topics| topics.len() == 2), "{report}");
    let mut topics = std::collections::BTreeSet::new();
    while topics.len() < 2 {
        let line = states.recv_timeout(PATIENCE).expect("both topics arrive");
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["source"], "robot", "the command line wins");
        topics.insert(line["topic"].as_str().unwrap_or_default().to_owned());
    }
    assert!(topics.contains("said") && topics.contains("pose"), "{topics:?}");
}

#[test]
fn what_is_wrong_with_a_file_ends_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("freshline.toml");
    let refused = |text: Option<&str>| {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let done = with_file("source", &file, &[]).output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{text:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    assert!(refused(None).contains("cannot be read"));
    assert!(refused(Some("[source]\ncolour = 'red'\n")).contains("colour"));
    assert!(refused(Some("[source]\nurl = 'udp://127.0.0.1:9'\n")).contains("--topic"));
    let rate = "[source]\nurl = 'udp://127.0.0.1:9'\nsize = 9\nlaw = 'fixed'\nrate = 'fast'\n";
    assert!(refused(Some(rate)).contains("--rate"));
}
