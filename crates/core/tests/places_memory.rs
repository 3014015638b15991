//! Bytes that a monitor holds per source, its share of the tables of parties included.

#[path = "common/counting.rs"]
mod counting;

#[path = "common/session.rs"]
mod driven;

use counting::held;
use freshline_core::session::{Admission, Monitor, MonitorParams, Origin, Secret};
use freshline_core::unit::Time;
use freshline_core::wire::{Cookie, Frames, Opening, SessionId, Update};

const SOURCES: u64 = 10_000;

/// Sources with names of 16 bytes and payloads of 64; the number of an address is that of its network.
fn bytes_per_source(origin: fn(&u64) -> Origin) -> usize {
    let before = held();
    let params = MonitorParams {
        admission: Admission::Proven,
        max_sources: SOURCES as usize,
        ..MonitorParams::default()
    };
    let mut monitor = Monitor::new(params, Secret::new([7; 16])).with_origin(origin);
    let mut datagram = [0; 300];
    for session in 0..SOURCES {
        let name = format!("{session:016}");
        let opening = Opening { cookie: Cookie::default(), name: &name, token: b"" };
        let update = Update {
            session: SessionId(session),
            seq: 0,
            sent_at: Time::ZERO,
            clock_offset: None,
            wants_ack: false,
            wants_return: false,
            ack_mark: None,
            opening: Some(opening),
            frames: Frames::fresh(&[7; 64]),
        };
        let len = update.write(&mut datagram).expect("it fits");
        driven::tell(&mut monitor, Time::ZERO, session, &datagram[..len]);
    }
    assert_eq!(monitor.len(), SOURCES as usize);
    (held() - before).cast_unsigned() / SOURCES as usize
}

#[test]
fn a_source_takes_little_memory_also_if_it_is_alone_in_its_network() {
    let together = bytes_per_source(|_| Origin::default());
    let alone =
        bytes_per_source(|address| Origin { owner: 0, network: *address, address: *address });
    println!("{together} bytes per source of one address, {alone} if each has its own network");
    // 8 of them bound the age of the state.
    assert!(together < 308 + 64, "{together}");
    assert!(alone < 550 + 64, "{alone}");
}
