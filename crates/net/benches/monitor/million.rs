//! A million sources at one monitor.

use std::fs;
use std::time::{Duration, Instant};

use freshline_core::session::{Monitor, MonitorParams, Secret};
use freshline_core::unit::{Span, Time};

use crate::memory::{alone, counting::held, open, update};
use crate::single::{Cost, World};
use crate::traffic::PAYLOAD;

const SOURCES: usize = 1_000_000;

/// Bursts of packets over the loopback.
const BURSTS: usize = 50;

pub(crate) fn report() {
    println!(
        "\na million sources, each in a network of its own, payloads of {} bytes",
        PAYLOAD.len()
    );
    let (before, began_at) = (resident(), Instant::now());
    let mut world = World::of_monitor(SOURCES);
    let opened = SOURCES as f64 / began_at.elapsed().as_secs_f64();
    let bytes = (resident() - before) / SOURCES as f64;
    println!(
        "over the loopback, of 250 networks: {opened:.0} sessions/s opened, {bytes:.0} bytes of the process per source"
    );
    let cost: Cost = (0..BURSTS).map(|_| world.burst()).sum();
    println!("over the loopback, single packets in turn: {:.0} CPU ns each", cost.cpu_ns());
    drop(world);
    protocol();
}

/// The resident memory of the process, in bytes.
fn resident() -> f64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages = pages.split_whitespace().nth(1).expect("the second number");
    pages.parse::<f64>().unwrap() * 4096.0
}

/// The protocol alone, without sockets.
fn protocol() {
    let params = MonitorParams { max_sources: SOURCES, ..MonitorParams::default() };
    let before = held();
    let mut monitor = Monitor::new(params, Secret::new([7; 16])).with_origin(alone);
    let opening = Steps::of(SOURCES, |number| open(&mut monitor, number, &format!("{number:016}")));
    assert_eq!(monitor.len(), SOURCES);
    let bytes = (held() - before) as f64 / SOURCES as f64;
    println!("{bytes:.0} bytes per source with a name of 16 bytes");
    opening.print("opening, two updates and two answers");
    let updates = Steps::of(SOURCES, |number| {
        // Far from the previous source: independent sources send in no order.
        let number = (u64::from(number) * 2_654_435_761 % SOURCES as u64) as u32;
        update(&mut monitor, number);
    });
    assert_eq!(monitor.counters().fresh, 2 * SOURCES as u64, "each was the freshest");
    updates.print("update and ack, from sources at random");
    let mut now = Time::ZERO;
    let looks = Steps::of(64, |_| {
        now += Span::from_millis(900);
        monitor.handle_timeout(now);
    });
    assert_eq!(monitor.len(), SOURCES, "none is idle yet");
    looks.print("look for idle ones, a part of 64");
}

/// The durations of steps.
struct Steps {
    number: u32,
    all: Duration,
    max: Duration,
}

impl Steps {
    fn of(number: usize, mut step: impl FnMut(u32)) -> Self {
        let mut steps = Self { number: number as u32, all: Duration::ZERO, max: Duration::ZERO };
        let mut before = Instant::now();
        for index in 0..steps.number {
            step(index);
            let now = Instant::now();
            let took = now - before;
            (steps.all, steps.max) = (steps.all + took, steps.max.max(took));
            before = now;
        }
        steps
    }

    fn print(&self, what: &str) {
        let mean = self.all / self.number;
        println!("{what:48} mean {mean:>10.2?}, max {:>10.2?}", self.max);
    }
}
