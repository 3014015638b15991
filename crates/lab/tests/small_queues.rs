//! TCP small queues: how much of a stream is in the queue of its own station.

use freshline_core::unit::{Span, Time};
use freshline_lab::scenario::Scenario;

/// A station that uploads over a cell of 12 Mbit/s and a wire of 100 ms each way.
fn scenario(tcp: &str) -> Scenario {
    let text = format!(
        r#"
title = "An upload"
duration = "20s"
[[cell]]
name = "wifi"
radio = {{ standard = "802.11a", rate = "12mbit", lifetime = "1h" }}
[[link]]
name = "wire"
there = {{ rate = "1gbit", delay = "100ms" }}
[[flow]]
name = "tcp"
path = ["wifi", "wire"]
tcp = {{ {tcp} }}
"#
    );
    Scenario::parse(text.as_str()).expect("a scenario")
}

/// The most packets in the station's queue, looked at each ms from the fifth second on.
fn most_queued(tcp: &str) -> u64 {
    let mut world = scenario(tcp).build(0).expect("a world").world;
    let mut most = 0;
    for ms in 5_000..20_000 {
        world.run_until(Time::ZERO + Span::from_millis(ms));
        let own = world.cells()[0].queues().filter(|(station, _)| *station == 1);
        most = most.max(own.map(|(_, packets)| packets.get()).sum());
    }
    most
}

/// With a shift of 10 the limit is two packets here, and a third may follow them. With 7 it is the
/// memory of 1/128 s: BBR paces at up to 1.25 · 9 Mbit/s, 11 kB or 4.3 packets of 2574 bytes. A window
/// twice as large as what is in flight, in slow start, has four times that of the rate.
#[test]
fn a_stream_keeps_a_few_packets_in_the_queue_of_its_station() {
    assert_eq!(most_queued(r#"control = "cubic", pacing_shift = 10"#), 3);
    let bbr = most_queued(r#"control = "bbr", pacing_shift = 7"#);
    assert!((4..=7).contains(&bbr), "{bbr}");
    let cubic = most_queued(r#"control = "cubic", pacing_shift = 7"#);
    assert!((4..=15).contains(&cubic), "{cubic}");
    let without = most_queued(r#"control = "cubic""#);
    assert!(without > 100, "{without}");
}

/// On a path of one leg what arrives frees its number while the next packet is put into the queue.
#[test]
fn the_limit_does_not_fade_on_a_path_of_one_leg() {
    let text = r#"
title = "To the access point"
duration = "20s"
[[cell]]
name = "wifi"
radio = { standard = "802.11a", rate = "12mbit", lifetime = "1h" }
[[flow]]
name = "tcp"
path = ["wifi"]
tcp = { control = "cubic", pacing_shift = 10 }
"#;
    let mut world = Scenario::parse(text).expect("a scenario").build(0).expect("a world").world;
    for ms in 1_000..20_000 {
        world.run_until(Time::ZERO + Span::from_millis(ms));
        let own = world.cells()[0].queues().filter(|(station, _)| *station == 1);
        let queued: u64 = own.map(|(_, packets)| packets.get()).sum();
        assert!(queued <= 3, "{queued} after {ms} ms");
    }
}

#[test]
fn small_queues_are_those_of_a_station() {
    let text = r#"
title = "No station"
duration = "20s"
[[link]]
name = "wire"
there = { rate = "1gbit", delay = "100ms" }
[[flow]]
name = "tcp"
path = ["wire"]
tcp = { control = "cubic", pacing_shift = 7 }
"#;
    let error = Scenario::parse(text).expect_err("no station").to_string();
    assert!(error.contains("begins in a cell"), "{error}");
}
