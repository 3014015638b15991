//! A backhaul that is slower than what the law would send, over real sockets.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::kit::{Daemon, MCS_RATE, alone, receive};

/// What a server at 40 Mbit/s tells of a client behind 8 Mbit/s after some seconds, and the part of
/// its packets that the backhaul dropped.
fn behind_8_mbit(guard: &[&str]) -> (Value, f64) {
    let law = ["--law", "fixed", "--rate", "40mbit"];
    let server = Daemon::server("udp", &[&law[..], guard].concat());
    let backhaul = Daemon::relay(server.port, &["--return-hop", "rate=8mbit,queue=50p"]);
    let mut client = receive(backhaul.port, 60, &["--mcs-rate", MCS_RATE]);
    thread::sleep(Duration::from_secs(8));
    let told = server.end();
    let _ = client.kill();
    let _ = client.wait();
    let carried = backhaul.end();
    let hop = &carried["return"]["hops"][0];
    let lost = hop["drops"]["queue_full"].as_f64().unwrap() / hop["packets_in"].as_f64().unwrap();
    (told["clients"][0].clone(), lost)
}

#[test]
fn with_a_guard_the_rate_follows_what_a_slow_backhaul_carries() {
    let _alone = alone();
    let (alone, lost) = behind_8_mbit(&[]);
    assert_eq!((&alone["rate_bps"], &alone["limit_bps"]), (&40_000_000.into(), &Value::Null));
    let (guarded, lost_with) = behind_8_mbit(&["--guard"]);
    println!("limit {}, lost {lost:.3} without and {lost_with:.3} with", guarded["limit_bps"]);
    assert_eq!(guarded["limited"], true, "{guarded}");
    assert_eq!(guarded["rate_bps"], guarded["limit_bps"], "{guarded}");
    // A host that is late sends less, and a step upwards may just be tried.
    let limit = guarded["limit_bps"].as_f64().unwrap();
    assert!((0.5e6..12e6).contains(&limit), "{guarded}");
    assert!(lost_with < lost / 2.0, "{lost_with} for {lost}");
}
