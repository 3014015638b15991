//! Shares of a saturated cell: aggregates, categories, the access point's stations, and near and
//! far stations.
#![cfg(feature = "serde")]

use freshline_core::router::Packet;
use freshline_core::unit::{Bytes, Span, Time};
use freshline_core::wlan::mac::{Category, Cell, CellConfig, CellStats, Transmission};
use rand_pcg::Pcg64;

const PAYLOAD: f64 = 1024.0 * 8.0;

/// A packet of the flow with this place among the flows.
struct Datagram(usize);

impl Packet for Datagram {
    fn size(&self) -> Bytes {
        Bytes::new(1024 + 8 + 20)
    }
}

/// Payload in Mbit/s of each of `flows` (from, to, category) when all of them always have packets,
/// and the statistics of the cell.
fn shares<const N: usize>(file: &str, flows: [(u32, u32, Category); N]) -> ([f64; N], CellStats) {
    const SECONDS: u64 = 10;
    let config: CellConfig = toml::from_str(file).unwrap();
    let mut cell: Cell<Datagram> = config.build(Pcg64::new(11, 11)).unwrap();
    let mut delivered = [0.0; N];
    let mut inside = [0; N];
    let mut now = Time::ZERO;
    while now < Time::ZERO + Span::from_secs(SECONDS) {
        for (place, (from, to, category)) in flows.into_iter().enumerate() {
            for _ in inside[place]..200 {
                let sent = Transmission { from, to, category, packet: Datagram(place) };
                cell.enqueue(now, sent, &mut |drop| panic!("{:?}", drop.reason));
            }
            inside[place] = 200;
        }
        now = cell.poll_timeout().unwrap();
        let mut given_up = [0; N];
        while let Some(arrived) = cell.poll(now, &mut |drop| given_up[drop.packet.0] += 1) {
            delivered[arrived.packet.0] += PAYLOAD / (SECONDS as f64 * 1e6);
            inside[arrived.packet.0] -= 1;
        }
        inside.iter_mut().zip(given_up).for_each(|(inside, dropped)| *inside -= dropped);
    }
    (delivered, cell.stats().clone())
}

const BE: Category = Category::BestEffort;

#[test]
fn aggregates_carry_what_their_cycle_says() {
    // 63 · 1096 + 1094 bytes are 360 symbols of 1560 bits behind 40 µs; AIFS, half a window,
    // SIFS and a block acknowledgement come on top.
    let file = "standard = '802.11ac'\nrate = 'mcs9'\nwidth = '80MHz'\nlifetime = '10s'";
    let cycle_us = 43.0 + 67.5 + (40.0 + 360.0 * 4.0) + 16.0 + 32.0;
    let ([rate], stats) = shares(file, [(0, 1, BE)]);
    let expected = 64.0 * PAYLOAD / cycle_us;
    assert!((rate / expected - 1.0).abs() < 0.005, "{rate} of {expected} Mbit/s");
    assert_eq!(stats.stations[0].attempts, 64 * stats.stations[0].transmissions);
    // In HT at 65 Mbit/s the air ends an aggregate: 40 subframes are 1349 symbols of 260 bits.
    let file = "standard = '802.11n'\nrate = 'mcs7'\nlifetime = '10s'";
    let cycle_us = 43.0 + 67.5 + (36.0 + 1349.0 * 4.0) + 16.0 + 32.0;
    let ([rate], _) = shares(file, [(0, 1, BE)]);
    let expected = 40.0 * PAYLOAD / cycle_us;
    assert!((rate / expected - 1.0).abs() < 0.005, "{rate} of {expected} Mbit/s");
}

#[test]
fn a_protected_frame_takes_its_exchange_longer() {
    let file =
        "standard = '802.11ac'\nrate = 'mcs9'\nwidth = '80MHz'\nlifetime = '10s'\n[protection]";
    // RTS 52, CTS 44 and two SIFS at 6 Mbit/s; CTS 28 and SIFS at 24.
    for (settings, lead_us) in
        [("", 128.0), ("exchange = 'cts_to_self'\nrate = '24mbit'", 44.0), ("above = '1MB'", 0.0)]
    {
        let cycle_us = 43.0 + 67.5 + lead_us + (40.0 + 360.0 * 4.0) + 16.0 + 32.0;
        let ([rate], stats) = shares(&format!("{file}\n{settings}"), [(0, 1, BE)]);
        let expected = 64.0 * PAYLOAD / cycle_us;
        assert!((rate / expected - 1.0).abs() < 0.005, "{settings}: {rate} of {expected} Mbit/s");
        let sender = &stats.stations[0];
        let on_air = sender.airtime.as_secs_f64() * 1e6 / sender.transmissions as f64;
        assert!((on_air - lead_us - 1_480.0).abs() < 1.0, "{settings}: {on_air} µs a frame");
    }
}

#[test]
fn requests_to_send_that_collide_cost_less_than_frames_that_do() {
    let file =
        "standard = '802.11ac'\nrate = 'mcs2'\nwidth = '80MHz'\nlifetime = '10s'\nstations = 11";
    let flows: [_; 10] = std::array::from_fn(|station| (station as u32 + 1, 0, BE));
    let carried = |protection: &str| {
        let (rates, stats) = shares(&format!("{file}\n{protection}"), flows);
        assert!(stats.stations.iter().map(|station| station.collisions).sum::<u64>() > 100);
        rates.iter().sum::<f64>()
    };
    let [bare, itself, asked] =
        ["", "[protection]\nexchange = 'cts_to_self'", "[protection]"].map(carried);
    assert!(itself < bare, "{itself} and {bare} Mbit/s");
    assert!(asked > 1.2 * bare, "{asked} and {bare} Mbit/s");
}

#[test]
fn with_two_packets_an_mpdu_a_frame_has_128() {
    // 26 + 1076 + 1074 + 4 bytes behind 4: 64 of 2184 are 717 symbols of 1560 bits.
    let file =
        "standard = '802.11ac'\nrate = 'mcs9'\nwidth = '80MHz'\nlifetime = '10s'\nmax_msdus = 2";
    let cycle_us = 43.0 + 67.5 + (40.0 + 717.0 * 4.0) + 16.0 + 32.0;
    let ([rate], stats) = shares(file, [(0, 1, BE)]);
    let expected = 128.0 * PAYLOAD / cycle_us;
    assert!((rate / expected - 1.0).abs() < 0.005, "{rate} of {expected} Mbit/s");
    let sender = &stats.stations[0];
    assert_eq!((sender.level_sent(), sender.attempts), (128.0, 64 * sender.transmissions));
    // At 87.75 Mbit/s the air ends a frame: 5.484 ms are 1361 symbols of 351 bits, 27 such MPDUs
    // (58968 bytes), and no room for a packet alone.
    let slow = file.replace("mcs9", "mcs2");
    let ([_], stats) = shares(&slow, [(0, 1, BE)]);
    assert_eq!(stats.stations[0].level_sent(), 54.0);
}

#[test]
fn without_aggregation_every_packet_pays_for_its_access() {
    let file = "standard = '802.11n'\nrate = 'mcs7'\nmax_mpdus = 1\nlifetime = '10s'";
    // 8742 bits in 34 symbols of 260 bits.
    let cycle_us = 43.0 + 67.5 + (36.0 + 34.0 * 4.0) + 16.0 + 28.0;
    let ([rate], _) = shares(file, [(0, 1, BE)]);
    assert!((rate / (PAYLOAD / cycle_us) - 1.0).abs() < 0.01, "{rate}");
}

#[test]
fn a_txop_is_filled_with_frames() {
    let file = "standard = '802.11n'\nrate = 'mcs7'\nmax_mpdus = 1\nlifetime = '10s'";
    // 13 exchanges with SIFS between them are 3000 of at most 3008 µs, after AIFS and half of the
    // small window.
    let exchange_us = (36.0 + 34.0 * 4.0) + 16.0 + 28.0;
    let cycle_us = 34.0 + 3.5 * 9.0 + 13.0 * exchange_us + 12.0 * 16.0;
    let ([rate], stats) = shares(file, [(0, 1, Category::Video)]);
    assert!((rate / (13.0 * PAYLOAD / cycle_us) - 1.0).abs() < 0.005, "{rate}");
    assert_eq!(stats.stations[0].collisions, 0);
}

#[test]
fn higher_categories_go_first() {
    let file = "standard = '802.11n'\nrate = 'mcs7'\nmax_mpdus = 1\nstations = 5\nlifetime = '60s'";
    let flows = [
        (1, 0, Category::Voice),
        (2, 0, Category::Video),
        (3, 0, Category::BestEffort),
        (4, 0, Category::Background),
    ];
    let ([voice, video, best_effort, background], _) = shares(file, flows);
    // Video may go on for twice as long as voice once it has the medium.
    assert!(voice.min(video) > 3.0 * best_effort, "{voice} {video} {best_effort}");
    assert!(best_effort > 3.0 * background, "{best_effort} {background}");
}

#[test]
fn categories_of_one_station_collide_inside_and_not_on_the_air() {
    let file = "standard = '802.11n'\nrate = 'mcs7'\nmax_mpdus = 1\nlifetime = '60s'";
    let flows = [(0, 1, Category::Voice), (0, 1, Category::Video)];
    let ([voice, video], stats) = shares(file, flows);
    assert!(stats.stations[0].internal_collisions > 100);
    assert_eq!(stats.stations[0].collisions, 0);
    assert!(voice > 0.0 && video > 0.0);
}

#[test]
fn the_access_point_serves_its_stations_in_turn() {
    let file = "stations = 5\nlifetime = '10s'";
    let (rates, _) = shares(file, [1, 2, 3, 4].map(|to| (0, to, BE)));
    let total: f64 = rates.iter().sum();
    for rate in rates {
        assert!((rate / total - 0.25).abs() < 0.001, "{rates:?}");
    }
}

#[test]
fn the_near_capture_collisions_with_the_far() {
    let places = "places = [{ x_m = 0, y_m = 0 }, { x_m = 2, y_m = 0 }, { x_m = 20, y_m = 0 }]";
    let flows = [(1, 0, BE), (2, 0, Category::Video)];
    let capture = format!("stations = 3\nlifetime = '60s'\n{places}\n[propagation]");
    let ([near, far], _) = shares(&capture, flows);
    assert!(near > 1.1 * far, "{near} {far}");
    let ideal = "stations = 3\nlifetime = '60s'";
    let ([one, other], _) = shares(ideal, flows);
    assert!((one / other - 1.0).abs() < 0.05, "{one} {other}");
    assert!(near + far > one + other);
}

#[test]
fn trial_finds_a_rate_for_each_distance() {
    let at = |metres: u32| {
        let places = format!("places = [{{ x_m = 0, y_m = 0 }}, {{ x_m = {metres}, y_m = 0 }}]");
        let file = format!("rate = 'minstrel'\nlifetime = '60s'\n{places}\n[propagation]");
        let ([rate], _) = shares(&file, [(0, 1, BE)]);
        rate
    };
    let (near, middle, far) = (at(5), at(50), at(80));
    assert!(near > 24.0, "54 Mbit/s carry 24.9 in packets of this size: {near}");
    assert!(near > middle && middle > far && far > 3.0, "{near} {middle} {far}");
}
