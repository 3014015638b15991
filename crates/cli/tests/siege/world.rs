//! The monitor, its honest sources, and their measured ages.

use std::env;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::Value;

use crate::attacks::{Attack, Target};
use crate::common::FRESHLINE;
use crate::hosts::Hosts;
use crate::process::Process;

const HOST: &str = "h";
pub(crate) const MONITOR: &str = "10.96.0.1:3774";
pub(crate) const METRICS: &str = "10.96.0.1:9090";
const HONEST: &str = "10.97.0.1";
pub(crate) const TOKEN: &str = "a secret of the fleet";
/// Processors of the monitor, and of all others.
const CORES: [usize; 2] = [0, 1];
/// Newcomers come this often, each from a network of its own.
const NEWCOMERS: Duration = Duration::from_secs(1);
/// Longer than any waits.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct World {
    dir: tempfile::TempDir,
    pin: String,
    monitor: Process,
    honest: Option<Process>,
    hosts: Hosts,
}

impl World {
    pub(crate) fn start() -> Self {
        let hosts = Hosts::new("siege", &[HOST]);
        // All of it are addresses of this host.
        for network in ["10.96.0.0/24", "10.99.0.0/22"] {
            hosts.ip(HOST, &format!("route add local {network} dev lo"));
        }
        hosts.ip(HOST, &format!("addr add {HONEST}/32 dev lo"));
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("token"), TOKEN).expect("a file");
        let path = |name: &str| dir.path().join(name).display().to_string();
        let mut command = Self::pinned(&hosts, CORES[0]);
        command.args(["monitor", &format!("quic://{MONITOR}"), "--metrics", METRICS]);
        command.args(["--token-file", &path("token"), "--state-dir", &path("state")]);
        command.args(["--out", &path("out")]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the monitor starts");
        let mut said = BufReader::new(child.stderr.take().expect("piped")).lines();
        let monitor = Process(child);
        let pin = said
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("fingerprint ").map(str::to_owned));
        // It is read further, so that the monitor does not block.
        thread::spawn(move || said.for_each(drop));
        Self { dir, pin: pin.expect("a fingerprint"), monitor, honest: None, hosts }
    }

    /// A command of `freshline` on one core.
    fn pinned(hosts: &Hosts, core: usize) -> Command {
        let mut command = hosts.command(HOST, "taskset");
        command.args(["-c", &core.to_string()]);
        if env::var_os("SIEGE_FIFO").is_some() {
            command.args(["chrt", "--fifo", "10"]);
        }
        command.arg(FRESHLINE);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn source(&self, name: &str, from: &str) -> Process {
        let mut command = Self::pinned(&self.hosts, CORES[1]);
        command.args(["source", &format!("quic://{MONITOR}"), "--pin", &self.pin]);
        command.args(["--token-file", &self.path("token").display().to_string()]);
        command.args(["--size", "100", "--law", "fixed", "--rate", "100/s"]);
        command.args(["--name", name, "--via", from]);
        Process(command.spawn().expect("a source starts"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the honest source, and waits until its age is known.
    pub(crate) fn warm_up(&mut self) {
        self.honest = Some(self.source("honest", HONEST));
        let end = Instant::now() + PATIENCE;
        while !self.lines().iter().any(|line| line.age_ms.is_some()) {
            assert!(Instant::now() < end, "the honest source is not served");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs an attack for some time.
    pub(crate) fn run(&mut self, attack: Option<Attack>, span: Duration) -> Seen {
        let (began, begin_ms, cpu) = (Instant::now(), unix_ms(), self.cpu());
        let is_over = AtomicBool::new(false);
        let target = Target { pin: self.pin.clone() };
        let mut newcomers = Vec::new();
        let offered = thread::scope(|scope| {
            let attacker = scope.spawn(|| {
                let Some(attack) = attack else { return "nothing".to_owned() };
                self.hosts.within(HOST, || {
                    let mut cores = CpuSet::new();
                    cores.set(CORES[1]).expect("a core");
                    // On a machine with one core all share it.
                    let _ = sched_setaffinity(Pid::from_raw(0), &cores);
                    attack.run(&target, &is_over)
                })
            });
            while began.elapsed() + NEWCOMERS / 2 < span {
                thread::sleep(NEWCOMERS / 2);
                let (number, address) = (newcomers.len(), format!("10.98.{}.1", newcomers.len()));
                self.hosts.ip(HOST, &format!("addr add {address}/32 dev lo"));
                let name = format!("new-{number}");
                let came = unix_ms();
                newcomers.push((came, self.source(&name, &address), name));
                thread::sleep(NEWCOMERS / 2);
            }
            is_over.store(true, Ordering::Relaxed);
            attacker.join().expect("it attacks")
        });
        let end_ms = unix_ms();
        let cpu = (self.cpu() - cpu) / began.elapsed().as_secs_f64();
        let refused = self.refused();
        let served = newcomers.iter().map(|(came, process, name)| {
            let _alive = process;
            let end = Instant::now() + PATIENCE;
            loop {
                let lines = self.lines();
                let first = lines.iter().find(|line| line.source == *name);
                if first.is_some() || Instant::now() > end {
                    return first.map(|line| line.unix_ms - came);
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let served = served.collect();
        let lines: Vec<_> =
            self.lines().into_iter().filter(|line| line.source == "honest").collect();
        let ages = Ages::of(&lines, begin_ms, end_ms);
        let during =
            || lines.iter().filter(|line| line.unix_ms > begin_ms && line.unix_ms < end_ms);
        let mut delays: Vec<_> = during().filter_map(|line| line.age_ms).collect();
        delays.sort_by(f64::total_cmp);
        Seen {
            offered,
            honest_updates: during().count(),
            updates_per_s: during().count() as f64 * 1e3 / (end_ms - begin_ms),
            delay_p99_ms: delays.get(delays.len() * 99 / 100).copied().unwrap_or(f64::NAN),
            p50_ms: ages.quantile(0.5),
            p99_ms: ages.quantile(0.99),
            newcomers: served,
            cpu,
            peak_mb: self.peak_mb(),
            refused,
        }
    }

    fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.path("out")).unwrap_or_default();
        text.lines().filter_map(Line::read).collect()
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.monitor.0.id())).expect("it runs")
    }

    /// CPU time in s.
    fn cpu(&self) -> f64 {
        let stat = self.proc("stat");
        let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
        let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
        // USER_HZ is 100 on all of Linux's common architectures.
        (ticks(11) + ticks(12)) / 100.0
    }

    fn peak_mb(&self) -> f64 {
        let status = self.proc("status");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kb = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        kb.expect("a number") / 1e3
    }

    /// The reasons of refusals with their counts, by the metrics.
    fn refused(&self) -> String {
        let page = self.hosts.within(HOST, || {
            let address: SocketAddr = METRICS.parse().expect("an address");
            let mut stream = TcpStream::connect(address).ok()?;
            stream.set_read_timeout(Some(PATIENCE)).ok()?;
            let request = b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
            stream.write_all(request).ok()?;
            let mut page = String::new();
            stream.read_to_string(&mut page).ok()?;
            Some(page)
        });
        let page = page.unwrap_or_default();
        let counts = page.lines().filter_map(|line| {
            let (reason, count) =
                line.strip_prefix("freshline_refused_total{reason=\"")?.split_once("\"} ")?;
            (count != "0").then(|| format!("{reason} {count}"))
        });
        counts.collect::<Vec<_>>().join(", ")
    }
}

fn unix_ms() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
    since.as_secs_f64() * 1e3
}

struct Line {
    unix_ms: f64,
    source: String,
    age_ms: Option<f64>,
}

impl Line {
    fn read(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        Some(Self {
            unix_ms: value["unix_ms"].as_f64()?,
            source: value["source"].as_str()?.to_owned(),
            age_ms: value["age_ms"].as_f64(),
        })
    }
}

/// The age over time, as pieces in which it grows from one value to another by 1 ms in 1 ms.
struct Ages(Vec<(f64, f64)>);

impl Ages {
    fn of(lines: &[Line], begin: f64, end: f64) -> Self {
        let known: Vec<_> =
            lines.iter().filter_map(|line| Some((line.unix_ms, line.age_ms?))).collect();
        let mut pieces = Vec::new();
        for (index, (at, age)) in known.iter().enumerate() {
            let next = known.get(index + 1).map_or(end, |(next, _)| *next).min(end);
            let from = at.max(begin);
            if next > from {
                pieces.push((age + from - at, age + next - at));
            }
        }
        Self(pieces)
    }

    /// The age that was not exceeded for this share of the time.
    fn quantile(&self, share: f64) -> f64 {
        let total: f64 = self.0.iter().map(|(from, to)| to - from).sum();
        let below = |age: f64| -> f64 {
            self.0.iter().map(|(from, to)| (to.min(age) - from).max(0.0)).sum()
        };
        let (mut low, mut high) =
            (0.0, self.0.iter().fold(0.0, |most: f64, (_, to)| most.max(*to)));
        for _ in 0..50 {
            let middle = (low + high) / 2.0;
            if below(middle) < share * total { low = middle } else { high = middle }
        }
        high
    }
}

/// The measurements during an attack.
pub(crate) struct Seen {
    offered: String,
    pub(crate) honest_updates: usize,
    updates_per_s: f64,
    /// From their sampling to the monitor.
    delay_p99_ms: f64,
    p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// How long each took from the start of its process to its first state, in ms.
    pub(crate) newcomers: Vec<Option<f64>>,
    /// Of one core.
    cpu: f64,
    pub(crate) peak_mb: f64,
    refused: String,
}

impl Seen {
    fn slowest(&self) -> f64 {
        self.newcomers.iter().flatten().fold(0.0, |most: f64, ms| most.max(*ms))
    }

    pub(crate) fn row(&self, name: &str, quiet: f64) -> String {
        format!(
            "| {name} | {} | {:.0} | {:.1} | {:.1}, {:.1} | {:.2} | {} of {}, {:.0} | {:.0} % | {:.0} | {} |",
            self.offered,
            self.updates_per_s,
            self.delay_p99_ms,
            self.p50_ms,
            self.p99_ms,
            self.p99_ms / quiet,
            self.newcomers.iter().flatten().count(),
            self.newcomers.len(),
            self.slowest(),
            self.cpu * 100.0,
            self.peak_mb,
            self.refused,
        )
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.row("", self.p99_ms))
    }
}
