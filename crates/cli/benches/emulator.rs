//! The speed of `freshline emulate run`: the goodput of one TCP connection over an ideal path, compared
//! with a plain veth pair, and the lateness at 100 Mbit/s while other work keeps each core half busy.
//!
//! `cargo bench -p freshline-cli --bench emulator`; needs root. Options that `cargo bench` adds are
//! ignored. It fails only if a transfer fails: the figures depend on the machine.

mod goodput;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use goodput::{FRESHLINE, MEASURED, TURNS, WARM_UP, median, send};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, Uid};
use serde_json::Value;

const GOAL_GBPS: f64 = 5.0;
const GOAL_LATE_MS: f64 = 0.2;

const IDEAL: &str = "";
const PACED: &str = "[[forward.hop]]\nrate = \"100mbit\"\ndelay = \"10ms\"\nqueue = \"200p\"\n\
                     [[reverse.hop]]\ndelay = \"10ms\"\n";

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if let [mode, address] = &arguments[..]
        && mode == "send"
    {
        return send(address, &[0x55; 1 << 17]);
    }
    if !Uid::effective().is_root() || !Path::new("/dev/net/tun").exists() {
        println!("skipped: needs root and /dev/net/tun");
        return;
    }
    report_goodput();
    for busy_poll in ["0us", "40us"] {
        report_lateness(busy_poll);
    }
}

fn report_goodput() {
    let mut emulated: Vec<_> = Vec::new();
    let mut plain: Vec<_> = Vec::new();
    for _ in 0..TURNS {
        emulated.push(Emulated::start(IDEAL, "0us").goodput().0);
        plain.extend(Veth::new().map(|veth| veth.goodput()));
    }
    let gbps = median(&mut emulated).expect("a run");
    println!("one TCP connection: {gbps:.2} Gbit/s (goal: at least {GOAL_GBPS})");
    match median(&mut plain) {
        Some(veth) => println!(
            "veth pair: {veth:.2} Gbit/s; the emulator has {:.0} % of it",
            100.0 * gbps / veth
        ),
        None => println!("veth pair: skipped: needs `ip`"),
    }
}

fn report_lateness(busy_poll: &str) {
    let stop = AtomicBool::new(false);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (gbps, report) = thread::scope(|scope| {
        for core in 0..cores {
            let stop = &stop;
            scope.spawn(move || keep_half_busy(core, stop));
        }
        let done = Emulated::start(PACED, busy_poll).goodput();
        stop.store(true, Ordering::Relaxed);
        done
    });
    println!(
        "100 Mbit/s with {cores} half busy cores, --busy-poll {busy_poll}: {:.1} Mbit/s",
        gbps * 1e3
    );
    for direction in ["forward", "reverse"] {
        let late = &report[direction]["timing_error"];
        let [p50, p99, max] = ["p50_ms", "p99_ms", "max_ms"].map(|key| late[key].as_f64().unwrap());
        println!(
            "{direction} late: p50 {p50:.3}, p99 {p99:.3} (goal: {GOAL_LATE_MS}), max {max:.3} ms"
        );
    }
}

/// Keeps a core busy for 2.5 ms of each 5 ms.
fn keep_half_busy(core: usize, stop: &AtomicBool) {
    let half = Duration::from_micros(2_500);
    let mut only = CpuSet::new();
    if only.set(core).is_ok() {
        // If this is not allowed, the scheduler spreads the threads.
        let _ = sched_setaffinity(Pid::from_raw(0), &only);
    }
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        while start.elapsed() < half {
            std::hint::spin_loop();
        }
        thread::sleep(half);
    }
}

/// Accepts a connection and measures its goodput in Gbit/s.
fn received(listener: &TcpListener) -> f64 {
    let mut stream = listener.accept().expect("the sender connects").0;
    let mut buffer = vec![0; 1 << 20];
    let mut receive_for = |time| goodput::receive_for(time, &mut stream, &mut buffer, |_| {});
    receive_for(WARM_UP);
    receive_for(MEASURED)
}

/// A sender behind an emulated path.
struct Emulated {
    listener: TcpListener,
    child: Child,
}

impl Emulated {
    fn start(path: &str, busy_poll: &str) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let file = env::temp_dir().join(format!("freshline-bench-{}.toml", process::id()));
        fs::write(&file, path).unwrap();
        let own = env::current_exe().unwrap();
        let script = format!("exec '{}' send $FRESHLINE_HOST:{port}", own.display());
        let child = Command::new(FRESHLINE)
            .args(["emulate", "run"])
            .arg(&file)
            .args(["--json", "--busy-poll", busy_poll])
            .args(["--", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { listener, child }
    }

    /// The goodput in Gbit/s, and the emulator's report.
    fn goodput(self) -> (f64, Value) {
        let gbps = received(&self.listener);
        let done = self.child.wait_with_output().unwrap();
        (gbps, serde_json::from_slice(&done.stdout).expect("the emulator's report"))
    }
}

/// A veth pair into a namespace, which is removed with it.
struct Veth {
    namespace: String,
}

impl Veth {
    /// `None` without the command `ip`.
    fn new() -> Option<Self> {
        let veth = Self { namespace: format!("flbench{}", process::id()) };
        let name = &veth.namespace;
        ip(&format!("netns add {name}")).then_some(())?;
        for step in [
            format!("link add {name} type veth peer name peer netns {name}"),
            format!("addr add 198.18.255.1/30 dev {name}"),
            format!("link set {name} up"),
            format!("-n {name} addr add 198.18.255.2/30 dev peer"),
            format!("-n {name} link set peer up"),
        ] {
            assert!(ip(&step), "ip {step}");
        }
        Some(veth)
    }

    fn goodput(&self) -> f64 {
        let listener = TcpListener::bind("198.18.255.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.namespace])
            .arg(env::current_exe().unwrap())
            .args(["send", &address])
            .spawn()
            .unwrap();
        let gbps = received(&listener);
        child.wait().unwrap();
        gbps
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        // The link may not exist; otherwise it is removed together with its peer's namespace.
        let _ = ip(&format!("link del {}", self.namespace));
        let _ = ip(&format!("netns del {}", self.namespace));
    }
}

fn ip(arguments: &str) -> bool {
    let done = Command::new("ip").args(arguments.split_whitespace()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}
