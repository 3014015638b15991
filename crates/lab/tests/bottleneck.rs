//! The place of the bottleneck, for settings that were not part of the training.

use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::{Change, Scenario};

const RATE: &str = include_str!("../../../scenarios/wlan/bottleneck-rate.toml");
const AIR: &str = include_str!("../../../scenarios/wlan/bottleneck-air.toml");
const MOVES: &str = include_str!("../../../scenarios/wlan/bottleneck-moves.toml");

const SLOW: &str = r#"link.backhaul.forward={ rate = "97500kbit", queue = "100p", delay = "5ms" }"#;
const FAST: &str = r#"link.backhaul.forward={ rate = "975mbit", queue = "1000p", delay = "2ms" }"#;

fn measured(scenario: &str, set: &[&str]) -> Vec<Metric> {
    let changes: Vec<_> = set.iter().map(|text| Change::parse(text).unwrap()).collect();
    let scenario = Scenario::parse_with(scenario, &changes).unwrap();
    run(&scenario, || {}).unwrap()
}

/// A metric of the flow; `None` if nothing was known of it.
fn video(metrics: &[Metric], name: &str) -> Option<f64> {
    let is_meant = |metric: &&Metric| metric.of == "video" && metric.name == name;
    metrics.iter().find(is_meant).map(|metric| metric.value)
}

fn law(mbps: u32) -> String {
    format!(r#"flow.video.downlink.law={{ law = "fixed", rate = "{mbps}mbit" }}"#)
}

#[test]
fn it_is_right_for_95_percent_of_frames_over_rates_modes_delays_and_clients() {
    let mut worst = (1.0, String::new());
    for (seed, mcs) in [(101, 4), (102, 8)] {
        for (link, rates) in [(SLOW, [75, 115, 130, 260]), (FAST, [75, 130, 260, 420])] {
            for (rate, clients) in
                rates.into_iter().map(|rate| (rate, 1)).chain([(130, 2), (110, 3)])
            {
                let mode = format!("cell.wifi.radio.rate=\"mcs{mcs}\"");
                let (count, law) = (format!("flow.video.count={clients}"), law(rate));
                let seed = format!("seed={seed}");
                let set = [link, &mode, &count, &law, &seed, "duration=\"4s\""];
                let right = video(&measured(RATE, &set), "located").unwrap();
                println!("MCS {mcs}, {link}, {clients} clients, {law} Mbit/s: right {right:.3}");
                if right < worst.0 {
                    worst = (right, format!("{set:?}"));
                }
            }
        }
    }
    assert!(worst.0 >= 0.95, "{worst:?}");
}

#[test]
fn a_wifi_that_drops_up_to_half_of_all_is_not_taken_for_the_backhaul() {
    for (streams, mcs, rate) in [(1, 4, 450), (1, 5, 420), (2, 4, 650), (3, 4, 900)] {
        let mode = format!("cell.wifi.radio.rate=\"mcs{mcs}\"");
        let (streams, law) = (format!("cell.wifi.radio.streams={streams}"), law(rate));
        let set = [FAST, &mode, &streams, &law, "seed=103", "duration=\"4s\""];
        let metrics = measured(RATE, &set);
        let (right, loss) = (video(&metrics, "located").unwrap(), video(&metrics, "loss").unwrap());
        println!("{mode}, {streams}, {rate} Mbit/s: right {right:.3}, lost {loss:.2}");
        assert!(loss > 0.1, "{set:?}: {loss}");
        assert!(right >= 0.95, "{set:?}: {right}, of all {loss} lost");
    }
}

/// In s: the time in which a queue of 1000 packets fills, where `mbps` and 611 Mbit/s enter and 975
/// Mbit/s leave, and the time in which the packet behind the first loss passes the queue.
fn filling(mbps: f64) -> f64 {
    let queue = 1000.0 * 12_000.0;
    queue / ((mbps + 611.0 - 975.0) * 1e6) + queue / 975e6
}

#[test]
fn moves_are_noticed_as_soon_as_a_queue_is_full_and_answers_are_right_once_they_stand() {
    // The thesis sends 509 Mbit/s; until the queue is full, a busy link looks like one with less
    // traffic.
    for (seed, mcs, rate, clients) in [
        (201, 8, 509, 1),
        (202, 9, 509, 1),
        (203, 8, 500, 1),
        (204, 8, 515, 1),
        (205, 9, 450, 1),
        (206, 8, 260, 2),
    ] {
        let mode = format!("cell.wifi.radio.rate=\"mcs{mcs}\"");
        let (count, law) = (format!("flow.video.count={clients}"), law(rate));
        let seed = format!("seed={seed}");
        let metrics = measured(MOVES, &[&mode, &count, &law, &seed]);
        let of = |name: &str| video(&metrics, name).unwrap();
        let filling = filling(f64::from(rate * clients));
        let after = of("located_set_after");
        assert!(
            after <= filling + 0.02,
            "{mode}, {law}: {after} s, where {filling} s pass before anything shows"
        );
        // The thesis's rate: it reports 100 ms, of which 95 pass before anything shows.
        assert!(after <= 0.11 || rate * clients < 509, "{mode}, {law}: {after} s");
        // Of a second at 450 Mbit/s, 140 ms pass until the queue is full.
        let least = if rate == 450 { 0.9 } else { 0.93 };
        let still = of("located_still");
        let (queue, set) = (of("located"), of("located_set"));
        println!(
            "MCS {mcs}, {clients} x {rate} Mbit/s: {queue:.3} by queues, {set:.3} by settings, {still:.3} still, {after:.4} s after, {filling:.4} s at least"
        );
        for truth in ["located", "located_set"] {
            assert!(of(truth) >= least, "{mode}, {law}: {truth} {}", of(truth));
        }
        assert!(still >= 0.95, "{mode}, {law}: {still}");
        // A law asks once per slot: an answer that is late by less than half a slot counts as
        // right.
        let slots = of("located_slots");
        assert!(slots >= 0.95, "{mode}, {law}: {slots} of the slots");
    }
}

/// Busy air in a mode that no weights were trained on: how far away the client is in m, after how many
/// tries packets are given up, and how many stations send.
fn busy(mcs: u8, streams: u8, far: f64, tries: u8, uploads: usize, rate: u32) -> Vec<String> {
    let senders = (0..uploads).map(|number| format!(", {{ x_m = -1.0, y_m = {number}.0 }}"));
    let senders: String = senders.collect();
    let rules = "countdown = \"at_slot_start\", eifs = true, recovery = \"timeout_then_aifs\"";
    vec![
        format!("cell.wifi.radio.rate=\"mcs{mcs}\""),
        format!("cell.wifi.radio.streams={streams}"),
        format!("cell.wifi.radio.stations={}", 2 + uploads),
        "cell.wifi.radio.propagation={}".into(),
        format!(
            "cell.wifi.radio.places=[{{ x_m = 0.0, y_m = 0.0 }}, {{ x_m = {far:.2}, y_m = 0.0 }}{senders}]"
        ),
        format!("cell.wifi.radio.rules={{ {rules}, retry_limit = {tries} }}"),
        format!("flow.upload.count={uploads}"),
        law(rate),
    ]
}

/// The modes that are held out, with the distance at which a tenth of all packets need another try.
const HELD_OUT: [(u8, u8, f64); 5] =
    [(9, 1, 8.25), (7, 1, 13.02), (7, 2, 10.33), (9, 2, 6.55), (8, 3, 6.29)];

#[test]
fn on_busy_air_of_modes_not_trained_on_answers_are_right_and_false_alarms_rare() {
    let (mut alarms, mut lossy, mut missed) = (0.0_f64, 0.0_f64, 1.0_f64);
    for (seed, (mcs, streams, edge)) in (301..).zip(HELD_OUT) {
        let right = |link: &str, set: Vec<String>, downloads: &str| {
            let seed = format!("seed={seed}");
            let mut set: Vec<&str> = set.iter().map(String::as_str).collect();
            set.extend([link, &seed, downloads]);
            let metrics = measured(AIR, &set);
            (video(&metrics, "located").unwrap(), video(&metrics, "loss").unwrap())
        };
        for (uploads, rate) in [(0, 70), (1, 120), (2, 95)] {
            // Packets are tried as often as stations do, near the access point: nothing is lost.
            for downloads in ["flow.download.count=0", "flow.download.count=1"] {
                let (near, lost) =
                    right(FAST, busy(mcs, streams, 2.0, 7, uploads, rate), downloads);
                println!(
                    "MCS {mcs} x{streams}, {uploads} senders, {rate}: {near:.4}, lost {lost:.4}"
                );
                assert!(lost < 0.001, "{lost}");
                alarms = alarms.max(1.0 - near);
            }
            // At the edge, given up after three or four: the radio loses packets.
            for tries in [3, 4] {
                let set = busy(mcs, streams, edge * 1.01, tries, uploads, rate);
                let (far, lost) = right(FAST, set, "flow.download.count=0");
                println!("  at the edge, {tries} tries: {far:.4}, lost {lost:.4}");
                lossy = lossy.max(1.0 - far);
            }
            let set = busy(mcs, streams, 2.0, 7, uploads, 115 + rate);
            let (slow, lost) = right(SLOW, set, "flow.download.count=0");
            println!("  behind 97.5 Mbit/s: {slow:.4}, lost {lost:.4}");
            missed = missed.min(slow);
        }
    }
    println!(
        "false alarms {alarms:.4}, with a lossy radio {lossy:.4}; right behind a backhaul {missed:.4}"
    );
    assert!(alarms <= 0.01 && lossy <= 0.01 && missed >= 0.95, "{alarms} {lossy} {missed}");
}

#[test]
fn small_losses_of_a_backhaul_are_seen_in_modes_not_trained_on() {
    let (mut slots, mut worst) = (Vec::new(), 1.0_f64);
    for (seed, (mcs, streams, _)) in (401..).zip(HELD_OUT) {
        // 2, 3.5 and 5 % are lost over 97.5 Mbit/s.
        for (rate, uploads) in [(99_500, 0), (101_000, 1), (102_600, 0)] {
            let law =
                format!(r#"flow.video.downlink.law={{ law = "fixed", rate = "{rate}kbit" }}"#);
            let seed = format!("seed={seed}");
            let set = busy(mcs, streams, 2.0, 7, uploads, 0);
            let mut set: Vec<&str> = set.iter().map(String::as_str).collect();
            set.pop();
            set.extend([SLOW, &law, &seed, "flow.download.count=0"]);
            let metrics = measured(AIR, &set);
            let of = |name: &str| video(&metrics, name).unwrap();
            let (right, lost) = (of("located"), of("loss"));
            println!(
                "MCS {mcs} x{streams}, {rate} kbit/s, {uploads} senders: {right:.4}, lost {lost:.4}"
            );
            assert!(lost > 0.01, "{lost}");
            worst = worst.min(right);
            slots.push(of("located_slots"));
        }
    }
    let slots = slots.iter().sum::<f64>() / slots.len() as f64;
    println!("right {worst:.4} at least, and {slots:.4} of the slots");
    assert!(worst >= 0.9 && slots >= 0.95, "{worst} {slots}");
}

#[test]
fn flows_that_share_a_full_access_point_are_not_taken_for_a_backhaul() {
    // Two of 300 Mbit/s where 450 fit: each has half of each frame, and loses a quarter.
    let mut set = busy(7, 2, 2.0, 7, 0, 300);
    set.extend([
        "flow.video.count=2".into(),
        "flow.download.count=0".into(),
        "seed=311".into(),
        FAST.into(),
    ]);
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let metrics = measured(AIR, &set);
    let (right, loss) = (video(&metrics, "located").unwrap(), video(&metrics, "loss").unwrap());
    println!("right {right:.3}, lost {loss:.2}");
    assert!(loss > 0.1, "{loss}");
    assert!(right >= 0.95, "{right}");
}
