//! Records of a stream by `freshline source`, as far as they are visible without a monitor: the
//! writer is blocked, nothing is lost over a restart, and the source's final report lists the
//! records that have not arrived.

#[path = "common/lines.rs"]
mod lines;
#[path = "common/monitor.rs"]
mod monitor;
#[path = "common/process.rs"]
mod process;

use std::io::{ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ChildStdin, Output, Stdio};
use std::time::Duration;

use monitor::{PATIENCE, freshline};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use process::Process;
use serde_json::Value;

/// A buffer for 16 lines of 64 bytes.
const BUFFER: &str = "log,kind=every,buffer=2KiB,records=-";

fn refused(words: &[&str]) -> String {
    let url = ["source", "udp://127.0.0.1:9"];
    let Output { status, stderr, .. } = freshline(&[&url, words].concat()).output().unwrap();
    assert_eq!(status.code(), Some(2), "{words:?}");
    let said = String::from_utf8_lossy(&stderr);
    said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

#[test]
fn what_does_not_go_together_is_refused_with_what_to_write() {
    let dir = tempfile::tempdir().unwrap();
    for (topic, why) in [
        ("log,kind=every,latest=-", "log,kind=every,records=-"),
        ("log,kind=every,read=/proc/loadavg", "log,kind=every,records=-"),
        ("log,kind=every,sample=date", "log,kind=every,records=-"),
        ("log,kind=every,size=9", "log,kind=every,records=-"),
        ("log,records=-", "log,kind=every,records=-"),
        ("log,kind=every,deadline=1s,records=-", "a deadline is for states"),
        ("log,kind=every,buffer=9B,records=-", "at least 1024"),
        ("log,kind=every,records=/nowhere/log", "/nowhere/log"),
    ] {
        assert!(refused(&["--topic", topic]).contains(why), "{topic}");
    }
    let twice = ["--topic", "a,kind=every,records=-", "--topic", "b,latest=-"];
    assert!(refused(&twice).contains("standard input"));
    let path = dir.path().to_str().unwrap();
    let without = ["--topic", "a,size=9", "--spool", path];
    assert!(refused(&without).contains("log,kind=every,records=-"));
    std::fs::write(dir.path().join("log.spool"), "a log of another program, in the same folder")
        .unwrap();
    assert!(refused(&["--topic", BUFFER, "--spool", path]).contains("log.spool is not a spool"));
}

/// A source of records to a monitor that does not answer, and its standard input.
fn source(monitor: &UdpSocket, flags: &[&str]) -> (Process, ChildStdin) {
    let url = format!("udp://{}", monitor.local_addr().unwrap());
    let words = [&["source", &url, "--name", "robot", "--topic", BUFFER, "--json"], flags].concat();
    let mut source = freshline(&words).stdin(Stdio::piped()).spawn().unwrap();
    let stdin = source.stdin.take().unwrap();
    (Process(source), stdin)
}

/// Ends it; returns its report, and its text on standard error.
fn ended(mut source: Process, signal: Signal) -> (Value, String) {
    kill(Pid::from_raw(source.0.id().cast_signed()), signal).unwrap();
    let (mut report, mut said) = (String::new(), String::new());
    source.0.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    source.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let _ = source.0.wait();
    (serde_json::from_str(&report).unwrap_or_default(), said)
}

/// Waits until this holds.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..PATIENCE.as_millis() / 20 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what}");
}

/// The length of a topic's spool.
fn spooled(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("log.spool")).map_or(0, |file| file.len())
}

#[test]
fn the_writer_is_held_up_by_a_full_buffer_and_the_end_says_what_is_lost() {
    let monitor = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (source, mut stdin) = source(&monitor, &[]);
    let flags = OFlag::from_bits_retain(fcntl(&stdin, FcntlArg::F_GETFL).unwrap());
    fcntl(&stdin, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).unwrap();
    // Much more than the buffer, one record, the bytes that are read ahead, and the pipe.
    let lines = [&[b'x'; 63][..], b"\n"].concat().repeat(64);
    let mut written = 0;
    loop {
        match stdin.write(&lines) {
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut pipe = [PollFd::new(stdin.as_fd(), PollFlags::POLLOUT)];
                if poll(&mut pipe, 1_000u16).unwrap() == 0 {
                    break;
                }
            }
            Err(error) => panic!("{error}"),
        }
        assert!(written < 1 << 20, "it reads on without an end");
    }
    let (report, said) = ended(source, Signal::SIGINT);
    let records = &report["topics"][0]["records"];
    assert_eq!((&records["put"], &records["done"]), (&16.into(), &0.into()), "{report}");
    assert_eq!((&records["waiting"], &records["buffer_bytes"]), (&16.into(), &2032.into()));
    assert!(said.contains("topic log: 16 records"), "{said}");
    assert!(said.contains("they are lost (see --spool)"), "{said}");
}

#[test]
fn a_record_that_is_too_long_is_reported_and_counted_and_the_next_one_is_read() {
    let monitor = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (source, mut stdin) = source(&monitor, &["--spool", dir.path().to_str().unwrap()]);
    stdin.write_all(&[&[b'x'; 70_000][..], b"\nnext\n"].concat()).unwrap();
    eventually("the next one is in the spool", || spooled(dir.path()) == 44 + 24);
    std::thread::sleep(Duration::from_millis(200));
    let (report, said) = ended(source, Signal::SIGTERM);
    let records = &report["topics"][0]["records"];
    assert_eq!((&records["put"], &records["too_long"]), (&1.into(), &1.into()), "{report}");
    assert!(said.contains("a record of 70000 bytes; at most 1792 are possible"), "{said}");
}

#[test]
fn records_are_there_again_after_the_source_was_killed() {
    let monitor = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("new");
    let flags = ["--spool", spool.to_str().unwrap()];
    let (first, mut stdin) = source(&monitor, &flags);
    stdin.write_all(b"one\ntwo\nthree\n").unwrap();
    eventually("all are in the spool", || spooled(&spool) == 44 + 3 * 20 + 11);
    // The folder is taken.
    let url = format!("udp://{}", monitor.local_addr().unwrap());
    let words = [&["source", &url, "--topic", BUFFER], &flags[..]].concat();
    let Output { status, stderr, .. } = freshline(&words).output().unwrap();
    let said = String::from_utf8_lossy(&stderr);
    assert!(status.code() == Some(1) && said.contains("in use by another"), "{said}");
    ended(first, Signal::SIGKILL);
    // A torn record, as of a process that is killed while it writes.
    let mut file = std::fs::OpenOptions::new().append(true).open(spool.join("log.spool")).unwrap();
    file.write_all(&[0, 0, 0, 9, 1, 2, 3]).unwrap();

    let (second, mut stdin) = source(&monitor, &flags);
    stdin.write_all(b"four\n").unwrap();
    eventually("the fourth is in the spool", || spooled(&spool) == 44 + 4 * 20 + 15);
    std::thread::sleep(Duration::from_millis(200));
    let (report, said) = ended(second, Signal::SIGINT);
    let records = &report["topics"][0]["records"];
    assert_eq!((&records["put"], &records["waiting"]), (&4.into(), &4.into()), "{report}");
    assert!(said.contains("the last 7 bytes of its spool are not a whole record"), "{said}");
    assert!(said.contains("topic log: 4 records") && said.contains("for the next start"), "{said}");
}
