//! Delays of a trace: each applies to packets whose transmission ends after its time, and packets
//! keep their order.

use freshline_core::link::{
    CellularModel, Conditions, ConditionsConfig, Direction, HopConfig, LeoModel, Path, PathConfig,
    TraceConfig, TraceFile, TraceModel,
};
use freshline_core::router::{Discipline, Packet};
use freshline_core::unit::{BitRate, Bytes, Span, Time};
use proptest::prelude::*;
use rand_pcg::Pcg64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbered(u64);

impl Packet for Numbered {
    fn size(&self) -> Bytes {
        Bytes::new(1500)
    }
}

impl freshline_core::link::Airborne for Numbered {
    fn station(&self) -> u32 {
        1
    }
}

fn at_ms(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

fn traced(trace: &str, rest: &str) -> HopConfig {
    let mut hop: HopConfig = rest.parse().unwrap();
    hop.trace = Some(TraceConfig::File(TraceFile::new("test")));
    hop.read_trace(|_| Ok::<_, std::io::Error>(trace.to_owned())).unwrap();
    hop
}

fn path_of(hop: HopConfig) -> Path<Discipline<Numbered>, Numbered, Pcg64> {
    PathConfig { hop: vec![hop] }.build(|hop| Pcg64::new(7, hop as u128)).unwrap()
}

/// Number and arrival, in ms, of packets that enter at these times, in ms, in the order of arrival.
fn arrivals(hop: HopConfig, sent: &[u64]) -> Vec<(u64, f64)> {
    let mut path = path_of(hop);
    for (number, at) in (0..).zip(sent) {
        path.enqueue(at_ms(*at), Numbered(number), &mut |drop| panic!("{drop:?}"));
    }
    let mut found = Vec::new();
    while let Some(wake) = path.poll_timeout() {
        while let Some(arrived) = path.poll(wake, &mut |drop| panic!("{drop:?}")) {
            let after = arrived.at.since(Time::ZERO);
            found.push((arrived.packet.0, after.as_millis_f64()));
        }
    }
    found
}

/// 12 Mbit/s; 10 ms, then 30 ms from 40 ms on, then 5.5 ms from 60 ms on; 100 ms in all.
fn steps() -> String {
    let opportunities = (1..=100).map(|at| match at {
        40 => "40 delay=30ms\n40\n".to_owned(),
        60 => "60 delay=5.5ms\n60\n".to_owned(),
        _ => format!("{at}\n"),
    });
    "0 delay=10ms\n".to_owned() + &opportunities.collect::<String>()
}

#[test]
fn a_packet_has_the_delay_of_the_end_of_its_transmission_on_top_of_the_hops_own() {
    // A packet sent at n ms is transmitted by the opportunity at n + 1 ms, and the hop adds 2 ms.
    let found = arrivals(traced(&steps(), "delay=2ms"), &[0, 20, 38, 39, 90, 101, 139]);
    let expected = [13.0, 33.0, 51.0, 72.0, 98.5, 114.0, 172.0];
    assert_eq!(found, (0..).zip(expected).collect::<Vec<_>>());
}

#[test]
fn a_step_down_reorders_packets_only_if_the_order_is_free() {
    // The packet of 58 ms arrives at 89 ms; without it the next one would arrive at 66.5 ms.
    let sent = [58, 60, 70, 84];
    let kept = arrivals(traced(&steps(), "order=kept"), &sent);
    assert_eq!(kept, [(0, 89.0), (1, 89.0), (2, 89.0), (3, 90.5)]);
    let free = arrivals(traced(&steps(), "order=free"), &sent);
    assert_eq!(free, [(1, 66.5), (2, 76.5), (0, 89.0), (3, 90.5)]);
}

proptest! {
    #[test]
    fn no_packet_overtakes_another_or_arrives_later_than_its_delay_and_earlier_packets_require(
        mut steps in prop::collection::vec((0u64..200, 0u64..100), 0..8),
        mut sent in prop::collection::vec(0u64..600, 1..40),
    ) {
        steps.sort_unstable();
        sent.sort_unstable();
        sent.dedup();
        let lines = (0..=200).map(|at| {
            let steps = steps.iter().filter(|(from, _)| *from == at);
            let steps = steps.map(|(at, delay)| format!("{at} delay={delay}ms\n"));
            format!("{}{at}\n", steps.collect::<String>())
        });
        let hop = traced(&lines.collect::<String>(), "queue=1000p");
        let trace = match &hop.trace {
            Some(TraceConfig::File(file)) => file.trace().unwrap(),
            other => panic!("{other:?}"),
        };
        let found = arrivals(hop, &sent);
        let mut latest = 0.0;
        for (number, (packet, at)) in (0..).zip(&found) {
            prop_assert_eq!(*packet, number, "in the order of sending");
            let end = at_ms(sent[number as usize] + 1);
            let own = (end + trace.delay_at(end)).since(Time::ZERO).as_millis_f64();
            latest = f64::max(latest, own);
            prop_assert_eq!(*at, latest, "its own delay, or the arrival of an earlier packet");
        }
    }
}

fn conditions(seed: u64, forward: TraceModel, back: TraceModel) -> Conditions<Numbered> {
    let path = |model: TraceModel| PathConfig {
        hop: vec![HopConfig { trace: Some(model.into()), ..HopConfig::default() }],
    };
    let config = ConditionsConfig {
        forward: path(forward),
        reverse: path(back),
        ..ConditionsConfig::default()
    };
    config.build(seed, 1).unwrap()
}

/// Arrival of a packet that is sent in each direction at 5 s, in ms after that.
fn both_ways(seed: u64, model: &TraceModel) -> [f64; 2] {
    let mut conditions = conditions(seed, model.clone(), model.clone());
    let start = at_ms(5_000);
    Direction::ALL.map(|way| {
        conditions.enqueue(start, way, Numbered(0), &mut |drop| panic!("{drop:?}"));
        let arrived = conditions.poll(at_ms(60_000), way, &mut |drop| panic!("{drop:?}"));
        arrived.unwrap().at.since(start).as_millis_f64()
    })
}

#[test]
fn both_directions_of_a_path_see_the_same_satellites_which_follow_from_its_seed() {
    // At 120 Mbit/s a packet waits for 0.5 ms at most, rounded up to 2 ms.
    let model = LeoModel { mean_rate: BitRate::from_mbps(120), ..LeoModel::default() };
    let leo = TraceModel::Leo(model.clone());
    let [forward, back] = both_ways(1, &leo);
    assert!((forward - back).abs() <= 2.0 + 1.0, "{forward} and {back} ms");
    assert_eq!(both_ways(1, &leo), [forward, back]);
    assert!((both_ways(2, &leo)[0] - forward).abs() > 0.1);
    // The model's own seed takes precedence.
    let own = TraceModel::Leo(LeoModel { seed: Some(9), ..model });
    assert_eq!(both_ways(1, &own), both_ways(2, &own));
}

#[test]
fn a_model_out_of_its_range_is_refused_with_hop_field_and_remedy() {
    let model = CellularModel { tick: Span::ZERO, ..CellularModel::default() };
    let hop = HopConfig { trace: Some(TraceModel::Cellular(model).into()), ..HopConfig::default() };
    let built = PathConfig { hop: vec![hop] }.build::<Numbered, _>(|_| Pcg64::new(0, 0));
    let message = built.err().unwrap().to_string();
    assert!(message.starts_with("hop 1: `trace`: `tick` is 0ns; give at least 1ms"), "{message}");
}
