//! How fast a Wi-Fi cell is simulated: `cargo run --release -p freshline-lab --example wifi_speed`.
//!
//! An event is a packet handed in, an access to the medium, its end, or a packet taken out.

use std::time::Instant;

use freshline_core::router::Packet;
use freshline_core::unit::{Bytes, Span, Time};
use freshline_lab::wifi::{Category, Cell, CellConfig, Transmission};
use rand_pcg::Pcg64;

/// A packet from this station.
struct Datagram(u32);

impl Packet for Datagram {
    fn size(&self) -> Bytes {
        Bytes::new(1024 + 8 + 20)
    }
}

fn main() {
    let aggregated = "standard = '802.11ac'\nrate = 'mcs9'\nwidth = '80MHz'\nlifetime = '60s'";
    let noisy = "side_m = 60.0\n[propagation]\nshadowing_db = 4.0";
    println!("{:<34} {:>9} {:>12} {:>12}", "saturated cell", "Mbit/s", "sim s / s", "events / s");
    for (name, stations, file) in [
        ("802.11a, 1 station", 1, String::new()),
        ("802.11a, 12 stations", 12, String::new()),
        ("802.11a, 48 stations", 48, String::new()),
        ("802.11a, 48 stations, noise", 48, noisy.to_string()),
        ("802.11ac, 1 station, aggregates", 1, aggregated.to_string()),
        ("802.11ac, 48 stations, aggregates", 48, aggregated.to_string()),
    ] {
        let config: CellConfig = toml::from_str(&format!("stations = {}\n{file}", stations + 1))
            .expect("the files above are right");
        let cell = config.build(Pcg64::new(1, 1)).expect("the cells above exist");
        run(name, cell, stations, if stations == 1 { 500 } else { 100 });
    }
}

fn run(name: &str, mut cell: Cell<Datagram>, stations: u32, seconds: u64) {
    const QUEUED: u32 = 100;
    let start = Instant::now();
    let (mut handed_in, mut taken_out) = (0, 0);
    let mut missing: Vec<u32> = (0..stations * QUEUED).map(|place| 1 + place % stations).collect();
    let mut given_up = Vec::new();
    let (mut now, end) = (Time::ZERO, Time::ZERO + Span::from_secs(seconds));
    while now < end {
        for from in missing.drain(..) {
            let category = Category::BestEffort;
            let sent = Transmission { from, to: 0, category, packet: Datagram(from) };
            cell.enqueue(now, sent, &mut |_| {});
            handed_in += 1;
        }
        now = cell.next_event().expect("somebody always has a packet");
        while let Some(arrived) = cell.poll(now, &mut |drop| given_up.push(drop.packet.0)) {
            missing.push(arrived.from);
            taken_out += 1;
        }
        missing.append(&mut given_up);
    }
    let wall = start.elapsed().as_secs_f64();
    let events = (handed_in + taken_out + 2 * cell.stats().exchanges) as f64;
    let mbps = taken_out as f64 * 8192.0 / (seconds as f64 * 1e6);
    println!("{name:<34} {mbps:>9.2} {:>12.0} {:>12.2e}", seconds as f64 / wall, events / wall);
}
