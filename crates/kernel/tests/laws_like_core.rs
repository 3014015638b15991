//! The integers of the kernel's laws beside the core's floating point: both are told the same, and
//! must choose the same windows, within [`TOLERANCE`].

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use freshline_core::receiver::{
    Arrival, DrwaParams, Flight, Limits, Remote, RtacParams, WindowLaw, slope,
};
use freshline_core::unit::{BitRate, Bytes, Span, Time};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

/// How far apart windows may be, in parts of the core's. Integers know what a path holds in whole
/// bytes (which may be one segment of 536), its length in units of 64 ns (1500 of them here), and
/// roots with 14 bits of fraction.
const TOLERANCE: f64 = 0.01;

/// TCP's largest window, which the kernel's law does not go beyond.
const LARGEST: u64 = 1 << 30;

const SEGMENT: u64 = 1448;

/// What the C of the laws answers to these lines, each in a line.
fn on_host(lines: &str) -> Vec<u64> {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("laws_on_host");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/laws_on_host.c");
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-fsanitize=undefined", "-o"])
        .arg(&program)
        .arg(source)
        .status()
        .unwrap();
    assert!(compiled.success());
    let input = folder.path().join("lines");
    std::fs::write(&input, lines).unwrap();
    let done = Command::new(program)
        .stdin(File::open(input).unwrap())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(done.status.success());
    let printed = String::from_utf8(done.stdout).unwrap();
    printed.lines().map(|line| line.parse().unwrap()).collect()
}

/// How far the kernel's window is from the core's, in parts of this one.
fn distance(kernel: u64, core: u64) -> f64 {
    kernel.abs_diff(core) as f64 / core as f64
}

#[test]
fn a_window_follows_from_a_round_trip_as_in_the_core() {
    let mut rng = Pcg32::seed_from_u64(5);
    let mut lines = String::new();
    let mut expected = Vec::new();
    while expected.len() < 5000 {
        // From 100 us to 10 s, from 64 kbit/s to 64 Gbit/s, evenly by magnitude.
        let rtt = (1e5 * 1e5_f64.powf(rng.random())) as u64;
        let base = (rtt as f64 * 0.01_f64.powf(rng.random())).max(1e5) as u64;
        let rate = (8e3 * 1e6_f64.powf(rng.random())) as u64;
        // The rate is that of the flight, or the larger one of a bucket.
        let bytes = (rate as f64 * rtt as f64 / 1e9 * 0.1_f64.powf(rng.random())) as u64;
        let segment = rng.random_range(536..9000);
        let theta = rng.random_range(1050..10_000);
        let flight = Flight {
            rtt: Span::from_nanos(rtt),
            base: Span::from_nanos(base),
            bytes: Bytes::new(bytes),
            segment: Bytes::new(segment),
        };
        let bdp = flight.bdp(BitRate::from_bps(rate * 8));
        let window = flight.window(slope(bdp, theta as f64 / 1e3)) as u64;
        // Beyond these, the law has bounds.
        let held = (bdp * segment as f64) as u64;
        let is_bounded = held.max(bytes).max(window) >= LARGEST || window < 4 * segment;
        if bdp < 1.0 || is_bounded {
            continue;
        }
        writeln!(lines, "window {rate} {rtt} {base} {bytes} {segment} {theta}").unwrap();
        expected.push(window);
    }
    let windows = on_host(&lines);
    assert_eq!(windows.len(), expected.len());
    for ((line, kernel), core) in lines.lines().zip(windows).zip(expected) {
        assert!(distance(kernel, core) < TOLERANCE, "{line}: {kernel}, the core {core}");
    }
}

/// A path at a time: 20 Mbit/s and 20 ms; slower for a while, then longer for a while.
fn path_at(now: Time) -> (BitRate, Span) {
    let seconds = now.since(Time::ZERO).as_secs_f64();
    let rate = BitRate::from_mbps(if (4.0..8.0).contains(&seconds) { 5 } else { 20 });
    (rate, Span::from_millis(if (12.0..60.0).contains(&seconds) { 80 } else { 20 }))
}

/// A connection over that path for 75 s: what the kernel's law `named` is told, and the core's
/// windows. The sender fills the window, from slow start on.
fn connection(named: &str, core: &mut dyn WindowLaw) -> (String, Vec<(Time, u64)>) {
    let length = Time::ZERO + Span::from_secs(75);
    let mut rng = Pcg32::seed_from_u64(7);
    let mut lines = format!("{named}\n");
    let mut windows = Vec::new();
    // What is on its way is known by the time of the ack that let it go.
    let mut on_its_way = VecDeque::from([Time::ZERO; 10]);
    let mut congestion_window = 10;
    let mut now = Time::ZERO;
    while now < length {
        let acked_at = on_its_way.pop_front().unwrap();
        let (rate, base) = path_at(acked_at);
        let jitter = Span::from_micros(rng.random_range(0..1000));
        // Round trips end with an arrival: on an even grid, a difference of 1 ns could move an end
        // by a packet.
        let off_the_grid = Span::from_nanos(rng.random_range(0..10_000));
        now = now.max(acked_at + base + jitter) + rate.time_to_send(Bytes::new(SEGMENT));
        now += off_the_grid;
        let sample = now.since(acked_at);
        core.on_round_trip(now, sample);
        writeln!(lines, "round_trip {} {}", now.as_nanos(), sample.as_nanos()).unwrap();
        let segment = Bytes::new(SEGMENT);
        core.on_arrival(now, Arrival { bytes: segment, segment });
        writeln!(lines, "arrival {} {SEGMENT} {SEGMENT}", now.as_nanos()).unwrap();
        windows.push((now, core.window().get()));

        congestion_window = (congestion_window + 1).min(1000);
        // None yet: the kernel's own.
        let window = match core.window().get() {
            0 => usize::MAX,
            bytes => (bytes / SEGMENT) as usize,
        };
        let allowed = window.min(congestion_window).max(1);
        while on_its_way.len() < allowed {
            on_its_way.push_back(now);
        }
    }
    (lines, windows)
}

const LIMITS: Limits = Limits { initial: Bytes::ZERO, most: Bytes::new(LARGEST) };

/// Whether the kernel's law, told these lines, chose these windows.
#[track_caller]
fn assert_follows(lines: &str, expected: &[(Time, u64)]) {
    let windows = on_host(lines);
    assert_eq!(windows.len(), expected.len());
    for (kernel, (now, core)) in windows.into_iter().zip(expected) {
        assert!(
            *core == kernel || distance(kernel, *core) < TOLERANCE,
            "{now:?}: {kernel}, the core {core}"
        );
    }
}

#[test]
fn windows_follow_from_a_connection_as_in_the_core() {
    let mut core = RtacParams::default().build(LIMITS, Remote::default()).unwrap();
    let (lines, expected) = connection("rtac 1380 0", &mut core);
    assert_follows(&lines, &expected);
    let least = 4 * SEGMENT;
    let drained = expected.iter().any(|(_, window)| *window == least);
    assert!(drained, "the longer path never had the law drain the queue");
}

#[test]
fn drwa_follows_from_a_connection_as_in_the_core() {
    let mut core = DrwaParams::default().build(LIMITS).unwrap();
    let (lines, expected) = connection("drwa 0 0", &mut core);
    assert_follows(&lines, &expected);
}
