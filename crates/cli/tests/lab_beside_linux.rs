//! The lab's TCP compared with the kernel's, over the same path: 20 Mbit/s, 20 ms, a queue of 2000
//! packets. The kernel's stream runs through `freshline emulate run`, and is measured from the
//! emulator's capture, which must agree with the socket's own statistics.

#[path = "common/verdict.rs"]
mod verdict;

use std::fs::{self, File};
use std::io;
use std::net::{Shutdown, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use freshline_lab::capture::{FlowReport, Limits, measure};
use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::{Change, Scenario};
use nix::unistd::Uid;
use serde_json::Value;
use verdict::{Verdict, failed};

const LAWS: [&str; 3] = ["cubic", "reno", "bbr"];
/// Up to here the emulator's lateness does not look like a faster link to BBR: a hundredth of the
/// round trip.
const STEADY_MS: f64 = 0.2;
/// A hundredth of the smaller of the round trips with a queue. With a larger lateness, the emulator
/// showed another path.
const TIMELY_MS: f64 = 7.0;
const LENGTH: Duration = Duration::from_secs(60);

const PATH: &str = "\
[[forward.hop]]
rate = \"20mbit\"
delay = \"10ms\"
queue = \"2000p\"
[[reverse.hop]]
delay = \"10ms\"
";

const SCENARIO: &str = "\
title = \"the same path\"
duration = \"60s\"
runs = 4
[[link]]
name = \"bottleneck\"
forward = { rate = \"20mbit\", delay = \"10ms\", queue = \"2000p\" }
reverse = { delay = \"10ms\" }
[[flow]]
name = \"tcp\"
path = [\"bottleneck\"]
start_spread = \"100ms\"
tcp = { control = \"cubic\", send_buffer = [\"16kB\", \"32MB\"] }
";

/// The missing capability of this machine, if any.
fn missing() -> Option<String> {
    if !Uid::effective().is_root() {
        return Some("root".to_owned());
    }
    let no_ss = Command::new("ss").arg("-V").output().is_err().then(|| "ss and ip".to_owned());
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let known = known.unwrap_or_default();
    let unknown = LAWS.iter().find(|law| !known.split_whitespace().any(|one| one == **law));
    let tun = (!Path::new("/dev/net/tun").exists()).then(|| "/dev/net/tun".to_owned());
    tun.or(no_ss).or_else(|| unknown.map(|law| format!("TCP {law} in the kernel")))
}

/// Sends behind the path for [`LENGTH`], and prints the socket's statistics each 100 ms. The
/// namespace is new, so that the kernel remembers nothing of earlier streams. The send buffer can
/// hold the whole queue: otherwise its size would depend on the size of the writes.
fn sender(folder: &Path, law: &str, port: u16) -> Child {
    let capture = folder.join(law).with_extension("pcap");
    let at = |point: &str| format!("{point}={}", capture.display());
    let samples = LENGTH.as_millis() / 100;
    let script = format!(
        "set -e
        echo 4096 16384 33554432 >/proc/sys/net/ipv4/tcp_wmem
        device=$(ip -o route get $FRESHLINE_HOST | sed 's/.* dev \\([^ ]*\\) .*/\\1/')
        ip route add $FRESHLINE_HOST/32 dev $device congctl {law}
        exec 3<>/dev/tcp/$FRESHLINE_HOST/{port}
        cat /dev/zero >&3 & sending=$!
        for ((i = 0; i < {samples}; i++)); do ss -tinH dport = :{port}; sleep 0.1; done
        kill $sending"
    );
    Command::new(env!("CARGO_BIN_EXE_freshline"))
        .args(["emulate", "run"])
        .arg(folder.join("path.toml"))
        .args(["--seed", "1", "--json", "--pcap", &at("forward.0"), "--pcap", &at("reverse.1")])
        .args(["--", "bash", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Measurements of the kernel's stream.
struct Kernel {
    /// From the capture.
    flow: FlowReport,
    /// The mean of the socket's own smoothed round trips.
    socket_ms: f64,
    /// How late the emulator sent on one packet in a hundred.
    late_ms: f64,
}

fn kernel(folder: &Path, law: &str) -> Kernel {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let sender = sender(folder, law, listener.local_addr().unwrap().port());
    let (mut stream, _) = listener.accept().unwrap();
    let incoming = stream.try_clone().unwrap();
    let reader = thread::spawn(move || io::copy(&mut stream, &mut io::sink()));
    let printed = sender.wait_with_output().unwrap().stdout;
    // The peer disappears without closing if much was still in flight.
    let _ = incoming.shutdown(Shutdown::Both);
    let _ = reader.join().unwrap();
    let printed = String::from_utf8(printed).unwrap();
    let (samples, report) = printed.split_at(printed.find("\n{").expect("a report"));
    let samples = smoothed_rtts_ms(samples);
    let report: Value = serde_json::from_str(report).unwrap();
    let late = |direction: &str| report[direction]["timing_error"]["p99_ms"].as_f64().unwrap();
    let capture = File::open(folder.join(law).with_extension("pcap")).unwrap();
    let flows = measure(capture, Limits::default()).report.flows;
    let flow = flows.into_iter().max_by_key(|flow| flow.bytes).expect("a flow in the capture");
    let socket_ms = samples.iter().sum::<f64>() / samples.len() as f64;
    Kernel { flow, socket_ms, late_ms: late("forward").max(late("reverse")) }
}

/// The smoothed round trips that `ss` printed: `… rtt:41.2/1.5 …`.
fn smoothed_rtts_ms(printed: &str) -> Vec<f64> {
    let rtts = printed.split_whitespace().filter_map(|word| word.strip_prefix("rtt:"));
    rtts.filter_map(|rtt| rtt.split('/').next()?.parse().ok()).collect()
}

fn lab(law: &str) -> Vec<Metric> {
    let change = Change::parse(&format!("flow.tcp.tcp.control={law}")).unwrap();
    run(&Scenario::parse_with(SCENARIO, &[change]).unwrap(), || {}).unwrap()
}

fn value(metrics: &[Metric], name: &str) -> f64 {
    metrics.iter().find(|metric| metric.name == name && metric.of == "tcp").unwrap().value
}

#[test]
#[ignore = "long: measures delays in real time"]
fn the_lab_carries_what_the_kernel_carries_and_takes_as_long() {
    if let Some(missing) = missing() {
        println!("skipped: needs {missing}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("path.toml"), PATH).unwrap();
    let folder = folder.path();
    let measure = |law: &&str| compared(folder, law);
    // Only BBR: it takes the maximum delivery rate that it saw for the link's, and the emulator's
    // jitter makes that rate too high now and then.
    let others = LAWS.len() - 1;
    let failed: Vec<_> =
        [failed(&LAWS[others..], 1, measure), failed(&LAWS[..others], others, measure)].concat();
    assert!(failed.is_empty(), "not as in the lab: {failed:?}");
}

/// One law's stream in both worlds.
fn compared(folder: &Path, law: &str) -> Verdict {
    let Kernel { flow, socket_ms, late_ms } = kernel(folder, law);
    let lab = lab(law);
    let rtt_ms = flow.rtt.as_ref().expect("round trips in the capture").mean_ms;
    let goodput = flow.goodput_bps.expect("something was carried") as f64;
    let (lab_rtt_ms, lab_goodput) = (value(&lab, "rtt_mean") * 1e3, value(&lab, "goodput"));
    println!(
        "{law}: rtt {rtt_ms:.1} ms (socket {socket_ms:.1}), lab {lab_rtt_ms:.1}; goodput \
         {:.2} Mbit/s, lab {:.2}; sent on late by {late_ms:.3} ms",
        goodput / 1e6,
        lab_goodput / 1e6
    );
    let is_near = |ours: f64, theirs: f64, tolerance: f64| (ours / theirs - 1.0).abs() < tolerance;
    let is_rtt_judged = law != "bbr" || late_ms < STEADY_MS;
    if !is_rtt_judged {
        println!("bbr's round trip is not judged: this machine is too busy to keep time");
    }
    let is_as_wanted = is_near(lab_goodput, goodput, 0.1)
        && is_near(rtt_ms, socket_ms, 0.05)
        && (!is_rtt_judged || is_near(lab_rtt_ms, rtt_ms, 0.1));
    Verdict::of(is_as_wanted, late_ms, TIMELY_MS)
}
