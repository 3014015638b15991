//! The attacks, as fast as one core runs them.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use freshline_core::unit::Time;
use freshline_core::wire::{Cookie, Frames, Opening, SessionId, Update};
use freshline_net::quic::{Client, ClientConfig, ClientEvent, Trust};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{setsockopt, sockopt};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::world::{METRICS, MONITOR, TOKEN};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Attack {
    /// None, but a loop as busy as the generators, on the core that they share with the sources.
    BusyCore,
    /// Random bytes, a million packets per second, in trains of the kernel's.
    Garbage,
    /// The same, as fast as the machine offers them.
    GarbageUnlimited,
    /// Bytes that begin as the first packet of a QUIC connection, one a call.
    GarbageInitials,
    /// Handshakes that prove their address and are not finished, from one address.
    HalfOpen,
    /// The same from a thousand.
    HalfOpenFromThousand,
    /// Silent TCP connections to the metrics.
    IdleHttp,
    /// Sessions of ever other names with the token of the fleet.
    Names,
}

/// The monitor that is attacked.
pub(crate) struct Target {
    pub(crate) pin: String,
}

/// Ten thousand, of whatever it is.
const MANY: usize = 10_000;

impl Attack {
    pub(crate) const ALL: [Self; 7] = [
        Self::Garbage,
        Self::GarbageUnlimited,
        Self::GarbageInitials,
        Self::HalfOpen,
        Self::HalfOpenFromThousand,
        Self::IdleHttp,
        Self::Names,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BusyCore => "none, the sources' core is busy",
            Self::Garbage => "garbage, 200 B, 10⁶/s",
            Self::GarbageUnlimited => "garbage, 200 B, unlimited",
            Self::GarbageInitials => "garbage like QUIC Initials, 1200 B, unlimited",
            Self::HalfOpen => "half-open handshakes, one address",
            Self::HalfOpenFromThousand => "half-open handshakes, 1000 addresses",
            Self::IdleHttp => "idle HTTP connections",
            Self::Names => "names from one token",
        }
    }

    pub(crate) fn is_garbage(self) -> bool {
        matches!(self, Self::Garbage | Self::GarbageUnlimited | Self::GarbageInitials)
    }

    /// Attacks until the end of the measurement, and returns a description of the offered load.
    pub(crate) fn run(self, target: &Target, is_over: &AtomicBool) -> String {
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
        setrlimit(Resource::RLIMIT_NOFILE, most.min(40_000), most).expect("root may");
        let began = Instant::now();
        let is_over = || is_over.load(Ordering::Relaxed);
        let (number, what) = match self {
            Self::BusyCore => {
                while !is_over() {
                    std::hint::spin_loop();
                }
                (0, "packets")
            }
            Self::Garbage => (garbage(64, 200, Some(1e6), is_over), "packets"),
            Self::GarbageUnlimited => (garbage(64, 200, None, is_over), "packets"),
            Self::GarbageInitials => (garbage(1, 1200, None, is_over), "packets"),
            Self::HalfOpen => (half_open(target, 1, is_over), "handshakes"),
            Self::HalfOpenFromThousand => (half_open(target, 1000, is_over), "handshakes"),
            Self::IdleHttp => (idle_http(is_over), "connections"),
            Self::Names => (names(target, is_over), "openings"),
        };
        let rate = number as f64 / began.elapsed().as_secs_f64();
        format!("{number} {what}, {rate:.0}/s")
    }
}

/// `rate` is in packets per second.
fn garbage(train: usize, len: usize, rate: Option<f64>, is_over: impl Fn() -> bool) -> usize {
    let began = Instant::now();
    let socket = UdpSocket::bind("10.99.0.1:0").expect("an address");
    socket.connect(MONITOR).expect("a route");
    if train > 1 {
        setsockopt(&socket, sockopt::UdpGsoSegment, &(len as i32)).expect("a kernel with GSO");
    }
    let mut bytes = vec![0; train * len];
    Pcg64::seed_from_u64(1).fill_bytes(&mut bytes);
    for packet in bytes.chunks_mut(len) {
        if train == 1 {
            // A long header of version 1, of the type Initial, with identifiers of 8 bytes, no token, and
            // the rest of the datagram as its length.
            packet[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
            packet[14] = 8;
            packet[23] = 0;
            packet[24..26].copy_from_slice(&(0x4000 | (len - 26) as u16).to_be_bytes());
        }
    }
    let mut sent = 0;
    while !is_over() {
        for _ in 0..64 {
            // Another connection each time.
            bytes[6] = bytes[6].wrapping_add(1);
            bytes[7] = bytes[7].wrapping_add(u8::from(bytes[6] == 0));
            sent += if socket.send(&bytes).is_ok() { train } else { 0 };
            let due = rate.map(|rate| Duration::from_secs_f64(sent as f64 / rate));
            if let Some(early) = due.and_then(|due| due.checked_sub(began.elapsed())) {
                thread::sleep(early);
            }
        }
    }
    sent
}

fn dial(target: &Target) -> Client {
    let pin = target.pin.parse().expect("a fingerprint");
    let config = ClientConfig::new(&Trust::Pinned(pin), None).expect("a client");
    let monitor: SocketAddr = MONITOR.parse().expect("an address");
    Client::new(&config, monitor, "localhost", Instant::now()).expect("an address")
}

/// Sends all that a client has to send.
fn flush(client: &mut Client, socket: &UdpSocket, buffer: &mut Vec<u8>) {
    while client.poll_transmit(Instant::now(), buffer).is_some() {
        let _ = socket.send(buffer);
    }
}

/// Handshakes at a time, each with a socket of its own.
const WINDOW: usize = 64;

fn half_open(target: &Target, addresses: u32, is_over: impl Fn() -> bool) -> usize {
    let monitor: SocketAddr = MONITOR.parse().expect("an address");
    let (mut buffer, mut answer) = (Vec::new(), [0; 1500]);
    // The server's datagrams must find a socket, or the kernel reports the port as closed.
    let mut sockets = std::collections::VecDeque::new();
    let mut offered = 0;
    while !is_over() {
        let mut clients: Vec<_> = (0..WINDOW as u32)
            .filter_map(|_| {
                let host = 256 + offered as u32 % addresses;
                offered += 1;
                let from = std::net::Ipv4Addr::from_bits(0x0a63_0000 + host % 1024);
                let socket = UdpSocket::bind((from, 0)).ok()?;
                socket.connect(monitor).ok()?;
                socket.set_nonblocking(true).ok()?;
                let mut client = dial(target);
                flush(&mut client, &socket, &mut buffer);
                Some((client, socket))
            })
            .collect();
        let end = Instant::now() + Duration::from_millis(20);
        while !clients.is_empty() && Instant::now() < end {
            let mut index = 0;
            while index < clients.len() {
                let (client, socket) = &mut clients[index];
                let Ok(len) = socket.recv(&mut answer) else {
                    index += 1;
                    continue;
                };
                // A Retry is answered, and later datagrams are not.
                if len < 300 {
                    client.handle(Instant::now(), monitor, None, &answer[..len]);
                    flush(client, socket, &mut buffer);
                }
                sockets.push_back(clients.swap_remove(index).1);
            }
        }
        sockets.extend(clients.into_iter().map(|(_, socket)| socket));
        while sockets.len() > MANY {
            sockets.pop_front();
        }
    }
    offered
}

fn idle_http(is_over: impl Fn() -> bool) -> usize {
    let address: SocketAddr = METRICS.parse().expect("an address");
    let mut held = Vec::new();
    while !is_over() && held.len() < MANY {
        match TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
            Ok(stream) => held.push(stream),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
    while !is_over() {
        thread::sleep(Duration::from_millis(10));
    }
    held.len()
}

fn names(target: &Target, is_over: impl Fn() -> bool) -> usize {
    let monitor: SocketAddr = MONITOR.parse().expect("an address");
    let socket = UdpSocket::bind("10.99.0.1:0").expect("an address");
    socket.connect(monitor).expect("a route");
    socket.set_nonblocking(true).expect("a socket");
    let (mut client, mut buffer, mut answer) = (dial(target), Vec::new(), [0; 1500]);
    let (mut sent, mut is_connected) = (0, false);
    let mut datagram = [0; 300];
    while !is_over() {
        while let Ok(len) = socket.recv(&mut answer) {
            client.handle(Instant::now(), monitor, None, &answer[..len]);
        }
        while client.recv().is_some() {}
        client.handle_timeout(Instant::now());
        match client.poll_event() {
            Some(ClientEvent::Connected) => is_connected = true,
            Some(ClientEvent::Lost(_)) => {
                is_connected = false;
                client.redial(Instant::now());
            }
            None => {}
        }
        if is_connected {
            let number = sent % MANY;
            let name = format!("flood-{number}");
            let opening =
                Opening { cookie: Cookie::default(), name: &name, token: TOKEN.as_bytes() };
            let update = Update {
                session: SessionId(number as u64 + 1),
                seq: sent as u64,
                sent_at: Time::ZERO,
                clock_offset: None,
                wants_ack: false,
                wants_return: false,
                ack_mark: None,
                opening: Some(opening),
                frames: Frames::fresh(b"of the flood"),
            };
            let len = update.write(&mut datagram).expect("it fits");
            let _ = client.send(&datagram[..len]);
            sent += 1;
        }
        flush(&mut client, &socket, &mut buffer);
    }
    sent
}
