//! The integer arithmetic of the kernel's laws compared with the core's floating point: both get
//! the same inputs, and must choose the same windows, within [`TOLERANCE`].

mod common;

use std::collections::VecDeque;
use std::fmt::Write as _;

use common::on_host;
use freshline_core::receiver::{
    A, Algorithm1, Arrival, Delta, Drwa, DrwaParams, Flight, Limits, QueueOwner, Remote, Rtac,
    RtacParams, Slope, WindowLaw, slope,
};
use freshline_core::unit::{BitRate, Bytes, Span, Time};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

/// Maximum relative difference of windows, as a fraction of the core's. Integers have a path's
/// capacity in whole bytes (which may be one segment of 536), its length in units of 64 ns (1500 of
/// them here), and roots with 14 bits of fraction.
const TOLERANCE: f64 = 0.01;

/// TCP's largest window, which the kernel's law does not go beyond.
const LARGEST: u64 = 1 << 30;

const SEGMENT: u64 = 1448;

/// The C of the laws, as a program.
const PROGRAM: &str = "laws_on_host";

/// Difference of the kernel's window from the core's, as a fraction of the core's.
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
    let windows = on_host(PROGRAM, &lines);
    assert_eq!(windows.len(), expected.len());
    for ((line, kernel), core) in lines.lines().zip(windows).zip(expected) {
        let kernel = kernel[0];
        assert!(distance(kernel, core) < TOLERANCE, "{line}: {kernel}, the core {core}");
    }
}

/// The rate and the length of a path at a time.
type Path = fn(Time) -> (BitRate, Span);

/// 20 Mbit/s and 20 ms; slower for a while, then longer for a while.
fn changing(now: Time) -> (BitRate, Span) {
    let seconds = now.since(Time::ZERO).as_secs_f64();
    let rate = BitRate::from_mbps(if (4.0..8.0).contains(&seconds) { 5 } else { 20 });
    (rate, Span::from_millis(if (12.0..60.0).contains(&seconds) { 80 } else { 20 }))
}

/// Holds less than the minimum window; later no queue lengthens it.
fn short(now: Time) -> (BitRate, Span) {
    let is_early = now < Time::ZERO + Span::from_secs(20);
    (BitRate::from_mbps(10), Span::from_millis(if is_early { 2 } else { 40 }))
}

/// Holds less than the minimum window, which therefore causes a queue.
fn slow(_now: Time) -> (BitRate, Span) {
    (BitRate::from_mbps(1), Span::from_millis(5))
}

/// RTAC with its defaults, as input of the kernel's program.
const RTAC: &str = "rtac 1380 0 0 0";

#[derive(Debug)]
enum Core {
    Rtac(Rtac),
    Pure(Algorithm1),
    Drwa(Drwa),
}

impl Core {
    fn law(&mut self) -> &mut dyn WindowLaw {
        match self {
            Self::Rtac(law) => law,
            Self::Pure(law) => law,
            Self::Drwa(law) => law,
        }
    }

    /// The flow that owns the queue; only RTAC reports it.
    fn queue_owner(&self) -> Option<QueueOwner> {
        if let Self::Rtac(law) = self { Some(law.queue_owner()) } else { None }
    }
}

/// A connection, whose sender fills the window, from slow start on.
struct Flow {
    law: Core,
    /// Segments in flight, each by the time of the ack that released it.
    on_its_way: VecDeque<Time>,
    congestion_window: usize,
    /// More the sender never has in flight.
    most: usize,
    /// When it ends.
    leaves_at: Time,
}

impl Flow {
    fn of(law: Core) -> Self {
        Self {
            law,
            on_its_way: VecDeque::from([Time::ZERO; 10]),
            congestion_window: 10,
            most: 1000,
            leaves_at: Time::MAX,
        }
    }

    /// A segment came.
    fn on_arrival(&mut self, now: Time, sample: Span) {
        let segment = Bytes::new(SEGMENT);
        let law = self.law.law();
        law.on_round_trip(now, sample);
        law.on_arrival(now, Arrival { bytes: segment, segment });
        law.on_read(now, segment);
        let window = law.window().get();
        if now >= self.leaves_at {
            self.on_its_way.clear();
            return;
        }
        self.congestion_window = (self.congestion_window + 1).min(self.most);
        // None yet: the kernel's own.
        let window = match window {
            0 => usize::MAX,
            bytes => (bytes / SEGMENT) as usize,
        };
        let allowed = window.min(self.congestion_window).max(1);
        while self.on_its_way.len() < allowed {
            self.on_its_way.push_back(now);
        }
    }
}

/// The result of an arrival.
#[derive(Debug)]
struct Outcome {
    now: Time,
    flow: usize,
    core: u64,
    owner: Option<QueueOwner>,
}

/// Connections of one remote host over one path for `seconds`: the input of the kernel's law
/// `named`, and the core's windows.
fn connections(
    named: &str,
    flows: &mut [Flow],
    path: Path,
    seconds: u64,
) -> (String, Vec<Outcome>) {
    let mut rng = Pcg32::seed_from_u64(7);
    let mut lines = format!("{named}\n");
    let mut outcomes = Vec::new();
    let mut now = Time::ZERO;
    while now < Time::ZERO + Span::from_secs(seconds) {
        let next = |flow: &usize| flows[*flow].on_its_way[0];
        let waiting = (0..flows.len()).filter(|flow| !flows[*flow].on_its_way.is_empty());
        let flow = waiting.min_by_key(next).unwrap();
        let acked_at = flows[flow].on_its_way.pop_front().unwrap();
        let (rate, base) = path(acked_at);
        let jitter = Span::from_micros(rng.random_range(0..1000));
        // Round trips end with an arrival: on an even grid, a difference of 1 ns could move an end
        // by a packet.
        let off_the_grid = Span::from_nanos(rng.random_range(0..10_000));
        now = now.max(acked_at + base + jitter) + rate.time_to_send(Bytes::new(SEGMENT));
        now += off_the_grid;
        let sample = now.since(acked_at);
        let at = now.as_nanos();
        writeln!(lines, "round_trip {flow} {at} {}", sample.as_nanos()).unwrap();
        writeln!(lines, "arrival {flow} {at} {SEGMENT} {SEGMENT}").unwrap();
        flows[flow].on_arrival(now, sample);
        let law = &mut flows[flow].law;
        let (core, owner) = (law.law().window().get(), law.queue_owner());
        outcomes.push(Outcome { now, flow, core, owner });
    }
    (lines, outcomes)
}

const LIMITS: Limits = Limits { initial: Bytes::ZERO, most: Bytes::new(LARGEST) };

/// `enum ownership` of the kernel's law.
const ALONE: u64 = 0;
const HALVING: u64 = 1;
const RAISING: u64 = 2;
const SHARED: u64 = 3;
const DRAINING: u64 = 4;
const GROWING: u64 = 5;

/// Connections over a path, for which the kernel's law must choose the core's windows. Returns the
/// kernel's states from one change to the next, each with the outcome that began it.
#[track_caller]
fn states(named: &str, mut flows: Vec<Flow>, path: Path, seconds: u64) -> Vec<(u64, Outcome)> {
    let (lines, outcomes) = connections(named, &mut flows, path, seconds);
    let told = on_host(PROGRAM, &lines);
    assert_eq!(told.len(), outcomes.len());
    let mut states: Vec<(u64, Outcome)> = Vec::new();
    for (row, outcome) in told.into_iter().zip(outcomes) {
        let [kernel, state, owner] = row[..] else { panic!("{row:?}") };
        assert!(
            outcome.core == kernel || distance(kernel, outcome.core) < TOLERANCE,
            "{outcome:?}: the kernel {kernel}"
        );
        let owner = QueueOwner::ALL[owner as usize];
        assert!(outcome.owner.is_none_or(|core| core == owner), "{outcome:?}: {owner:?}");
        if states.last().is_none_or(|(last, _)| *last != state) {
            states.push((state, outcome));
        }
    }
    states
}

fn rtac(remote: &Remote) -> Flow {
    Flow::of(Core::Rtac(RtacParams::default().build(LIMITS, remote.clone()).unwrap()))
}

#[track_caller]
fn assert_were(states: &[(u64, Outcome)], sequence: &[u64]) {
    let numbers: Vec<_> = states.iter().map(|(state, _)| *state).collect();
    assert!(numbers.windows(sequence.len()).any(|some| some == sequence), "{numbers:?}");
}

#[test]
fn windows_follow_from_a_connection_as_in_the_core() {
    let states = states(RTAC, vec![rtac(&Remote::default())], changing, 75);
    // The longer path is taken for others' queue until the law drains it.
    assert_were(&states, &[ALONE, HALVING, SHARED, HALVING, DRAINING, ALONE]);
}

#[test]
fn what_a_path_is_longer_now_and_then_counts_as_in_the_core() {
    let delta = Span::from_millis(8);
    let law = RtacParams { delta: Delta::Fixed(delta), ..RtacParams::default() };
    let flow = Flow::of(Core::Rtac(law.build(LIMITS, Remote::default()).unwrap()));
    states("rtac 1380 8000000 0 0", vec![flow], changing, 75);
}

/// 20 ms at first; then, for a while, 8 ms longer without a queue.
fn varying(now: Time) -> (BitRate, Span) {
    let seconds = now.since(Time::ZERO).as_secs_f64();
    let is_longer = (0.1..40.0).contains(&seconds);
    (BitRate::from_mbps(100), Span::from_millis(if is_longer { 28 } else { 20 }))
}

#[test]
fn delta_is_learnt_and_falls_again_as_in_the_core() {
    let law = RtacParams { delta: Delta::Learn, ..RtacParams::default() };
    let flow = |remote: &Remote| Flow::of(Core::Rtac(law.build(LIMITS, remote.clone()).unwrap()));
    let learning = format!("rtac 1380 {} 0 0", u64::MAX);
    let remote = Remote::default();
    let alone = states(&learning, vec![flow(&remote)], varying, 75);
    assert_were(&alone, &[ALONE, GROWING, ALONE, HALVING, ALONE]);
    assert_eq!(remote.delta(), Span::ZERO, "{alone:?}");
    // The flows of a host take part together.
    let remote = Remote::default();
    states(&learning, vec![flow(&remote), flow(&remote)], varying, 60);
    // Without delay variation, the larger window is reduced again.
    let wired = states(&learning, vec![flow(&Remote::default())], changing, 75);
    assert_were(&wired, &[ALONE, GROWING, ALONE]);
}

#[test]
fn a_window_too_small_to_be_halved_is_raised_as_in_the_core() {
    let own = states(RTAC, vec![rtac(&Remote::default())], slow, 60);
    assert_were(&own, &[ALONE, RAISING, ALONE]);
    let others = states(RTAC, vec![rtac(&Remote::default())], short, 60);
    assert_were(&others, &[ALONE, RAISING, SHARED]);
}

#[test]
fn a_test_whose_leader_has_gone_ends_as_in_the_core() {
    let of_two = |leader: usize, leaves_at| {
        let remote = Remote::default();
        let mut flows = vec![rtac(&remote), rtac(&remote)];
        flows[leader].leaves_at = leaves_at;
        states(RTAC, flows, changing, 12)
    };
    let both = of_two(0, Time::MAX);
    let (_, began) = both.iter().find(|(state, _)| *state == HALVING).unwrap();
    let states = of_two(began.flow, began.now);
    let (to, ended) = states.iter().find(|(_, outcome)| outcome.now > began.now).unwrap();
    assert_eq!((*to, ended.flow), (ALONE, 1 - began.flow));
    // At least 16 round trips of 20 ms.
    assert!(ended.now.since(began.now) > Span::from_millis(320), "{states:?}");
}

#[test]
fn a_test_that_a_small_flow_cannot_take_part_in_ends_as_in_the_core() {
    let remote = Remote::default();
    let small = Flow { most: 6, congestion_window: 6, ..rtac(&remote) };
    let states = states(RTAC, vec![rtac(&remote), small], changing, 75);
    let is_left = |pair: &[(u64, Outcome)]| {
        let [(from, began), (to, ended)] = pair else { return false };
        (*from, began.flow, *to, ended.flow) == (HALVING, 0, ALONE, 1)
    };
    assert!(states.windows(2).any(is_left), "{states:?}");
}

/// K for 20 Mbit/s and 20 ms, with a Δ, and the parameters for the kernel.
fn by_hand(law: &str, delta: Span) -> (RtacParams, String) {
    let slope = slope(34.5, 1.38);
    let shift = 10;
    let inverse = (A / slope * f64::from(1 << (2 * shift))) as u64;
    let named = format!("{law} 1380 {} {inverse} {shift}", delta.as_nanos());
    let pure = law == "pure";
    let slope = Slope::Fixed(slope);
    let delta = Delta::Fixed(delta);
    (RtacParams { slope, pure, delta, ..RtacParams::default() }, named)
}

#[test]
fn a_k_set_by_hand_counts_as_in_the_core() {
    for delta in [Span::ZERO, Span::from_millis(8)] {
        let (params, named) = by_hand("rtac", delta);
        let remote = Remote::default();
        let law = || Flow::of(Core::Rtac(params.build(LIMITS, remote.clone()).unwrap()));
        let states = states(&named, vec![law(), law()], changing, 40);
        assert_eq!(states.len(), 1, "nothing is tested: {states:?}");
    }
}

#[test]
fn algorithm_1_as_printed_follows_from_a_connection_as_in_the_core() {
    for delta in [Span::ZERO, Span::from_millis(8)] {
        let (params, named) = by_hand("pure", delta);
        let law = || Flow::of(Core::Pure(params.build_pure(LIMITS).unwrap()));
        states(&named, vec![law(), law()], changing, 40);
    }
}

#[test]
fn drwa_follows_from_a_connection_as_in_the_core() {
    let core = Core::Drwa(DrwaParams::default().build(LIMITS).unwrap());
    states("drwa 0 0 0 0", vec![Flow::of(core)], changing, 75);
}
