//! How fast the lab is: `cargo bench -p freshline-lab`. One run on one core, and runs in parallel.
//!
//! An event is one wake-up: an entry taken from the agenda, whatever the component then does. A
//! packet that crosses a wired hop costs two, as in other simulators: the end of its transmission
//! and its arrival. They include the forwarding to the next hop, its processing there and the
//! reaction of the law. In a Wi-Fi cell, an access to the medium and its end are one event each,
//! however many stations hear it.
//!
//! Time is the CPU time of the thread, so that a busy machine gives the same numbers as an idle one; for runs in
//! parallel it is the time that passed.
//!
//! The baselines are from machines similar to the one of the figures in `docs/lab.md`.

use std::time::{Duration, Instant};

use freshline_core::unit::{Span, Time};
use freshline_lab::run;
use freshline_lab::scenario::{Change, Scenario};
use nix::time::{ClockId, clock_gettime};
use rayon::ThreadPoolBuilder;

const PATH: &str = r#"
title = "ACP+ over six hops"
duration = "10s"

[[link]]
name = "hops"
count = 6
forward = { rate = "6mbit", delay = "1ms", queue = "100p" }

[[flow]]
name = "source"
path = ["hops"]
updates = { law = "acp+d", payload = "1024B" }
"#;

const WIFI: &str = include_str!("../../../scenarios/wifi-sources.toml");

/// Every station always has a packet: the offered load is three times the capacity of the cell.
const SATURATED: &str = r#"
title = "50 saturated stations"
duration = "10s"

[[cell]]
name = "wifi"
radio = { standard = "802.11a", rate = "12mbit", queue = "10p" }

[[flow]]
name = "station"
count = 50
path = ["wifi"]
start_spread = "10ms"
cross_traffic = { pattern = "constant", rate = "500kbit", size = "1052B" }
"#;

const STREAMS: &str = r#"
title = "100 TCP streams through one bottleneck"
duration = "10s"

[[link]]
name = "bottleneck"
forward = { rate = "1gbit", delay = "10ms", queue = "1700p" }

[[flow]]
name = "stream"
count = 100
path = ["bottleneck"]
start_spread = "1s"
tcp = { control = "cubic" }
"#;

/// 200 nodes with an offered load far above their capacity.
const MESH: &str = include_str!("../../../scenarios/dtpa/two-hundred-nodes.toml");

/// An established packet simulator: events per second, and wall times per simulated second.
const ESTABLISHED: f64 = 0.8e6;
const ESTABLISHED_48_SOURCES: Span = Span::from_millis(1_500);
const ESTABLISHED_50_STATIONS: Span = Span::from_millis(700);
/// Events per second of a lean simulator made for data centres.
const LEAN: f64 = 4e6;

struct Case {
    name: &'static str,
    scenario: &'static str,
    changes: &'static [&'static str],
    /// Simulated time of one measurement, for about a third of a second.
    slice: Span,
    /// The wall time of the established simulator for a simulated second, if known.
    established: Option<Span>,
}

const CASES: [Case; 8] = [
    Case {
        name: "path of 6 hops, ACP+",
        scenario: PATH,
        changes: &[],
        slice: Span::from_secs(1_000),
        established: None,
    },
    Case {
        name: "Wi-Fi and 5 hops, 1 source",
        scenario: WIFI,
        changes: &["flow.source.count=1"],
        slice: Span::from_secs(100),
        established: None,
    },
    Case {
        name: "Wi-Fi and 5 hops, 12 sources",
        scenario: WIFI,
        changes: &["flow.source.count=12"],
        slice: Span::from_secs(100),
        established: None,
    },
    Case {
        name: "Wi-Fi and 5 hops, 48 sources",
        scenario: WIFI,
        changes: &["flow.source.count=48"],
        slice: Span::from_secs(50),
        established: Some(ESTABLISHED_48_SOURCES),
    },
    Case {
        name: "Wi-Fi, 50 saturated stations",
        scenario: SATURATED,
        changes: &[],
        slice: Span::from_secs(100),
        established: Some(ESTABLISHED_50_STATIONS),
    },
    Case {
        name: "Wi-Fi, 50 saturated, 802.11ac",
        scenario: SATURATED,
        changes: &[
            "cell.wifi.radio.standard=802.11ac",
            "cell.wifi.radio.rate=mcs9",
            "cell.wifi.radio.width=80MHz",
            "cell.wifi.radio.queue=100p",
            "flow.station.cross_traffic.rate=10mbit",
        ],
        slice: Span::from_secs(20),
        established: None,
    },
    Case {
        name: "100 TCP streams, 1 Gbit/s",
        scenario: STREAMS,
        changes: &[],
        slice: Span::from_secs(2),
        established: None,
    },
    Case {
        name: "802.15.4 mesh, 200 nodes",
        scenario: MESH,
        changes: &["warm_up=0s"],
        slice: Span::from_secs(100),
        established: None,
    },
];

/// Measurements of each case.
const SLICES: u32 = 7;

/// The result of one measurement.
#[derive(Clone, Copy)]
struct Speed {
    /// Simulated seconds per second.
    pace: f64,
    events_per_s: f64,
}

fn main() {
    println!("one core, {SLICES} measurements of each: median, and the best in brackets\n");
    println!(
        "{:<30} {:>16} {:>13} {:>7} {:>15} {:>13}",
        "", "million events/s", "× established", "× lean", "simulated s/s", "× established",
    );
    // `cargo bench` adds options of its own; a word selects the cases whose names contain it.
    let word = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let chosen = |case: &&Case| word.as_ref().is_none_or(|word| case.name.contains(word));
    CASES.iter().filter(chosen).for_each(report);
    if word.as_ref().is_none_or(|word| "parallel runs".contains(word.as_str())) {
        parallel_runs();
    }
    if word.is_none_or(|word| "many cells".contains(&word)) {
        many_cells();
    }
}

/// Runs on all cores, compared with the same runs one after the other.
fn parallel_runs() {
    let cores = rayon::current_num_threads();
    let runs = 4 * cores;
    let changes = [format!("runs={runs}"), "duration=300s".to_owned()];
    let changes = changes.map(|text| Change::parse(&text).expect("a change"));
    let scenario = Scenario::parse_with(PATH, &changes).expect("a scenario");
    let timed = |threads| {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        let start = Instant::now();
        let metrics = pool.install(|| run::run(&scenario, || ())).expect("a scenario");
        (start.elapsed().as_secs_f64(), metrics)
    };
    for _ in 0..3 {
        let ((alone, of_one), (together, of_all)) = (timed(1), timed(cores));
        assert_eq!(of_one, of_all, "the metrics do not depend on the number of threads");
        println!(
            "{runs} parallel runs: {alone:.2} s on one core, {together:.2} s on {cores}, \
             {:.3} of one core's speed per core",
            alone / together / cores as f64,
        );
    }
}

const CELLS: usize = 100;
/// The maximum of a cell with its access point ([`CellConfig::MAX_STATIONS`]).
///
/// [`CellConfig::MAX_STATIONS`]: freshline_core::wlan::mac::CellConfig::MAX_STATIONS
const SOURCES_A_CELL: usize = 999;

/// Cells of sources, whose access points share a backbone to one monitor's site.
fn scenario_of_cells() -> String {
    let cell = |cell: usize| {
        format!(
            r#"
[[cell]]
name = "cell-{cell}"
radio = {{ standard = "802.11ac", rate = "mcs9", width = "80MHz", queue = "10p" }}

[[flow]]
name = "source-{cell}"
count = {SOURCES_A_CELL}
path = ["cell-{cell}", "backbone"]
start_spread = "1s"
updates = {{ law = "acp+", payload = "128B" }}
"#
        )
    };
    let backbone = r#"
title = "Sources in many cells, with a backbone"
duration = "1h"

[[link]]
name = "backbone"
forward = { rate = "10gbit", delay = "5ms", queue = "10000p" }
"#;
    backbone.to_owned() + &(0..CELLS).map(cell).collect::<String>()
}

/// The resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has this file");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Simulated seconds per second, and memory per source, of a large network on one core.
fn many_cells() {
    let sources = CELLS * SOURCES_A_CELL;
    let before = resident();
    let text = scenario_of_cells();
    let scenario = Scenario::parse_with(text.as_str(), &[]).expect("a scenario");
    let mut world = scenario.build(0).expect("a world").world;
    let built = resident() - before;
    for second in 1..=4 {
        let (events, start) = (world.events(), cpu_time());
        world.run_until(Time::ZERO + Span::from_secs(second));
        let taken = (cpu_time() - start).as_secs_f64();
        let events = (world.events() - events) as f64;
        println!(
            "{sources} sources in {CELLS} cells, second {second}: {:.2} million events/s, {:.3} \
             simulated s/s, {:.0} B per source as built, {:.0} now",
            events / taken / 1e6,
            1.0 / taken,
            built as f64 / sources as f64,
            (resident() - before) as f64 / sources as f64,
        );
    }
    let served = world.flows().iter().filter(|flow| flow.passed[0].packets > 0).count();
    assert!(served > sources * 9 / 10, "{served} of {sources} sources were served");
}

fn report(case: &Case) {
    let measured = measure(case);
    let [(events, most_events), (pace, best_pace)] =
        [|speed: &Speed| speed.events_per_s, |speed: &Speed| speed.pace].map(|of| {
            let mut values: Vec<f64> = measured.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            (values[values.len() / 2], values[values.len() - 1])
        });
    let known = case.established.map(|wall| format!("{:.0}", pace * wall.as_secs_f64()));
    println!(
        "{:<30} {:>8.2} ({:>5.2}) {:>13.1} {:>7.1} {pace:>8.0} ({best_pace:>4.0}) {:>13}",
        case.name,
        events / 1e6,
        most_events / 1e6,
        events / ESTABLISHED,
        events / LEAN,
        known.unwrap_or_default(),
    );
}

/// Runs a case through its warm-up, and then slice after slice.
fn measure(case: &Case) -> Vec<Speed> {
    const WARM_UP: Span = Span::from_secs(10);
    let end = Time::ZERO + WARM_UP + case.slice * u64::from(SLICES);
    let duration = format!("duration={}ns", end.as_nanos());
    let changes = case.changes.iter().copied().chain([duration.as_str()]);
    let changes: Vec<Change> = changes.map(|text| Change::parse(text).expect("a change")).collect();
    let scenario = Scenario::parse_with(case.scenario, &changes).expect("a scenario");
    let mut world = scenario.build(0).expect("a world").world;
    world.run_until(Time::ZERO + WARM_UP);
    world.begin_measuring();
    let slice = |_| {
        let (before, start) = (world.events(), cpu_time());
        world.run_until(world.now() + case.slice);
        let taken = (cpu_time() - start).as_secs_f64();
        let events = (world.events() - before) as f64;
        Speed { pace: case.slice.as_secs_f64() / taken, events_per_s: events / taken }
    };
    (0..SLICES).map(slice).collect()
}

/// The CPU time of this thread so far: it excludes the time of other threads on the core.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock").into()
}
