//! Strangers, floods and damaged packets.

use std::net::SocketAddr;
use std::time::Duration;

use freshline_net::quic::{ClientEvent, Limits, Transmit};
use freshline_net::{Rate, Rates, Refusal};
use proptest::prelude::*;

use crate::world::{Foreign, House, World};

/// Ten thousand addresses without a host.
fn spoofed(n: u32) -> SocketAddr {
    SocketAddr::from(((0x0b00_0000 + n).to_be_bytes(), 9))
}

/// A cheap generator: the tests need variety, not chance.
fn garbage(n: u32, len: usize) -> Vec<u8> {
    let mut state = u64::from(n) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn garbage_makes_no_state_and_few_replies() {
    let house = House::new();
    let mut world = World::pinned(&house);
    for n in 0..10_000 {
        let mut packet = garbage(n, [0, 1, 20, 64, 1200, 1400][n as usize % 6]);
        match n % 4 {
            // A long header of version 1, of any type.
            0 if packet.len() > 20 => {
                packet[0] |= 0xc0;
                packet[1..5].copy_from_slice(&[0, 0, 0, 1]);
                packet[5] = 8;
                packet[14] = 8;
            }
            // Another version.
            1 if !packet.is_empty() => packet[0] |= 0xc0,
            // A short header.
            2 if !packet.is_empty() => packet[0] = 0x40 | packet[0] & 0x3f,
            _ => {}
        }
        world.server.handle(world.now, spoofed(n), None, &packet);
        world.client.handle(world.now, world.server_addr, None, &packet);
    }
    assert_eq!(world.server.connections(), 0);
    let mut buf = Vec::new();
    let replies =
        std::iter::from_fn(|| world.server.poll_transmit(world.now, &mut buf)).take(1000).count();
    assert!(replies <= 256, "{replies} replies held");
    world.connect();
    world.deliver(b"still here");
}

#[test]
fn unfinished_handshakes_are_capped_and_forgotten_and_a_retry_lets_true_sources_in() {
    let house = House::new();
    let mut world = World::pinned(&house);
    for n in 0..500 {
        let initial =
            Foreign::dial(&house, b"freshline/1", 64 * 1024, world.now).initial(world.now);
        world.server.handle(world.now, spoofed(n), None, &initial);
    }
    assert_eq!(world.server.connections(), Limits::default().retry_above);
    let mut buf = Vec::new();
    while world.server.poll_transmit(world.now, &mut buf).is_some() {}

    world.connect();
    world.deliver(b"in the middle of the flood");
    world.run(Duration::from_secs(6));
    assert_eq!(world.server.connections(), 1);
}

#[test]
fn a_peer_with_a_min_ack_delay_that_quic_would_not_survive_is_refused() {
    let house = House::new();
    let mut world = World::pinned(&house);
    let mut peer = Foreign::dial_slow(&house, b"freshline/1", world.now);
    peer.exchange(&mut world.server, world.now);
    let lost = peer.lost.expect("it is refused");
    assert!(lost.contains("min_ack_delay is above 25ms"), "{lost}");
    world.connect();
    world.deliver(b"the others are served");
}

/// No limit that a test reaches.
const PLENTY: Rates = {
    let rate = Rate { per_second: 1_000_000, burst: 1_000_000 };
    Rates { total: rate, network: rate, address: rate }
};

/// Room for one session and for four strangers.
pub(crate) const NARROW: Limits = Limits {
    max_connections: 1,
    max_strangers: 4,
    retry_above: 1_000,
    handshakes: PLENTY,
    handshake_timeout: Duration::from_secs(5),
    opening_timeout: Duration::from_secs(60),
    idle_timeout: Duration::from_secs(600),
    in_flight: 1 << 20,
};

#[test]
fn who_floods_with_handshakes_drives_out_itself() {
    let house = House::new();
    let mut world = World::limited(&house, NARROW);
    let mut other = world.another_client(&house, "198.51.100.7:1".parse().unwrap());
    let flood = |world: &mut World, handshakes: std::ops::Range<u32>| {
        for n in handshakes {
            let mut one = Foreign::dial(&house, b"freshline/1", 64 * 1024, world.now);
            let initial = one.initial(world.now);
            world.server.handle(world.now, spoofed(n), None, &initial);
            assert!(world.server.connections() <= 5);
        }
    };
    flood(&mut world, 0..20);
    // A place among strangers is enough for a client that is slow to send its request.
    world.connect();
    other.exchange_with(&mut world);
    flood(&mut world, 20..40);
    let key = world.deliver(b"after the flood");
    world.server.keep(key, world.now);
    flood(&mut world, 40..60);
    assert_eq!(world.deliver(b"kept"), key);
    world.run(Duration::from_secs(6));
    assert_eq!(world.server.connections(), 2, "the flood is forgotten");
}

#[test]
fn connections_without_a_session_keep_no_source_out() {
    let house = House::new();
    let mut world = World::limited(&house, NARROW);
    let mut strangers = Vec::new();
    for n in 0..40 {
        let mut stranger = world.another_client(&house, spoofed(n));
        stranger.exchange_with(&mut world);
        assert_eq!(stranger.client.poll_event(), Some(ClientEvent::Connected));
        strangers.push(stranger);
    }
    assert_eq!(world.server.connections(), 4);
    world.connect();
    let key = world.deliver(b"a source");
    world.server.keep(key, world.now);
    assert_eq!(world.server.connections(), 4, "it is no stranger any more");
}

#[test]
fn a_connection_without_a_session_ends_and_one_with_stays() {
    let house = House::new();
    let limits = Limits { opening_timeout: Duration::from_secs(10), ..NARROW };
    let mut world = World::limited(&house, limits);
    world.connect();
    let mut source = world.another_client(&house, spoofed(1));
    source.exchange_with(&mut world);
    let _ = source.client.send(b"a session");
    source.exchange_with(&mut world);
    let (key, _) = world.server.recv().expect("its first update");
    world.server.keep(key, world.now);
    world.run(limits.opening_timeout);
    let reason = world.lost().to_string();
    assert!(reason.contains("no session came by this connection"), "{reason}");
    world.run(Duration::from_secs(5));
    assert_eq!(world.server.connections(), 1);
    assert_eq!(world.server.remote_addr(key), Some(spoofed(1)));
}

#[test]
fn a_connection_whose_session_has_ended_gives_its_place_to_another() {
    let house = House::new();
    // Longer than keep-alives of QUIC are apart.
    let idle_timeout = Duration::from_secs(16);
    let limits = Limits { idle_timeout, opening_timeout: Duration::from_secs(1), ..NARROW };
    let mut world = World::limited(&house, limits);
    let mut source = world.another_client(&house, spoofed(1));
    world.connect();
    let former = world.deliver(b"a session");
    world.server.keep(former, world.now);
    source.exchange_with(&mut world);
    assert!(source.lost().to_string().contains("as many connections"));
    world.run(idle_timeout / 2);
    world.server.keep(former, world.now);
    world.run(idle_timeout / 2);
    source.client.redial(world.now);
    source.exchange_with(&mut world);
    assert!(source.lost().to_string().contains("as many connections"), "it was heard lately");

    world.run(idle_timeout / 2);
    source.client.redial(world.now);
    source.exchange_with(&mut world);
    assert_eq!(source.client.poll_event(), Some(ClientEvent::Connected));
    assert!(world.server.remote_addr(former).is_some(), "it is not closed");
}

#[test]
fn a_peer_opens_no_stream() {
    let house = House::new();
    let mut world = World::pinned(&house);
    let mut foreign = Foreign::dial(&house, b"freshline/1", 64 * 1024, world.now);
    foreign.exchange(&mut world.server, world.now);
    assert_eq!(foreign.lost, None);
    assert!(foreign.opens_no_stream());
}

#[test]
fn a_peer_that_takes_no_datagrams_of_our_size_is_sent_away() {
    let house = House::new();
    let mut world = World::pinned(&house);
    let mut foreign = Foreign::dial(&house, b"freshline/1", 1000, world.now);
    foreign.exchange(&mut world.server, world.now);
    assert!(
        foreign.lost.as_deref().is_some_and(|why| why.contains("1150 bytes")),
        "{:?}",
        foreign.lost
    );
    world.run(Duration::from_secs(1));
    assert_eq!(world.server.connections(), 1, "only our own client's");
    assert_eq!(world.server.refusals().of(Refusal::Handshake), 1);
}

/// The action of a saboteur on the path on one packet.
#[derive(Clone, Debug)]
enum Sabotage {
    Pass,
    Drop,
    Twice,
    FromElsewhere,
    Flip { at: prop::sample::Index, bit: u8 },
    Cut { at: prop::sample::Index },
    Wait { ms: u64 },
}

fn sabotage() -> impl Strategy<Value = Sabotage> {
    prop_oneof![
        4 => Just(Sabotage::Pass),
        1 => Just(Sabotage::Drop),
        1 => Just(Sabotage::Twice),
        1 => Just(Sabotage::FromElsewhere),
        2 => (any::<prop::sample::Index>(), 0..8u8).prop_map(|(at, bit)| Sabotage::Flip { at, bit }),
        1 => any::<prop::sample::Index>().prop_map(|at| Sabotage::Cut { at }),
        1 => (0..2000u64).prop_map(|ms| Sabotage::Wait { ms }),
    ]
}

impl Sabotage {
    /// The packets that arrive instead of `packet`.
    fn of(&self, mut packet: Vec<u8>) -> Vec<Vec<u8>> {
        match self {
            Self::Drop => return Vec::new(),
            Self::Twice => return vec![packet.clone(), packet],
            Self::Flip { at, bit } => {
                let at = at.index(packet.len());
                packet[at] ^= 1 << bit;
            }
            Self::Cut { at } => packet.truncate(at.index(packet.len())),
            Self::Pass | Self::FromElsewhere | Self::Wait { .. } => {}
        }
        vec![packet]
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn arbitrary_bytes_never_panic_either_side(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1500), 0..20),
    ) {
        let mut world = World::pinned(&House::new());
        world.connect();
        for packet in &packets {
            world.server.handle(world.now, world.client_addr, None, packet);
            world.client.handle(world.now, world.server_addr, None, packet);
        }
        world.deliver(b"unharmed");
    }

    #[test]
    fn a_sabotaged_conversation_never_panics_and_a_redial_mends_it(
        acts in prop::collection::vec(sabotage(), 0..120),
    ) {
        let mut world = World::pinned(&House::new());
        let mut buf = Vec::new();
        for act in &acts {
            if let Sabotage::Wait { ms } = act {
                world.now += Duration::from_millis(*ms);
                world.client.handle_timeout(world.now);
                world.server.handle_timeout(world.now);
            }
            let _ = world.client.send(&[1; 100]);
            if let Some(Transmit { .. }) = world.client.poll_transmit(world.now, &mut buf) {
                let from = match act {
                    Sabotage::FromElsewhere => spoofed(1),
                    _ => world.client_addr,
                };
                for packet in act.of(buf.clone()) {
                    world.server.handle(world.now, from, None, &packet);
                }
            }
            while let Some((key, _)) = world.server.recv() {
                let _ = world.server.send(key, &[2; 50]);
            }
            if let Some(transmit) = world.server.poll_transmit(world.now, &mut buf)
                && transmit.to == world.client_addr
            {
                for packet in act.of(buf.clone()) {
                    world.client.handle(world.now, world.server_addr, None, &packet);
                }
            }
        }
        world.client.redial(world.now);
        world.exchange();
        while world.server.recv().is_some() {}
        while world.client.poll_event().is_some() {}
        world.deliver(b"mended");
    }
}
