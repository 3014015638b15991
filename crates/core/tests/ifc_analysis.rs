//! The theory of freshness control against its packets: the real `Ifc` before a real link.

use freshline_core::age::AgeProcess;
use freshline_core::link::{Hop, LinkParams};
use freshline_core::router::analysis::{Bottleneck, Prediction, PulseTrain, Suggestion, Tie, Wish};
use freshline_core::router::{
    AnyScheduler, AoiShare, Classifier, Drop, Fifo, FlowHash, FlowKey, Header, Ifc, Ifil, Limit,
    Packet, SchedulerParams, TdmParams,
};
use freshline_core::unit::{BitRate, Bytes, Packets, Span, Time};
use rand_pcg::Pcg64;

/// A packet of one of the flows of updates, or of the drop-averse traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item {
    flow: Option<u32>,
    size: Bytes,
    generated_at: Time,
}

impl Packet for Item {
    fn size(&self) -> Bytes {
        self.size
    }

    fn header(&self) -> Header {
        let protocol = self.flow.map_or(FlowKey::TCP, |_| FlowKey::UDP);
        let source_port = self.flow.unwrap_or(0) as u16;
        Header { flow: FlowKey { protocol, source_port, ..FlowKey::default() }, ..<_>::default() }
    }
}

/// How the updates of the flows lie in the period.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phases {
    Spread,
    Together,
}

type Router = Ifc<Ifil<Item>, Fifo<Item>, AnyScheduler>;

fn router(scheduler: SchedulerParams, share: AoiShare) -> Router {
    let hash = FlowHash::draw(&mut Pcg64::new(1, 1));
    let updates = Ifil::new(Packets::new(1_000), hash);
    let bulk = Fifo::new(Limit::default());
    Ifc::new(Classifier::default(), updates, bulk, scheduler.build(share))
}

/// Runs updates and a backlog of drop-averse packets (none if their size is zero) for `rounds`
/// periods, a tenth of them before the measurement.
fn simulated(
    link: &Bottleneck,
    scheduler: SchedulerParams,
    share: AoiShare,
    phases: Phases,
    rounds: u64,
) -> Prediction {
    let params =
        LinkParams { rate: Some(link.rate), delay: link.propagation, ..LinkParams::default() };
    let mut hop = Hop::new(params, router(scheduler, share), Pcg64::new(2, 2));
    let never = &mut |drop: Drop<Item>| assert!(drop.packet.flow.is_some(), "{drop:?}");
    let bulk = Item { flow: None, size: link.drop_averse_size, generated_at: Time::ZERO };
    if bulk.size > Bytes::ZERO {
        for _ in 0..100 {
            hop.enqueue(Time::ZERO, bulk, never);
        }
    }
    let flows = u64::from(link.flows);
    let period = link.update_period;
    let phase = |flow: u64| match phases {
        Phases::Spread => period * flow / flows,
        Phases::Together => Span::ZERO,
    };
    let start = Time::ZERO + period * (rounds / 10);
    let mut ages = vec![AgeProcess::new(); flows as usize];
    let mut marks = None;
    let mut bulk_bytes = Bytes::ZERO;
    let mut now = Time::ZERO;
    for number in 0..rounds * flows {
        let (round, flow) = (number / flows, number % flows);
        let generated_at = Time::ZERO + period * round + phase(flow);
        while let Some(event) = hop.next_event().filter(|event| *event <= generated_at) {
            now = event;
            if marks.is_none() && now >= start {
                marks = Some((now, ages.iter().map(|age| age.mark(now)).collect::<Vec<_>>()));
            }
            while let Some(delivered) = hop.poll(now, never) {
                match delivered.packet.flow {
                    Some(flow) => {
                        ages[flow as usize].on_update(now, delivered.packet.generated_at);
                    }
                    None => {
                        if marks.is_some() {
                            bulk_bytes += delivered.packet.size;
                        }
                        hop.enqueue(now, bulk, never);
                    }
                }
            }
        }
        let update = Item { flow: Some(flow as u32), size: link.update_size, generated_at };
        hop.enqueue(generated_at, update, never);
    }
    let (start, marks) = marks.unwrap();
    let ages: Vec<_> = ages
        .iter()
        .zip(marks)
        .map(|(age, mark)| age.mean_since(mark, now).unwrap().as_secs_f64())
        .collect();
    let age = Span::from_secs_f64(ages.iter().sum::<f64>() / ages.len() as f64);
    Prediction { age, drop_averse: BitRate::of(bulk_bytes, now.since(start)).unwrap() }
}

fn share(share: f64) -> AoiShare {
    AoiShare::new(share).unwrap()
}

fn sdm() -> SchedulerParams {
    SchedulerParams::default()
}

fn tdm(frame: u64) -> SchedulerParams {
    SchedulerParams::Tdm(TdmParams { frame: Span::from_millis(frame) })
}

const PAPER: Bottleneck = Bottleneck {
    rate: BitRate::from_mbps(10),
    propagation: Span::from_millis(10),
    flows: 1,
    update_period: Span::from_millis(5),
    update_size: Bytes::new(1052),
    drop_averse_size: Bytes::new(1500),
};

#[test]
fn explore() {
    let mbit = |rate: BitRate| rate.as_bps() as f64 / 1e6;
    for flows in [1, 3, 10] {
        for scheduler in [sdm(), tdm(100), tdm(20)] {
            for (rate, period) in
                [(10, 5_000), (10, 5_003), (10, 20_011), (2, 5_003), (2, 50_021), (100, 5_003)]
            {
                let link = Bottleneck {
                    rate: BitRate::from_mbps(rate),
                    flows,
                    update_period: Span::from_micros(period),
                    ..PAPER
                };
                for gamma in [0.05, 0.1, 0.16, 0.17, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0] {
                    let Ok(theory) = link.predict(scheduler, share(gamma)) else { continue };
                    for phases in [Phases::Spread, Phases::Together] {
                        if phases == Phases::Together && flows == 1 {
                            continue;
                        }
                        let sim = simulated(&link, scheduler, share(gamma), phases, 3000);
                        let base = 10.0;
                        println!(
                            "{flows} {scheduler:?} {rate} {period} {gamma} {phases:?}: age {:.2} {:.2} ({:+.1} %), thr {:.3} {:.3}",
                            theory.age.as_millis_f64() - base,
                            sim.age.as_millis_f64() - base,
                            100.0 * (theory.age.as_secs_f64() / sim.age.as_secs_f64() - 1.0),
                            mbit(theory.drop_averse),
                            mbit(sim.drop_averse)
                        );
                    }
                }
            }
        }
    }
}
