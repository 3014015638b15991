//! What the emulator does when it is awake.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use freshline_core::link::{Path, PathConfig, SpanHistogram};
use freshline_core::router::{Discipline, Drop};
use freshline_core::unit::{Bytes, Time};
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use rand_pcg::Pcg64;

use super::datagram::{Datagram, Pool};
use super::flows::{Flow, Flows, bind};
use super::report::{DirectionReport, Report};
use super::{ALARM, EmulateError, EmulatorConfig, LISTENER, WAKER, seeded_path, system};
use crate::clock::Clock;

/// How many datagrams are taken from a socket, or from a path, before the others have a turn.
const BATCH: usize = 64;
/// Larger than any UDP datagram.
const SCRATCH: usize = 1 << 16;

/// Sockets, paths, and the datagrams between them.
#[derive(Debug)]
pub(super) struct Relay {
    clock: Clock,
    start: Time,
    seed: u64,
    listener: UdpSocket,
    flows: Flows,
    forward: Direction,
    back: Direction,
    pool: Pool,
    scratch: Box<[u8]>,
    headers: Bytes,
    /// Sockets that may have more to read. The poll tells of them once, so they stay here until
    /// they have been read empty.
    readable: Vec<Token>,
    target_unreachable: u64,
    socket_errors: u64,
}

/// One of the two paths.
#[derive(Debug)]
struct Direction {
    config: PathConfig,
    path: Path<Discipline<Datagram>, Datagram, Pcg64>,
    /// How long after its emulated arrival a datagram was sent on.
    lateness: SpanHistogram,
}

impl Direction {
    fn new(
        direction: &'static str,
        config: PathConfig,
        seed: u64,
        first_stream: u128,
    ) -> Result<Self, EmulateError> {
        let path = seeded_path(&config, seed, first_stream)
            .map_err(|source| EmulateError::Path { direction, source })?;
        Ok(Self { config, path, lateness: SpanHistogram::new() })
    }

    fn enqueue(&mut self, now: Time, datagram: Datagram, pool: &mut Pool) {
        self.path.enqueue(now, datagram, &mut |drop| pool.recycle(drop.packet.payload));
    }

    fn poll(&mut self, now: Time, pool: &mut Pool) -> Option<Datagram> {
        let drops = &mut |drop: Drop<Datagram>| pool.recycle(drop.packet.payload);
        let delivered = self.path.poll(now, drops)?;
        self.lateness.record(now.since(delivered.at));
        Some(delivered.packet)
    }

    fn report(&self, start: Time, now: Time) -> DirectionReport {
        DirectionReport::new(&self.config, &self.path, &self.lateness, start, now)
    }
}

impl Relay {
    pub(super) fn new(
        listen: SocketAddr,
        target: SocketAddr,
        config: EmulatorConfig,
        seed: u64,
        registry: Registry,
    ) -> Result<Self, EmulateError> {
        let mut listener =
            bind(listen).map_err(|source| EmulateError::Bind { address: listen, source })?;
        registry
            .register(&mut listener, LISTENER, Interest::READABLE)
            .map_err(system("poll a socket"))?;
        let clock = Clock::new();
        Ok(Self {
            clock,
            start: clock.now(),
            seed,
            listener,
            flows: Flows::new(target, &config, registry),
            forward: Direction::new("forward", config.conditions.forward, seed, 0)?,
            back: Direction::new("return", config.conditions.back, seed, 1)?,
            pool: Pool::default(),
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            headers: Bytes::new(if target.is_ipv4() { 20 + 8 } else { 40 + 8 }),
            readable: Vec::new(),
            target_unreachable: 0,
            socket_errors: 0,
        })
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Sends what is due and reads what has come, a bounded amount of each.
    pub(super) fn turn(&mut self, woken_by: impl Iterator<Item = Token>) {
        self.readable.extend(woken_by.filter(|token| ![ALARM, WAKER].contains(token)));
        self.readable.sort_unstable();
        self.readable.dedup();

        self.send_due();
        let mut readable = std::mem::take(&mut self.readable);
        readable.retain(|token| !self.read_batch(*token));
        self.readable = readable;
        self.flows.sweep(self.clock.now());
    }

    /// When to take the next turn at the latest.
    pub(super) fn next_event(&self) -> Option<Time> {
        let paths = [self.forward.path.next_event(), self.back.path.next_event()];
        paths.into_iter().chain([self.flows.next_event()]).flatten().min()
    }

    /// Whether there is more to read at once.
    pub(super) fn is_busy(&self) -> bool {
        !self.readable.is_empty()
    }

    pub(super) fn report(&self) -> Report {
        let now = self.clock.now();
        Report {
            seed: self.seed,
            duration_s: now.since(self.start).as_secs_f64(),
            forward: self.forward.report(self.start, now),
            back: self.back.report(self.start, now),
            flows: self.flows.report(),
            target_unreachable: self.target_unreachable,
            socket_errors: self.socket_errors,
        }
    }

    fn send_due(&mut self) {
        for _ in 0..BATCH {
            let now = self.clock.now();
            let Some(datagram) = self.forward.poll(now, &mut self.pool) else { break };
            let sent = self
                .flows
                .get(datagram.flow)
                .map(|flow| send_to_target(flow, &datagram, &mut self.target_unreachable));
            self.settle(datagram, sent);
        }
        for _ in 0..BATCH {
            let now = self.clock.now();
            let Some(datagram) = self.back.poll(now, &mut self.pool) else { break };
            let sent = self
                .flows
                .get(datagram.flow)
                .map(|flow| self.listener.send_to(&datagram.payload, flow.client));
            self.settle(datagram, sent);
        }
    }

    /// Counts what became of a datagram; `None` is one whose flow was forgotten.
    fn settle(&mut self, datagram: Datagram, sent: Option<io::Result<usize>>) {
        match sent {
            Some(Ok(_)) => {}
            Some(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                self.target_unreachable += 1;
            }
            Some(Err(_)) | None => self.socket_errors += 1,
        }
        self.pool.recycle(datagram.payload);
    }

    /// Reads a batch from the socket of `token`; whether it is empty now.
    fn read_batch(&mut self, token: Token) -> bool {
        for _ in 0..BATCH {
            let read = match token {
                LISTENER => self.listener.recv_from(&mut self.scratch),
                flow => match self.flows.get(flow) {
                    Some(flow) => flow.socket.recv(&mut self.scratch).map(|len| (len, flow.client)),
                    None => return true,
                },
            };
            match read {
                Ok((len, client)) => self.take_in(token, len, client),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return true,
                    ErrorKind::Interrupted => {}
                    // An ICMP answer to a datagram sent before; there may be others behind it.
                    ErrorKind::ConnectionRefused => self.target_unreachable += 1,
                    _ => {
                        self.socket_errors += 1;
                        return true;
                    }
                },
            }
        }
        false
    }

    /// Puts the datagram of `len` bytes in `scratch`, which came by `socket`, on its path.
    fn take_in(&mut self, socket: Token, len: usize, client: SocketAddr) {
        let now = self.clock.now();
        let (direction, flow) = match socket {
            LISTENER => match self.flows.of_client(now, client) {
                Some(flow) => (&mut self.forward, flow),
                None => return,
            },
            flow => (&mut self.back, flow),
        };
        self.flows.touch(now, flow);
        let payload = self.pool.copy_of(&self.scratch[..len]);
        direction.enqueue(now, Datagram { flow, payload, headers: self.headers }, &mut self.pool);
    }
}

fn send_to_target(flow: &Flow, datagram: &Datagram, unreachable: &mut u64) -> io::Result<usize> {
    match flow.socket.send(&datagram.payload) {
        // This tells of a datagram before; the present one has not been tried yet.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            *unreachable += 1;
            flow.socket.send(&datagram.payload)
        }
        sent => sent,
    }
}
