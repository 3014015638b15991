//! A server that is driven step by step, with clients over loopback.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use super::*;
use crate::bond::{Client, ClientConfig};
use crate::network;
use crate::quic::Trust;

/// A server with the identity `theirs` that accepts these clients.
fn ends(clients: &[&Identity], theirs: Identity) -> Server {
    Server::bind(ServerConfig {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        identity: theirs,
        clients: Clients::Pinned(clients.iter().map(|it| it.fingerprint()).collect()),
        sending: Sending::default(),
        allow: Vec::new(),
    })
    .unwrap()
}

fn client(server: &Server, trust: Trust, identity: Identity) -> Client {
    Client::bind(ClientConfig {
        server: server.local_addr().unwrap().into(),
        server_name: "localhost".into(),
        trust,
        identity,
        vias: Vec::new(),
        sending: Sending::default(),
        listen: Vec::new(),
    })
    .unwrap()
}

#[test]
fn a_full_server_is_tried_again_and_gives_the_place_of_a_silent_client_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let identity = |who: &str| Identity::from_state_dir(&dir.path().join(who)).unwrap();
    let [ours, others, theirs] = ["c", "d", "s"].map(identity);
    let trust = Trust::Pinned(theirs.fingerprint());
    let mut server = ends(&[&ours, &others], theirs);
    server.max_links = 1;
    let [mut first, mut second] =
        [ours, others].map(|identity| client(&server, trust.clone(), identity));
    let step = |server: &mut Server, client: &mut Client| {
        thread::sleep(Duration::from_millis(5));
        let now = client.parts().0.clock.now();
        client.turn(now).unwrap();
        client.transmit();
        server.turn(server.driver.clock.now()).unwrap();
        server.transmit();
    };
    while server.clients() == 0 {
        step(&mut server, &mut first);
    }
    // From here on it behaves as if killed.
    let began_at = server.driver.clock.now();
    let is_ready = |client: &mut Client| client.parts().1.any(|link| link.is_ready);
    while !is_ready(&mut second) {
        step(&mut server, &mut second);
        let waited = server.driver.clock.now().since(began_at);
        assert!(waited < Span::from_secs(20), "the silent client keeps its place");
    }
    assert_eq!(server.clients(), 1);
}

#[test]
fn a_client_that_does_not_trust_the_server_says_so_before_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let identity = |who: &str| Identity::from_state_dir(&dir.path().join(who)).unwrap();
    let [ours, theirs, others] = ["c", "s", "x"].map(identity);
    let mut server = Server::bind(ServerConfig {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        identity: theirs,
        clients: Clients::Pinned(vec![ours.fingerprint()]),
        sending: Sending::default(),
        allow: Vec::new(),
    })
    .unwrap();
    let mut client = Client::bind(ClientConfig {
        server: server.local_addr().unwrap().into(),
        server_name: "localhost".into(),
        trust: Trust::Pinned(others.fingerprint()),
        identity: ours,
        vias: Vec::new(),
        sending: Sending::default(),
        listen: Vec::new(),
    })
    .unwrap();
    let client = thread::spawn(move || client.run(&Stop::new(), None));
    let (mut seen, mut looks) = (0, 0);
    // Much less than the time limit of a handshake, from when the client has ended.
    while looks < 300 {
        thread::sleep(std::time::Duration::from_millis(10));
        server.turn(server.driver.clock.now()).unwrap();
        server.transmit();
        seen = seen.max(server.links.len());
        let is_over = server.links.values().all(|(link, _)| link.connection.is_closed());
        if client.is_finished() && is_over {
            break;
        }
        looks += u32::from(client.is_finished());
    }
    assert!(matches!(client.join().unwrap(), Err(BondError::Refused { .. })));
    assert_eq!((seen, looks < 300), (1, true), "the server still waits for the handshake");
}

#[test]
fn a_client_that_takes_all_places_gives_one_to_another() {
    let dir = tempfile::tempdir().unwrap();
    let identity = |who: &str| Identity::from_state_dir(&dir.path().join(who)).unwrap();
    let [ours, others, theirs] = ["c", "d", "s"].map(identity);
    let trust = Trust::Pinned(theirs.fingerprint());
    let mut server = ends(&[&ours, &others], theirs);
    server.max_links = 4;
    let mut flood: Vec<_> = (0..6).map(|_| client(&server, trust.clone(), identity("c"))).collect();
    let step = |server: &mut Server, clients: &mut [Client]| {
        thread::sleep(Duration::from_millis(5));
        for client in clients {
            let now = client.parts().0.clock.now();
            client.turn(now).unwrap();
            client.transmit();
        }
        server.turn(server.driver.clock.now()).unwrap();
        server.transmit();
    };
    let refused = |server: &Server| server.driver.refusals.of(Refusal::Connections);
    while server.clients() < 4 || refused(&server) == 0 {
        step(&mut server, &mut flood);
    }
    let is_ready = |client: &mut Client| client.parts().1.any(|link| link.is_ready);
    flood.push(client(&server, trust, others));
    let began_at = server.driver.clock.now();
    // None of the others is silent, so none of them counts as gone.
    while !is_ready(&mut flood[6]) {
        step(&mut server, &mut flood);
        let waited = server.driver.clock.now().since(began_at);
        assert!(waited < Span::from_secs(20), "it is kept out");
    }
    assert_eq!(server.clients(), 4);
    assert_eq!(server.driver.refusals.of(Refusal::Displaced), 1);
}

/// Carries datagrams between a client and a server. From the client's second flight on, packets
/// with short headers, which follow its handshake, come from an address that is not the client's.
struct Forger {
    near: UdpSocket,
    handshake: UdpSocket,
    forged: UdpSocket,
    client: Option<SocketAddr>,
}

impl Forger {
    fn carry(&mut self) {
        let mut bytes = [0; 2000];
        while let Ok((len, from)) = self.near.recv_from(&mut bytes) {
            self.client = Some(from);
            let is_long = bytes[0] & 0x80 != 0;
            let out = if is_long { &self.handshake } else { &self.forged };
            out.send(&bytes[..len]).unwrap();
        }
        for back in [&self.handshake, &self.forged] {
            while let (Ok(len), Some(client)) = (back.recv(&mut bytes), self.client) {
                self.near.send_to(&bytes[..len], client).unwrap();
            }
        }
    }
}

#[test]
fn a_place_counts_for_the_address_of_the_handshake_and_for_no_forged_one() {
    let dir = tempfile::tempdir().unwrap();
    let identity = |who: &str| Identity::from_state_dir(&dir.path().join(who)).unwrap();
    let [ours, theirs] = ["c", "s"].map(identity);
    let trust = Trust::Pinned(theirs.fingerprint());
    let mut server = ends(&[&ours], theirs);
    let to_server = |from: [u8; 4]| {
        let socket = UdpSocket::bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(server.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    near.set_nonblocking(true).unwrap();
    let at = near.local_addr().unwrap();
    let [handshake, forged] = [to_server([127, 0, 1, 1]), to_server([127, 0, 2, 1])];
    let mut forger = Forger { near, handshake, forged, client: None };
    let mut client = Client::bind(ClientConfig {
        server: at.into(),
        server_name: "localhost".into(),
        trust,
        identity: ours,
        vias: Vec::new(),
        sending: Sending::default(),
        listen: Vec::new(),
    })
    .unwrap();
    while server.clients() == 0 {
        thread::sleep(Duration::from_millis(5));
        let now = client.parts().0.clock.now();
        client.turn(now).unwrap();
        client.transmit();
        forger.carry();
        server.turn(server.driver.clock.now()).unwrap();
        server.transmit();
    }
    let handle = *server.links.keys().next().unwrap();
    let proven = forger.handshake.local_addr().unwrap();
    let identity = server.origin(handle).owner;
    assert_eq!(server.origin(handle), network::origin(proven, identity));
}
