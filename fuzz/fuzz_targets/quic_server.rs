//! Any datagrams from anyone at any time to a QUIC server, among clients whose packets are lost, doubled,
//! damaged and sent from other addresses: no panic, bounded connections and work, and to an address that
//! has proven nothing at most three times the bytes that came from it (RFC 9000, section 8.1).
#![no_main]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use freshline_net::quic::{
    Client, ClientConfig, ConnKey, Identity, Limits, Server, ServerConfig, Trust,
};
use libfuzzer_sys::fuzz_target;

const MAX_CONNECTIONS: usize = 3;
const MAX_STRANGERS: usize = 4;
const CLIENTS: usize = 3;
const STRANGERS: usize = 3;

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// Time passes, ms.
    Wait(u16),
    /// A datagram from an unknown address, of any length.
    Bytes(u8, &'a [u8]),
    /// A made-up Initial packet from an unknown address, padded to the length that a server accepts.
    Initial {
        from: u8,
        first: u8,
        version: u32,
        ids: [u8; 2],
        rest: &'a [u8],
    },
    /// The client's packets arrive, perhaps with one byte changed, truncated, twice, or from another address.
    Up {
        client: u8,
        change: Option<(u16, u8)>,
        cut: Option<u16>,
        twice: bool,
        from: Option<u8>,
    },
    /// The client's packets are lost.
    Lose(u8),
    /// The server's packets arrive at the clients.
    Down,
    Send(u8, &'a [u8]),
    /// A session opens over the connection that sent last.
    Keep,
    Close,
    Redial(u8),
}

static CONFIGS: LazyLock<(ServerConfig, ClientConfig)> = LazyLock::new(|| {
    let state = tempfile::tempdir().expect("a folder");
    let identity = Identity::from_state_dir(state.path()).expect("an identity");
    let limits = Limits {
        max_connections: MAX_CONNECTIONS,
        max_strangers: MAX_STRANGERS,
        retry_above: 2,
        ..Limits::default()
    };
    let server = ServerConfig::new(&identity, None, limits).expect("it is one's own");
    let trust = Trust::Pinned(identity.fingerprint());
    (server, ClientConfig::new(&trust, None).expect("it is pinned"))
});

fuzz_target!(|steps: Vec<Step<'_>>| {
    let mut world = World::new();
    for step in steps.into_iter().take(100) {
        world.step(step);
        world.drain();
    }
});

struct World {
    now: Instant,
    server: Server,
    clients: Vec<Client>,
    /// Datagrams from the server, in flight.
    down: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Bytes from and to each unknown address.
    strangers: [(usize, usize); STRANGERS],
    last: Option<ConnKey>,
}

impl World {
    fn new() -> Self {
        let (server, client) = &*CONFIGS;
        let now = Instant::now();
        let dial = |_| Client::new(client, server_address(), "localhost", now).expect("it dials");
        Self {
            now,
            server: Server::new(server, now),
            clients: (0..CLIENTS).map(dial).collect(),
            down: VecDeque::new(),
            strangers: Default::default(),
            last: None,
        }
    }

    fn step(&mut self, step: Step<'_>) {
        match step {
            Step::Wait(millis) => self.wait(Duration::from_millis(millis.into())),
            Step::Bytes(from, bytes) => self.stranger(from, bytes),
            Step::Initial { from, first, version, ids, rest } => {
                let mut bytes = vec![first | 0xc0];
                bytes.extend(version.to_be_bytes());
                for (id, length) in ids.map(|id| (id, id % 21)) {
                    bytes.push(length);
                    bytes.extend(std::iter::repeat_n(id, length.into()));
                }
                bytes.extend(rest);
                bytes.resize(bytes.len().max(1200), 0);
                self.stranger(from, &bytes);
            }
            Step::Up { client, change, cut, twice, from } => {
                let index = usize::from(client) % CLIENTS;
                let from = from.map_or(client_address(index), |from| client_address(from.into()));
                for mut bytes in self.sent_by(index) {
                    if let Some((at, value)) = change {
                        let at = usize::from(at) % bytes.len();
                        bytes[at] ^= value;
                    }
                    bytes.truncate(cut.map_or(usize::MAX, usize::from));
                    for _ in 0..=usize::from(twice) {
                        self.server.handle(self.now, from, None, &bytes);
                    }
                }
            }
            Step::Lose(client) => _ = self.sent_by(usize::from(client) % CLIENTS),
            Step::Down => {
                for (to, bytes) in std::mem::take(&mut self.down) {
                    let client = (0..CLIENTS).find(|index| client_address(*index) == to);
                    if let Some(client) = client {
                        self.clients[client].handle(self.now, server_address(), None, &bytes);
                    }
                }
            }
            Step::Send(client, datagram) => {
                let _ = self.clients[usize::from(client) % CLIENTS].send(datagram);
            }
            Step::Keep => _ = self.last.map(|key| self.server.keep(key, self.now)),
            Step::Close => _ = self.last.map(|key| self.server.close(key, self.now, "closed")),
            Step::Redial(client) => self.clients[usize::from(client) % CLIENTS].redial(self.now),
        }
    }

    fn stranger(&mut self, from: u8, bytes: &[u8]) {
        let index = usize::from(from) % STRANGERS;
        self.strangers[index].0 += bytes.len();
        self.server.handle(self.now, stranger_address(index), None, bytes);
    }

    fn sent_by(&mut self, client: usize) -> Vec<Vec<u8>> {
        let mut buffer = Vec::new();
        let next = || {
            let sent = self.clients[client].poll_transmit(self.now, &mut buffer);
            sent.map(|_| buffer.clone())
        };
        std::iter::from_fn(next).take(64).collect()
    }

    fn wait(&mut self, span: Duration) {
        let end = self.now + span;
        for _ in 0..10_000 {
            let clients = self.clients.iter().filter_map(Client::poll_timeout);
            let Some(next) =
                clients.chain(self.server.poll_timeout()).min().filter(|next| *next <= end)
            else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            self.server.handle_timeout(self.now);
            for client in &mut self.clients {
                client.handle_timeout(self.now);
                while client.poll_event().is_some() {}
            }
            self.drain();
        }
        panic!("it spins");
    }

    /// Takes and checks all output of the server.
    fn drain(&mut self) {
        let mut buffer = Vec::new();
        while let Some(transmit) = self.server.poll_transmit(self.now, &mut buffer) {
            let index = (0..STRANGERS).find(|index| stranger_address(*index) == transmit.to);
            if let Some(index) = index {
                self.strangers[index].1 += buffer.len();
                let (received, sent) = self.strangers[index];
                assert!(sent <= 3 * received, "{sent} bytes for {received}");
            }
            self.down.push_back((transmit.to, buffer.clone()));
            // The network loses some.
            self.down.truncate(256);
        }
        while let Some((key, _)) = self.server.recv() {
            self.last = Some(key);
        }
        while self.server.poll_event().is_some() {}
        assert!(self.server.connections() <= MAX_CONNECTIONS + MAX_STRANGERS + 1);
    }
}

fn server_address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 254], 4433))
}

fn client_address(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4000 + (index % CLIENTS) as u16))
}

fn stranger_address(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, index as u8, 2], 4000))
}
