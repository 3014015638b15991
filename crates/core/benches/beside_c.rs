//! IFIL and the schedulers compared with the same algorithms in plain C (`beside_c.c`).
//!
//! `cargo bench -p freshline-core --bench beside_c`. Both do the same work in the same run: the same
//! flows in the same order, and the counts of replaced, lost and sent packets must be equal. The time is
//! the minimum of many batches, so that other programs hardly matter.

mod parts;

use std::collections::VecDeque;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use freshline_core::router::{
    AoiShare, Class, Classifier, Drop, DropReason, Ifc, Ifil, IfilParams, Packet, Qdisc, Scheduler,
    Sdm, SdmParams, Tdm, TdmParams,
};
use freshline_core::unit::{Bytes, Packets, Span, Time};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use parts::{Held, NoScheduler, Ring};

/// As in `beside_c.c`.
const DRAWN: usize = 1 << 17;
const BATCH: usize = 4096;
const MEASUREMENTS: usize = 100;
const KEYS: u64 = 8;

/// The output of the C program: times in ns, then counts.
fn c(program: &Path, arguments: &[&str]) -> Vec<f64> {
    let done = Command::new(program).args(arguments).output().expect("the baseline runs");
    let printed = String::from_utf8(done.stdout).expect("numbers");
    printed.split_whitespace().map(|number| number.parse().expect("a number")).collect()
}

/// SplitMix64, as in `beside_c.c`.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The time per step in ns, the minimum over all batches; `prepare` is not timed.
fn fastest<T>(
    subject: &mut T,
    mut prepare: impl FnMut(&mut T),
    mut step: impl FnMut(&mut T),
) -> f64 {
    let batch = |_| {
        prepare(subject);
        let begin = Instant::now();
        for _ in 0..BATCH {
            step(subject);
        }
        begin.elapsed()
    };
    let least = (0..MEASUREMENTS).map(batch).min().expect("some batches");
    least.as_nanos() as f64 / BATCH as f64
}

/// Dropped packets: replaced ones, and all others.
#[derive(Debug, Default, Clone, Copy)]
struct Lost {
    replaced: u64,
    refused: u64,
}

impl Lost {
    fn count(&mut self, drop: Drop<Held>) {
        match drop.reason {
            DropReason::Replaced => self.replaced += 1,
            _ => self.refused += 1,
        }
        black_box(&drop.packet);
    }
}

/// Means over queues with different keys, as chains depend on them; then the counts of the last queue.
fn ifil(program: &Path, flows: u32) {
    let of_keys = |key| ifil_of(flows, key);
    let all: Vec<_> = (0..KEYS).map(of_keys).collect();
    let mean = |index: usize| all.iter().map(|(times, _)| times[index]).sum::<f64>() / KEYS as f64;
    let baseline = c(program, &["ifil", &flows.to_string()]);
    assert!(
        all.iter().all(|(_, counts)| baseline[2..] == counts[..]),
        "the counts of packets differ"
    );
    report(&format!("IFIL replace, {flows} flows"), mean(0), baseline[0]);
    report(&format!("2 enqueues, 1 dequeue, {flows} flows"), mean(1), baseline[1]);
}

/// The time in ns of a replacement, and of two arrivals with a departure; then the counts of packets.
fn ifil_of(flows: u32, key: u64) -> ([f64; 2], [f64; 3]) {
    let params = IfilParams { limit: Packets::new(flows.into()), ..<_>::default() };
    let mut queue = Ifil::new(params, &mut Pcg64::seed_from_u64(key)).expect("a queue");
    let mut state = 1;
    let drawn: Vec<_> =
        (0..DRAWN).map(|_| Held::of_flow(draw(&mut state) as u32 % flows)).collect();
    for flow in 0..flows {
        queue.enqueue(Time::ZERO, Held::of_flow(flow), &mut |_| ());
    }
    let (mut next, mut lost, mut sent) = (0, Lost::default(), 0);
    let mut arrive = || {
        next += 1;
        drawn[(next - 1) % DRAWN]
    };
    let replace = fastest(
        &mut queue,
        |_| (),
        |queue| queue.enqueue(Time::ZERO, arrive(), &mut |drop| lost.count(drop)),
    );
    assert_eq!(lost.replaced, (MEASUREMENTS * BATCH) as u64, "each packet replaces one");
    (next, lost) = (0, Lost::default());
    let mut arrive = || {
        next += 1;
        drawn[(next - 1) % DRAWN]
    };
    let overload = fastest(
        &mut queue,
        |_| (),
        |queue| {
            queue.enqueue(Time::ZERO, arrive(), &mut |drop| lost.count(drop));
            queue.enqueue(Time::ZERO, arrive(), &mut |drop| lost.count(drop));
            let next = queue.dequeue(Time::ZERO, &mut |drop| lost.count(drop));
            sent += u64::from(black_box(next).is_some());
        },
    );
    ([replace, overload], [lost.replaced, lost.refused, sent].map(|count| count as f64))
}

fn report(name: &str, ours: f64, c: f64) {
    println!("{name:<40} {ours:>8.1} {c:>8.1} {:>8.2}", ours / c);
}

/// A packet that has only a size and a class.
#[derive(Debug, Clone, Copy)]
struct Small(u32, Class);

impl Packet for Small {
    fn size(&self) -> Bytes {
        Bytes::new(self.0.into())
    }

    fn class(&self) -> Option<Class> {
        Some(self.1)
    }
}

/// The time in ns of a departure with both classes queued, and the departures of the first class.
fn depart<S: Scheduler>(scheduler: S) -> (f64, u64) {
    let ring = || Ring(VecDeque::with_capacity(2 * BATCH));
    let mut queue =
        Ifc::new("udp force".parse::<Classifier>().expect("a rule"), ring(), ring(), scheduler);
    let (mut now, mut of_first) = (Time::ZERO, 0);
    let fill = |queue: &mut Ifc<Ring<Small>, Ring<Small>, S>| {
        for class in Class::ALL {
            while queue.backlog_of::<Small>(class).packets < Packets::new(BATCH as u64) {
                queue.enqueue(Time::ZERO, Small(1024, class), &mut |_| ());
            }
        }
    };
    let took = fastest(&mut queue, fill, |queue| {
        now += Span::from_micros(80);
        let next = black_box(queue.dequeue(now, &mut |_: Drop<Small>| ()));
        of_first += u64::from(next.expect("both wait").packet.1 == Class::Aoi);
    });
    (took, of_first)
}

fn schedulers(program: &Path) {
    let baseline = c(program, &["schedule"]);
    let share = AoiShare::HALF;
    let ours = [
        ("no scheduler", depart(NoScheduler)),
        ("SDM", depart(Sdm::new(SdmParams::default(), share))),
        ("TDM", depart(Tdm::new(TdmParams::default(), share))),
    ];
    for (index, (name, (took, of_first))) in ours.into_iter().enumerate() {
        assert_eq!(of_first as f64, baseline[3 + index], "{name}: the orders differ");
        report(&format!("departure, {name}"), took, baseline[index]);
    }
}

fn main() {
    let folder = std::env::temp_dir().join(format!("freshline-beside-c-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = folder.join("beside_c");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/beside_c.c");
    let compiler = Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(source).status();
    assert!(compiler.expect("cc starts").success());
    println!("{:<40} {:>8} {:>8} {:>8}", "ns, the minimum of batches", "ours", "C", "ours/C");
    [16, 1 << 10, 1 << 16].into_iter().for_each(|flows| ifil(&program, flows));
    schedulers(&program);
    std::fs::remove_dir_all(folder).expect("the folder goes");
}
