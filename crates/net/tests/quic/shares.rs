//! Networks and addresses share handshakes and connections.

use std::net::SocketAddr;
use std::time::Duration;

use freshline_net::quic::{ClientEvent, ConnKey, Limits};
use freshline_net::{Rate, Rates, Refusal};

use crate::hostile::NARROW;
use crate::world::{Another, Foreign, House, World};

/// The world's own client is in 10.0.0.0/24.
fn flooder(n: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 1000 + n))
}

fn neighbour() -> SocketAddr {
    "192.0.2.77:1".parse().expect("an address")
}

/// Connects a client; whether it got in.
fn connect(world: &mut World, client: &mut Another) -> bool {
    client.exchange_with(world);
    client.client.poll_event() == Some(ClientEvent::Connected)
}

fn slow() -> Limits {
    let rate = |per_second, burst| Rate { per_second, burst };
    let handshakes = Rates { total: rate(40, 40), network: rate(8, 12), address: rate(4, 6) };
    Limits { handshakes, max_strangers: 1_000, max_connections: 1_000, ..NARROW }
}

#[test]
fn a_flood_of_handshakes_gets_its_rate_and_others_get_in_at_once() {
    let house = House::new();
    let mut world = World::limited(&house, slow());
    let flood = |world: &mut World, from: std::ops::Range<u16>| -> usize {
        let connected = from.filter(|n| {
            let mut client = world.another_client(&house, flooder(*n));
            connect(world, &mut client)
        });
        connected.count()
    };
    // A burst without proof of its address, and one with.
    assert_eq!(flood(&mut world, 0..30), 12);
    world.run(Duration::from_secs(1));
    assert_eq!(flood(&mut world, 30..60), 8);
    assert!(world.server.refusals().of(Refusal::HandshakeRate) >= 40);
    let mut other = world.another_client(&house, neighbour());
    assert!(connect(&mut world, &mut other), "another address of its network");
    world.connect();
    world.deliver(b"of another network");
}

#[test]
fn a_peer_beyond_the_rate_gets_in_when_its_first_packet_is_repeated() {
    let house = House::new();
    let mut world = World::limited(&house, slow());
    for n in 0..30 {
        let mut client = world.another_client(&house, "10.0.0.1:9".parse().expect("an address"));
        assert_eq!(connect(&mut world, &mut client), n < 12);
    }
    world.exchange();
    assert_eq!(world.client.poll_event(), None, "its address has had its rate");
    world.run(Duration::from_secs(1));
    assert_eq!(world.client.poll_event(), Some(ClientEvent::Connected));
}

#[test]
fn a_retry_token_is_good_once() {
    let house = House::new();
    let limits = Limits { retry_above: 0, handshake_timeout: Duration::from_secs(1), ..NARROW };
    let mut world = World::limited(&house, limits);
    let mut stranger = Foreign::dial(&house, b"freshline/1", 64 * 1024, world.now);
    let shown = stranger.prove(&mut world.server, world.now);
    let from = Foreign::address();
    world.server.handle(world.now, from, None, &shown);
    assert_eq!(world.server.connections(), 1);
    world.run(Duration::from_secs(2));
    // The client of the world has its own connection by now.
    assert_eq!(world.server.connections(), 1);
    for _ in 0..3 {
        world.server.handle(world.now, from, None, &shown);
        assert_eq!(world.server.connections(), 1);
    }
    assert_eq!(world.server.refusals().of(Refusal::TokenReplayed), 3);
}

/// A client that has connected and opened a session.
fn open(world: &mut World, client: &mut Another) -> Option<ConnKey> {
    if !connect(world, client) {
        return None;
    }
    let _ = client.client.send(b"a session");
    client.exchange_with(world);
    let (key, _) = world.server.recv()?;
    world.server.keep(key, world.now);
    Some(key)
}

#[test]
fn a_session_that_comes_by_ever_new_connections_keeps_no_other_one_out() {
    let house = House::new();
    let limits = Limits { max_connections: 12, max_strangers: 4, ..NARROW };
    let mut world = World::limited(&house, limits);
    world.connect();
    let honest = world.deliver(b"a session");
    world.server.keep(honest, world.now);
    let mut other = world.another_client(&house, neighbour());
    let neighbours = open(&mut world, &mut other).expect("there is room");

    let mut flood = Vec::new();
    for n in 0..40 {
        world.now += Duration::from_millis(100);
        for key in [honest, neighbours] {
            world.server.keep(key, world.now);
        }
        let mut client = world.another_client(&house, flooder(n));
        open(&mut world, &mut client);
        flood.push(client);
    }
    assert!(world.server.remote_addr(honest).is_some());
    assert!(world.server.remote_addr(neighbours).is_some());
    for address in ["198.51.100.1:1", "192.0.2.99:1"] {
        let mut newcomer = world.another_client(&house, address.parse().expect("an address"));
        assert!(open(&mut world, &mut newcomer).is_some(), "{address}");
        flood.push(newcomer);
    }
    let refusals = world.server.refusals();
    // Two that had sessions, and closing ones.
    assert!(refusals.of(Refusal::ConnectionDisplaced) >= 2);
    assert_eq!(refusals.of(Refusal::Displaced), 0, "no session has ended");
    assert!(refusals.of(Refusal::Connections) > 0);
}

#[test]
fn closing_connections_of_one_address_keep_no_other_one_out() {
    let house = House::new();
    let limits = Limits { max_connections: 12, max_strangers: 4, ..NARROW };
    let mut world = World::limited(&house, limits);
    for batch in 0..6 {
        let clients = (0..4).map(|n| world.another_client(&house, flooder(batch * 4 + n)));
        let mut clients: Vec<_> = clients.collect();
        // The longer a round trip takes, the longer a connection is closing.
        Another::connect_slowly(&mut world, &mut clients, Duration::from_millis(4_500));
        for client in &mut clients {
            let _ = client.client.send(b"a session");
            client.speak(&mut world);
            let (key, _) = world.server.recv().expect("it is in");
            world.server.keep(key, world.now);
            client.client.close(world.now);
            client.speak(&mut world);
        }
        while world.server.poll_transmit(world.now, &mut Vec::new()).is_some() {}
        assert!(world.server.connections() <= 12 + 4);
    }
    let address = "198.51.100.1:1".parse().expect("an address");
    let mut newcomer = world.another_client(&house, address);
    assert!(open(&mut world, &mut newcomer).is_some());
    assert_eq!(world.server.refusals().of(Refusal::Connections), 0);
}

#[test]
fn a_connection_counts_for_the_address_of_its_handshake_and_for_no_forged_one() {
    let house = House::new();
    let mut world = World::limited(&house, Limits::default());
    world.connect();
    let key = world.deliver(b"an opening");
    let origin = world.server.origin(key);
    world.run(Duration::from_secs(1));
    for n in 0..5 {
        let forged = SocketAddr::from(([198, 51, n, 7], 99));
        world.client_addr = forged;
        let _ = world.client.send(b"an opening");
        world.client_to_server();
        let (key, _) = world.server.recv().expect("it arrives");
        assert_eq!(world.server.remote_addr(key), Some(forged), "QUIC follows at once");
        assert_eq!((world.server.origin(key), origin.is_some()), (origin, true));
        // Nothing goes back to the client.
        while world.server.poll_transmit(world.now, &mut Vec::new()).is_some() {}
        world.now += Duration::from_millis(5);
        world.server.handle_timeout(world.now);
    }
}
