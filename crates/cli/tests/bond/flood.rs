//! Another program floods the device queue of one of two paths, as in Figure 2.13 of Shreedhar's thesis
//! (section 2.7.4), on the running kernel.
//!
//! ```text
//!   writer, 2.5 Mbit/s ─► client ─► v1, tbf 9 Mbit/s ─► base RTT 20 ms
//!                               │   ▲ flood, 20 Mbit/s of UDP, for 500 ms, again and again
//!                               └─► v2, tbf 6 Mbit/s ─► 80 ms
//! ```
//!
//! Mirrors in front of the queue count the bytes that the client gives to each device: behind it, a
//! change would show only after the queued packets have left.
//!
//! QAware and `min_srtt` run at the same time, and the test compares how many bytes they give to
//! the flooded device: a machine that runs programs late delays both. QAware's reaction time in
//! milliseconds is tested in virtual time (`bond::flooded` of `freshline-net`).

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use super::net::{Net, can_run};
use super::two_paths::BESIDE;

/// Of the thesis.
const RATES: [u32; 2] = [9, 6];
/// The program writes this many bytes every 8 ms: 2.5 Mbit/s, which either path has the capacity
/// for, in fewer packets than its window has room for, also while acks are late.
const PICTURE: usize = 2_500;
const PICTURES: Duration = Duration::from_millis(8);
/// First it writes this at once, so that the windows of both paths have grown.
const BULK: usize = 2_000_000;
/// The first flood comes after this time, when round trips have settled.
const SETTLED: Duration = Duration::from_secs(5);
const FLOOD: Duration = Duration::from_millis(500);
/// `min_srtt` returns to the first path some 3 s after a flood.
const PERIOD: Duration = Duration::from_millis(3500);
const FLOODS: u32 = 5;
/// The interval between printed rows, from 200 ms before a flood on.
const STEP: Duration = Duration::from_millis(100);
const STEPS: u32 = 12;
/// How often the counters are read.
const GRAIN: Duration = Duration::from_millis(5);
/// How often all of it may be measured.
const TRIES: usize = 2;
/// QAware gives the flooded device at most this fraction of its rate before the flood, and half of
/// `min_srtt`'s fraction.
const MAX_PART: f64 = 0.3;
/// Below this rate before the floods, in Mbit/s, a path is hardly used.
const USED: f64 = 0.5;

/// Bytes given to the queues of v1 and v2 up to a moment.
struct Sample {
    at: Duration,
    given: [u64; 2],
}

/// Bytes given to both devices over time, by a clock that starts with the curve.
struct Curve(Vec<Sample>);

impl Curve {
    fn given(&self, at: Duration) -> [u64; 2] {
        let after = self.0.partition_point(|sample| sample.at <= at);
        self.0[after.saturating_sub(1)].given
    }

    /// Between two moments.
    fn mbps(&self, from: Duration, to: Duration) -> [f64; 2] {
        let [before, after] = [from, to].map(|at| self.given(at));
        [0, 1].map(|path| (after[path] - before[path]) as f64 * 8e-6 / (to - from).as_secs_f64())
    }
}

/// The result of a scheduler.
struct Run {
    scheduler: &'static str,
    curve: Curve,
    /// When the floods began.
    starts: Vec<Duration>,
}

impl Run {
    /// The mean over all floods of the rates between two moments, counted from 1 s before a flood, in
    /// Mbit/s.
    fn mean(&self, from: Duration, to: Duration) -> [f64; 2] {
        let second = Duration::from_secs(1);
        let rates =
            self.starts.iter().map(|at| self.curve.mbps(*at + from - second, *at + to - second));
        let sum = rates.fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d]);
        sum.map(|sum| sum / self.starts.len() as f64)
    }

    /// The flooded device's rate during a flood, as a fraction of the rate in the second before it:
    /// the median of all floods, as a pause of the machine spoils one of them.
    fn part(&self) -> f64 {
        let second = Duration::from_secs(1);
        let scheduler = self.scheduler;
        for path in [0, 1] {
            let rates = (0..STEPS).map(|step| {
                let from = second + STEP * step - 2 * STEP;
                format!("{:4.1}", self.mean(from, from + STEP)[path])
            });
            let rates: Vec<_> = rates.collect();
            println!("flood | {scheduler} | v{} | {}", path + 1, rates.join(" "));
        }
        let parts = self.starts.iter().map(|at| {
            let [before, _] = self.curve.mbps(*at - second, *at);
            let [during, _] = self.curve.mbps(*at, *at + FLOOD);
            // A path that is hardly used is not left.
            if before > USED { during / before } else { 1.0 }
        });
        let mut parts: Vec<_> = parts.collect();
        parts.sort_by(f64::total_cmp);
        println!(
            "flood | {scheduler} | parts of the rate before that v1 gets in a flood: {parts:.2?}"
        );
        parts[parts.len() / 2]
    }
}

/// Mirrors the client's packets for its devices to m1 and m2, where they are counted.
fn mirror(net: &Net) {
    for path in [1, 2] {
        net.ip("c", &format!("link add m{path} type veth peer name n{path}"));
        for device in ["m", "n"] {
            net.ip("c", &format!("link set dev {device}{path} up"));
        }
        net.tc("c", &format!("qdisc add dev v{path} clsact"));
        // The bond's, and not the flood's.
        let port = 3775 + path;
        net.tc(
            "c",
            &format!(
                "filter add dev v{path} egress protocol ip u32 match ip dport {port} 0xffff \
                 action mirred egress mirror dev m{path}"
            ),
        );
    }
}

/// Bytes that have left by m1 and m2 of this thread's namespace.
fn mirrored() -> [u64; 2] {
    let devices = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    [1, 2].map(|path| {
        let name = format!("m{path}:");
        let line = devices.lines().find_map(|line| line.trim_start().strip_prefix(&name));
        line.and_then(|line| line.split_whitespace().nth(8)?.parse().ok()).expect("a counter")
    })
}

/// Writes a large block first, and then one picture after the other, for `span`.
fn write_pictures(mut stream: TcpStream, span: Duration) {
    let began_at = Instant::now();
    stream.write_all(&vec![7; BULK]).unwrap();
    while began_at.elapsed() < span {
        let due = began_at.elapsed() + PICTURES;
        stream.write_all(&[7; PICTURE]).unwrap();
        thread::sleep(due.saturating_sub(began_at.elapsed()));
    }
}

/// Both schedulers at the same time, each between hosts of its own.
fn floods(schedulers: [&'static str; 2]) -> [Run; 2] {
    let _turn = BESIDE.write().unwrap_or_else(PoisonError::into_inner);
    let nets = schedulers.map(|scheduler| (scheduler, Net::at((), RATES)));
    thread::scope(|scope| {
        let runs = nets.each_ref().map(|(name, net)| scope.spawn(|| flooded(net, name)));
        runs.map(|run| run.join().unwrap())
    })
}

/// One scheduler, flood after flood.
fn flooded(net: &Net, scheduler: &'static str) -> Run {
    net.serve(|mut stream: TcpStream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let _server = net.server("--allow 10.79.9.9:8000");
    let _near = net.emulated("10.79.1.2:3776", ["delay=10ms", "delay=10ms"]);
    let _far = net.emulated("10.79.2.2:3777", ["delay=40ms", "delay=40ms"]);
    mirror(net);
    let via = "--via v1@10.79.1.2:3776,v2@10.79.2.2:3777";
    let _client = net.client_via(&format!("{via} --scheduler {scheduler}"));
    let stream = net.connect();
    let all = SETTLED + PERIOD * FLOODS;
    let began_at = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| write_pictures(stream, all));
        let curve = scope.spawn(|| {
            net.within("c", || {
                let mut samples = Vec::new();
                while began_at.elapsed() < all {
                    samples.push(Sample { at: began_at.elapsed(), given: mirrored() });
                    thread::sleep(GRAIN);
                }
                Curve(samples)
            })
        });
        let starts = (0..FLOODS).map(|flood| {
            let due = SETTLED + PERIOD * flood;
            thread::sleep(due.saturating_sub(began_at.elapsed()));
            let at = began_at.elapsed();
            net.flood("10.79.1.2:9", FLOOD);
            at
        });
        let starts = starts.collect();
        Run { scheduler, curve: curve.join().unwrap(), starts }
    })
}

#[test]
#[ignore = "long: measures rates in real time"]
fn qaware_leaves_a_flooded_device_at_once_and_min_srtt_when_acks_tell() {
    if !can_run() {
        return;
    }
    // A pause in the first seconds leaves a window too small for the rate.
    let is_as_wanted = |_| {
        let [qaware, min_srtt] = floods(["qaware", "min_srtt"]).map(|run| run.part());
        qaware < MAX_PART && qaware < min_srtt / 2.0
    };
    assert!((0..TRIES).any(is_as_wanted));
}
