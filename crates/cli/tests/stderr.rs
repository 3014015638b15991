//! Standard error without a reader, or with one that is gone, neither ends nor blocks a program.

use std::io::{Write, pipe};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Runs a monitor that prints lines at its start, each second and at its end.
fn monitor(stderr: impl Into<Stdio>) -> ExitStatus {
    let mut monitor = Command::new(env!("CARGO_BIN_EXE_freshline"))
        .args(["monitor", "udp://127.0.0.1:0", "--duration", "1500ms"])
        .stderr(stderr)
        .spawn()
        .expect("it starts");
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = monitor.try_wait().expect("it can be waited for") {
            return status;
        }
        if Instant::now() > give_up {
            monitor.kill().expect("it can be ended");
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_reader_that_is_gone_does_not_end_the_program() {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    assert!(monitor(writer).success());
}

#[test]
fn a_reader_that_does_not_read_does_not_stop_the_program() {
    let (_reader, writer) = pipe().expect("a pipe");
    fill(writer.try_clone().expect("a second end"));
    assert!(monitor(writer).success());
}

/// Writes until the pipe is full.
fn fill(mut writer: std::io::PipeWriter) {
    // The default capacity of a pipe on Linux: 64 KiB, in pages.
    writer.write_all(&vec![b'x'; 65_536]).expect("it fits");
}
