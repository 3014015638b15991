//! A client and a server of the QUIC transport, joined in memory under a fake clock.

mod hostile;
mod shares;
mod world;

use std::time::Duration;

use freshline_net::quic::{
    ClientEvent, Identity, Limits, LostReason, MAX_DATAGRAM, SendOutcome, Server, ServerEvent,
};
use world::{Foreign, House, World};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn datagrams_travel_both_ways_after_the_handshake() {
    let mut world = World::pinned(&House::new());
    assert_eq!(world.client.send(b"early"), SendOutcome::NotConnected);
    world.connect();
    assert_eq!(world.client.send(b"update"), SendOutcome::Queued);
    world.exchange();
    let (key, update) = world.server.recv().expect("an update");
    assert_eq!(&update[..], b"update");
    assert_eq!(world.server.remote_addr(key), Some(world.client_addr));

    assert_eq!(world.server.send(key, b"ack"), SendOutcome::Queued);
    world.exchange();
    assert_eq!(world.client.recv().as_deref(), Some(&b"ack"[..]));
    assert_eq!(world.client.recv(), None);
    assert_eq!(world.server.recv(), None);
}

#[test]
fn an_authority_vouches_for_the_right_name_only() {
    let house = House::new();
    let mut world = World::with(&house, &house.trust_authority(), "localhost");
    world.connect();

    let mut world = World::with(&house, &house.trust_authority(), "elsewhere.example");
    world.run(SECOND);
    let reason = world.lost();
    assert!(
        matches!(&reason, LostReason::Distrusted(why) if why.contains("not valid for name")),
        "{reason}"
    );
}

#[test]
fn another_fingerprint_than_the_pinned_one_is_refused_and_both_are_named() {
    let house = House::new();
    let other = House::new();
    let mut world = World::with(&house, &other.trust_pin(), "127.0.0.1");
    world.run(SECOND);
    let reason = world.lost();
    let LostReason::Distrusted(why) = &reason else { panic!("{reason}") };
    assert!(why.contains(&house.identity.fingerprint().to_string()), "{why}");
    assert!(why.contains(&other.identity.fingerprint().to_string()), "{why}");
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::Refused { .. })));
}

#[test]
fn a_source_without_the_certificate_asked_for_is_refused() {
    let house = House::new();
    let sources = House::new();
    let mut world = World::asking_certificates(&house, &sources, None);
    world.run(SECOND);
    assert_eq!(world.client.poll_event(), Some(ClientEvent::Connected));
    let reason = world.lost();
    assert!(
        matches!(&reason, LostReason::Refused(why) if why.contains("client certificate")),
        "{reason}"
    );
    assert!(
        matches!(world.server.poll_event(), Some(ServerEvent::Refused { from, .. }) if from == world.client_addr)
    );

    let stranger = House::new();
    let mut world = World::asking_certificates(&house, &sources, Some(&stranger.identity));
    world.run(SECOND);
    assert_eq!(world.client.poll_event(), Some(ClientEvent::Connected));
    assert!(matches!(world.lost(), LostReason::Refused(_)));

    let mut world = World::asking_certificates(&house, &sources, Some(&sources.identity));
    world.connect();
    world.deliver(b"from a known source");
}

#[test]
fn connections_of_one_certificate_have_one_identity() {
    let (house, sources) = (House::new(), House::new());
    let mut world = World::asking_certificates(&house, &sources, Some(&sources.identity));
    let mut seen = Vec::new();
    for _ in 0..2 {
        world.connect();
        let key = world.deliver(b"update");
        seen.push((key, world.server.identity(key)));
        world.client.redial(world.now);
    }
    let [(first, identity), (second, again)] = seen[..] else { panic!("{seen:?}") };
    assert_ne!(first, second);
    assert!(identity.is_some() && identity == again, "{seen:?}");

    // A server that does not ask clients for certificates knows no identities.
    let mut world = World::pinned(&house);
    world.connect();
    let key = world.deliver(b"update");
    assert_eq!(world.server.identity(key), None);
}

#[test]
fn a_peer_of_another_protocol_is_refused() {
    let house = House::new();
    let mut world = World::pinned(&house);
    let mut foreign = Foreign::dial(&house, b"h3", 64 * 1024, world.now);
    foreign.exchange(&mut world.server, world.now);
    assert!(
        foreign.lost.as_deref().is_some_and(|why| why.contains("error 120")),
        "{:?}",
        foreign.lost
    );
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::Refused { .. })));
}

#[test]
fn an_update_that_cannot_leave_gives_way_to_the_newer_one() {
    let mut world = World::pinned(&House::new());
    world.connect();
    // The socket is full: the test fetches no packets. All sizes, so that none slips past.
    assert_eq!(world.client.send(&[0; 1]), SendOutcome::Queued);
    for size in [1, MAX_DATAGRAM, 2, 64, MAX_DATAGRAM, MAX_DATAGRAM - 1, 7, 64] {
        assert_eq!(world.client.send(&vec![9; size]), SendOutcome::Replaced);
    }
    assert_eq!(world.client.send(b"newest"), SendOutcome::Replaced);
    world.exchange();
    assert_eq!(*world.server.recv().expect("one update").1, b"newest"[..]);
    assert_eq!(world.server.recv(), None);
    assert_eq!(world.client.send(b"next"), SendOutcome::Queued);
}

#[test]
fn what_does_not_fit_a_packet_is_not_taken() {
    let mut world = World::pinned(&House::new());
    world.connect();
    assert_eq!(
        world.client.send(&[7; MAX_DATAGRAM + 1]),
        SendOutcome::TooLarge { max: MAX_DATAGRAM }
    );
    world.deliver(&[7; MAX_DATAGRAM]);
}

#[test]
fn the_largest_datagrams_flow_beside_acknowledgements_of_a_lossy_path() {
    let mut world = World::pinned(&House::new());
    world.connect();
    let key = world.deliver(&[7; MAX_DATAGRAM]);
    for n in 0..500 {
        world.up = n % 3 != 0;
        assert_eq!(world.client.send(&[7; MAX_DATAGRAM]), SendOutcome::Queued);
        assert_eq!(world.server.send(key, &[8; MAX_DATAGRAM]), SendOutcome::Queued);
        world.exchange();
        assert_eq!(world.server.recv().is_some(), world.up);
        assert_eq!(world.client.recv().is_some(), world.up);
        world.run(Duration::from_millis(3));
    }
}

#[test]
fn updates_leave_at_once_however_many_are_lost_or_unacknowledged() {
    let mut world = World::pinned(&House::new());
    world.connect();
    world.deliver(b"first");
    world.up = false;
    let mut buf = Vec::new();
    let start = world.now;
    for n in 0..5000 {
        assert_eq!(world.client.send(&[1; 1000]), SendOutcome::Queued, "update {n} waits");
        assert!(world.client.poll_transmit(world.now, &mut buf).is_some(), "update {n} waits");
        world.now += Duration::from_millis(1);
        world.client.handle_timeout(world.now);
    }
    assert_eq!(world.now - start, 5 * SECOND);
}

#[test]
fn memory_for_a_peer_that_acknowledges_nothing_is_bounded() {
    let mut world = World::pinned(&House::new());
    world.connect();
    world.up = false;
    let mut buf = Vec::new();
    let left = (0..40_000)
        .take_while(|_| {
            let outcome = world.client.send(&[1; 1000]);
            while world.client.poll_transmit(world.now, &mut buf).is_some() {}
            outcome == SendOutcome::Queued
        })
        .count();
    assert!((10_000..20_000).contains(&left), "{left} packets of 1 kB in flight");
}

#[test]
fn a_monitor_that_is_not_there_is_reported_after_the_connect_timeout() {
    let mut world = World::pinned(&House::new());
    world.up = false;
    world.run(Duration::from_millis(2900));
    assert_eq!(world.client.poll_event(), None);
    world.run(Duration::from_millis(200));
    assert_eq!(world.lost(), LostReason::NoAnswer);
    assert_eq!(world.client.poll_timeout(), None, "it is idle until redial()");

    world.up = true;
    world.client.redial(world.now);
    world.connect();
    world.deliver(b"back");
}

#[test]
fn a_redial_ends_the_old_connection_at_both_ends() {
    let mut world = World::pinned(&House::new());
    world.connect();
    world.client.redial(world.now);
    world.connect();
    assert!(matches!(
        world.server.poll_event(),
        Some(ServerEvent::Lost { reason: LostReason::Closed(_), .. })
    ));
    world.run(SECOND);
    assert_eq!(world.server.connections(), 1);

    world.client.close(world.now);
    world.run(SECOND);
    assert_eq!(world.server.connections(), 0);
    assert_eq!(world.client.poll_event(), None);
    assert_eq!(world.client.poll_timeout(), None);
    assert_eq!(world.server.poll_timeout(), None);
}

#[test]
fn a_source_hears_why_the_monitor_closed_its_connection() {
    let mut world = World::pinned(&House::new());
    world.connect();
    let key = world.deliver(b"wrong token");
    world.server.close(key, world.now, "unknown\ntoken");
    assert_eq!(world.server.send(key, b"ack"), SendOutcome::NotConnected);
    world.exchange();
    assert_eq!(world.lost(), LostReason::Closed("unknown\\ntoken".into()));
    assert_eq!(world.server.poll_event(), None);
}

#[test]
fn a_restarted_monitor_lets_its_sources_know_at_the_next_update() {
    let house = House::new();
    let mut world = World::pinned(&house);
    world.connect();
    let old = world.deliver(b"before");
    world.server = Server::new(&house.server_config(None, Limits::default()), world.now);
    assert_eq!(world.client.send(b"after"), SendOutcome::Queued);
    world.exchange();
    assert_eq!(world.lost(), LostReason::Reset);
    assert_eq!(world.server.send(old, b"ack"), SendOutcome::NotConnected);

    world.client.redial(world.now);
    world.connect();
    world.deliver(b"again");
}

#[test]
fn a_connection_survives_a_new_source_address() {
    let mut world = World::pinned(&House::new());
    world.connect();
    let key = world.deliver(b"at home");
    world.run(SECOND);

    // A NAT gives the source another port, then another address, without its knowledge.
    for moved in ["10.0.0.1:4002", "10.9.9.9:77"] {
        world.client_addr = moved.parse().unwrap();
        assert_eq!(world.deliver(b"on the road"), key);
        assert_eq!(world.server.remote_addr(key), Some(world.client_addr));
        assert_eq!(world.server.send(key, b"ack"), SendOutcome::Queued);
        world.exchange();
        assert_eq!(world.client.recv().as_deref(), Some(&b"ack"[..]));
        world.run(SECOND);
    }

    // The source knows that it moved, and reports it without waiting for an update.
    world.client_addr = "10.3.3.3:5".parse().unwrap();
    world.client.local_address_changed(world.now);
    world.exchange();
    assert_eq!(world.server.remote_addr(key), Some(world.client_addr));
    assert_eq!(world.client.poll_event(), None);
    assert_eq!(world.server.poll_event(), None);
}

#[test]
fn acks_to_an_unproven_address_give_way_to_the_newest() {
    let mut world = World::pinned(&House::new());
    world.connect();
    let key = world.deliver(b"at home");
    world.run(SECOND);

    world.client_addr = "10.9.9.9:77".parse().unwrap();
    assert_eq!(world.client.send(b"moved"), SendOutcome::Queued);
    world.client_to_server();
    let mut buf = Vec::new();
    let mut challenge = Vec::new();
    while world.server.poll_transmit(world.now, &mut buf).is_some() {
        challenge.push(buf.clone());
    }
    assert_eq!(world.server.send(key, b"ack 1"), SendOutcome::Queued);
    assert_eq!(
        world.server.poll_transmit(world.now, &mut buf),
        None,
        "not before the address is proven"
    );
    assert_eq!(world.server.send(key, b"ack 2"), SendOutcome::Replaced);
    for packet in challenge {
        world.client.handle(world.now, world.server_addr, None, &packet);
    }
    world.exchange();
    assert_eq!(world.client.recv().as_deref(), Some(&b"ack 2"[..]));
    assert_eq!(world.client.recv(), None);
}

#[test]
fn a_silent_peer_is_lost_after_the_idle_timeout() {
    let mut world = World::pinned(&House::new());
    world.connect();
    let key = world.deliver(b"last words");
    world.server.keep(key, world.now);
    world.run(SECOND);
    world.up = false;
    world.run(40 * SECOND);
    assert_eq!(world.lost(), LostReason::Silent);
    assert!(matches!(
        world.server.poll_event(),
        Some(ServerEvent::Lost { reason: LostReason::Silent, .. })
    ));
    assert_eq!(world.server.connections(), 0);
}

#[test]
fn connections_are_capped_and_the_next_source_is_told() {
    let house = House::new();
    let limits = Limits { max_connections: 1, ..Limits::default() };
    let mut world = World::limited(&house, limits);
    world.connect();
    let key = world.deliver(b"a session");
    world.server.keep(key, world.now);
    let mut second = world.another_client(&house, "10.0.0.2:2".parse().unwrap());
    second.exchange_with(&mut world);
    let reason = second.lost();
    assert!(
        matches!(&reason, LostReason::Refused(why) if why.contains("as many connections")),
        "{reason}"
    );
    assert_eq!(world.server.connections(), 1);

    world.client.close(world.now);
    world.run(SECOND);
    second.client.redial(world.now);
    second.exchange_with(&mut world);
    assert_eq!(second.client.poll_event(), Some(ClientEvent::Connected));
}

#[test]
fn a_retry_can_be_asked_of_everyone() {
    let house = House::new();
    let mut world = World::limited(&house, Limits { retry_above: 0, ..Limits::default() });
    world.client_to_server();
    assert_eq!(world.server.connections(), 0, "no state before the address is proven");
    world.connect();
    world.deliver(b"in");
}

#[test]
fn keys_are_never_used_again() {
    let house = House::new();
    let mut world = World::pinned(&house);
    world.connect();
    let mut last = world.deliver(b"0");
    for _ in 0..20 {
        world.client.redial(world.now);
        world.connect();
        let key = world.deliver(b"again");
        assert!(key > last);
        assert_eq!(world.server.send(last, b"ack"), SendOutcome::NotConnected);
        last = key;
        world.run(SECOND);
    }
}

#[test]
fn an_identity_from_files_serves_like_a_generated_one() {
    let house = House::new();
    let pem = house.state.path().join("identity.pem");
    let read = Identity::from_pem_files(&pem, &pem).unwrap();
    assert_eq!(read.fingerprint(), house.identity.fingerprint());
}
