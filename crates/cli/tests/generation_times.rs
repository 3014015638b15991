//! Generation times that an application writes in front of its states, as processes over loopback:
//! the age at the monitor counts from them, and a state with an impossible time arrives
//! nevertheless.

#[path = "common/lines.rs"]
mod lines;
#[path = "common/monitor.rs"]
mod monitor;
#[path = "common/process.rs"]
mod process;

use std::io::Write;
use std::process::{Output, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime};

use monitor::{PATIENCE, freshline, monitor};
use serde_json::Value;

/// How old the states of the tests are.
const AGE: Duration = Duration::from_secs(600);

/// A time `ago` before now, and a tab.
fn stamp(ago: Duration) -> String {
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() - ago;
    format!("{}.{:09}\t", at.as_secs(), at.subsec_nanos())
}

/// A frame of `--framing u32`.
fn frame(state: &[u8]) -> Vec<u8> {
    [&(state.len() as u32).to_be_bytes()[..], state].concat()
}

/// The minimum and maximum of the possible ages, in ms, of the next line with this payload.
fn ages_of(states: &Receiver<String>, payload: &str) -> [f64; 2] {
    loop {
        let line = states.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{payload} comes"));
        let line: Value = serde_json::from_str(&line).unwrap();
        let number = |name: &str| line[name].as_f64();
        if line["payload"] != payload {
            continue;
        }
        // The first state of a session has no age until an ack has come.
        if let (Some(age), Some(error)) = (number("age_ms"), number("age_uncertainty_ms")) {
            return [age - error, age + error];
        }
    }
}

#[track_caller]
fn assert_as_old_as_its_time(states: &Receiver<String>, payload: &str) {
    let ([least, greatest], age) = (ages_of(states, payload), AGE.as_secs_f64() * 1e3);
    assert!(greatest >= age, "{payload}: {greatest}");
    assert!(least <= age + PATIENCE.as_secs_f64() * 1e3, "{payload}: {least}");
}

#[track_caller]
fn assert_as_old_as_its_reading(states: &Receiver<String>, payload: &str) {
    let [least, _] = ages_of(states, payload);
    assert!(least <= PATIENCE.as_secs_f64() * 1e3, "{payload}: {least}");
}

fn report(output: Output) -> (Value, String) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

#[test]
fn states_of_topics_keys_and_records_are_as_old_as_their_times_say() {
    let dir = tempfile::tempdir().unwrap();
    let (_monitor, states, url) = monitor(&[]);
    let at = stamp(AGE);
    let inputs = [
        ("pose,stamp=unix,latest=", format!("{at}here\n")),
        ("tf,kind=keyed,stamp=unix,latest=", format!("arm\t{at}left\tup\nbase\tno time\n")),
        ("log,kind=every,stamp=unix,records=", format!("{at}first\n0\tunset\n1\t0 again\n")),
        ("plain,latest=", "0\tno stamps\n".to_owned()),
    ];
    let topics = inputs.iter().enumerate().map(|(number, (topic, text))| {
        let path = dir.path().join(number.to_string());
        std::fs::write(&path, text).unwrap();
        format!("{topic}{}", path.display())
    });
    let topics: Vec<String> = topics.collect();
    let mut words = vec!["source", &url, "--name", "robot", "--json"];
    topics.iter().for_each(|topic| words.extend(["--topic", topic]));
    let source = freshline(&words).spawn().unwrap();
    let (lines, copies): (Vec<Receiver<String>>, _) = {
        let (senders, lines): (Vec<_>, Vec<_>) = (0..7).map(|_| std::sync::mpsc::channel()).unzip();
        (lines, senders)
    };
    // Topics arrive in any order, and each is looked for from the first line on.
    std::thread::spawn(move || {
        for line in states {
            copies.iter().for_each(|copy| _ = copy.send(line.clone()));
        }
    });
    for (lines, payload) in lines.iter().zip(["here", "left\tup", "first"]) {
        assert_as_old_as_its_time(lines, payload);
    }
    for (lines, payload) in lines[3..].iter().zip(["no time", "unset", "0 again", "0\tno stamps"]) {
        assert_as_old_as_its_reading(lines, payload);
    }
    let (report, said) = report(source.wait_with_output().unwrap());
    let invalid = report["topics"].as_array().unwrap().iter().map(|topic| &topic["invalid_stamps"]);
    assert_eq!(invalid.collect::<Vec<_>>(), [&0.into(), &1.into(), &2.into(), &Value::Null]);
    assert_eq!(said.matches("topic tf: a state has no tab").count(), 1, "{said}");
    assert_eq!(said.matches("topic log: a generation time is ").count(), 1, "{said}");
    assert!(said.contains("not since boot") && !said.contains("topic pose: a"), "{said}");
}

#[test]
fn a_state_of_a_stream_is_as_old_as_its_time_says_and_one_with_a_wrong_time_is_sent() {
    let (_monitor, states, url) = monitor(&[]);
    let words = ["source", &url, "--latest", "-", "--framing", "u32", "--stamp", "unix", "--json"];
    let mut source = freshline(&words).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = source.stdin.take().unwrap();
    let mut write = |state: &str| stdin.write_all(&frame(state.as_bytes())).unwrap();
    write(&format!("{}sampled\nearlier", stamp(AGE)));
    assert_as_old_as_its_time(&states, "sampled\nearlier");
    let millis = stamp(Duration::ZERO).replace('.', "");
    write(&format!("{millis}in ns"));
    assert_as_old_as_its_reading(&states, "in ns");
    for state in ["no\ttime", "no time", "no time again"] {
        write(state);
        assert_as_old_as_its_reading(&states, state);
    }
    // The right time goes back behind the wrong ones.
    write(&format!("{}set right", stamp(AGE)));
    assert_as_old_as_its_time(&states, "set right");
    drop(stdin);
    let (report, said) = report(source.wait_with_output().unwrap());
    assert_eq!(report["invalid_stamps"], 4, "{report}");
    for words in
        ["s in the future: write seconds since 1970, not ms or ns", "has no tab", "before the tab"]
    {
        assert_eq!(said.matches(words).count(), 1, "{words}: {said}");
    }
}

#[test]
fn times_that_cannot_be_are_refused_with_the_reason() {
    let refused = |words: &[&str]| {
        let Output { status, stderr, .. } = freshline(words).output().unwrap();
        assert_eq!(status.code(), Some(2), "{words:?}");
        let said = String::from_utf8_lossy(&stderr);
        said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
    };
    let source = ["source", "udp://127.0.0.1:9"];
    for (words, why) in [
        (&["--latest", "-", "--stamp", "ms"][..], "use `unix`"),
        (&["--read", "/proc/loadavg", "--stamp", "unix"], "--latest"),
        (&["--topic", "pose,stamp=unix,read=/proc/loadavg"], "latest=STREAM"),
    ] {
        let said = refused(&[&source, words].concat());
        assert!(said.contains(why), "{words:?}: {said}");
    }
    let topic = ["--topic", "cmd,stamp=unix,latest=-"];
    let said = refused(&[&["monitor", "udp://127.0.0.1:0"], &topic[..]].concat());
    assert!(said.contains("leave stamp out of cmd"), "{said}");
}
