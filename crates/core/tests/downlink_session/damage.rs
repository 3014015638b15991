//! The cost of one damaged bit in one datagram, in each of its fields.

use freshline_core::unit::Span;
use freshline_core::wire::{Packet, Report};

use super::world::{Hit, World, law};

const LAW: &str = "{ law = \"fixed\", rate = \"4mbit\" }";
/// The law's rate without headers, and a tenth less.
const ENOUGH: f64 = 3.4e6;

/// The payload in bit/s that comes in each half second after the damage; which begins when the client
/// joins, or in the open session.
fn rates<const N: usize>(is_open: bool, hit: Hit) -> [f64; N] {
    let mut world = World::new(1, law(LAW), 5);
    world.run(Span::from_millis(if is_open { 1_200 } else { 0 }));
    world.hit = Some(hit);
    let rates = [(); N].map(|()| {
        world.begin_measuring();
        world.run(Span::from_millis(500));
        world.hosts[0].payload_bytes as f64 * 16.0
    });
    assert!(world.hit.is_none(), "nothing was damaged");
    rates
}

/// One bit of each byte, another one each time.
fn bits(bytes: usize) -> impl Iterator<Item = usize> {
    (0..bytes).map(|byte| byte * 8 + byte * 3 % 8)
}

/// Before, the first packet or any other with a number that was too high made all that followed copies,
/// until the client had been silent for 2 s.
#[test]
fn no_field_of_a_packet_that_is_damaged_stops_a_client() {
    for is_open in [false, true] {
        for bit in bits(Packet::HEADER_LEN + 2) {
            let hit = Hit { message: 6, after: 0, bit };
            let rates = rates::<5>(is_open, hit);
            assert!(rates.iter().all(|rate| *rate > ENOUGH), "{hit:?}, {is_open}: {rates:?}");
        }
    }
}

/// A report may show a queue or losses that are not there: the limit is lowered once, and comes back.
#[test]
fn no_field_of_a_report_that_is_damaged_costs_a_client_more_than_two_seconds() {
    for bit in bits(Report::LEN) {
        let hit = Hit { message: 7, after: 1, bit };
        let rates = rates::<6>(false, hit);
        assert!(rates[5] > ENOUGH, "{hit:?}: {rates:?}");
    }
}
