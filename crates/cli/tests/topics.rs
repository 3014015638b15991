//! Several topics of one source, as processes over loopback: each arrives under its name, at its own rate.

#[path = "common/lines.rs"]
mod lines;
#[path = "common/monitor.rs"]
mod monitor;
#[path = "common/process.rs"]
mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Output, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use lines::lines;
use monitor::{PATIENCE, freshline, monitor};
use process::Process;
use serde_json::Value;

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
    let (_monitor, states, url) = monitor(&["--exec", &exec]);
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

/// The data on a source's law and paths that a page shows.
#[test]
fn a_source_sends_the_state_of_its_law_and_of_its_paths() {
    let (_monitor, states, url) = monitor(&[]);
    let words = ["source", &url, "--name", "robot", "--topic", "pose,size=40", "--via", "lo"];
    let flags = ["--status", "200ms", "--law", "fixed", "--rate", "50/s", "--duration", "2s"];
    let source = freshline(&[&words[..], &flags].concat()).output().unwrap();
    assert!(source.status.success(), "{}", String::from_utf8_lossy(&source.stderr));
    let mut told = Vec::new();
    while let Ok(line) = states.recv_timeout(Duration::from_secs(1)) {
        let line: Value = serde_json::from_str(&line).unwrap();
        if line["topic"] == "freshline.status" {
            told.push(serde_json::from_str::<Value>(line["payload"].as_str().unwrap()).unwrap());
        }
    }
    assert!((3..=11).contains(&told.len()), "{}", told.len());
    let last = told.last().unwrap();
    assert_eq!((&last["law"], &last["phase"]), (&"fixed".into(), &"steering".into()), "{last}");
    assert_eq!(last["rate"], 50.0, "{last}");
    assert!(last["srtt_ms"].as_f64().unwrap() > 0.0, "{last}");
    assert!(last["sent"].as_u64() > told[0]["sent"].as_u64(), "{told:?}");
    assert_eq!(
        (&last["paths"][0]["via"], &last["paths"][0]["state"]),
        (&"lo".into(), &"live".into())
    );

    let without = refused(&["--size", "10B", "--status", "1s"]);
    assert!(without.contains("--topic"), "{without}");
    let often = refused(&["--topic", "pose,size=10B", "--status", "1ms"]);
    assert!(often.contains("at least 100 ms"), "{often}");
}

#[test]
fn a_topic_that_ends_or_fails_does_not_end_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (ends, binary) = (dir.path().join("ends"), dir.path().join("binary"));
    std::fs::write(&ends, "the only line\n").unwrap();
    std::fs::write(&binary, b"\x00\xff\n").unwrap();
    let count = dir.path().join("count");
    let (_monitor, states, url) = monitor(&[]);
    let topics = [
        format!("ends,latest={}", ends.display()),
        format!("binary,latest={}", binary.display()),
        format!("fails,sample=echo >> {}; false", count.display()),
        "made,size=40".to_owned(),
    ];
    let mut words = vec!["source", &url, "--name", "robot", "--law", "fixed", "--rate", "100/s"];
    topics.iter().for_each(|topic| words.extend(["--topic", topic]));
    words.extend(["--duration", "3s"]);
    let source = freshline(&words).output().unwrap();
    let said = String::from_utf8_lossy(&source.stderr);
    assert!(source.status.success(), "{said}");
    for words in ["topic ends has ended", "topic binary: "] {
        assert_eq!(said.matches(words).count(), 1, "{words}: {said}");
    }
    // It is tried once in a second, though other topics have states in between.
    let runs = std::fs::read_to_string(count).unwrap().lines().count();
    assert!((1..=5).contains(&runs), "{runs}");
    let mut seen = BTreeMap::<String, u64>::new();
    while let Ok(line) = states.recv_timeout(Duration::from_secs(1)) {
        let line: Value = serde_json::from_str(&line).unwrap();
        *seen.entry(line["topic"].as_str().unwrap_or("none").to_owned()).or_default() += 1;
    }
    assert!(seen["ends"] >= 1 && seen["made"] > 100, "{seen:?}");
}

/// The next line of which this holds.
fn line_with(lines: &Receiver<String>, is_it: impl Fn(&Value) -> bool) -> Value {
    loop {
        let line = lines.recv_timeout(PATIENCE).expect("it arrives");
        let line: Value = serde_json::from_str(&line).unwrap();
        if is_it(&line) {
            return line;
        }
    }
}

/// Three keys of a topic, as they come: they share a datagram, in whatever order.
fn first_keys(states: &Receiver<String>) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    while keys.len() < 3 {
        let line = line_with(states, |line| line["topic"] == "tf");
        keys.insert(line["key"].as_str().unwrap().to_owned());
    }
    keys
}

#[test]
fn keys_of_a_topic_arrive_can_be_removed_and_are_there_at_once_for_a_late_subscriber() {
    let dir = tempfile::tempdir().unwrap();
    let (ran, socket) = (dir.path().join("ran"), dir.path().join("socket"));
    let words = "$FRESHLINE_TOPIC/$FRESHLINE_KEY$FRESHLINE_REMOVED";
    let exec = format!("echo {words} >> {}", ran.display());
    let flags = ["--exec", &exec, "--subscribe", socket.to_str().unwrap()];
    let (_monitor, states, url) = monitor(&flags);
    let topics = ["--topic", "pose,size=40", "--topic", "tf,kind=keyed,latest=-"];
    let flags = ["--law", "fixed", "--rate", "100/s", "--json"];
    let words = [&["source", &url, "--name", "robot"], &topics[..], &flags[..]].concat();
    let mut child = freshline(&words).stdin(Stdio::piped()).spawn().unwrap();
    let mut stream = child.stdin.take().unwrap();
    let mut source = Process(child);
    stream.write_all(b"base\tat 0\narm\tleft\tup\ngr\xc3\xbcn\\\tx\n").unwrap();
    let is_key =
        |key: &'static str| move |line: &Value| line["topic"] == "tf" && line["key"] == key;
    assert_eq!(first_keys(&states).len(), 3);

    let connect = || {
        let reader = UnixStream::connect(&socket).unwrap();
        (reader.try_clone().unwrap(), lines(reader))
    };
    let (mut reader, seen) = connect();
    let snapshot = line_with(&seen, |line| line["topics"].is_array());
    assert_eq!(snapshot["topics"].as_array().unwrap().len(), 4, "{snapshot}");
    let held = [(); 3].map(|()| {
        let line = line_with(&seen, |line| line["key"].is_string());
        [&line["key"], &line["payload"]].map(|field| field.as_str().unwrap().to_owned())
    });
    let expected = [["arm", "left\tup"], ["base", "at 0"], ["gr\u{fc}n\\x5c", "x"]];
    assert_eq!(BTreeSet::from(held), BTreeSet::from(expected.map(|pair| pair.map(str::to_owned))));
    stream.write_all(b"arm\nbase\tat 1\n").unwrap();
    assert_eq!(line_with(&seen, is_key("arm"))["removed"], true);
    line_with(&states, |line| line["key"] == "arm" && line["removed"] == true);
    // It asks for some of them: it gets these as they are, and no others from then on.
    assert_eq!(line_with(&seen, is_key("base"))["payload"], "at 1");
    reader.write_all(b"rob*\ttf\tb*\n").unwrap();
    line_with(&seen, |line| line["subscribed"]["key"] == "b*");
    stream.write_all(b"other\tx\nbase\tat 2\n").unwrap();
    for state in ["at 1", "at 2"] {
        let line: Value = serde_json::from_str(&seen.recv_timeout(PATIENCE).unwrap()).unwrap();
        assert_eq!((&line["key"], &line["payload"]), (&"base".into(), &state.into()), "{line}");
    }
    // The state of the first topic is in the line of its source.
    reader.write_all(b"\tpose\n").unwrap();
    line_with(&seen, |line| line["subscribed"]["topic"] == "pose");
    let line: Value = serde_json::from_str(&seen.recv_timeout(PATIENCE).unwrap()).unwrap();
    assert!(line["topic"] == "pose" && line["topics"].is_array(), "{line}");
    let (_late, seen) = connect();
    let keys = [(); 3].map(|()| line_with(&seen, |line| line["key"].is_string())["key"].clone());
    assert!(keys.iter().all(|key| *key != "arm"), "{keys:?}");

    stream.write_all(b"\tno key\n").unwrap();
    line_with(&states, is_key("other"));
    std::thread::sleep(Duration::from_millis(500));
    let pid = nix::unistd::Pid::from_raw(source.0.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let (mut report, mut said) = (String::new(), String::new());
    source.0.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    source.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("topic tf: a key of 0 bytes"), "{said}");
    let report: Value = serde_json::from_str(&report).unwrap();
    let tf = &report["topics"][1];
    assert_eq!((tf["keys"].as_array().unwrap().len(), &tf["removed"]), (3, &1.into()), "{tf}");
    let ran = std::fs::read_to_string(ran).unwrap();
    for line in ["tf/base", "tf/arm1", "pose/"] {
        assert!(ran.lines().any(|ran| ran == line), "{line}: {ran}");
    }
}

#[test]
fn topics_that_cannot_be_are_refused_with_the_reason() {
    assert!(refused(&["--topic", "pose"]).contains("read=FILE"));
    assert!(refused(&["--topic", "pose,weight=0,size=9"]).contains("weight"));
    assert!(refused(&["--topic", "a,size=9", "--topic", "a,size=9"]).contains("two topics"));
    assert!(refused(&["--topic", "a,read=/nowhere/a"]).contains("/nowhere/a"));
    assert!(refused(&["--topic", "tf,kind=keyed,size=9"]).contains("latest=STREAM"));
    let many = ["--topic", "a,kind=keyed,max-keys=4095,latest=-", "--topic", "b,size=9"];
    assert!(refused(&many).contains("4097 topics and keys"));
    let twice = ["--topic", "a,latest=-", "--topic", "b,latest=-"];
    assert!(refused(&twice).contains("standard input"));
    assert!(refused(&["--topic", "a,size=9", "--read", "/proc/loadavg"]).contains("--read"));
    assert!(refused(&["--read", "/proc/loadavg", "--framing", "u32"]).contains("--latest"));
}

#[test]
fn an_urgent_state_does_not_wait_for_the_laws_next_time() {
    let (_monitor, states, url) = monitor(&[]);
    let topics = ["--topic", "pose,size=40", "--topic", "stop,urgent,latest=-"];
    let law = ["--law", "fixed", "--rate", "0.05/s"];
    let mut source = freshline(&[&["source", &url], &topics[..], &law[..]].concat());
    let mut source = source.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = source.stdin.take().unwrap();
    let _source = Process(source);
    let next = || {
        let line = states.recv_timeout(PATIENCE).expect("a state arrives");
        serde_json::from_str::<Value>(&line).unwrap()["topic"].as_str().map(str::to_owned)
    };
    // The opening may leave twice, and brings no state.
    assert_eq!(next().as_deref(), Some("pose"));
    // The next pose is due 20 s later.
    for number in 0..3 {
        writeln!(stdin, "stop {number}").unwrap();
        assert_eq!(next().as_deref(), Some("stop"), "stop {number}");
    }
}
