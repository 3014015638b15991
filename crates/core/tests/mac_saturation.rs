//! A saturated 802.11a cell compared with Bianchi's model, with each rule that the model leaves
//! out.

use freshline_core::router::{Limit, Packet, QdiscConfig};
use freshline_core::unit::{BitRate, Bytes, Packets, Span, Time};
use freshline_core::wlan::mac::bianchi::Bianchi;
use freshline_core::wlan::mac::{
    Access, Category, Cell, CellParts, Channel, Countdown, Delivery, Framing, Mode, Queues,
    RateChoice, Recovery, Rules, Standard, Timing, Transmission,
};
use rand_pcg::Pcg64;

const PAYLOAD: Bytes = Bytes::new(1024);

/// A packet from this station.
struct Datagram(u32);

impl Packet for Datagram {
    fn size(&self) -> Bytes {
        PAYLOAD + Bytes::new(8 + 20)
    }
}

fn mode() -> Mode {
    Mode::legacy(Standard::A, BitRate::from_mbps(12)).unwrap()
}

/// The DCF without an end to retries.
const ENDLESS: Rules = Rules { retry_limit: None, ..Rules::DCF };

/// `stations` that send to station 0, over an ideal channel.
fn cell(stations: u32, rules: Rules) -> Cell<Datagram> {
    let parts = CellParts {
        stations: stations + 1,
        timing: Timing::of(Standard::A),
        framing: Framing::new(Standard::A, &Access::DCF, 1),
        modes: vec![mode()],
        access: Access::DCF,
        rules,
        protection: None,
        channel: Channel::ideal(stations as usize + 1),
        rate: RateChoice::Fixed,
        queues: Queues::all(QdiscConfig::Fifo { limit: Limit::Packets(Packets::new(10)) }),
        lifetime: Span::MAX,
        codel: false,
        delivery: Delivery::Frame,
    };
    Cell::new(parts, Pcg64::new(20_001_118, u128::from(stations)))
}

/// Megabits of payload a second when every station always has two packets.
fn throughput(stations: u32, rules: Rules, seconds: u64) -> f64 {
    let mut cell = cell(stations, rules);
    let send = |cell: &mut Cell<Datagram>, now, from| {
        let category = Category::BestEffort;
        let sent = Transmission { from, to: 0, category, packet: Datagram(from) };
        cell.enqueue(now, sent, &mut |drop| panic!("{:?}", drop.reason));
    };
    for from in (1..=stations).chain(1..=stations) {
        send(&mut cell, Time::ZERO, from);
    }
    let (mut delivered, mut missing) = (0, Vec::new());
    let end = Time::ZERO + Span::from_secs(seconds);
    while let Some(now) = cell.poll_timeout().filter(|now| *now < end) {
        let mut given_up = Vec::new();
        while let Some(arrived) = cell.poll(now, &mut |drop| given_up.push(drop.packet.0)) {
            delivered += 1;
            missing.push(arrived.from);
        }
        for from in missing.drain(..).chain(given_up) {
            send(&mut cell, now, from);
        }
    }
    f64::from(delivered) * PAYLOAD.get() as f64 * 8.0 / (seconds as f64 * 1e6)
}

/// Megabits of payload a second by the model.
fn model(stations: u32, retry_limit: Option<u8>) -> f64 {
    let Access::Dcf(contention) = Access::DCF else { unreachable!("the DCF is the DCF") };
    let (timing, framing) = (Timing::of(Standard::A), Framing::new(Standard::A, &Access::DCF, 1));
    let packet = PAYLOAD + Bytes::new(8 + 20);
    let model = Bianchi::new(stations, contention, &timing, &framing, &mode(), packet);
    let model = Bianchi { retry_limit, ..model };
    model.throughput(PAYLOAD).as_bps() as f64 / 1e6
}

#[test]
fn a_lone_station_needs_its_mean_cycle() {
    // DIFS, half a window, data, SIFS, acknowledgement.
    let cycle_us = 34.0 + 7.5 * 9.0 + 748.0 + 16.0 + 32.0;
    let expected = PAYLOAD.get() as f64 * 8.0 / cycle_us;
    let ratio = throughput(1, Rules::DCF, 60) / expected;
    assert!((ratio - 1.0).abs() < 0.002, "{ratio}");
}

#[test]
fn with_bianchi_s_rules_the_cell_is_bianchi_s_at_every_size() {
    for stations in [1, 5, 10, 20, 50] {
        for retry_limit in [None, Some(7)] {
            let rules = Rules { retry_limit, ..Rules::BIANCHI };
            let ratio = throughput(stations, rules, 60) / model(stations, retry_limit);
            assert!((ratio - 1.0).abs() < 0.01, "{stations} stations, {retry_limit:?}: {ratio}");
        }
    }
}

/// The rules of the standard have opposite effects. Freezing, and the slots that colliding stations
/// have for themselves while others wait for EIFS, spare collisions; windows that start again at
/// the retry limit cost some.
#[test]
fn with_its_own_rules_the_cell_is_near_the_model() {
    for (stations, range) in [(1, 0.97..1.03), (5, 0.97..1.03), (20, 0.95..1.05), (50, 0.95..1.05)]
    {
        let ratio = throughput(stations, Rules::DCF, 60) / model(stations, None);
        assert!(range.contains(&ratio), "{stations} stations: {ratio}");
    }
}

#[test]
fn without_a_retry_limit_a_large_cell_is_above_the_model() {
    for (stations, range) in [(20, 1.0..1.1), (50, 1.01..1.1)] {
        let ratio = throughput(stations, ENDLESS, 60) / model(stations, None);
        assert!(range.contains(&ratio), "{stations} stations: {ratio}");
    }
}

/// Prints what each rule is worth: `cargo test -p freshline-lab --test wifi_saturation -- --nocapture`.
#[test]
fn each_rule_has_its_share() {
    let base = Rules::BIANCHI;
    let columns = [
        ("Bianchi's", base),
        ("+ freezing", Rules { countdown: Countdown::AfterIdleSlot, ..base }),
        ("+ EIFS", Rules { eifs: true, ..base }),
        ("+ timeout", Rules { recovery: Recovery::Timeout, ..base }),
        ("+ both", Rules { recovery: Recovery::Timeout, eifs: true, ..base }),
        ("+ 7 tries", Rules { retry_limit: Some(7), ..base }),
        ("DCF", Rules::DCF),
        ("- 7 tries", ENDLESS),
    ];
    println!("Mbit/s of payload over the model's, by rule:");
    println!("stations  model {}", columns.map(|(name, _)| format!("{name:>11}")).concat());
    for stations in [1, 5, 10, 20, 50] {
        let model = model(stations, None);
        let ratios = columns.map(|(_, rules)| throughput(stations, rules, 20) / model);
        let cells = ratios.map(|ratio| format!("{ratio:>11.4}")).concat();
        println!("{stations:>8} {model:>6.3} {cells}");
        assert!(ratios.iter().all(|ratio| (0.9..1.3).contains(ratio)), "{stations}: {ratios:?}");
    }
}
