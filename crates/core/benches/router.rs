//! CPU time per packet of queues and schedulers.
//!
//! `cargo bench -p freshline-core --bench router`. Packets carry their headers, 48 bytes in all,
//! and come from flows that are drawn uniformly. The time is constant, so no AQM sees congestion.
//!
//! - `enqueue`: a packet arrives at a queue of `flows` packets; with IFIL, one of each flow, so that
//!   the arrival replaces a packet.
//! - `2 enqueues, 1 dequeue`: an overloaded queue with room for `flows` packets.
//! - `schedule`: a departure with packets of both classes in drop-tail queues.

mod parts;

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use freshline_core::router::{
    AoiShare, Backlog, Class, Classifier, CodelParams, Dequeued, Drop, DropReason, Drops,
    DrrParams, DualConfig, FlowKey, FqCodelParams, Header, Ifc, IfcConfig, IfilParams, Isolation,
    Limit, Packet, Qdisc, QdiscConfig, RedParams, Scheduler, Sdm, SdmParams, Tdm, TdmParams,
};
use freshline_core::unit::{Bytes, Packets, Span, Time};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use parts::{Held, NoScheduler, Ring};

/// The naive IFIL: a linear search for the flow.
struct LinearIfil(VecDeque<Held>);

impl Qdisc<Held> for LinearIfil {
    fn enqueue(&mut self, _: Time, packet: Held, drops: &mut Drops<'_, Held>) {
        let flow = packet.header.flow;
        if let Some(waiting) = self.0.iter_mut().find(|waiting| waiting.header.flow == flow) {
            let old = std::mem::replace(waiting, packet);
            drops(Drop { packet: old, reason: DropReason::Replaced });
        } else {
            self.0.push_back(packet);
        }
    }

    fn dequeue(&mut self, _: Time, _: &mut Drops<'_, Held>) -> Option<Dequeued<Held>> {
        let packet = self.0.pop_front()?;
        Some(Dequeued { packet, sojourn: Span::ZERO })
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: Packets::new(self.0.len() as u64), bytes: Bytes::ZERO }
    }
}

/// Packets of flows drawn uniformly from `flows`; after 2¹⁷ they repeat.
fn arrivals(flows: u32) -> impl Iterator<Item = Held> {
    let mut rng = Pcg64::seed_from_u64(1);
    let drawn: Vec<_> = (0..1 << 17).map(|_| Held::of_flow(rng.next_u32() % flows)).collect();
    let mut next = 0;
    std::iter::from_fn(move || {
        next = if next + 1 < drawn.len() { next + 1 } else { 0 };
        Some(drawn[next])
    })
}

/// An operation on a queue.
#[derive(Clone, Copy)]
enum Load {
    Enqueue,
    Overload,
}

impl Load {
    fn name(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Overload => "2 enqueues, 1 dequeue",
        }
    }

    /// The number of packets for which the queue needs room.
    fn room(self, flows: u32) -> u32 {
        match self {
            Self::Enqueue => flows + BATCH as u32,
            Self::Overload => flows,
        }
    }

    fn measure(self, group: &mut Group<'_>, name: &str, flows: u32, mut queue: impl Qdisc<Held>) {
        let name = format!("{name}/{flows} flows");
        let mut arrivals = arrivals(flows);
        let mut arrive = || arrivals.next().expect("arrivals do not end");
        for flow in 0..flows {
            queue.enqueue(Time::ZERO, Held::of_flow(flow), &mut lost);
        }
        match self {
            Self::Enqueue => {
                let as_many_as_flows = |queue: &mut _| drain_to(queue, flows);
                let mut step = |queue: &mut _| {
                    Qdisc::enqueue(queue, Time::ZERO, arrive(), &mut lost);
                };
                group.bench_function(name, |b| {
                    b.iter_custom(|count| batches(count, &mut queue, as_many_as_flows, &mut step));
                });
            }
            Self::Overload => {
                let mut step = || {
                    queue.enqueue(Time::ZERO, arrive(), &mut lost);
                    queue.enqueue(Time::ZERO, arrive(), &mut lost);
                    queue.dequeue(Time::ZERO, &mut lost)
                };
                group.bench_function(name, |b| b.iter(&mut step));
            }
        }
    }
}

type Group<'a> = BenchmarkGroup<'a, WallTime>;

fn lost<P>(drop: Drop<P>) {
    black_box(drop.reason);
}

fn drain_to(queue: &mut impl Qdisc<Held>, packets: u32) {
    while queue.backlog().packets > Packets::new(packets.into()) {
        queue.dequeue(Time::ZERO, &mut lost);
    }
}

/// Steps per batch. Between two batches the queue is restored to its initial state.
const BATCH: u64 = 4096;

/// The time of `count` steps, without the calls of `prepare` before each batch.
fn batches<T>(
    count: u64,
    subject: &mut T,
    prepare: impl Fn(&mut T),
    mut step: impl FnMut(&mut T),
) -> Duration {
    let mut spent = Duration::ZERO;
    let mut left = count;
    while left > 0 {
        prepare(subject);
        let batch = left.min(BATCH);
        let start = Instant::now();
        for _ in 0..batch {
            step(subject);
        }
        spent += start.elapsed();
        left -= batch;
    }
    spent
}

/// Every discipline, with room for `packets`.
fn disciplines(packets: u32) -> [QdiscConfig; 9] {
    let limit = Packets::new(packets.into());
    let bytes = Bytes::new(u64::from(Held::SIZE) * u64::from(packets));
    let fifo = QdiscConfig::Fifo { limit: Limit::Packets(limit) };
    let isolate = Some(Isolation::Flow);
    let ifil = QdiscConfig::Ifil(IfilParams { limit, isolate, ..<_>::default() });
    let drr = DrrParams::default();
    let each = Packets::new(u64::from((packets / drr.queues).max(1)));
    [
        fifo.clone(),
        QdiscConfig::Lifo { limit: Limit::Packets(limit) },
        QdiscConfig::Red(RedParams::with_limit(bytes)),
        QdiscConfig::Codel(CodelParams { limit: Limit::Packets(limit), ..CodelParams::default() }),
        QdiscConfig::Drr(DrrParams { limit: Limit::Packets(each), ..drr }),
        QdiscConfig::FqCodel(FqCodelParams { limit, memory: bytes, ..FqCodelParams::default() }),
        ifil.clone(),
        QdiscConfig::Ifc(Box::new(IfcConfig {
            aoi: ifil,
            drop_averse: QdiscConfig::default(),
            ..IfcConfig::default()
        })),
        QdiscConfig::Dual(Box::new(DualConfig {
            urgent: fifo.clone(),
            bulk: fifo,
            ..DualConfig::default()
        })),
    ]
}

fn queues(c: &mut Criterion) {
    for load in [Load::Enqueue, Load::Overload] {
        let mut group = c.benchmark_group(load.name());
        for flows in [16, 1 << 10, 1 << 16] {
            let room = load.room(flows);
            let memory = room as usize;
            load.measure(&mut group, "plain ring", flows, Ring(VecDeque::with_capacity(memory)));
            if flows <= 1 << 10 {
                let linear = LinearIfil(VecDeque::with_capacity(memory));
                load.measure(&mut group, "linear search", flows, linear);
            }
            for config in disciplines(room) {
                let built = config.build(&mut Pcg64::seed_from_u64(2));
                let queue = built.expect("the parameters make sense");
                load.measure(&mut group, config.name(), flows, queue);
            }
        }
    }
}

/// A packet with only a size and a class.
#[derive(Debug, Clone, Copy)]
struct Small(Class);

impl Packet for Small {
    fn size(&self) -> Bytes {
        Bytes::new(1024)
    }

    fn header(&self) -> Header {
        let protocol = if self.0 == Class::Aoi { FlowKey::UDP } else { FlowKey::TCP };
        Header { flow: FlowKey { protocol, ..FlowKey::default() }, ..Header::default() }
    }
}

fn schedule<S: Scheduler>(group: &mut Group<'_>, name: &str, scheduler: S) {
    type Queue<S> = Ifc<Ring<Small>, Ring<Small>, S>;
    let ring = || Ring(VecDeque::with_capacity(2 * BATCH as usize));
    let mut queue: Queue<S> =
        Ifc::new("udp force".parse::<Classifier>().unwrap(), ring(), ring(), scheduler);
    let fill = |queue: &mut Queue<S>| {
        for class in Class::ALL {
            while queue.backlog_of::<Small>(class).packets < Packets::new(BATCH) {
                queue.enqueue(Time::ZERO, Small(class), &mut lost);
            }
        }
    };
    let mut now = Time::ZERO;
    let mut step = |queue: &mut Queue<S>| {
        now += Span::from_micros(80);
        black_box(queue.dequeue(now, &mut lost));
    };
    group.bench_function(name, |b| {
        b.iter_custom(|count| batches(count, &mut queue, fill, &mut step));
    });
}

fn schedulers(c: &mut Criterion) {
    let mut group = c.benchmark_group("schedule");
    schedule(&mut group, "none", NoScheduler);
    schedule(&mut group, "sdm", Sdm::new(SdmParams::default(), AoiShare::HALF));
    schedule(&mut group, "tdm", Tdm::new(TdmParams::default(), AoiShare::HALF));
}

criterion_group! {
    name = all;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20);
    targets = queues, schedulers
}
criterion_main!(all);
