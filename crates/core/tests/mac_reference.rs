//! The cell compared with ns-3.37: figures and settings are in docs/wlan.md, "Against ns-3".

use freshline_core::router::{Limit, Packet, QdiscConfig};
use freshline_core::unit::{BitRate, Bytes, Packets, Span, Time};
use freshline_core::wlan::mac::bianchi::Bianchi;
use freshline_core::wlan::mac::{
    Access, Category, Cell, CellParts, Channel, Delivery, Framing, Guard, Mode, Queues, RateChoice,
    Recovery, Rules, Standard, Timing, Transmission, Width,
};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;

/// A packet with its size and the time at which it was handed in.
struct Datagram(Bytes, Time);

impl Packet for Datagram {
    fn size(&self) -> Bytes {
        self.0
    }
}

/// Stations that send to station 0 over an ideal channel.
fn cell(
    (standard, mode): (Standard, Mode),
    (access, rules): (Access, Rules),
    stations: u32,
    delivery: Delivery,
) -> Cell<Datagram> {
    let parts = CellParts {
        stations: stations + 1,
        timing: Timing::of(standard),
        framing: Framing::new(standard, &access, 64),
        modes: vec![mode],
        access,
        rules,
        protection: None,
        channel: Channel::ideal(stations as usize + 1),
        rate: RateChoice::Fixed,
        queues: Queues::all(QdiscConfig::Fifo { limit: Limit::Packets(Packets::new(500)) }),
        lifetime: Span::MAX,
        codel: false,
        delivery,
    };
    Cell::new(parts, Pcg64::new(3_370, u128::from(stations)))
}

fn send(cell: &mut Cell<Datagram>, now: Time, from: u32, size: Bytes) {
    let (category, packet) = (Category::BestEffort, Datagram(size, now));
    let sent = Transmission { from, to: 0, category, packet };
    cell.enqueue(now, sent, &mut |drop| panic!("{:?}", drop.reason));
}

/// Megabits of UDP payload a second, in datagrams of 1024 bytes from stations that always have one.
fn saturated(mbit: u64, stations: u32, rules: Rules) -> f64 {
    let mode = Mode::legacy(Standard::A, BitRate::from_mbps(mbit)).unwrap();
    let mut cell = cell((Standard::A, mode), (Access::DCF, rules), stations, Delivery::Frame);
    let (size, seconds) = (Bytes::new(1024 + 28), 20);
    let end = Time::ZERO + Span::from_secs(seconds);
    let (mut now, mut delivered) = (Time::ZERO, 0_u32);
    loop {
        let mut queued = vec![0; stations as usize + 1];
        cell.queues().for_each(|(from, packets)| queued[from as usize] = packets.get());
        for from in 1..=stations {
            (queued[from as usize]..2).for_each(|_| send(&mut cell, now, from, size));
        }
        now = cell.poll_timeout().unwrap();
        if now >= end {
            return f64::from(delivered) * 1024.0 * 8.0 / (seconds as f64 * 1e6);
        }
        while cell.poll(now, &mut |_| ()).is_some() {
            delivered += 1;
        }
    }
}

/// Mbit/s at 802.11a, stations, and the throughput of ns-3 in Mbit/s.
const SATURATED: [(u64, u32, f64); 11] = [
    (12, 1, 9.123),
    (12, 2, 8.849),
    (12, 5, 8.261),
    (12, 10, 7.688),
    (12, 20, 7.014),
    (12, 50, 5.970),
    (6, 1, 5.001),
    (24, 1, 15.464),
    (54, 1, 24.863),
    (6, 10, 4.123),
    (24, 10, 13.654),
];

#[test]
fn saturated_stations_have_the_throughput_of_ns_3() {
    for (mbit, stations, ns3) in SATURATED {
        let carried = saturated(mbit, stations, Rules::DCF);
        let ratio = carried / ns3;
        println!("{stations} at {mbit} Mbit/s: {carried:.3}, ns-3 {ns3}");
        assert!((0.975..1.025).contains(&ratio), "{stations} at {mbit} Mbit/s: {ratio}");
    }
    // EIFS weighs most against short frames.
    let (carried, ns3) = (saturated(54, 10, Rules::DCF), 23.671);
    println!("10 at 54 Mbit/s: {carried:.3}, ns-3 {ns3}");
    assert!((0.96..0.975).contains(&(carried / ns3)), "10 at 54 Mbit/s: {}", carried / ns3);
}

/// ns-3 finds no preamble in a collision of equal powers, so that nothing is received and no EIFS
/// follows, and its stations wait for DIFS after the acknowledgement timeout.
#[test]
fn with_the_rules_of_ns_3_the_throughput_is_the_same() {
    let rules = Rules { eifs: false, recovery: Recovery::TimeoutThenAifs, ..Rules::DCF };
    for (mbit, stations, ns3) in SATURATED.into_iter().chain([(54, 10, 23.671)]) {
        let carried = saturated(mbit, stations, rules);
        let ratio = carried / ns3;
        println!("{stations} at {mbit} Mbit/s: {carried:.3} with the rules of ns-3, ns-3 {ns3}");
        assert!((0.985..1.015).contains(&ratio), "{stations} at {mbit} Mbit/s: {ratio}");
    }
}

/// Without a preamble detection model (`--preamble=0`), ns-3 receives collisions and waits for EIFS.
/// Of both rules, the backoff from the timeout on is then the only difference left.
#[test]
fn with_eifs_ns_3_has_the_throughput_of_the_cell() {
    let ns3 = 22.65;
    let of_cell = |recovery| saturated(54, 10, Rules { recovery, ..Rules::DCF });
    let [dcf, of_ns3] = [Recovery::Timeout, Recovery::TimeoutThenAifs].map(of_cell);
    println!(
        "10 at 54 Mbit/s: {dcf:.3}, {of_ns3:.3} with the backoff of ns-3, ns-3 with EIFS {ns3}"
    );
    assert!((0.985..1.02).contains(&(dcf / ns3)), "{dcf}");
    assert!((0.99..1.01).contains(&(of_ns3 / ns3)), "{of_ns3}");
}

/// Bianchi's model with seven attempts, whose collisions end with DIFS or with EIFS.
#[test]
fn eifs_costs_what_the_model_says() {
    let timing = Timing::of(Standard::A);
    let model = |extension| {
        let mode = Mode::legacy(Standard::A, BitRate::from_mbps(54)).unwrap();
        let (framing, size) = (Framing::new(Standard::A, &Access::DCF, 1), Bytes::new(1024 + 28));
        let contention = *Access::DCF.params(Category::BestEffort);
        let model = Bianchi::new(10, contention, &timing, &framing, &mode, size);
        let collision = model.collision + extension;
        let model = Bianchi { retry_limit: Some(7), collision, ..model };
        model.throughput(Bytes::new(1024)).as_bps() as f64 / 1e6
    };
    let of_cell = |eifs| {
        let rules = Rules { eifs, retry_limit: Some(7), ..Rules::BIANCHI };
        let recovery = if eifs { Recovery::TimeoutThenAifs } else { Recovery::AtOnce };
        saturated(54, 10, Rules { recovery, ..rules })
    };
    for (name, extension, eifs) in
        [("DIFS", Span::ZERO, false), ("EIFS", timing.error_extension(), true)]
    {
        let (model, cell) = (model(extension), of_cell(eifs));
        println!("10 at 54 Mbit/s, {name} after collisions: {cell:.3}, model {model:.3}");
        assert!((0.98..1.02).contains(&(cell / model)), "{name}: {cell}, model {model}");
    }
}

/// When a station sends.
#[derive(Debug, Clone, Copy)]
enum Arrivals {
    Even,
    Poisson,
}

/// The mean delay in ms of packets of 1500 bytes at MCS 9 over 80 MHz, of which each station sends this
/// many per second.
fn delay_of_aggregates(
    delivery: Delivery,
    stations: u32,
    packets_a_second: u64,
    arrivals: Arrivals,
) -> f64 {
    let mode = Mode::vht(9, 1, Width::Mhz80, Guard::Long).unwrap();
    let phy = (Standard::Ac, mode);
    let mut cell = cell(phy, (Access::EDCA, Rules::EDCA), stations, delivery);
    let (mut delays, mut count) = (0.0, 0_u32);
    for (now, from) in packets(stations, packets_a_second, arrivals) {
        while let Some(at) = cell.poll_timeout().filter(|at| *at < now) {
            while let Some(delivered) = cell.poll(at, &mut |_| ()) {
                delays += delivered.at.since(delivered.packet.1).as_secs_f64() * 1e3;
                count += 1;
            }
        }
        send(&mut cell, now, from, Bytes::new(1500));
    }
    delays / f64::from(count)
}

/// When packets come, and from which station, for 3 s of even and 20 s of Poisson arrivals.
fn packets(stations: u32, packets_a_second: u64, arrivals: Arrivals) -> Vec<(Time, u32)> {
    let mean = 1e9 / packets_a_second as f64;
    let mut all = Vec::new();
    for from in 1..=stations {
        let mut rng = Pcg64::new(7_733, u128::from(from));
        let mut gap = || -> f64 {
            match arrivals {
                Arrivals::Even => mean,
                Arrivals::Poisson => mean * Distribution::<f64>::sample(&Exp1, &mut rng),
            }
        };
        let (end, mut at) = match arrivals {
            Arrivals::Even => (3e9, 0.0),
            Arrivals::Poisson => (20e9, gap()),
        };
        while at < end {
            all.push((Time::from_nanos(at as u64), from));
            at += gap();
        }
    }
    all.sort_unstable();
    all
}

/// Each packet of an A-MPDU comes at the end of its MPDU. At the end of the frame, delays would be
/// 15 to 40 % longer.
#[test]
fn packets_of_aggregates_have_the_delay_of_ns_3() {
    for (rate, ns3) in
        [(3_000, 0.0725), (8_000, 0.2197), (15_000, 0.3322), (20_000, 0.4949), (24_000, 0.7768)]
    {
        let of = |delivery| delay_of_aggregates(delivery, 1, rate, Arrivals::Even);
        let [delay, of_frames] = [Delivery::Mpdu, Delivery::Frame].map(of);
        let ratio = delay / ns3;
        println!(
            "{rate} packets/s: {delay:.4} ms, {of_frames:.4} at the end of the frame, ns-3 {ns3}"
        );
        assert!((0.98..1.08).contains(&ratio), "{rate} packets/s: {ratio}");
    }
}

/// Without the BlockAckReq that ns-3 sends by default, and without its limit of attempts, by which
/// it gives up packets long before seven attempts.
#[test]
fn packets_of_two_stations_have_nearly_the_delay_of_ns_3() {
    for (rate, ns3) in [(1_500, 0.165), (7_500, 0.661), (10_000, 1.121)] {
        let delay = delay_of_aggregates(Delivery::Mpdu, 2, rate, Arrivals::Poisson);
        println!("2 stations, {rate} packets/s each: {delay:.4} ms, ns-3 {ns3}");
        assert!((0.95..1.08).contains(&(delay / ns3)), "{rate} packets/s: {}", delay / ns3);
    }
}
