//! Bytes that a monitor holds for each source.

#[path = "../../../core/tests/common/counting.rs"]
pub(crate) mod counting;

use std::net::{Ipv4Addr, SocketAddr};

use counting::held;
use freshline_core::session::{Monitor, MonitorEvent, MonitorParams, Origin, Secret};
use freshline_core::unit::Time;
use freshline_core::wire::{Cookie, Message, Opening, SessionId};

use crate::crowd::assert_ack;
use crate::traffic::{self, PAYLOAD};

const SOURCES: usize = 100_000;

pub(crate) fn report() {
    println!("\nmemory: {SOURCES} sources, payloads of {} bytes", PAYLOAD.len());
    println!("{:48} {:>14} {:>16}", "bytes per source", "without payload", "with");
    for (name_len, origin, of) in [
        (0, together as fn(&SocketAddr) -> Origin, "one address"),
        (16, together, "one address"),
        (16, alone, "each in a network of its own"),
    ] {
        let held = bytes_a_source(name_len, origin);
        let names = format!("names of {name_len} bytes, {of}");
        println!("{names:48} {:>14.1} {held:>16.1}", held - PAYLOAD.len() as f64);
    }
}

fn together(_: &SocketAddr) -> Origin {
    Origin::default()
}

pub(crate) fn alone(address: &SocketAddr) -> Origin {
    let SocketAddr::V4(address) = address else { return Origin::default() };
    let number = address.ip().to_bits().into();
    Origin { owner: 0, network: number, address: number }
}

/// Opens all sessions and returns the mean memory per session in bytes.
fn bytes_a_source(name_len: usize, origin: fn(&SocketAddr) -> Origin) -> f64 {
    let params = MonitorParams { max_sources: SOURCES, ..MonitorParams::default() };
    let before = held();
    let mut monitor = Monitor::new(params, Secret::new([7; 16])).with_origin(origin);
    for number in 0..SOURCES {
        let name = format!("{number:0name_len$}");
        open(&mut monitor, number as u32, if name_len == 0 { "" } else { &name });
    }
    assert_eq!(monitor.len(), SOURCES);
    (held() - before) as f64 / SOURCES as f64
}

/// Opens a session as every source does: repeats the first update with the cookie of the challenge.
pub(crate) fn open(monitor: &mut Monitor<SocketAddr>, number: u32, name: &str) {
    let mut cookie = Cookie::default();
    for seq in 0..2 {
        let opening = Opening { cookie, name, token: b"" };
        let reply = exchange(monitor, number, seq, Some(opening));
        match (monitor.poll_event(), Message::parse(&reply)) {
            (Some(MonitorEvent::Challenged), Ok(Message::Challenge(challenge))) => {
                cookie = challenge.cookie;
            }
            (Some(MonitorEvent::Fresh { opened: true, .. }), _) => return,
            other => panic!("the session does not open: {other:?}"),
        }
    }
    panic!("the cookie is not accepted");
}

/// A further update of an open session.
pub(crate) fn update(monitor: &mut Monitor<SocketAddr>, number: u32) {
    let reply = exchange(monitor, number, 2, None);
    assert_ack(&reply);
    assert!(matches!(monitor.poll_event(), Some(MonitorEvent::Fresh { opened: false, .. })));
}

/// Passes an update to the monitor; returns the answer.
fn exchange(
    monitor: &mut Monitor<SocketAddr>,
    number: u32,
    seq: u64,
    opening: Option<Opening<'_>>,
) -> Vec<u8> {
    let peer = SocketAddr::from((Ipv4Addr::from_bits(0x7F00_0000 | number), 4000));
    let (mut datagram, mut reply) = ([0; 256], Vec::new());
    let update = traffic::update(SessionId(number.into()), seq, Time::ZERO, opening);
    let len = update.write(&mut datagram).unwrap();
    monitor.handle_datagram(Time::ZERO, peer, &datagram[..len]).expect("an update");
    let len = monitor.poll_transmit(Time::ZERO, &mut reply).expect("an answer").len;
    reply.truncate(len);
    reply
}
