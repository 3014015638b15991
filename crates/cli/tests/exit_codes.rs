//! Exit codes show whether anything has arrived: a session without any answer is a failure.

#[path = "common/process.rs"]
mod process;

use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;

use process::Process;

fn freshline(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(args).stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A socket that answers nothing, and its address.
fn silent() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("its address").to_string();
    (socket, address)
}

/// Runs a command until it has printed one of these on standard error, and interrupts it then;
/// returns its exit code and its text. A busy machine may take its time.
fn run_until(args: &[&str], signs: &[&str]) -> (Option<i32>, String) {
    let child = freshline(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut process = Process(child.expect("it runs"));
    let said = BufReader::new(process.0.stderr.take().expect("piped"));
    let mut all = String::new();
    let mut is_seen = false;
    for line in said.lines().map_while(Result::ok) {
        all.push_str(&line);
        all.push('\n');
        if !is_seen && signs.iter().any(|sign| line.contains(sign)) {
            is_seen = true;
            let id = process.0.id().to_string();
            let sent = Command::new("kill").args(["-INT", &id]).status().expect("kill");
            assert!(sent.success(), "{args:?} has ended: {all}");
        }
    }
    (process.0.wait().expect("it ends").code(), all)
}

/// Runs a source, which must end with 1 and print a reason with one of these words.
fn fails(args: &[&str], reasons: &[&str]) {
    let (code, said) = run_until(&[args, &["--duration", "30s"]].concat(), reasons);
    assert_eq!(code, Some(1), "{args:?}: {said}");
    let last = said.split("no update was acknowledged").nth(1);
    // Lines are wrapped where the terminal ends.
    let last = last.unwrap_or_default().replace("\n  │ ", " ");
    assert!(reasons.iter().any(|why| last.contains(why)), "{args:?}: {said}");
}

#[test]
fn a_source_that_nothing_answers_fails_and_says_why() {
    let (_socket, silent) = silent();
    let url = format!("udp://{silent}");
    fails(&["source", &url, "--size", "32"], &["no answer"]);
    fails(&["source", &url, "--sample", "exit 3"], &["failed with"]);
    let long = ["source", &url, "--sample", "head -c 99 /dev/zero", "--max-state", "50B"];
    fails(&long, &["longer than the limit"]);
    // The name is looked up for as long as the resolver takes: it does not end with 2 any more.
    let unknown = ["source", "udp://no-such-host.invalid:9", "--size", "32"];
    fails(&unknown, &["cannot find the address of", "no path to the monitor"]);
    let receive = ["wlan", "receive", &url, "--mcs-rate", "100mbit", "--duration", "300ms"];
    let done = freshline(&receive).output().expect("it runs");
    assert_eq!(done.status.code(), Some(1), "{}", text(&done));
    assert!(text(&done).contains("no packet came"), "{}", text(&done));
}

#[test]
fn a_source_waits_for_a_network_that_is_down() {
    // A namespace without any interface that is up.
    let mut command = Command::new("unshare");
    command.args(["--net", env!("CARGO_BIN_EXE_freshline"), "source", "udp://192.0.2.1:9"]);
    let done = command.args(["--size", "32", "--duration", "3s"]).output().expect("unshare");
    let said = text(&done);
    if said.contains("unshare") {
        println!("skipped: needs root");
        return;
    }
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("no update was acknowledged") && said.contains("unreachable"), "{said}");
    assert_eq!(said.matches("trying again").count(), 1, "it is printed once: {said}");
}

#[test]
fn binary_input_is_refused_unless_it_is_framed() {
    let (_socket, silent) = silent();
    let run = |duration: &str, framing: &[&str], input: &[u8]| {
        let url = format!("udp://{silent}");
        let mut command = freshline(&["source", &url, "--latest", "-", "--duration", duration]);
        let mut child = command
            .args(framing)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        child.stdin.take().expect("piped").write_all(input).expect("written");
        let done = child.wait_with_output().expect("it ends");
        (done.status.code(), text(&done))
    };
    let (code, said) = run("30s", &[], b"\x00\x01\x0a\x02\x03");
    assert!(code == Some(1) && said.contains("--framing u32"), "{said}");
    let (code, said) = run("300ms", &["--framing", "u32"], b"\x00\x00\x00\x02\x00\x0a");
    assert!(code == Some(1) && said.contains("no update was acknowledged"), "{said}");
    assert_eq!(run("300ms", &["--framing", "u16"], b"").0, Some(2));
}

#[test]
fn a_pin_decides_between_success_and_failure() {
    let state = tempfile::tempdir().expect("a directory");
    let url = format!("quic://{}", silent().1);
    let mut monitor = freshline(&["monitor", &url, "--out", "/dev/null", "--state-dir"]);
    let monitor = monitor.arg(state.path()).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut monitor = monitor.spawn().expect("the monitor starts");
    let said = BufReader::new(monitor.stderr.take().expect("piped"));
    let _monitor = Process(monitor);
    let (sender, pins) = channel();
    std::thread::spawn(move || {
        for line in said.lines().map_while(Result::ok) {
            if let Some(pin) = line.strip_prefix("fingerprint ") {
                let _ = sender.send(pin.to_owned());
            }
        }
    });
    let pin = pins.recv().expect("it prints its fingerprint");
    let wrong = format!("sha256:{}", "00".repeat(32));
    let source = ["source", &url, "--size", "32", "--pin"];
    fails(&[&source[..], &[&wrong]].concat(), &["handshake broken off"]);
    let (code, said) =
        run_until(&[&source[..], &[&pin, "--duration", "30s"]].concat(), &[" is open"]);
    assert_eq!(code, Some(0), "{said}");
}
