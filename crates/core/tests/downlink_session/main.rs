//! Whole endpoints of a downlink in virtual time: they find the level, find each other again, and
//! withstand hostile parties and network faults.
#![cfg(feature = "serde")]

mod damage;
mod world;

use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wire::{Close, CloseReason, Cookie, Join, Message, Opening, Report, SessionId};
use freshline_core::wlan;
use proptest::prelude::*;
use world::{Faults, World, law};

/// A round of 2 ms at 390 Mbit/s.
const NONLINEAR: &str = "{ law = \"nonlinear\", delay = \"2ms\", level = 32.0, \
                         downlink = { packet = \"1200B\" } }";
const SEED: u64 = 5;

fn world(clients: u32) -> World {
    World::new(clients, law(NONLINEAR), SEED)
}

fn rates(world: &World) -> Vec<f64> {
    world.server.clients().map(|(key, _)| world.server.rate(key).as_bps() as f64).collect()
}

/// A client's report of `level`, as its server would believe it.
fn report(world: &World, session: SessionId, level: f64) -> Report {
    let (_, record) = world.server.clients().find(|(_, record)| record.session == session).unwrap();
    let newest_seq = record.packets - 1;
    Report {
        session,
        number: 1_000,
        newest_seq,
        // A guess: only the client has seen the packet.
        newest_sent_at: world.now,
        newest_received_at: Time::ZERO,
        hold: Span::ZERO,
        received: 1,
        seen: Some(wlan::Report {
            level,
            deviation: 0.0,
            frames: 100,
            rate: BitRate::from_mbps(390),
            loss: 0.0,
        }),
        marks: Default::default(),
        delivered: None,
        max_packets: None,
    }
}

#[test]
fn clients_get_equal_shares_at_the_level_that_the_law_seeks() {
    let mut world = world(3);
    world.run(Span::from_secs(5));
    world.begin_measuring();
    world.run(Span::from_secs(5));
    let rates = rates(&world);
    assert_eq!(rates.len(), 3);
    for (key, record) in world.server.clients() {
        let level = record.seen.unwrap().level;
        let target = world.server.law().target(key.station()).unwrap();
        assert!((level / target - 1.0).abs() < 0.1, "{level} for {target}");
        let rate = world.server.rate(key).as_bps() as f64;
        assert!((rate / rates[0] - 1.0).abs() < 0.05, "{rates:?}");
    }
    for host in &world.hosts {
        // Half a round of 2 ms, its frame, and 0.5 ms of backhaul.
        let mean = host.delays.mean();
        assert!(mean > Span::from_micros(1_000) && mean < Span::from_millis(3), "{mean}");
        // A round trip is 1 ms of backhaul, and less than 2 ms on the air.
        assert!(host.delay_error < Span::from_micros(1_500), "{}", host.delay_error);
        assert_eq!(host.client.counters().missing, 0);
        assert!(host.seen.values().all(|times| *times == 1));
        // Twice a second, one more or less.
        assert!((18..=21).contains(&host.client.counters().reports));
    }
}

#[test]
fn a_server_that_starts_anew_finds_its_clients_again_and_they_count_anew() {
    let mut world = world(2);
    world.run(Span::from_secs(4));
    let before = rates(&world);
    world.restart_server();
    world.run(Span::from_secs(4));
    let after = rates(&world);
    assert_eq!(after.len(), 2);
    for (before, after) in before.iter().zip(&after) {
        assert!((after / before - 1.0).abs() < 0.1, "{before} became {after}");
    }
}

#[test]
fn a_client_that_moves_is_followed_only_after_it_has_shown_where_it_is() {
    let mut world = world(1);
    world.run(Span::from_secs(2));
    let session = world.hosts[0].client.session();
    // A party that has read the session's id, but receives nothing at that address.
    world.inject(1, 901, &report(&world, session, 1.0).bytes());
    world.run(Span::from_millis(100));
    let (_, record) = world.server.clients().next().unwrap();
    assert_eq!((record.peer, world.server.counters().moved), (1, 0));
    // The client itself has another address from now on.
    world.hosts[0].address = 101;
    let came = world.hosts[0].client.counters().packets;
    world.run(Span::from_secs(4));
    let (_, record) = world.server.clients().next().unwrap();
    assert_eq!((record.peer, world.server.counters().moved), (101, 1));
    assert!(world.hosts[0].client.counters().packets > came + 1_000);
    assert_eq!(world.server.clients().count(), 1, "it is the same client");
}

#[test]
fn who_does_not_get_the_packets_cannot_speak_for_the_client() {
    let mut world = world(1);
    world.run(Span::from_secs(4));
    let session = world.hosts[0].client.session();
    let before = rates(&world)[0];
    let ignored = world.server.counters().ignored;
    for _ in 0..50 {
        // In the client's own name.
        let forged = report(&world, session, 1.0).bytes();
        world.inject(1, 1, &forged);
        world.run(Span::from_millis(20));
    }
    assert!(world.server.counters().ignored >= ignored + 50);
    assert!((rates(&world)[0] / before - 1.0).abs() < 0.1);
}

#[test]
fn strangers_make_no_state_and_no_noise() {
    let mut world = world(1);
    world.run(Span::from_secs(1));
    let packets = world.server.counters().packets;
    for number in 0..400 {
        let cookie = Cookie([number as u8; 16]);
        let opening = Opening { cookie, name: "", token: b"" };
        let mut out = [0; 100];
        let len = Join { session: SessionId(number), opening }.write(&mut out).unwrap();
        world.inject(1, 701, &out[..len]);
    }
    world.run(Span::from_millis(200));
    assert_eq!(world.server.clients().count(), 1);
    assert!(world.server.counters().challenged >= 400);
    assert!(world.server.counters().packets > packets, "the connected client still gets packets");
}

#[test]
fn a_client_that_says_goodbye_or_falls_silent_is_forgotten() {
    let mut world = world(2);
    world.run(Span::from_secs(2));
    let session = world.hosts[0].client.session();
    let close = Close { session, reason: CloseReason::Done }.bytes();
    // From another address the goodbye has no effect.
    world.inject(1, 501, &close);
    world.run(Span::from_millis(50));
    assert_eq!(world.server.clients().count(), 2);
    world.inject(1, 1, &close);
    world.hosts[0].is_cut = true;
    world.run(Span::from_millis(50));
    assert_eq!((world.server.clients().count(), world.server.counters().left), (1, 1));
    world.hosts[1].is_cut = true;
    world.run(Span::from_secs(6));
    assert_eq!((world.server.clients().count(), world.server.counters().expired), (0, 1));
}

#[test]
fn who_has_nothing_to_send_keeps_the_rate_and_shows_that_it_is_there() {
    let mut world = world(1);
    world.run(Span::from_secs(4));
    let before = rates(&world)[0];
    world.payload = 0;
    world.run(Span::from_millis(100));
    let packets = world.hosts[0].client.counters().packets;
    world.run(Span::from_secs(10));
    let came = world.hosts[0].client.counters().packets - packets;
    assert!((15..=25).contains(&came), "{came} signs of life in 10 s");
    assert!(!world.hosts[0].events.iter().any(|event| event == "Silent"));
    assert!((rates(&world)[0] / before - 1.0).abs() < 0.1, "levels of 1 say nothing of the rate");
    world.payload = world::PAYLOAD;
    world.begin_measuring();
    world.run(Span::from_secs(2));
    assert!(world.hosts[0].delays.quantile(0.99) < Span::from_millis(6));
}

/// Faults for some seconds, after which the network recovers.
#[derive(Debug, Clone)]
struct Trouble {
    faults: Faults,
    server_restarts: bool,
    cut: Option<usize>,
    server_is_cut: bool,
    moves: Option<usize>,
    millis: u64,
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let odds = || prop_oneof![Just(0.0), 0.0..0.3];
    let faults =
        (odds(), odds(), odds()).prop_map(|(loss, copy, damage)| Faults { loss, copy, damage });
    let who = || proptest::option::of(0..2usize);
    (faults, any::<bool>(), who(), any::<bool>(), who(), 100..4_000u64).prop_map(
        |(faults, server_restarts, cut, server_is_cut, moves, millis)| Trouble {
            faults,
            server_restarts,
            cut,
            server_is_cut,
            moves,
            millis,
        },
    )
}

/// Troubles, one after the other, and then none: packets must flow to all at `bps` and more.
fn bear(
    law: &str,
    bps: f64,
    seed: u64,
    troubles: &[Trouble],
) -> Result<(), proptest::test_runner::TestCaseError> {
    let mut world = World::new(2, world::law(law), seed);
    world.run(Span::from_secs(1));
    for trouble in troubles {
        world.faults = trouble.faults;
        world.server_is_cut = trouble.server_is_cut;
        if trouble.server_restarts {
            world.restart_server();
        }
        if let Some(host) = trouble.cut {
            world.hosts[host].is_cut = true;
        }
        if let Some(host) = trouble.moves {
            world.hosts[host].address += 100;
        }
        world.run(Span::from_millis(trouble.millis));
        world.faults = Faults::default();
        world.server_is_cut = false;
        for host in &mut world.hosts {
            host.is_cut = false;
        }
    }
    // Silence is noticed after 2 s, a join comes after 2.5 s at the latest.
    world.run(Span::from_secs(6));
    world.begin_measuring();
    world.run(Span::from_secs(4));
    for host in &world.hosts {
        prop_assert!(host.client.has_joined());
        let got = host.payload_bytes as f64 * 8.0 / 4.0;
        prop_assert!(got > bps, "{} Mbit/s, {:?}", got / 1e6, host.events);
        let median = host.delays.quantile(0.5);
        prop_assert!(median < Span::from_millis(4), "{}", median);
    }
    // No client has two records for longer than the time after which the server forgets one.
    world.run(Span::from_secs(6));
    prop_assert_eq!(world.server.clients().count(), 2);
    for (_, record) in world.server.clients() {
        prop_assert!(record.clock_offset.nanos().is_some());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The seed that proptest prints draws the same troubles again.
    #[test]
    fn whatever_goes_wrong_packets_flow_again_once_it_is_over(
        seed: u64,
        troubles in prop::collection::vec(trouble(), 1..4),
    ) {
        let fixed = "{ law = \"fixed\", rate = \"4mbit\" }";
        bear(fixed, 3.6e6, seed, &troubles)?;
    }
}

#[test]
fn after_an_outage_the_limit_doubles() {
    let mut world = World::new(2, world::law("{ law = \"fixed\", rate = \"4mbit\" }"), SEED);
    world.run(Span::from_secs(2));
    // Longer than it takes to fall silent, and some losses before.
    for (loss, is_cut) in [(0.2, false), (0.0, true)] {
        world.faults.loss = loss;
        world.hosts[0].is_cut = is_cut;
        world.run(Span::from_millis(2_800));
    }
    world.hosts[0].is_cut = false;
    world.run(Span::from_millis(3_500));
    assert!(rates(&world)[0] >= 4e6, "{:?}", rates(&world));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]

    #[test]
    fn the_law_finds_its_rates_again_too(
        seed: u64,
        troubles in prop::collection::vec(trouble(), 1..3),
    ) {
        bear(NONLINEAR, 50e6, seed, &troubles)?;
    }
}

#[test]
fn datagrams_of_other_kinds_are_left_aside() {
    let mut world = world(1);
    world.run(Span::from_secs(1));
    let before = world.server.counters().ignored;
    for junk in [&b""[..], b"hello", b"FL\x01\x06", b"FL\x02\x05aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"] {
        assert!(Message::parse(junk).is_err());
        world.inject(1, 1, junk);
    }
    world.run(Span::from_millis(50));
    assert_eq!(world.server.counters().ignored, before + 4);
}
