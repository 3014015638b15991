//! Output for small mistakes of a user, one mistake per test.

use std::io::Read;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn freshline(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command
}

fn ended(words: &str) -> Output {
    freshline(words).output().unwrap()
}

/// The text on standard error, on one line.
fn said(done: &Output) -> String {
    let said = String::from_utf8_lossy(&done.stderr);
    said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn assert_refused(words: &str, code: i32, why: &str) {
    let done = ended(words);
    assert_eq!(done.status.code(), Some(code), "{words}: {}", said(&done));
    assert!(said(&done).contains(why), "{words}: {}", said(&done));
}

#[test]
fn a_law_that_can_overload_a_path_says_so() {
    let tenth = ended("source udp://127.0.0.1:9 --size 9B --law tenth --duration 100ms");
    assert!(said(&tenth).contains("can still overload a path"), "{}", said(&tenth));
    let lazy = ended("source udp://127.0.0.1:9 --size 9B --law lazy --duration 100ms");
    assert!(!said(&lazy).contains("overload"), "{}", said(&lazy));
}

#[test]
fn what_cannot_be_meant_is_refused_with_the_reason() {
    for (words, why) in [
        ("monitor udp://127.0.0.1:0 --duration 5", "it has no unit; write for example `5s`"),
        ("monitor udp://127.0.0.1", "udp:// needs a port"),
        ("monitor udp://127.0.0.1:0 --max-sources 0", "0 is not in 1"),
        ("emulate udp --listen 127.0.0.1:0 --to 127.0.0.1:9 --max-flows 0", "0 is not in 1"),
        ("emulate udp --listen 127.0.0.1:0 --to 127.0.0.1:9 --hop delay=-5ms", "it is below zero"),
        ("wlan plan --station mcs=9,streams=1,width=20MHz", "over 20MHz"),
        ("lab run one-mm1-queue --set flow.source.updates.rate=700", "write for example `700/s`"),
        ("lab run one-mm1-queue --set sweep={\"seed\"=[]}", "`seed` has no values"),
    ] {
        assert_refused(words, 2, why);
    }
}

#[test]
fn a_cause_is_told_once() {
    for words in [
        "monitor quic://127.0.0.1:0 --client-ca /nonexistent",
        "monitor quic://127.0.0.1:0 --cert /nonexistent --key /nonexistent",
        "age /nonexistent",
    ] {
        let said = said(&ended(words));
        assert_eq!(said.matches("No such file").count(), 1, "{words}: {said}");
    }
}

#[test]
fn who_cannot_start_does_not_say_that_it_listens() {
    for flag in ["--out /nonexistent/file", "--socket /nonexistent/socket", "--metrics 192.0.2.1:1"]
    {
        let done = ended(&format!("monitor udp://127.0.0.1:0 {flag}"));
        assert!(!done.status.success() && !said(&done).contains("listening at"), "{}", said(&done));
    }
}

#[test]
fn a_command_needs_time_to_run() {
    let done = ended("monitor udp://127.0.0.1:0 --exec true --exec-timeout 0s --duration 1ms");
    assert_eq!(done.status.code(), Some(2), "{}", said(&done));
    assert!(said(&done).contains("--exec-timeout must be above 0s"), "{}", said(&done));
}

/// A monitor's standard error, as it arrives.
struct Stderr {
    pipe: ChildStderr,
    told: String,
}

impl Stderr {
    fn of(monitor: &mut Child) -> Self {
        Self { pipe: monitor.stderr.take().unwrap(), told: String::new() }
    }

    fn read_until(&mut self, what: &str) {
        let mut byte = [0];
        while !self.told.contains(what) && self.pipe.read(&mut byte).unwrap() == 1 {
            self.told.push(byte[0].into());
        }
    }

    /// The monitor's UDP address, which it prints first.
    fn address(&mut self) -> String {
        self.read_until(";");
        self.told.split_once("udp://").unwrap().1.trim_end_matches(';').to_owned()
    }
}

#[test]
fn warnings_in_a_file_carry_no_colours() {
    let mut monitor = freshline("monitor udp://127.0.0.1:0 --duration 10s --exec false");
    let mut monitor = monitor.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = Stderr::of(&mut monitor);
    let address = stderr.address();
    let source = format!("source udp://{address} --size 10B --law fixed --rate 20/s");
    let mut source = freshline(&source).stderr(Stdio::null()).spawn().unwrap();
    stderr.read_until("failed with");
    for child in [&mut source, &mut monitor] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let told = stderr.told;
    assert!(told.contains("WARN") && !told.contains('\u{1b}'), "{told:?}");
}

#[test]
fn a_command_does_not_write_into_the_summary() {
    let words = "monitor udp://127.0.0.1:0 --json --exec cat";
    let mut monitor = freshline(words);
    let mut monitor = monitor.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = Stderr::of(&mut monitor);
    let address = stderr.address();
    let source =
        format!("source udp://{address} --sample echo\u{a0}a-state --law fixed --rate 20/s");
    let mut source = Command::new(env!("CARGO_BIN_EXE_freshline"))
        .args(source.split(' ').map(|word| word.replace('\u{a0}', " ")))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    stderr.read_until("a-state");
    source.kill().unwrap();
    source.wait().unwrap();
    kill(Pid::from_raw(monitor.id().cast_signed()), Signal::SIGTERM).unwrap();
    let Stderr { mut pipe, told } = stderr;
    let reading = thread::spawn(move || std::io::copy(&mut pipe, &mut std::io::sink()));
    let done = monitor.wait_with_output().unwrap();
    reading.join().unwrap().unwrap();
    assert!(told.contains("a-state"), "it goes to standard error: {told}");
    let summary: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(summary["fresh"].as_u64() > Some(0), "{summary}");
}

/// Waits until a process has computed for 1 s, however busy the machine is.
fn has_computed(id: u32) {
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        assert_ne!(fields[0], "Z", "it has ended");
        fields[11].parse::<u64>().unwrap()
    };
    while ticks() < 100 {
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_interrupt_keeps_the_rows_and_the_seeds_that_are_done() {
    let rows: String = (1..300)
        .map(|rate| {
            format!(
                "[[reproduce.row]]\nwhat = 'row {rate}'\nmetric = 'age_mean'\nof = 'source'\n\
                 set = {{ 'flow.source.updates.rate' = '{rate}/s' }}\nexpected = 1.0\n"
            )
        })
        .collect();
    let scenario = format!(
        "title = 'Many rows'\nduration = '200s'\n[[link]]\nname = 'link'\nforward = {{ delay = '1ms' }}\n\
         [[flow]]\nname = 'source'\npath = ['link']\nupdates = {{ law = 'fixed', rate = '1/s', payload = '100B' }}\n\
         [reproduce]\nof = 'nobody'\n{rows}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.toml");
    std::fs::write(&file, scenario).unwrap();
    let reproduce = format!("lab reproduce {} --json", file.display());
    for words in [&reproduce, "lab torture --seeds 1000000 --json"] {
        let mut command = freshline(words);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        has_computed(child.id());
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
        let done = child.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(130), "{}", said(&done));
        let known: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        let rows = known["rows"].as_array().map(|rows| rows.len() as u64);
        let count = rows.or(known["seeds"].as_u64()).unwrap();
        assert!((1..1_000_000).contains(&count), "{known}");
    }
}
