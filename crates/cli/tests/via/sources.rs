//! Several sources of one run on the same paths, and the reports on each.

use std::fmt;
use std::net::UdpSocket;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::common::{FRESHLINE, assert_succeeded};
use super::two_paths::{Net, SERVER};

/// A path in its source's report.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) state: String,
    pub(crate) sent: f64,
    pub(crate) copies: f64,
    pub(crate) silences: u64,
}

/// The final report on a source.
#[derive(Debug, Clone)]
pub(crate) struct SourceReport {
    name: String,
    /// From the monitor; from the source if no monitor was asked.
    pub(crate) age_ms: f64,
    pub(crate) age_max_ms: f64,
    /// Updates, and copies of them.
    pub(crate) packets: f64,
    pub(crate) opened: u64,
    pub(crate) paths: Vec<Path>,
}

impl SourceReport {
    /// The report that a source has printed.
    pub(crate) fn of(name: &str, said: &[u8]) -> Self {
        let said: Value = serde_json::from_slice(said).unwrap();
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let paths = said["paths"].as_array().into_iter().flatten().map(|path| Path {
            state: path["state"].as_str().unwrap().to_owned(),
            sent: number(&path["sent"]),
            copies: number(&path["copies"]),
            silences: path["silences"].as_u64().unwrap(),
        });
        let paths: Vec<_> = paths.collect();
        Self {
            name: name.to_owned(),
            age_ms: number(&said["age_mean_ms"]),
            age_max_ms: number(&said["age_max_ms"]),
            packets: paths.iter().map(|path| path.sent).sum(),
            opened: said["opened"].as_u64().unwrap(),
            paths,
        }
    }
}

impl fmt::Display for SourceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, age_ms, age_max_ms, packets, opened, paths } = self;
        write!(f, "{name:<10} age {age_ms:6.1} ms, at most {age_max_ms:6.1}; {packets:5} packets")?;
        write!(f, ", opened {opened} times")?;
        for Path { state, sent, copies, silences } in paths {
            write!(f, "; {state} {sent}, {copies} copies, silent {silences} times")?;
        }
        Ok(())
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// Runs sources that send 50 updates of 200 bytes a second to one monitor for a duration, each with
/// a name and its flags; returns the report on each, with the ages that the monitor knows.
pub(crate) fn together(
    net: &Net,
    transport: &str,
    span: Duration,
    ways: &[(&str, String)],
    meanwhile: impl FnOnce() + Send,
) -> Vec<SourceReport> {
    let mut monitor = net.command("s", FRESHLINE);
    monitor.args(["monitor", &format!("{transport}://0.0.0.0:3775"), "--json"]);
    monitor.args(["--duration", &format!("{}s", span.as_secs() + 4)]);
    let identity = format!("--state-dir {}", net.state("monitor"));
    let (mut pin, mut of_monitor) = (String::new(), String::new());
    if transport == "quic" {
        of_monitor.clone_from(&identity);
        let mut identity = net.command("s", FRESHLINE);
        identity.args(["bond", "identity"]).args(of_monitor.split(' '));
        let done = run(&mut identity);
        assert_succeeded(&done);
        pin = format!("--pin {}", super::common::text(&done.stdout).trim());
    } else {
        of_monitor.push_str("--insecure");
    }
    monitor.args(of_monitor.split_whitespace());
    let monitor = spawn(&mut monitor);
    // It listens, or the first openings are lost: the next come 0.2 s later.
    thread::sleep(Duration::from_secs(1));
    let sources: Vec<_> = ways
        .iter()
        .map(|(name, flags)| {
            let mut source = net.command("c", FRESHLINE);
            source.args(["source", &format!("{transport}://{SERVER}:3775"), "--size", "200B"]);
            source.args(["--law", "fixed", "--rate", "50/s", "--json", "--name", name]);
            source.args(["--duration", &format!("{}s", span.as_secs())]);
            source.args(flags.split_whitespace()).args(pin.split_whitespace());
            spawn(&mut source)
        })
        .collect();
    thread::scope(|scope| scope.spawn(meanwhile).join().unwrap());
    let told = sources.into_iter().zip(ways).map(|(source, (name, _))| {
        let done = source.wait_with_output().unwrap();
        assert_succeeded(&done);
        SourceReport::of(name, &done.stdout)
    });
    let mut told: Vec<_> = told.collect();
    let done = monitor.wait_with_output().unwrap();
    assert_succeeded(&done);
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    for one in &mut told {
        let ended = report["ended"].as_array().into_iter().flatten();
        let known = ended.chain(report["sources"].as_array().into_iter().flatten());
        let found = known.into_iter().find(|source| source["source"] == one.name.as_str());
        let found = found.unwrap_or_else(|| panic!("{} is unknown: {report}", one.name));
        one.age_ms = found["age_mean_ms"].as_f64().unwrap();
        one.age_max_ms = found["age_max_ms"].as_f64().unwrap();
    }
    told
}

fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// For `span`, cross traffic sends 30 Mbit/s to an address of the monitor's host for 150 ms of
/// every 1.5 s.
pub(crate) fn bursts(net: &Net, to: &str, span: Duration) {
    const SIZE: usize = 1200;
    net.within("s", || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let began_at = Instant::now();
        while began_at.elapsed() < span {
            let burst_at = Instant::now();
            let mut sent = 0;
            while burst_at.elapsed() < Duration::from_millis(150) {
                let due = (burst_at.elapsed().as_secs_f64() * 30e6 / 8.0) as usize;
                while sent < due {
                    let _ = socket.send_to(&[0; SIZE], to);
                    sent += SIZE;
                }
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(1350));
        }
    });
}
