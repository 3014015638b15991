//! `freshline emulate udp` as a user meets it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const DEMO_PATH: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/paths/two-slow-one-fast.toml");

/// The command towards a target to which nothing will be sent.
fn emulate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(["emulate", "udp", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"]).args(args);
    command
}

fn output(args: &[&str]) -> Output {
    emulate(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn json_is_one_document_and_nothing_else() {
    let done = output(&["--file", DEMO_PATH, "--duration", "10ms", "--json", "--seed", "7"]);
    assert_eq!(done.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["seed"], 7);
    assert_eq!(report["forward"]["hops"].as_array().unwrap().len(), 3);
    assert_eq!(report["forward"]["hops"][1]["conditions"]["rate"], "20mbit");
    assert_eq!(report["reverse"]["hops"][0]["conditions"]["delay"], "15ms");
}

#[test]
fn what_is_applied_is_said_at_the_start_and_summed_up_at_the_end() {
    let done = output(&["--hop", "rate=2mbit,delay=5ms", "--duration", "10ms", "--seed", "7"]);
    let (start, end) = (text(&done.stderr), text(&done.stdout));
    assert!(start.contains("seed 7"), "{start}");
    assert!(start.contains("forward hop 1: rate=2mbit,delay=5ms,loss=0,queue=1000p"), "{start}");
    assert!(start.contains("reverse: ideal"), "{start}");
    assert!(end.contains("forward 1") && end.contains("reverse 1"), "{end}");
}

#[test]
fn a_target_without_an_address_yet_is_waited_for_and_a_slip_is_refused() {
    let relay = |to: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
        let words = ["emulate", "udp", "--listen", "127.0.0.1:0", "--duration", "1s", "--to", to];
        command.args(words).output().unwrap()
    };
    let absent = relay("no-such-host.invalid:9");
    assert_eq!(absent.status.code(), Some(1));
    assert!(text(&absent.stderr).contains("trying again"), "{}", text(&absent.stderr));
    for slip in ["127.0.0.1", "127.0.0.1:0", ":9", "127.0.0.1:x"] {
        let refused = relay(slip);
        assert_eq!(refused.status.code(), Some(2), "{slip}");
        assert!(text(&refused.stderr).contains("HOST:PORT"), "{}", text(&refused.stderr));
    }
}

#[test]
fn a_cell_is_said_at_the_start_and_summed_up_at_the_end() {
    let cell = "standard=802.11ac,rate=mcs9,width=80MHz,queue=100p";
    let options = ["--duration", "10ms", "--max-flows", "2"];
    let done = output(&[&["--wlan", cell][..], &options].concat());
    let (start, end) = (text(&done.stderr), text(&done.stdout));
    assert!(start.contains("wlan: ") && start.contains("rate=mcs9"), "{start}");
    assert!(end.contains("station ") && end.contains("0 exchanges"), "{end}");

    let done = output(&[&["--json", "--wlan", cell][..], &options].concat());
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let cell = &report["wlan"];
    assert_eq!(cell["conditions"]["width"], "80MHz");
    // The access point and two clients.
    assert_eq!((&cell["conditions"]["stations"], &cell["exchanges"]), (&3.into(), &0.into()));
}

/// Reads the start of the report, so that all is set up for a signal.
fn started(child: &mut Child) -> String {
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut lines = String::new();
    for _ in 0..3 {
        stderr.read_line(&mut lines).unwrap();
    }
    lines
}

#[test]
fn an_interrupt_ends_it_with_the_summary() {
    let mut command = emulate(&["--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(started(&mut child).contains("forward: ideal"));
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["flows"]["opened"], 0);
}

#[test]
fn a_mistake_in_a_file_is_shown_at_its_place() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "[[forward.hop]]\nrate = \"6mbit\"\nlos = 0.1").unwrap();
    let done = output(&["--file", file.path().to_str().unwrap()]);
    let message = text(&done.stderr);
    assert_eq!(done.status.code(), Some(2));
    assert!(message.contains(":3:1") && message.contains("unknown field `los`"), "{message}");
}

#[test]
fn exit_codes_tell_misuse_from_failure() {
    for args in [
        ["--hop", "delay=10"],
        ["--hop", "loss=2"],
        ["--file", "/nonexistent/path.toml"],
        ["--wlan", "rate=mcs9"],
        ["--wlan", "speed=9"],
        ["--frames", "/nonexistent/frames.csv"],
    ] {
        let done = output(&args);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {}", text(&done.stderr));
        assert!(done.stdout.is_empty());
    }
    // An address of no machine (RFC 5737).
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    let elsewhere = ["emulate", "udp", "--listen", "192.0.2.1:0", "--to", "127.0.0.1:9"];
    assert_eq!(command.args(elsewhere).output().unwrap().status.code(), Some(1));
}

/// The line on standard error that begins so, less that.
fn said(child: &mut Child, front: &str) -> String {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find_map(|line| Some(line.strip_prefix(front)?.to_owned())).unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    said
}

#[test]
fn a_path_that_clears_marks_is_told_once_and_one_that_keeps_them_is_not() {
    for (flags, warning) in [
        (&["--dscp", "0"][..], Some("updates leave with DSCP EF and arrive with CS0")),
        (&[], None),
    ] {
        let freshline = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
            command.stderr(Stdio::piped()).stdout(Stdio::piped()).stdin(Stdio::null());
            command
        };
        let mut monitor = freshline();
        let mut monitor = Held(monitor.args(["monitor", "udp://127.0.0.1:0"]).spawn().unwrap());
        let at = said(&mut monitor.0, "listening at udp://");
        let at = at.split(';').next().unwrap();
        let mut path = freshline();
        path.args(["emulate", "udp", "--listen", "127.0.0.1:0", "--to", at]).args(flags);
        let mut path = Held(path.spawn().unwrap());
        let mut lines = BufReader::new(path.0.stderr.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let address = first.split(' ').next().unwrap();
        let url = format!("udp://{address}");
        let source = freshline()
            .args(["source", &url, "--size", "100", "--law", "fixed", "--rate", "50/s", "--json"])
            .args(["--dscp", "EF", "--ack-dscp", "CS5", "--duration", "1s"])
            .output()
            .unwrap();
        let (out, told) = (text(&source.stdout), text(&source.stderr));
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        let marks = &report["marks"];
        for (direction, sent) in [("forward", 46), ("reverse", 40)] {
            let arrives = if warning.is_some() { 0 } else { sent };
            assert_eq!(marks[direction]["received_dscp"], arrives, "{marks}");
            assert_eq!(marks[direction]["is_preserved"], warning.is_none(), "{marks}");
        }
        assert_eq!(told.matches("updates leave with DSCP").count(), warning.iter().count());
        assert!(warning.is_none_or(|warning| told.contains(warning)), "{told}");
    }
}

/// Ends with this.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
