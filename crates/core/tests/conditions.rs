//! Two ends with hops and Wi-Fi between them: one air for both directions, exact times however late
//! the driver is, and aggregation as the theory predicts.
#![cfg(feature = "serde")]

use freshline_core::link::{Airborne, Conditions, ConditionsConfig, Direction, Passage};
use freshline_core::router::Packet;
use freshline_core::unit::{BitRate, Bytes, Time};
use freshline_core::wlan::mac::{Access, Framing, Guard, Mode, Standard, Timing, Width};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbered {
    number: u64,
    station: u32,
    size: u64,
}

impl Packet for Numbered {
    fn size(&self) -> Bytes {
        Bytes::new(self.size)
    }
}

impl Airborne for Numbered {
    fn station(&self) -> u32 {
        self.station
    }
}

const SEED: u64 = 11;
const CLIENTS: u32 = 3;

/// A noisy cell with hops behind it.
const FILE: &str = "
    [[forward.hop]]
    rate = '20mbit'
    delay = '3ms'
    jitter = '1ms'
    [[forward.hop]]
    delay = '1ms'
    [[reverse.hop]]
    rate = '30mbit'
    delay = '2ms'
    jitter = '1ms'
    order = 'free'
    [wlan]
    standard = '802.11n'
    rate = 'mcs7'
    queue = '50p'
    places = [{ x_m = 0, y_m = 0 }, { x_m = 3, y_m = 4 }, { x_m = 30, y_m = 0 }, { x_m = 0, y_m = 32 }]
    [propagation]
";

fn conditions(file: &str, clients: u32) -> Conditions<Numbered> {
    let file = file.replace("[propagation]", "[wlan.propagation]");
    toml::from_str::<ConditionsConfig>(&file).unwrap().build(SEED, clients as usize).unwrap()
}

/// `count` packets of all clients, in both directions, in `millis` ms.
fn arrivals(count: u64, millis: u64) -> Vec<(Time, Direction, Numbered)> {
    let rng = &mut Pcg64::seed_from_u64(3);
    let mut arrivals: Vec<_> = (0..count)
        .map(|number| {
            let station = rng.random_range(1..=CLIENTS);
            let packet = Numbered { number, station, size: rng.random_range(40..1_500) };
            let at = Time::from_nanos(rng.random_range(0..millis * 1_000_000));
            (at, Direction::ALL[rng.random_range(0..2)], packet)
        })
        .collect();
    arrivals.sort_by_key(|(at, _, packet)| (*at, packet.number));
    arrivals
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// Per direction, when each packet reached its end.
    delivered: [Vec<(Time, u64)>; 2],
    dropped: Vec<u64>,
    /// How many packets came over the air, to a station of either kind.
    over_air: [u64; 2],
}

/// Drives `conditions` through `arrivals` and until they are empty. A `punctual` driver comes at
/// every event, another one only with packets.
fn driven(
    conditions: &mut Conditions<Numbered>,
    arrivals: &[(Time, Direction, Numbered)],
    punctual: bool,
) -> Outcome {
    let mut outcome = Outcome::default();
    for (at, direction, packet) in arrivals {
        while let Some(now) = conditions.poll_timeout().filter(|now| punctual && now < at) {
            poll(conditions, now, &mut outcome);
        }
        watch(conditions, *at, &mut outcome);
        conditions.enqueue(*at, *direction, *packet, &mut |drop| {
            outcome.dropped.push(drop.packet.number);
        });
    }
    while let Some(now) = conditions.poll_timeout() {
        poll(conditions, now, &mut outcome);
    }
    outcome.dropped.sort_unstable();
    outcome
}

fn watch(conditions: &mut Conditions<Numbered>, now: Time, outcome: &mut Outcome) {
    let Outcome { dropped, over_air, .. } = outcome;
    let mut see = |passage: Passage<'_, Numbered>| {
        if let Passage::Air(arrival) = passage {
            over_air[usize::from(arrival.from == 0)] += 1;
        }
    };
    conditions.advance(now, &mut |drop| dropped.push(drop.packet.number), &mut see);
}

fn poll(conditions: &mut Conditions<Numbered>, now: Time, outcome: &mut Outcome) {
    watch(conditions, now, outcome);
    let Outcome { delivered, dropped, .. } = outcome;
    for direction in Direction::ALL {
        let drops = &mut |drop: freshline_core::router::Drop<Numbered>| {
            dropped.push(drop.packet.number);
        };
        while let Some(arrived) = conditions.poll(now, direction, drops) {
            delivered[direction as usize].push((arrived.at, arrived.packet.number));
        }
    }
}

#[test]
fn a_driver_that_is_late_changes_nothing() {
    let arrivals = arrivals(4_000, 1_000);
    let run = |punctual| {
        let mut conditions = conditions(FILE, CLIENTS);
        let outcome = driven(&mut conditions, &arrivals, punctual);
        (outcome, conditions.cell().unwrap().stats().clone())
    };
    let (punctual, stats) = run(true);
    assert_eq!((&punctual, &stats), (&run(false).0, &run(false).1));
    assert!(stats.sum(|station| station.retries) > 0, "a cell without noise shows little");
    assert!(stats.sum(|station| station.collisions) > 0);
}

#[test]
fn every_packet_comes_to_its_end_or_is_dropped_once() {
    let arrivals = arrivals(8_000, 1_000);
    let mut conditions = conditions(FILE, CLIENTS);
    let outcome = driven(&mut conditions, &arrivals, true);
    for direction in Direction::ALL {
        assert!(outcome.delivered[direction as usize].is_sorted_by_key(|(at, _)| *at));
    }
    let ends = outcome.delivered.iter().flatten().map(|(_, number)| *number);
    let mut all: Vec<_> = ends.chain(outcome.dropped.iter().copied()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..arrivals.len() as u64).collect::<Vec<_>>());
    // Everything that came to clients came over the air last, everything else first.
    let stations = &conditions.cell().unwrap().stats().stations;
    let sent = |stations: &[_]| stations.iter().map(delivered).sum::<u64>();
    assert_eq!(outcome.over_air, [sent(&stations[1..]), sent(&stations[..1])]);
    assert_eq!(outcome.over_air[1], outcome.delivered[1].len() as u64);
}

fn delivered(station: &freshline_core::wlan::mac::StationStats) -> u64 {
    station.delivered.packets.get()
}

#[test]
fn without_a_cell_the_ways_know_nothing_of_each_other() {
    let file = &FILE[..FILE.find("[wlan]").unwrap()];
    let all = arrivals(4_000, 1_000);
    let both = driven(&mut conditions(file, CLIENTS), &all, true);
    for direction in Direction::ALL {
        let alone: Vec<_> = all.iter().copied().filter(|(_, of, _)| *of == direction).collect();
        let one = driven(&mut conditions(file, CLIENTS), &alone, true);
        assert_eq!(one.delivered[direction as usize], both.delivered[direction as usize]);
    }
}

/// Packets of a size that are sent to the only client at a constant rate for some seconds.
fn stream(rate: BitRate, size: u64, seconds: u64) -> Vec<(Time, Direction, Numbered)> {
    let gap = rate.time_to_send(Bytes::new(size));
    let count = seconds * 1_000_000_000 / gap.as_nanos();
    let packet = |number| Numbered { number, station: 1, size };
    (0..count).map(|n| (Time::ZERO + gap * n, Direction::Reverse, packet(n))).collect()
}

#[test]
fn what_returns_contends_with_what_goes() {
    let seconds = 2;
    let down = stream(BitRate::from_mbps(200), 1500, seconds);
    // An answer for each packet, from the client to the other end.
    let up = down.iter().map(|(at, _, packet)| {
        (
            *at,
            Direction::Forward,
            Numbered { number: packet.number + down.len() as u64, size: 52, ..*packet },
        )
    });
    let mut both: Vec<_> = down.iter().copied().chain(up).collect();
    both.sort_by_key(|(at, ..)| *at);
    let goodput = |arrivals: &[_]| {
        let file = "[wlan]\nstandard = '802.11n'\nrate = 'mcs7'";
        let mut conditions = conditions(file, 1);
        driven(&mut conditions, arrivals, true);
        let stats = conditions.cell().unwrap().stats();
        (delivered(&stats.stations[0]), stats.stations[0].collisions)
    };
    let ((alone, none), (beside, some)) = (goodput(&down), goodput(&both));
    assert_eq!(none, 0);
    assert!(some > 0 && beside < alone * 95 / 100, "{beside} beside answers, {alone} alone");
}

/// The mean aggregation level at a send rate of x packets a second, by μN = c·x / (1 − w·x):
/// Hassani, equation 5.7, for one station. c is the mean time that an access takes besides
/// packets, w how long a packet of `size` is on the air.
fn level(mode: &Mode, size: Bytes, x: f64) -> f64 {
    let framing = Framing::new(Standard::Ac, &Access::EDCA, 64);
    let timing = Timing::of(Standard::Ac);
    let padded = framing.appended(Bytes::ZERO, framing.mpdu(size)).get().next_multiple_of(4);
    let w = (padded * 8) as f64 / mode.rate().as_bps() as f64;
    // Best effort has AIFSN 3 and draws its backoff from 0 to 15 slots. Data fills its last symbol
    // by half, in the mean.
    let backoff = timing.aifs(3).as_secs_f64() + 7.5 * timing.slot.as_secs_f64();
    let preamble = mode.duration(Bytes::ZERO).as_secs_f64() - 2e-6;
    let response = timing.sifs + framing.response(mode, 2);
    (backoff + preamble + response.as_secs_f64()) * x / (1.0 - w * x)
}

#[test]
fn aggregation_grows_with_the_send_rate_as_the_model_says() {
    let mode = Mode::vht(4, 1, Width::Mhz40, Guard::Long).unwrap();
    for mbit in [45, 55, 60, 65] {
        let rate = BitRate::from_mbps(mbit);
        let mut conditions =
            conditions("[wlan]\nstandard = '802.11ac'\nrate = 'mcs4'\nwidth = '40MHz'", 1);
        driven(&mut conditions, &stream(rate, 1028, 4), false);
        let client = &conditions.cell().unwrap().stats().stations[1];
        let x = rate.as_bps() as f64 / (8.0 * 1028.0);
        let model = level(&mode, Bytes::new(1028), x);
        let measured = client.level_received();
        assert!((measured / model - 1.0).abs() < 0.02, "{mbit} Mbit/s: {measured}, not {model}");
    }
}
