//! Somebody else floods the device queue of one of two paths: Figure 2.13 of Shreedhar's thesis
//! (section 2.7.4), on the running kernel.
//!
//! ```text
//!   writer, 5 Mbit/s ─► client ─► v1, tbf 9 Mbit/s ─► 40 ms there and back
//!                             │   ▲ flood, 20 Mbit/s of UDP, for 2 s
//!                             └─► v2, tbf 6 Mbit/s ─► 60 ms
//! ```
//!
//! What the client gives to either device is mirrored as it comes, before the queue: behind it, a
//! change would show only when what waits has left.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::lateness::Sleeper;
use super::net::{Net, can_run};
use super::verdict::Verdict;

/// Of the thesis.
const RATES: [u32; 2] = [9, 6];
/// What the program writes, as pictures come: so many bytes every 8 ms, 5 Mbit/s, which either path
/// can carry alone.
const PICTURE: usize = 5_000;
const PICTURES: Duration = Duration::from_millis(8);
/// First it writes this at once, so that the windows of both paths have grown.
const BULK: usize = 4_000_000;
/// The first flood comes after this time, when round trips have settled.
const SETTLED: Duration = Duration::from_secs(7);
const FLOOD: Duration = Duration::from_secs(2);
const PERIOD: Duration = Duration::from_secs(9);
const FLOODS: u32 = 3;
/// The grain of what is printed, from a second before a flood to two after it.
const STEP: Duration = Duration::from_millis(500);
/// How often the counters are read.
const GRAIN: Duration = Duration::from_millis(5);
/// A share is that of so much time, some ten packets.
const WINDOW: Duration = Duration::from_millis(30);
/// What QAware must do it in, by the median.
const SOON: Duration = Duration::from_millis(100);
/// Later than this, one time in a hundred, programs see a queue too late: a fifth of that.
const TIMELY_MS: f64 = 20.0;
/// Of a flood on a path that carries less than this part, nothing can be seen.
const USED: f64 = 0.2;

/// What has gone into the queues of v1 and v2 at a moment, in bytes.
struct Sample {
    at: Duration,
    given: [u64; 2],
}

/// What was given to both devices over time, by a clock that starts with it.
struct Curve(Vec<Sample>);

impl Curve {
    fn given(&self, at: Duration) -> [u64; 2] {
        let after = self.0.partition_point(|sample| sample.at <= at);
        self.0[after.saturating_sub(1)].given
    }

    /// Between two moments, in bytes.
    fn between(&self, from: Duration, to: Duration) -> [u64; 2] {
        let [from, to] = [from, to].map(|at| self.given(at));
        [to[0] - from[0], to[1] - from[1]]
    }

    /// The part of the first path; of nothing, half.
    fn share(&self, from: Duration, to: Duration) -> f64 {
        let [first, second] = self.between(from, to);
        if first + second == 0 { 0.5 } else { first as f64 / (first + second) as f64 }
    }

    fn mbps(&self, from: Duration, to: Duration) -> [f64; 2] {
        self.between(from, to).map(|bytes| bytes as f64 * 8e-6 / (to - from).as_secs_f64())
    }

    /// How long after `from` the share of the first path is on the other side of `limit`, and stays
    /// there for the next 100 ms in the mean.
    fn shifted(
        &self,
        from: Duration,
        within: Duration,
        is_there: impl Fn(f64) -> bool,
    ) -> Option<Duration> {
        let steps = (WINDOW.as_millis() as u64..).step_by(GRAIN.as_millis() as usize);
        steps.map(Duration::from_millis).take_while(|after| *after <= within).find(|after| {
            let end = from + *after;
            is_there(self.share(end - WINDOW, end))
                && is_there(self.share(end, end + Duration::from_millis(100)))
        })
    }
}

/// Mirrors what the client gives to its devices to m1 and m2, where it is counted.
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

/// What has left by m1 and m2 of this thread's namespace, in bytes.
fn mirrored() -> [u64; 2] {
    let devices = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    [1, 2].map(|path| {
        let name = format!("m{path}:");
        let line = devices.lines().find_map(|line| line.trim_start().strip_prefix(&name));
        line.and_then(|line| line.split_whitespace().nth(8)?.parse().ok()).expect("a counter")
    })
}

/// Writes much at once, and then a picture after the other, until so long has passed.
fn write_pictures(mut stream: TcpStream, span: Duration) {
    let began_at = Instant::now();
    stream.write_all(&vec![7; BULK]).unwrap();
    while began_at.elapsed() < span {
        let due = began_at.elapsed() + PICTURES;
        stream.write_all(&[7; PICTURE]).unwrap();
        thread::sleep(due.saturating_sub(began_at.elapsed()));
    }
}

/// What one scheduler does, flood after flood, and how late the machine lets programs run meanwhile,
/// in ms.
fn floods(scheduler: &str) -> (Curve, Vec<Duration>, f64) {
    let net = Net::new(RATES);
    net.serve(|mut stream: TcpStream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let _server = net.server("--allow 10.79.9.9:8000");
    let _near = net.emulated("10.79.1.2:3776", ["delay=20ms", "delay=20ms"]);
    let _far = net.emulated("10.79.2.2:3777", ["delay=30ms", "delay=30ms"]);
    mirror(&net);
    let via = "--via v1@10.79.1.2:3776,v2@10.79.2.2:3777";
    let _client = net.client_via(&format!("{via} --scheduler {scheduler}"));
    let stream = net.connect();
    let sleeper = Sleeper::start();
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
        (curve.join().unwrap(), starts, sleeper.late_ms())
    })
}

fn median(spans: &[Duration]) -> Option<Duration> {
    let mut sorted = spans.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied()
}

/// How long this scheduler takes to leave the flooded path, by the median of the floods before which
/// it used that; `None` if it never did. And how late the machine was, in ms.
fn leaves_after(scheduler: &str) -> (Option<Duration>, f64) {
    let (curve, starts, late_ms) = floods(scheduler);
    let shifts = starts.iter().filter_map(|start| {
        let before = curve.share(*start - Duration::from_secs(1), *start);
        if before <= USED {
            println!("flood | {scheduler} | {before:.2} of all by v1 before a flood: left out");
            return None;
        }
        let (half, quiet) = (before / 2.0, PERIOD - FLOOD - Duration::from_secs(1));
        let away = curve.shifted(*start, FLOOD, |share| share < half).unwrap_or(FLOOD);
        let back = curve.shifted(*start + FLOOD, quiet, |share| share > half).unwrap_or(quiet);
        Some((away, back))
    });
    let (away, back): (Vec<_>, Vec<_>) = shifts.unzip();
    for path in [0, 1] {
        let rates = (-2..8).map(|step: i32| {
            let of = |start: &Duration| {
                let from = (*start + STEP * (step + 2) as u32).saturating_sub(2 * STEP);
                curve.mbps(from, from + STEP)[path]
            };
            format!("{:4.1}", starts.iter().map(of).sum::<f64>() / f64::from(FLOODS))
        });
        let rates: Vec<_> = rates.collect();
        println!("flood | {scheduler} | v{} | {}", path + 1, rates.join(" "));
    }
    println!(
        "flood | {scheduler} | away after {away:.0?} | back after {back:.0?} | late by {late_ms:.1} ms"
    );
    (median(&away), late_ms)
}

#[test]
fn qaware_leaves_a_flooded_device_at_once_and_min_srtt_when_acks_tell() {
    if !can_run() {
        return;
    }
    // A busy machine may hold up a client, or a counter's reader, for longer than all of this takes.
    let compared = || {
        let [(qaware, late), (min_srtt, late_too)] = ["qaware", "min_srtt"].map(leaves_after);
        let is_as_wanted = qaware.is_some_and(|qaware| {
            qaware <= SOON && min_srtt.is_some_and(|min_srtt| qaware < min_srtt)
        });
        Verdict::of(is_as_wanted, late.max(late_too), TIMELY_MS)
    };
    assert!(compared().or_again(compared));
}
