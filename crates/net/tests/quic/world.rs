//! The world of the tests: one clock, one server, its clients, and a wire between them.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshline_net::quic::{
    Authorities, Client, ClientConfig, ClientEvent, ConnKey, Identity, Limits, LostReason,
    SendOutcome, Server, ServerConfig, Trust,
};
use noq_proto::crypto::{self, rustls::QuicClientConfig};
use noq_proto::transport_parameters::TransportParameters;
use noq_proto::{
    ConnectError, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, FourTuple,
    Side,
};

/// An identity in a state directory of its own.
pub(crate) struct House {
    pub(crate) state: tempfile::TempDir,
    pub(crate) identity: Identity,
}

impl House {
    pub(crate) fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let identity = Identity::from_state_dir(state.path()).unwrap();
        Self { state, identity }
    }

    pub(crate) fn trust_pin(&self) -> Trust {
        Trust::Pinned(self.identity.fingerprint())
    }

    pub(crate) fn authority(&self) -> Authorities {
        Authorities::from_pem_file(&self.state.path().join("identity.pem")).unwrap()
    }

    pub(crate) fn trust_authority(&self) -> Trust {
        Trust::Authorities(self.authority())
    }

    pub(crate) fn server_config(
        &self,
        clients: Option<&Authorities>,
        limits: Limits,
    ) -> ServerConfig {
        ServerConfig::new(&self.identity, clients, limits).unwrap()
    }
}

/// A client and a server on a wire without delay, which can be cut (`up`).
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) server: Server,
    pub(crate) server_addr: SocketAddr,
    pub(crate) client: Client,
    pub(crate) client_addr: SocketAddr,
    pub(crate) up: bool,
}

impl World {
    pub(crate) fn pinned(house: &House) -> Self {
        Self::with(house, &house.trust_pin(), "127.0.0.1")
    }

    pub(crate) fn with(house: &House, trust: &Trust, name: &str) -> Self {
        let server = house.server_config(None, Limits::default());
        Self::of(&server, &ClientConfig::new(trust, None).unwrap(), name)
    }

    pub(crate) fn limited(house: &House, limits: Limits) -> Self {
        let client = ClientConfig::new(&house.trust_pin(), None).unwrap();
        Self::of(&house.server_config(None, limits), &client, "localhost")
    }

    pub(crate) fn asking_certificates(house: &House, of: &House, shown: Option<&Identity>) -> Self {
        let server = house.server_config(Some(&of.authority()), Limits::default());
        let client = ClientConfig::new(&house.trust_pin(), shown).unwrap();
        Self::of(&server, &client, "localhost")
    }

    fn of(server: &ServerConfig, client: &ClientConfig, name: &str) -> Self {
        let now = Instant::now();
        let server_addr = "10.0.0.254:4433".parse().unwrap();
        Self {
            now,
            server: Server::new(server, now),
            server_addr,
            client: Client::new(client, server_addr, name, now).unwrap(),
            client_addr: "10.0.0.1:4001".parse().unwrap(),
            up: true,
        }
    }

    /// Carries the client's packets to the server; whether there were any.
    pub(crate) fn client_to_server(&mut self) -> bool {
        let mut buf = Vec::new();
        let mut moved = false;
        while let Some(transmit) = self.client.poll_transmit(self.now, &mut buf) {
            assert_eq!(transmit.to, self.server_addr);
            if self.up {
                self.server.handle(self.now, self.client_addr, None, &buf);
            }
            moved = true;
        }
        moved
    }

    /// Carries packets in both directions until none are left.
    pub(crate) fn exchange(&mut self) {
        let mut buf = Vec::new();
        loop {
            let mut moved = self.client_to_server();
            while let Some(transmit) = self.server.poll_transmit(self.now, &mut buf) {
                if self.up && transmit.to == self.client_addr {
                    self.client.handle(self.now, self.server_addr, None, &buf);
                }
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    /// Lets `span` pass, with a stop at every timeout.
    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.exchange();
            let timeouts = [self.client.poll_timeout(), self.server.poll_timeout()];
            let next = timeouts.into_iter().flatten().min().filter(|&next| next <= end);
            self.now = next.unwrap_or(end).max(self.now);
            if next.is_none() {
                return;
            }
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
        }
    }

    pub(crate) fn connect(&mut self) {
        self.exchange();
        assert_eq!(self.client.poll_event(), Some(ClientEvent::Connected));
    }

    /// Sends an update, and returns the key that it arrives under.
    pub(crate) fn deliver(&mut self, update: &[u8]) -> ConnKey {
        assert_eq!(self.client.send(update), SendOutcome::Queued);
        self.exchange();
        let (key, received) = self.server.recv().expect("the update arrives");
        assert_eq!(&received[..], update);
        key
    }

    pub(crate) fn lost(&mut self) -> LostReason {
        lost(&mut self.client)
    }

    pub(crate) fn another_client(&self, house: &House, addr: SocketAddr) -> Another {
        let config = ClientConfig::new(&house.trust_pin(), None).unwrap();
        let client = Client::new(&config, self.server_addr, "localhost", self.now).unwrap();
        Another { client, addr }
    }
}

/// One more client on the wire of a world.
pub(crate) struct Another {
    pub(crate) client: Client,
    addr: SocketAddr,
}

impl Another {
    pub(crate) fn exchange_with(&mut self, world: &mut World) {
        std::mem::swap(&mut self.client, &mut world.client);
        std::mem::swap(&mut self.addr, &mut world.client_addr);
        world.exchange();
        std::mem::swap(&mut self.client, &mut world.client);
        std::mem::swap(&mut self.addr, &mut world.client_addr);
    }

    /// Sends its packets, and receives nothing.
    pub(crate) fn speak(&mut self, world: &mut World) {
        let mut buf = Vec::new();
        while self.client.poll_transmit(world.now, &mut buf).is_some() {
            world.server.handle(world.now, self.addr, None, &buf);
        }
    }

    /// Handshakes of several clients for which the server's answers take `delay`.
    pub(crate) fn connect_slowly(world: &mut World, clients: &mut [Self], delay: Duration) {
        clients.iter_mut().for_each(|client| client.speak(world));
        let (mut buf, mut answers) = (Vec::new(), Vec::new());
        while let Some(transmit) = world.server.poll_transmit(world.now, &mut buf) {
            answers.push((transmit.to, buf.clone()));
        }
        world.now += delay;
        for (to, packet) in answers {
            for client in clients.iter_mut().filter(|client| client.addr == to) {
                client.client.handle(world.now, world.server_addr, None, &packet);
            }
        }
        clients.iter_mut().for_each(|client| client.exchange_with(world));
        world.server.handle_timeout(world.now);
    }

    pub(crate) fn lost(&mut self) -> LostReason {
        lost(&mut self.client)
    }
}

fn lost(client: &mut Client) -> LostReason {
    match client.poll_event() {
        Some(ClientEvent::Lost(reason)) => reason,
        other => panic!("not lost: {other:?}"),
    }
}

/// TLS of a client that announces a `min_ack_delay` of 16 s, and a `max_ack_delay` above it.
struct SlowAcks(QuicClientConfig);

impl crypto::ClientConfig for SlowAcks {
    fn start_session(
        &self,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        const MAX_ACK_DELAY: [u8; 4] = [0x0b, 2, 0x7f, 0xff];
        const MIN_ACK_DELAY: [u8; 8] = [0xc0, 0, 0, 0, 0xff, 0x04, 0xde, 0x1b];
        let mut encoded = Vec::new();
        params.write(&mut encoded);
        let at = encoded.windows(8).position(|bytes| bytes == MIN_ACK_DELAY).unwrap() + 8;
        let len = usize::from(encoded[at]);
        encoded.splice(at..=at + len, [4, 0x80, 0xf4, 0x24, 0x00]); // 16 s in µs
        encoded.extend(MAX_ACK_DELAY);
        let params = TransportParameters::read(Side::Server, &mut &encoded[..]).unwrap();
        self.0.start_session(version, server_name, &params)
    }
}

/// A QUIC client that is not Freshline's.
pub(crate) struct Foreign {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    pub(crate) lost: Option<String>,
}

impl Foreign {
    const ADDR: &str = "10.7.7.7:7";
    const SERVER: &str = "10.0.0.254:4433";

    pub(crate) fn dial(house: &House, alpn: &[u8], datagrams: usize, now: Instant) -> Self {
        Self::dial_by(Arc::new(Self::tls(house, alpn)), datagrams, now)
    }

    /// Dials and announces a `min_ack_delay` of 16 s.
    pub(crate) fn dial_slow(house: &House, alpn: &[u8], now: Instant) -> Self {
        Self::dial_by(Arc::new(SlowAcks(Self::tls(house, alpn))), 64 * 1024, now)
    }

    fn tls(house: &House, alpn: &[u8]) -> QuicClientConfig {
        let mut roots = rustls::RootCertStore::empty();
        let pem = house.state.path().join("identity.pem");
        let certificate = rustls::pki_types::pem::PemObject::from_pem_file(pem).unwrap();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![alpn.to_vec()];
        QuicClientConfig::try_from(tls).unwrap()
    }

    /// Dials with this implementation of TLS.
    fn dial_by(tls: Arc<dyn crypto::ClientConfig>, datagrams: usize, now: Instant) -> Self {
        let mut transport = noq_proto::TransportConfig::default();
        transport.datagram_receive_buffer_size(Some(datagrams));
        let mut config = noq_proto::ClientConfig::new(tls);
        config.transport_config(Arc::new(transport));
        let mut endpoint = Endpoint::new(Arc::default(), None, false);
        let server = Self::SERVER.parse().unwrap();
        let (handle, connection) = endpoint.connect(now, config, server, "localhost").unwrap();
        Self { endpoint, handle, connection, lost: None }
    }

    /// Its first packet.
    pub(crate) fn initial(&mut self, now: Instant) -> Vec<u8> {
        let mut buf = Vec::new();
        let _ = self.connection.poll_transmit(now, NonZeroUsize::MIN, &mut buf).unwrap();
        buf
    }

    pub(crate) fn address() -> SocketAddr {
        Self::ADDR.parse().unwrap()
    }

    /// Its first packet with the token of the Retry that answers that without.
    pub(crate) fn prove(&mut self, server: &mut Server, now: Instant) -> Vec<u8> {
        let initial = self.initial(now);
        server.handle(now, Self::address(), None, &initial);
        let mut buf = Vec::new();
        while server.poll_transmit(now, &mut buf).is_some() {
            let path = FourTuple::from_remote(Self::SERVER.parse().unwrap());
            if let Some(DatagramEvent::ConnectionEvent(_, event)) =
                self.endpoint.handle(now, path, None, buf[..].into(), &mut Vec::new())
            {
                self.connection.handle_event(event);
            }
        }
        self.settle();
        // It is paced.
        self.initial(self.connection.poll_timeout().unwrap_or(now))
    }

    /// Carries packets to and from `server` until none are left.
    pub(crate) fn exchange(&mut self, server: &mut Server, now: Instant) {
        let (own, peer) = (Self::ADDR.parse().unwrap(), Self::SERVER.parse().unwrap());
        loop {
            let mut moved = false;
            let mut buf = Vec::new();
            while self.connection.poll_transmit(now, NonZeroUsize::MIN, &mut buf).is_some() {
                server.handle(now, own, None, &buf);
                buf.clear();
                moved = true;
            }
            while server.poll_transmit(now, &mut buf).is_some() {
                moved = true;
                let path = FourTuple::from_remote(peer);
                if let Some(DatagramEvent::ConnectionEvent(_, event)) =
                    self.endpoint.handle(now, path, None, buf[..].into(), &mut Vec::new())
                {
                    self.connection.handle_event(event);
                }
                self.settle();
            }
            if !moved {
                return;
            }
        }
    }

    pub(crate) fn opens_no_stream(&mut self) -> bool {
        self.connection.streams().open(Dir::Uni).is_none()
            && self.connection.streams().open(Dir::Bi).is_none()
    }

    fn settle(&mut self) {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(answer);
            }
        }
        while let Some(event) = self.connection.poll() {
            if let Event::ConnectionLost { reason } = event {
                self.lost = Some(reason.to_string());
            }
        }
    }
}
