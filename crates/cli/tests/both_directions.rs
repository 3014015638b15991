//! Both directions as processes over loopback: a source dials, and gets the commands of its monitor.

#[path = "common/lines.rs"]
mod lines;
#[path = "common/monitor.rs"]
mod monitor;
#[path = "common/process.rs"]
mod process;

use std::io::Write;
use std::process::Stdio;

use lines::lines;
use monitor::{PATIENCE, freshline, listening};
use process::Process;
use serde_json::Value;

#[test]
fn a_source_that_dials_gets_the_commands_of_its_monitor() {
    let mut command = freshline(&["monitor", "udp://127.0.0.1:0", "--out", "-"]);
    command.args([
        "--topic",
        "cmd,latest=-",
        "--name",
        "base",
        "--law",
        "fixed",
        "--rate",
        "100/s",
    ]);
    let (mut base, states, url) = listening(command.stdin(Stdio::piped()));
    let mut stdin = base.0.stdin.take().unwrap();
    // The second one has no state of its own.
    let words = ["source", &url, "--receive", "--name"];
    let robots = [&["robot", "--size", "20000"][..], &["listener"]].map(|more| {
        let mut robot = Process(freshline(&[&words, more].concat()).spawn().unwrap());
        let received = lines(robot.0.stdout.take().unwrap());
        (robot, received)
    });
    for number in 0..5 {
        writeln!(stdin, "go {number}").unwrap();
        for (_, received) in &robots {
            let line = received.recv_timeout(PATIENCE).expect("a command");
            let line: Value = serde_json::from_str(&line).unwrap();
            let text = |key: &str| line[key].as_str().map(str::to_owned);
            assert_eq!(text("source").as_deref(), Some("base"), "{line}");
            assert_eq!(text("topic").as_deref(), Some("cmd"), "{line}");
            assert_eq!(line["payload"], format!("go {number}"), "{line}");
        }
    }
    let state: Value = serde_json::from_str(&states.recv_timeout(PATIENCE).unwrap()).unwrap();
    assert_eq!(state["source"], "robot");
}

#[test]
fn what_cannot_be_sent_or_received_is_said() {
    for (words, said) in [
        (&["monitor", "udp://127.0.0.1:0", "--topic", "tf,kind=keyed,latest=-"][..], "kind latest"),
        (&["monitor", "udp://127.0.0.1:0", "--name", "base"], "--topic"),
        (
            &["monitor", "udp://127.0.0.1:0", "--topic", "cmd,size=8", "--name", "Control room"],
            "\"Control room\"",
        ),
        (&["source", "udp://127.0.0.1:9", "--size", "9", "--exec", "cat"], "--receive"),
        (&["source", "udp://127.0.0.1:9"], "no state to send"),
        (&["source", "udp://127.0.0.1:9", "--size", "9", "--receive", "--json"], "--out FILE"),
    ] {
        let output = freshline(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(said), "{words:?}: {stderr}");
    }
}
