//! A monitor over loopback that writes states as lines of JSON.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::lines::lines;
use crate::process::Process;

/// How long something may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn freshline(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a monitor that writes states to standard output; returns these, and the monitor's URL.
pub(crate) fn listening(command: &mut Command) -> (Process, Receiver<String>, String) {
    let mut child = command.spawn().unwrap();
    let states = lines(child.stdout.take().unwrap());
    let stderr = lines(child.stderr.take().unwrap());
    let process = Process(child);
    let url = loop {
        let line = stderr.recv_timeout(PATIENCE).expect("it listens");
        if let Some(rest) = line.strip_prefix("listening at ") {
            break rest.split(';').next().unwrap().to_owned();
        }
    };
    // The rest is read, so that the monitor never blocks on a full pipe.
    std::thread::spawn(move || stderr.iter().count());
    (process, states, url)
}

/// The same with these flags, at a free port.
pub(crate) fn monitor(flags: &[&str]) -> (Process, Receiver<String>, String) {
    listening(&mut freshline(&[&["monitor", "udp://127.0.0.1:0", "--out", "-"], flags].concat()))
}
