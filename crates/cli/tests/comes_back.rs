//! Service resumes by itself when either end is killed and started again, ten times each, over both
//! transports. The binaries are the real ones and die by SIGKILL, without a goodbye.

#[path = "common/lines.rs"]
mod lines;
#[path = "common/process.rs"]
mod process;

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use lines::lines;
use process::Process;

/// Much longer than the maximum interval between openings (2.5 s): a loaded machine is not a
/// failure.
const PATIENCE: Duration = Duration::from_secs(20);
const RESTARTS: usize = 10;

fn freshline() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("its address").port()
}

struct Monitor {
    _process: Process,
    states: Receiver<String>,
    pin: Option<String>,
}

fn monitor(url: &str, state: &Path) -> Monitor {
    let mut command = freshline();
    command.args(["monitor", url, "--out", "-"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    if url.starts_with("quic") {
        command.arg("--state-dir").arg(state);
    }
    let mut child = command.spawn().expect("the monitor starts");
    let states = lines(child.stdout.take().expect("piped"));
    let told = lines(child.stderr.take().expect("piped"));
    let process = Process(child);
    let pin = url.starts_with("quic").then(|| {
        loop {
            let line = told.recv_timeout(PATIENCE).expect("the fingerprint");
            if let Some(pin) = line.strip_prefix("fingerprint ") {
                return pin.to_owned();
            }
        }
    });
    Monitor { _process: process, states, pin }
}

fn source(url: &str, pin: Option<&str>) -> Process {
    let mut command = freshline();
    command.args(["source", url, "--size", "32", "--name", "s", "--max-rate", "50/s"]);
    if let Some(pin) = pin {
        command.args(["--pin", pin]);
    }
    Process(command.spawn().expect("the source starts"))
}

/// Both sides in turn are killed and started again.
fn comes_back(scheme: &str) {
    let state = tempfile::tempdir().expect("a directory");
    let url = format!("{scheme}://127.0.0.1:{}", free_port());
    let mut waits = Vec::new();

    let mut there = monitor(&url, state.path());
    let pin = there.pin.clone();
    let mut here = source(&url, pin.as_deref());
    there.states.recv_timeout(PATIENCE).expect("the first state");
    for round in 0..RESTARTS {
        drop(there);
        there = monitor(&url, state.path());
        let back_at = Instant::now();
        assert_eq!(there.pin, pin, "a restart keeps its certificate");
        let state = there.states.recv_timeout(PATIENCE);
        state.unwrap_or_else(|_| panic!("no state after restart {round} of the monitor"));
        waits.push(back_at.elapsed());
    }
    println!("{scheme}: the monitor's restarts were bridged in {waits:.1?}");
    waits.clear();
    for round in 0..RESTARTS {
        drop(here);
        while there.states.try_recv().is_ok() {}
        here = source(&url, pin.as_deref());
        let back_at = Instant::now();
        let state = there.states.recv_timeout(PATIENCE);
        state.unwrap_or_else(|_| panic!("no state after restart {round} of the source"));
        waits.push(back_at.elapsed());
    }
    println!("{scheme}: the source's restarts were bridged in {waits:.1?}");
}

#[test]
fn service_resumes_over_udp() {
    comes_back("udp");
}

#[test]
fn service_resumes_over_quic() {
    comes_back("quic");
}
