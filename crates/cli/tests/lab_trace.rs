//! `freshline lab trace` as a user meets it, and its traces under real packets.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn freshline(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(args);
    command
}

fn trace(args: &[&str]) -> Output {
    freshline(&["lab", "trace"]).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_same_options_give_the_same_bytes_and_another_seed_others() {
    for model in ["cellular", "leo"] {
        let written = |seed: &str| {
            let done = trace(&["--model", model, "--duration", "10s", "--seed", seed]);
            assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
            let summary = text(&done.stderr);
            let words = format!("{model}, seed {seed}, stream 0: 10s, ");
            assert!(summary.starts_with(&words), "{summary}");
            text(&done.stdout)
        };
        let first = written("7");
        assert!(first.lines().count() > 100 && first.ends_with("\n10000\n"), "{first}");
        assert_eq!(first, written("7"));
        assert_ne!(first, written("8"));
    }
}

#[test]
fn the_bytes_of_a_seed_do_not_change_from_version_to_version() {
    let written = |options: &str| {
        let done = trace(&options.split(' ').collect::<Vec<_>>());
        text(&done.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let cellular = written("--model cellular --duration 2s --seed 7");
    assert_eq!(
        (&cellular[..3], cellular.len()),
        (&["1245", "1247", "1247"].map(Into::into)[..], 130)
    );
    let leo = written("--model leo --duration 2s --seed 7 --phase 1s");
    let head = ["0 delay=15.085381ms", "2", "4"].map(Into::into);
    assert_eq!((&leo[..3], leo.len()), (&head[..], 1623));
}

#[test]
fn a_trace_goes_to_the_file_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leo.trace");
    let name = file.to_str().unwrap();
    let options = ["--model", "leo", "--duration", "1s", "--mean-rate", "1mbit"];
    let done = trace(&[&options[..], &["--out", name]].concat());
    assert_eq!((done.status.code(), done.stdout.len()), (Some(0), 0), "{}", text(&done.stderr));
    assert_eq!(fs::read(&file).unwrap(), trace(&options).stdout);
}

#[test]
fn bad_options_and_failures_have_exit_codes_and_messages_of_their_own() {
    for (args, code, message) in [
        (&["--model", "geo"][..], 2, "cellular, leo"),
        (&[], 2, "--model"),
        (&["--model", "leo", "--duration", "5"], 2, "it has no unit"),
        (&["--model", "leo", "--noise", "1mbit"], 2, "--noise is an option of --model cellular"),
        (&["--model", "cellular", "--slot", "1s"], 2, "--slot is an option of --model leo; leave"),
        (&["--model", "leo", "--altitude", "550"], 2, "model leo: `altitude` is 550; give metres"),
        (
            &["--model", "cellular", "--tick", "0s"],
            2,
            "model cellular: `tick` is 0ns; give at least",
        ),
        (
            &["--model", "leo", "--duration", "1s", "--out", "/nonexistent/a.trace"],
            1,
            "cannot write /nonexistent/a.trace",
        ),
    ] {
        let done = trace(args);
        let said = text(&done.stderr);
        let words: Vec<_> = said.split_whitespace().filter(|word| *word != "│").collect();
        assert_eq!(done.status.code(), Some(code), "{args:?}: {said}");
        assert!(words.join(" ").contains(message), "{args:?}: {said}");
        assert!(done.stdout.is_empty());
    }
}

/// A process that is killed when this is dropped.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A relay to `target` over this path, with its address.
fn relay(target: &UdpSocket, path: &str) -> (Held, String) {
    let to = target.local_addr().unwrap().to_string();
    let relay = ["emulate", "udp", "--listen", "127.0.0.1:0", "--to", &to, "--file", path];
    let mut relay = Held(freshline(&relay).stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(relay.0.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let address = first.split(' ').next().unwrap().to_owned();
    thread::spawn(move || lines.for_each(drop));
    (relay, address)
}

/// One-way delays in ms of datagrams sent every 5 ms, in the order of sending, without lost ones.
/// Fails if one overtakes another.
fn delays(target: &UdpSocket, relay: &str, count: u32) -> Vec<f64> {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    target.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..count {
                let sent = u32::try_from(start.elapsed().as_micros()).unwrap();
                let datagram = [number.to_be_bytes(), sent.to_be_bytes()].concat();
                client.send_to(&datagram, relay).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        let (mut buffer, mut newest, mut found) = ([0; 8], None, Vec::new());
        while newest != Some(count - 1) {
            let Ok(length) = target.recv(&mut buffer) else { break };
            let now = start.elapsed().as_secs_f64() * 1e3;
            let word = |at: usize| u32::from_be_bytes(buffer[at..at + 4].try_into().unwrap());
            assert_eq!(length, 8);
            assert!(newest < Some(word(0)), "{} came behind {newest:?}", word(0));
            newest = Some(word(0));
            found.push(now - f64::from(word(4)) / 1e3);
        }
        found
    })
}

#[test]
#[ignore = "long: measures delays in real time"]
fn real_packets_meet_the_delay_steps_of_a_generated_trace() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // A satellite each 500 ms, for 4 s; 8 opportunities each ms.
    let options = "--model leo --duration 4s --slot 500ms --phase 0ms --ground-min 2ms --ground-max \
                   120ms --wobble 0ms --outage-probability 0 --mean-rate 96mbit --seed 5";
    let options: Vec<_> = options.split_whitespace().collect();
    let done = trace(&[&options[..], &["--out", &file("leo.trace")]].concat());
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    fs::write(file("path.toml"), "[[forward.hop]]\ntrace = \"leo.trace\"\n").unwrap();

    let generated = fs::read_to_string(file("leo.trace")).unwrap();
    let delay = |line: &str| line.split_once("delay=").map(|(_, delay)| delay.to_owned());
    let levels = generated.lines().filter_map(delay).map(|delay| {
        let delay: freshline_core::unit::Span = delay.parse().unwrap();
        delay.as_millis_f64()
    });
    let (min, max) = levels.fold((f64::INFINITY, 0.0), |(min, max), level| {
        (f64::min(min, level), f64::max(max, level))
    });
    assert!(max > min + 60.0, "seed 5 has {min} to {max} ms");

    let target = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (_relay, address) = relay(&target, &file("path.toml"));
    let found = delays(&target, &address, 900);
    assert!(found.len() > 850, "{} of 900 arrived", found.len());
    assert!(found.iter().all(|delay| *delay > min - 0.1), "one came before {min} ms: {found:?}");
    // Windows of 250 ms: a machine under load makes packets late, but hardly all of a window.
    let lowest = |window: &[f64]| window.iter().copied().fold(f64::INFINITY, f64::min);
    let windows: Vec<f64> = found.chunks(50).map(lowest).collect();
    let slowest = windows.iter().copied().fold(0.0, f64::max);
    assert!(lowest(&windows) < min + 25.0, "never as fast as {min} ms: {windows:.1?}");
    assert!(slowest > max - 1.0, "never as slow as {max} ms: {windows:.1?}");
}

#[test]
fn a_path_file_names_a_model_itself_and_reports_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("path.toml");
    let target = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = target.local_addr().unwrap().to_string();
    let run = |hop: &str| {
        fs::write(&file, format!("[[forward.hop]]\n{hop}\n")).unwrap();
        let relay =
            ["emulate", "udp", "--listen", "127.0.0.1:0", "--to", &to, "--duration", "10ms"];
        freshline(&relay).args(["--json", "--file"]).arg(&file).output().unwrap()
    };
    let done = run(r#"trace = { model = "cellular", duration = "5s", mean_rate = "2mbit" }"#);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("trace=cellular,"), "{}", text(&done.stderr));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let named = &report["forward"]["hops"][0]["conditions"]["trace"];
    assert_eq!((&named["model"], &named["mean_rate"]), (&"cellular".into(), &"2mbit".into()));

    for (hop, message) in [
        (r#"trace = { model = "leo", slot = "9ms" }"#, "`slot` is 9ms; give at least `interval`"),
        (r#"trace = { model = "leo", colour = 3 }"#, "unknown field `colour`"),
    ] {
        let done = run(hop);
        assert_eq!(done.status.code(), Some(2), "{hop}: {}", text(&done.stderr));
        assert!(text(&done.stderr).contains(message), "{hop}: {}", text(&done.stderr));
    }
}
