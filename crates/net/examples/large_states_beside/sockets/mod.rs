//! The same comparison over real sockets, for some paths of the grid.
//!
//! ```text
//!   this process  ◄── TUN ── emulated path ── TUN ◄──  a process in a network namespace
//!   receives                                           sends
//! ```
//!
//! The path is that of `freshline emulate run`, with the conditions of the lab's run. Both processes read
//! `CLOCK_MONOTONIC`, so that ages are exact. The delay of a state is the time from its sampling by the
//! sender until the receiver has all of it.

mod receive;
mod send;

use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::Path as File;
use std::process::{Command, ExitCode};
use std::thread;

use freshline_core::age::AgeMeter;
use freshline_core::unit::{Span, Time};
use freshline_lab::scenario::{Emulated, Scenario};
use freshline_net::emulate::tun::{RunConfig, RunError, RunReport, Sandbox};
use nix::time::{ClockId, clock_gettime};
use rayon::prelude::*;

use crate::age::Age;
use crate::ends::Certified;
use crate::grid::{Loss, Path};
use crate::lab::SCENARIO;
use crate::report::{Point, bytes, ms};
use crate::streams::Resets;

pub(crate) use send::main as send;

use receive::{Complete, Receiver};

/// An error of either process.
type Failure = Box<dyn Error + Send + Sync>;

/// Paths of the training half: each size, rate and round trip, without losses and with 5 %.
const PATHS: [Path; 12] = [
    path(100, 1, 10, 0, 0),
    path(1_000, 10, 10, 0, 0),
    path(10_000, 100, 10, 0, 0),
    path(100_000, 10, 10, 0, 0),
    path(1_000_000, 100, 200, 0, 0),
    path(100, 10, 10, 5, 0),
    path(10_000, 10, 200, 5, 0),
    path(100_000, 1, 200, 5, 0),
    path(100_000, 100, 200, 5, 0),
    path(1_000_000, 100, 50, 5, 0),
    path(10_000, 10, 50, 5, 5),
    path(100_000, 100, 50, 5, 5),
];

const fn path(size: u64, rate: u64, round_trip: u64, percent: u32, burst: u32) -> Path {
    Path { loss: Loss { percent, burst }, size, rate, round_trip }
}

/// The protocol that sends the states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    /// Our source with `tenth`, to our monitor.
    Tenth,
    /// One stream of the kernel's CUBIC.
    Tcp,
    /// `noq-proto` with CUBIC, a stream per state.
    Quic(Resets),
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Self::Tenth => "tenth",
            Self::Tcp => "tcp",
            Self::Quic(Resets::AtOnce) => "quic-at-once",
            Self::Quic(Resets::BehindTwo) => "quic-behind-two",
        }
    }

    fn find(name: &str) -> Option<Self> {
        let all =
            [Self::Tenth, Self::Tcp, Self::Quic(Resets::AtOnce), Self::Quic(Resets::BehindTwo)];
        all.into_iter().find(|it| it.name() == name)
    }
}

/// `CLOCK_MONOTONIC`, which processes share.
fn now() -> Time {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the system has this clock");
    Time::ZERO + Span::from(std::time::Duration::from(now))
}

/// A state that is complete at the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arrival {
    at: Time,
    sampled_at: Time,
}

/// The beginning of a run, the end of its warm-up, and its end.
#[derive(Debug, Clone, Copy)]
struct Window {
    begin: Time,
    from: Time,
    until: Time,
}

impl Window {
    fn of(path: &Path) -> Self {
        let begin = now();
        let from = begin + path.warm_up();
        Self { begin, from, until: from + path.measured() }
    }

    /// The age from `from` to `until`.
    fn age(&self, arrivals: &[Arrival]) -> Age {
        let mut meter = AgeMeter::starting_at(self.begin);
        let before = arrivals.partition_point(|arrival| arrival.at < self.from);
        for arrival in &arrivals[..before] {
            meter.on_update(arrival.at, arrival.sampled_at);
        }
        meter.measure_from(self.from);
        for arrival in arrivals[before..].iter().take_while(|arrival| arrival.at <= self.until) {
            meter.on_update(arrival.at, arrival.sampled_at);
        }
        Age::of(meter.summary(self.until))
    }
}

/// The age of a run, and the 99th percentile of the emulator's lateness.
#[derive(Debug, Clone, Copy)]
struct Measured {
    age: Age,
    late_ms: f64,
}

/// The maximum lateness of the emulator in ms. A run with more, on a busy machine, is repeated.
const TIMELY_MS: f64 = 1.0;
const TRIES: usize = 3;

/// Runs the paths with these numbers (the first is 1), or all of them, and prints a line for each.
pub(crate) fn compare(numbers: &[&str]) -> ExitCode {
    let known = |number: &&str| number.parse().ok().filter(|it| (1..=PATHS.len()).contains(it));
    let Some(chosen) = numbers.iter().map(known).collect::<Option<Vec<_>>>() else {
        eprintln!("give numbers of paths from 1 to {}", PATHS.len());
        return ExitCode::from(2);
    };
    let chosen = if chosen.is_empty() { (1..=PATHS.len()).collect() } else { chosen };
    // Fails early, before the long runs.
    if let Err(error) = sandbox(&PATHS[0]) {
        return match error {
            RunError::NeedsRoot | RunError::NeedsTun => {
                println!("skipped: {error}");
                ExitCode::SUCCESS
            }
            _ => failed(&error),
        };
    }
    let lab: Vec<_> = chosen.par_iter().map(|number| Point::measure(PATHS[number - 1])).collect();
    eprintln!("the lab's runs are done; those over sockets begin");
    print_head();
    for (number, lab) in chosen.iter().zip(&lab) {
        match line(number - 1, lab) {
            Ok(line) => println!("{line}"),
            Err(error) => return failed(&*error),
        }
    }
    ExitCode::SUCCESS
}

fn failed(error: &dyn Error) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}

fn print_head() {
    println!(
        "| state | Mbit/s | RTT, ms | loss, % | burst | tenth | in the lab | TCP | in the lab | QUIC CUBIC \
         | in the lab | best fixed rate in the lab | tenth / best | / TCP | / QUIC | late, ms |"
    );
    println!("|---:|---:|---:|---:|---|---|---|---|---|---|---|---|---:|---:|---:|---:|");
}

fn line(index: usize, lab: &Point) -> Result<String, Failure> {
    let path = PATHS[index];
    let resets = if lab.at_once[0] { Resets::AtOnce } else { Resets::BehindTwo };
    let contenders = [Contender::Tenth, Contender::Tcp, Contender::Quic(resets)];
    let mut measured = Vec::new();
    for contender in contenders {
        measured.push(timely(index, contender)?);
    }
    let [tenth, tcp, quic] = measured[..] else { unreachable!("three contenders") };
    let late = tenth.late_ms.max(tcp.late_ms).max(quic.late_ms);
    let Path { loss, size, rate, round_trip } = path;
    let burst = if loss.burst > 0 { format!("{}", loss.burst) } else { "–".to_owned() };
    let best = lab.ours.fixed;
    Ok(format!(
        "| {} | {rate} | {round_trip} | {} | {burst} | {} | {} | {} | {} | {} | {} | {} | {:.2} | {:.2} \
         | {:.2} | {late:.2} |",
        bytes(size),
        loss.percent,
        ms(tenth.age),
        ms(lab.ours.tenth),
        ms(tcp.age),
        ms(lab.tcp),
        ms(quic.age),
        ms(lab.quic[0]),
        ms(best),
        tenth.age.mean / best.mean,
        tenth.age.mean / tcp.age.mean,
        tenth.age.mean / quic.age.mean,
    ))
}

/// The run with the minimum lateness of up to [`TRIES`] runs.
fn timely(index: usize, contender: Contender) -> Result<Measured, Failure> {
    let mut best = measure(index, contender)?;
    for _ in 1..TRIES {
        if best.late_ms <= TIMELY_MS {
            break;
        }
        let again = measure(index, contender)?;
        if again.late_ms < best.late_ms {
            best = again;
        }
    }
    Ok(best)
}

/// The lab's run, converted for sockets.
fn emulated(path: &Path) -> Emulated {
    let scenario = Scenario::parse_with(SCENARIO, &path.changes()).expect("the scenario is legal");
    scenario.emulated(0).expect("the scenario runs over sockets")
}

fn sandbox(path: &Path) -> Result<Sandbox, RunError> {
    let Emulated { conditions, seed, .. } = emulated(path);
    Sandbox::new(RunConfig { conditions, seed, ..RunConfig::default() })
}

fn measure(index: usize, contender: Contender) -> Result<Measured, Failure> {
    let path = PATHS[index];
    let sandbox = sandbox(&path)?;
    let folder = tempfile::tempdir()?;
    let certified = Certified::new();
    fs::write(folder.path().join(send::CERTIFICATE), &certified.certificate)?;
    let receiver = Receiver::bind(contender, sandbox.host(), path.size)?;
    let window = Window::of(&path);
    let command = command(index, contender, receiver.address()?, &window, folder.path())?;
    let (complete, report) = thread::scope(|scope| {
        let receiving = scope.spawn(|| receiver.run(&certified, window.until));
        let report = sandbox.run(command);
        let complete = receiving.join().map_err(|_| "the receiver has failed")??;
        Ok::<_, Failure>((complete, report?))
    })?;
    if report.exit_code != 0 {
        return Err(format!("the sender of {} has failed", contender.name()).into());
    }
    let arrivals = arrivals(contender, complete, folder.path())?;
    let (age, late_ms) = (window.age(&arrivals), late_ms(&report));
    let (name, states) = (contender.name(), arrivals.len());
    eprintln!("{name}: {} ms, {states} states in all, {late_ms:.2} ms late", ms(age));
    Ok(Measured { age, late_ms })
}

/// The states with their sampling times, which the sender of numbered states has written to a file.
fn arrivals(
    contender: Contender,
    complete: Vec<Complete>,
    folder: &File,
) -> Result<Vec<Arrival>, Failure> {
    let sampled = match contender {
        Contender::Quic(_) => send::sampled(folder)?,
        Contender::Tenth | Contender::Tcp => Vec::new(),
    };
    let arrivals = complete.into_iter().map(|state| state.arrival(&sampled));
    Ok(arrivals.collect::<Option<_>>().ok_or("an unknown state has arrived")?)
}

fn command(
    index: usize,
    contender: Contender,
    to: SocketAddr,
    window: &Window,
    folder: &File,
) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    let until = window.until.since(Time::ZERO).as_nanos();
    command.args(["send", contender.name(), &index.to_string(), &to.to_string()]);
    command.arg(until.to_string()).arg(folder);
    Ok(command)
}

fn late_ms(report: &RunReport) -> f64 {
    report.forward.timing_error.p99_ms.max(report.reverse.timing_error.p99_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn an_age_counts_from_the_end_of_the_warm_up_to_the_end_of_the_run() {
        let window = Window { begin: at(0), from: at(10_000), until: at(20_000) };
        assert!((window.age(&[]).mean - 15.0).abs() < 1e-6, "{:?}", window.age(&[]));
        // One state per second with an age of half a second on arrival, and then one after the end.
        let arrival =
            |second: u64| Arrival { at: at(1_000 * second), sampled_at: at(1_000 * second - 500) };
        let arrivals: Vec<_> = (1..=25).map(arrival).collect();
        let age = window.age(&arrivals);
        assert!((age.mean - 1.0).abs() < 1e-6, "{age:?}");
        assert!((1.45..=1.5).contains(&age.p99), "{age:?}");
    }

    #[test]
    fn each_contender_delivers_states_in_order_after_they_were_sampled() {
        let contenders = [Contender::Tenth, Contender::Tcp, Contender::Quic(Resets::BehindTwo)];
        let runs = contenders.map(|contender| thread::spawn(move || over_loopback(contender)));
        for (contender, run) in contenders.into_iter().zip(runs) {
            let arrivals = run.join().expect("no panic").expect("it runs");
            let is_ordered = arrivals
                .is_sorted_by(|one, next| one.at <= next.at && one.sampled_at < next.sampled_at);
            let is_past = arrivals.iter().all(|it| it.sampled_at < it.at);
            let count = arrivals.len();
            assert!(count > 10 && is_ordered && is_past, "{contender:?}: {count} states");
        }
    }

    /// States of path number 3 for 3 s, over the loopback.
    fn over_loopback(contender: Contender) -> Result<Vec<Arrival>, Failure> {
        let folder = tempfile::tempdir()?;
        let certified = Certified::new();
        fs::write(folder.path().join(send::CERTIFICATE), &certified.certificate)?;
        let until = now() + Span::from_secs(3);
        let receiver = Receiver::bind(contender, std::net::Ipv4Addr::LOCALHOST, PATHS[2].size)?;
        let nanos = until.since(Time::ZERO).as_nanos().to_string();
        let (to, folder) = (receiver.address()?.to_string(), folder.path());
        let given = [contender.name(), "2", &to, &nanos, folder.to_str().ok_or("a path")?];
        let complete = thread::scope(|scope| {
            let receiving = scope.spawn(|| receiver.run(&certified, until));
            send::run(&given)?;
            receiving.join().expect("no panic")
        })?;
        arrivals(contender, complete, folder)
    }
}
