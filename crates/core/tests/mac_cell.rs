//! Invariants of a cell for any traffic: no packet is lost or duplicated without being counted,
//! flows keep their order, limits hold, and the same seed gives the same run.
#![cfg(feature = "serde")]

use std::collections::{BTreeMap, BTreeSet};

use freshline_core::router::{Drop, DropReason, Packet};
use freshline_core::unit::{Bytes, Packets, Span, Time};
use freshline_core::wlan::mac::{Category, Cell, CellConfig, Delivered, Transmission};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbered {
    number: u64,
    category: Category,
    size: u64,
}

impl Packet for Numbered {
    fn size(&self) -> Bytes {
        Bytes::new(self.size)
    }
}

type Arrival = (Time, Transmission<Numbered>);

/// `count` packets of all sizes and categories between any two of `stations`, in `millis` ms.
fn arrivals(seed: u64, stations: u32, count: u64, millis: u64) -> Vec<Arrival> {
    let rng = &mut Pcg64::seed_from_u64(seed);
    let mut arrivals: Vec<Arrival> = (0..count)
        .map(|number| {
            let from = rng.random_range(0..stations);
            let to = (from + rng.random_range(1..stations)) % stations;
            let category = Category::ALL[rng.random_range(0..4)];
            let packet = Numbered { number, category, size: rng.random_range(1..2_000) };
            let at = Time::from_nanos(rng.random_range(0..millis * 1_000_000));
            (at, Transmission { from, to, category, packet })
        })
        .collect();
    arrivals.sort_by_key(|(at, sent)| (*at, sent.packet.number));
    arrivals
}

/// The result: deliveries and drops.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    delivered: Vec<Delivered<Numbered>>,
    dropped: Vec<Drop<Numbered>>,
    largest: u64,
}

/// Drives a cell through `arrivals` and until it is empty. A `punctual` driver comes at every
/// event, another one only with packets.
fn driven(cell: &mut Cell<Numbered>, arrivals: &[Arrival], punctual: bool) -> Outcome {
    let mut outcome = Outcome::default();
    for (at, sent) in arrivals {
        while let Some(now) = cell.poll_timeout().filter(|now| punctual && now < at) {
            poll(cell, now, &mut outcome);
        }
        cell.enqueue(*at, *sent, &mut |drop| outcome.dropped.push(drop));
        outcome.largest = outcome.largest.max(cell.inside().get());
    }
    while let Some(now) = cell.poll_timeout() {
        poll(cell, now, &mut outcome);
    }
    outcome
}

fn poll(cell: &mut Cell<Numbered>, now: Time, outcome: &mut Outcome) {
    let Outcome { delivered, dropped, .. } = outcome;
    while let Some(packet) = cell.poll(now, &mut |drop| dropped.push(drop)) {
        assert!(packet.at <= now);
        delivered.push(packet);
    }
}

fn config(file: &str) -> CellConfig {
    toml::from_str(file).unwrap()
}

/// Cells of every kind: with and without noise, aggregation, categories and choice of rates.
fn kinds() -> impl Strategy<Value = CellConfig> {
    let noisy = "side_m = 120.0\n[propagation]\nexponent = 3.5\nshadowing_db = 6.0";
    prop::sample::select(vec![
        config("stations = 4"),
        config(&format!("stations = 5\nqueue = '5p'\nlifetime = '20ms'\n{noisy}")),
        config(&format!("standard = '802.11g'\nrate = 'minstrel'\nstations = 6\n{noisy}")),
        config(&format!("access = 'edca'\nstations = 4\nqueue = '30p'\n{noisy}")),
        config("standard = '802.11n'\nrate = 'mcs7'\nstations = 4\nqueue = '20p'"),
        config(
            "standard = '802.11n'\nrate = 'mcs1'\nstations = 4\nqueue = 'fq_codel'\nap_queue = 'codel'",
        ),
        config(&format!(
            "rate = '6mbit'\nstations = 3\nqueue = '64kB'\nap_queue = 'fq_codel'\n{noisy}"
        )),
        config(&format!(
            "standard = '802.11n'\nrate = 'mcs4'\nmax_msdus = 3\nstations = 4\nqueue = 'ifc'\n{noisy}"
        )),
        config(&format!(
            "standard = '802.11n'\nrate = 'mcs4'\nstations = 4\nlifetime = '50ms'\n{noisy}"
        )),
        config(&format!(
            "standard = '802.11n'\nrate = 'mcs4'\nmax_msdus = 3\nstations = 4\nlifetime = '50ms'\n{noisy}"
        )),
        config("standard = '802.11ac'\nrate = 'mcs7'\nmax_msdus = 2\nqueue = '40p'\nstations = 4"),
        config(&format!(
            "standard = '802.11ac'\nrate = 'minstrel'\nmax_mpdus = 1\nmax_msdus = 4\nstations = 3\n{noisy}"
        )),
        config(&format!(
            "standard = '802.11ac'\nrate = 'minstrel'\nwidth = '80MHz'\nstations = 3\n{noisy}"
        )),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_packet_is_delivered_once_or_dropped_once(config in kinds(), seed: u64) {
        let arrivals = arrivals(seed, config.stations, 600, 300);
        let mut cell = config.build(Pcg64::seed_from_u64(seed)).unwrap();
        let outcome = driven(&mut cell, &arrivals, true);
        let numbers: Vec<u64> = outcome.delivered.iter().map(|delivered| delivered.packet.number)
            .chain(outcome.dropped.iter().map(|drop| drop.packet.number))
            .collect();
        let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
        prop_assert_eq!(numbers.len(), 600);
        prop_assert_eq!(distinct.len(), 600);
        prop_assert_eq!(cell.inside(), Packets::ZERO);
        let stations = &cell.stats().stations;
        let delivered: u64 = stations.iter().map(|s| s.delivered.packets.get()).sum();
        let dropped: u64 = stations.iter().map(|s| s.drops.total().get()).sum();
        prop_assert_eq!(delivered, outcome.delivered.len() as u64);
        prop_assert_eq!(dropped, outcome.dropped.len() as u64);
    }

    #[test]
    fn each_flow_keeps_its_order(config in kinds(), seed: u64) {
        let arrivals = arrivals(seed, config.stations, 600, 300);
        let place: BTreeMap<u64, usize> =
            arrivals.iter().enumerate().map(|(place, (_, sent))| (sent.packet.number, place)).collect();
        let mut cell = config.build(Pcg64::seed_from_u64(seed)).unwrap();
        let mut last = BTreeMap::new();
        let mut time = Time::ZERO;
        for delivered in driven(&mut cell, &arrivals, true).delivered {
            prop_assert!(delivered.at >= time);
            time = delivered.at;
            let flow = (delivered.from, delivered.to, delivered.packet.category);
            let place = place[&delivered.packet.number];
            let before = last.insert(flow, place);
            prop_assert!(before.is_none_or(|before| before < place));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run_however_late_the_driver_is(config in kinds(), seed: u64) {
        let arrivals = arrivals(seed, config.stations, 300, 200);
        let mut runs = [true, true, false].map(|punctual| {
            let mut cell = config.build(Pcg64::seed_from_u64(seed)).unwrap();
            let outcome = driven(&mut cell, &arrivals, punctual);
            (outcome.delivered, outcome.dropped, cell.stats().clone())
        });
        let late = std::mem::take(&mut runs[2].0);
        prop_assert_eq!(&late, &runs[0].0);
        runs[2].0 = late;
        prop_assert_eq!(&runs[0], &runs[1]);
        prop_assert_eq!(&runs[0], &runs[2]);
    }
}

#[test]
fn queues_hold_what_they_may_and_no_more() {
    let mut cell = config("stations = 3\nqueue = '10p'").build(Pcg64::new(1, 1)).unwrap();
    let outcome = driven(&mut cell, &arrivals(1, 3, 10_000, 100), true);
    let categories_are_one = 3 * 2 * 10;
    assert!(outcome.largest <= categories_are_one + 1, "{}", outcome.largest);
    let full = outcome.dropped.iter().filter(|drop| drop.reason == DropReason::QueueFull).count();
    assert_eq!(full, outcome.dropped.len());
    assert!(full > 5_000);
}

#[test]
fn a_station_out_of_reach_costs_seven_tries_a_packet() {
    let file = "places = [{ x_m = 0, y_m = 0 }, { x_m = 5000, y_m = 0 }]\n[propagation]";
    let mut cell = config(file).build(Pcg64::new(1, 1)).unwrap();
    let sent = |number| {
        let packet = Numbered { number, category: Category::BestEffort, size: 1000 };
        (Time::ZERO, Transmission { from: 0, to: 1, category: Category::BestEffort, packet })
    };
    let outcome = driven(&mut cell, &[sent(0), sent(1)], true);
    assert!(outcome.dropped.iter().all(|drop| drop.reason == DropReason::RetryLimit));
    assert_eq!(outcome.dropped.len(), 2);
    let stats = &cell.stats().stations[0];
    assert_eq!((stats.attempts, stats.retries, stats.noise_losses), (14, 12, 14));
    assert!((stats.retry_rate() - 12.0 / 14.0).abs() < 1e-12);
}

#[test]
fn what_is_too_large_for_a_frame_is_refused() {
    let mut cell = config("").build(Pcg64::new(1, 1)).unwrap();
    let packet = Numbered { number: 0, category: Category::BestEffort, size: 2_305 };
    let sent = Transmission { from: 0, to: 1, category: Category::BestEffort, packet };
    let outcome = driven(&mut cell, &[(Time::ZERO, sent)], true);
    assert_eq!(outcome.dropped, [Drop { packet, reason: DropReason::TooBig }]);
}

#[test]
fn packets_that_waited_too_long_are_dropped() {
    let mut cell = config("lifetime = '10ms'\nqueue = '1000p'").build(Pcg64::new(1, 1)).unwrap();
    let outcome = driven(&mut cell, &arrivals(5, 2, 2_000, 100), true);
    let expired = outcome.dropped.iter().filter(|drop| drop.reason == DropReason::Lifetime).count();
    assert!(expired > 1_000 && expired == outcome.dropped.len(), "{expired}");
    // No packet waits longer than its lifetime and one exchange.
    let start: BTreeMap<u64, Time> =
        arrivals(5, 2, 2_000, 100).iter().map(|(at, sent)| (sent.packet.number, *at)).collect();
    for delivered in outcome.delivered {
        let waited = delivered.at.since(start[&delivered.packet.number]);
        assert!(waited < Span::from_millis(13), "{waited}");
    }
}
