//! TCP small queues: how much of a stream is in the queue of its own station.

#[path = "common/scenarios.rs"]
mod scenarios;

use freshline_core::unit::{Span, Time};
use scenarios::scenario;

/// A station that uploads over a cell of 12 Mbit/s and a wire of 100 ms in each direction.
const UPLOAD: &str = r#"
title = "An upload"
duration = "20s"
[[cell]]
name = "wifi"
radio = { standard = "802.11a", rate = "12mbit", lifetime = "1h" }
[[link]]
name = "wire"
forward = { rate = "1gbit", delay = "100ms" }
[[flow]]
name = "tcp"
path = ["wifi", "wire"]
tcp = { control = "cubic" }
"#;

/// The maximum number of packets in the station's queue, sampled every ms from this second on.
fn max_queued(changes: &[&str], from: u64) -> u64 {
    let mut world = scenario(UPLOAD, changes).unwrap().build(0).expect("a world").world;
    let mut most = 0;
    for ms in from * 1_000..20_000 {
        world.run_until(Time::ZERO + Span::from_millis(ms));
        let own = world.cells()[0].queues().filter(|(station, _)| *station == 1);
        most = most.max(own.map(|(_, packets)| packets.get()).sum());
    }
    most
}

/// With a shift of 10 the limit is two packets here, and a third may follow them. With 7 it is the
/// memory of 1/128 s: BBR paces at up to 1.25 · 9 Mbit/s, 11 kB or 4.3 packets of 2574 bytes. A
/// window of twice the data in flight, in slow start, gives a limit of four times that of the rate.
#[test]
fn a_stream_keeps_a_few_packets_in_the_queue_of_its_station() {
    assert_eq!(max_queued(&["flow.tcp.tcp.pacing_shift=10"], 5), 3);
    let shift = "flow.tcp.tcp.pacing_shift=7";
    let bbr = max_queued(&["flow.tcp.tcp.control=bbr", shift], 5);
    assert!((4..=7).contains(&bbr), "{bbr}");
    let cubic = max_queued(&[shift], 5);
    assert!((4..=15).contains(&cubic), "{cubic}");
    let without = max_queued(&[], 5);
    assert!(without > 100, "{without}");
}

/// On a path of one leg an arriving packet frees its number while the next packet is put into the
/// queue.
#[test]
fn the_limit_does_not_fade_on_a_path_of_one_leg() {
    let queued = max_queued(&[r#"flow.tcp.path=["wifi"]"#, "flow.tcp.tcp.pacing_shift=10"], 1);
    assert!(queued <= 3, "{queued}");
}

/// A host behind a device of 10 Mbit/s: its own queue is that of the first link.
#[test]
fn a_stream_keeps_a_few_packets_in_the_queue_of_its_first_link() {
    let wired = |changes: &[&str]| {
        let nic = "link.nic.forward.queue=1000p";
        let text = UPLOAD.replace("[\"wifi\", \"wire\"]", "[\"nic\", \"wire\"]").replace(
            "[[flow]]",
            "[[link]]\nname = \"nic\"\nforward = { rate = \"10mbit\" }\n[[flow]]",
        );
        let changes = [&[nic], changes].concat();
        let mut world = scenario(&text, &changes).unwrap().build(0).expect("a world").world;
        let mut most = 0;
        for ms in 5_000..20_000 {
            world.run_until(Time::ZERO + Span::from_millis(ms));
            most = most.max(world.hops().iter().map(|hop| hop.held().get()).max().unwrap_or(0));
        }
        most
    };
    let limited = wired(&["flow.tcp.tcp.pacing_shift=10"]);
    assert!(limited <= 3, "{limited}");
    let without = wired(&[]);
    assert!(without > 100, "{without}");
}
