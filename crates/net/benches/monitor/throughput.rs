//! Updates per second that one thread receives.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::thread;

use freshline_core::session::{MonitorParams, SourceKey};
use freshline_core::unit::{Span, Time};
use freshline_net::clock::Clock;
use freshline_net::credentials::{Right, Rules};
use freshline_net::monitor::{Monitor, MonitorConfig, Record, Watch};
use freshline_net::stop::Stop;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::traffic::{BatchSocket, Batches, Blaster};

const RUNS: usize = 3;

/// Updates per system call (GSO).
const TRAIN: usize = 64;

const WARM_UP: Span = Span::from_millis(300);
const MEASURED: Span = Span::from_secs(2);

/// The receiver of the updates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Receiver {
    /// The real monitor: parses, keeps state and age, answers each update with an ack.
    Monitor,
    /// `recvmmsg` with GRO, and a counter. Answers nothing.
    Bare,
}

pub(crate) fn report() {
    println!("throughput: updates of 64 bytes, one source, {RUNS} runs of {MEASURED}");
    println!("the monitor answers each with an ack, the bare loop answers nothing");
    println!(
        "{:28} {:>32} {:>7} {:>17} {:>9}",
        "", "million/s: min, median, max", "ns each", "CPU ns: user+sys", "sent M/s"
    );
    let [monitor, bare] = [Receiver::Monitor, Receiver::Bare].map(|receiver| {
        let name = if receiver == Receiver::Monitor { "monitor" } else { "bare recvmmsg" };
        measure(&format!("{name}, trains of {TRAIN}"), receiver)
    });
    println!("monitor / bare, trains of {TRAIN}: {:.2}", monitor / bare);
}

/// Prints a line; returns the median of the updates per second.
fn measure(name: &str, receiver: Receiver) -> f64 {
    let mut runs: Vec<Run> = (0..RUNS).map(|_| run(receiver)).collect();
    runs.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    let [slowest, median, fastest] = [&runs[0], &runs[RUNS / 2], &runs[RUNS - 1]];
    println!(
        "{name:28} {:>10.2} {:>10.2} {:>10.2} {:>7.0} {:>8.0} {:>8.0} {:>9.2}",
        slowest.rate() / 1e6,
        median.rate() / 1e6,
        fastest.rate() / 1e6,
        1e9 / median.rate(),
        median.each(median.cpu.user),
        median.each(median.cpu.system),
        median.sent as f64 / (WARM_UP + MEASURED).as_secs_f64() / 1e6,
    );
    median.rate()
}

struct Run {
    taken: u64,
    cpu: Cpu,
    sent: u64,
}

impl Run {
    fn rate(&self) -> f64 {
        self.taken as f64 / MEASURED.as_secs_f64()
    }

    /// `span` per received update, in ns.
    fn each(&self, span: Span) -> f64 {
        span.as_nanos() as f64 / self.taken as f64
    }
}

fn run(receiver: Receiver) -> Run {
    let from = Clock::new().now() + WARM_UP;
    let meter = Meter::between(from, from + MEASURED);
    match receiver {
        Receiver::Monitor => {
            let mut monitor = Monitor::bind(config()).unwrap();
            let mut source = Blaster::new(monitor.local_addr().unwrap(), TRAIN);
            let taking = thread::spawn(move || {
                let mut meter = meter;
                monitor.run(&Stop::new(), Some(meter.until), &mut meter).unwrap();
                assert!(meter.taken <= monitor.counters().fresh, "counted by the monitor too");
                meter.finish()
            });
            source.open();
            let sent = source.blast(from + MEASURED);
            let (taken, cpu) = taking.join().unwrap();
            Run { taken, cpu, sent }
        }
        Receiver::Bare => {
            let socket = BatchSocket::bind();
            let mut source = Blaster::new(socket.udp.local_addr().unwrap(), TRAIN);
            let taking = thread::spawn(move || take_in_bare(&socket, meter));
            let sent = source.blast(from + MEASURED);
            let (taken, cpu) = taking.join().unwrap();
            Run { taken, cpu, sent }
        }
    }
}

pub(crate) fn config() -> MonitorConfig {
    MonitorConfig {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        quic: None,
        params: MonitorParams::default(),
        rules: Rules::none(Right::Publish),
        detailed: 100,
        forget: MonitorConfig::FORGET,
    }
}

fn take_in_bare(socket: &BatchSocket, mut meter: Meter) -> (u64, Cpu) {
    let clock = Clock::new();
    let mut batches = Batches::new();
    loop {
        let taken = socket.receive(&mut batches);
        let now = clock.now();
        meter.take(now, taken as u64);
        if now >= meter.until {
            return meter.finish();
        }
        if taken == 0 {
            let mut readable = [PollFd::new(socket.udp.as_fd(), PollFlags::POLLIN)];
            poll(&mut readable, PollTimeout::from(100u8)).unwrap();
        }
    }
}

/// Counts the updates that arrive within a window of time, on the receiving thread.
pub(crate) struct Meter {
    from: Time,
    until: Time,
    taken: u64,
    cpu_before: Option<Cpu>,
}

impl Meter {
    pub(crate) fn between(from: Time, until: Time) -> Self {
        Self { from, until, taken: 0, cpu_before: None }
    }

    pub(crate) fn take(&mut self, now: Time, updates: u64) {
        if now >= self.from && now < self.until {
            self.cpu_before.get_or_insert_with(Cpu::of_this_thread);
            self.taken += updates;
        }
    }

    /// The number of updates, and the thread's CPU time for them.
    pub(crate) fn finish(self) -> (u64, Cpu) {
        let (after, before) = (Cpu::of_this_thread(), self.cpu_before.expect("updates came"));
        let cpu = Cpu { user: after.user - before.user, system: after.system - before.system };
        (self.taken, cpu)
    }
}

impl Watch for Meter {
    fn fresh(&mut self, now: Time, _source: SourceKey, _record: &Record) {
        self.take(now, 1);
    }
}

/// CPU time of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Cpu {
    pub(crate) user: Span,
    pub(crate) system: Span,
}

impl Cpu {
    fn of_this_thread() -> Self {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
        let span = |time: TimeVal| {
            Span::from_micros((time.tv_sec() * 1_000_000 + time.tv_usec()).unsigned_abs())
        };
        Self { user: span(usage.user_time()), system: span(usage.system_time()) }
    }
}
