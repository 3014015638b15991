//! The turns of the emulator.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use freshline_core::dscp::Dscp;
use freshline_core::link::{
    Conditions, ConditionsConfig, Delivered, Direction, Passage, SpanHistogram,
};
use freshline_core::router::Drop;
use freshline_core::unit::{Bytes, Time};
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};

use super::air::AirCapture;
use super::datagram::{Datagram, Pool, key};
use super::flows::{ClientFlow, Flows, bind};
use super::frames::{FrameLog, FrameLogError};
use super::report::{CellReport, DirectionReport, Report};
use super::volley::Volley;
use super::{ALARM, EmulateError, EmulatorConfig, LISTENER, WAKER, system};
use crate::clock::{Clock, wall_clock};
use crate::marked::Marked;
use crate::received::{Received, ask_for_addresses, ask_for_dscp, receive};

/// How many datagrams to take from a socket, or at one end, before the others have a turn.
const BATCH: usize = 64;
/// How many volleys to send before the others have a turn: if several frames are due, no packet is
/// read between the packets of a frame.
const VOLLEYS: usize = 4;
/// Larger than any UDP datagram.
const SCRATCH: usize = 1 << 16;

/// The sockets, the conditions between them, and the datagrams in transit.
#[derive(Debug)]
pub(super) struct Relay {
    clock: Clock,
    start: Time,
    seed: u64,
    listener: UdpSocket,
    flows: Flows,
    config: ConditionsConfig,
    conditions: Conditions<Datagram>,
    frames: Option<FrameLog>,
    air: Option<AirCapture>,
    /// The address that clients know as the source of their packets, and those packets.
    server: SocketAddr,
    packet: Vec<u8>,
    /// By direction: how long after its emulated arrival a datagram was sent on.
    lateness: [SpanHistogram; 2],
    pool: Pool,
    scratch: Box<[u8]>,
    headers: Bytes,
    /// The code point of all departing datagrams; `None` keeps each datagram's own.
    dscp: Option<Dscp>,
    /// Sockets that may have more to read. The poll reports them once, so they stay here until they
    /// have been read empty.
    readable: Vec<Token>,
    target_unreachable: u64,
    socket_errors: u64,
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
        let conditions = config.conditions.build(seed, config.max_flows)?;
        let epoch = wall_clock();
        let frames = FrameLog::of(config.frames.as_deref(), &conditions, epoch)?;
        let zero = (epoch, Time::ZERO);
        let air = AirCapture::of(config.air.as_deref(), &config.conditions, &conditions, zero)?;
        let server = listener.local_addr().map_err(system("tell the local address"))?;
        ask_for_dscp(&listener).map_err(system("read packets' classes"))?;
        // Answers leave from the address that the client knows.
        if server.ip().is_unspecified() {
            ask_for_addresses(&listener).map_err(system("read packets' destinations"))?;
        }
        Ok(Self {
            clock,
            start: clock.now(),
            seed,
            listener,
            flows: Flows::new(target, &config, registry),
            dscp: config.dscp,
            config: config.conditions,
            conditions,
            frames,
            air,
            server,
            packet: Vec::new(),
            lateness: [SpanHistogram::new(), SpanHistogram::new()],
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

    /// Sends due datagrams and reads arrived ones, a bounded number of each. `volley` is empty
    /// between turns.
    pub(super) fn turn(&mut self, woken_by: impl Iterator<Item = Token>, volley: &mut Volley) {
        self.readable.extend(woken_by.filter(|token| ![ALARM, WAKER].contains(token)));
        self.readable.sort_unstable();
        self.readable.dedup();

        self.send_forward();
        self.send_back(volley);
        let mut readable = std::mem::take(&mut self.readable);
        readable.retain(|token| !self.read_batch(*token));
        self.readable = readable;
        self.flows.sweep(self.now());
    }

    /// The time since the start: traces of delivery opportunities begin at [`Time::ZERO`].
    fn now(&self) -> Time {
        Time::ZERO + self.clock.now().since(self.start)
    }

    /// When to take the next turn at the latest, by the clock.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let next = Time::earliest([self.conditions.poll_timeout(), self.flows.poll_timeout()])?;
        Some(self.start + next.since(Time::ZERO))
    }

    /// Whether there is more to read at once.
    pub(super) fn is_busy(&self) -> bool {
        !self.readable.is_empty()
    }

    pub(super) fn report(&mut self) -> Report {
        let now = self.now();
        self.advance(now);
        Report {
            seed: self.seed,
            duration_s: now.since(Time::ZERO).as_secs_f64(),
            forward: self.report_of(Direction::Forward, now),
            reverse: self.report_of(Direction::Reverse, now),
            wlan: CellReport::of(&self.config, &self.conditions, Time::ZERO, now),
            flows: self.flows.report(),
            target_unreachable: self.target_unreachable,
            socket_errors: self.socket_errors,
        }
    }

    fn report_of(&self, direction: Direction, now: Time) -> DirectionReport {
        let lateness = &self.lateness[direction as usize];
        DirectionReport::new(&self.config, &self.conditions, direction, lateness, Time::ZERO, now)
    }

    /// Writes the buffered parts of the frame log and of the air capture.
    pub(super) fn flush(&mut self) -> Result<(), FrameLogError> {
        self.frames.as_mut().map_or(Ok(()), FrameLog::flush)?;
        self.air.as_mut().map_or(Ok(()), AirCapture::flush)
    }

    fn send_forward(&mut self) {
        for _ in 0..BATCH {
            let now = self.now();
            let Some(datagram) = self.poll(now, Direction::Forward) else { break };
            let target = self.flows.target();
            let sent = self
                .flows
                .get(datagram.flow)
                .map(|flow| send_to_target(flow, target, &datagram, &mut self.target_unreachable));
            self.settle(datagram, sent);
        }
    }

    fn send_back(&mut self, volley: &mut Volley) {
        for _ in 0..VOLLEYS {
            let now = self.now();
            while !volley.is_full() {
                let Some(datagram) = self.poll(now, Direction::Reverse) else { break };
                match self.flows.get(datagram.flow).map(|flow| (flow.local, flow.client)) {
                    Some((local, client)) => volley.push(datagram, local, client),
                    None => self.settle(datagram, None),
                }
            }
            let is_last = !volley.is_full();
            self.socket_errors += volley.send(&self.listener, &mut self.pool);
            if is_last {
                break;
            }
        }
    }

    /// The next datagram that has arrived in `direction`.
    fn poll(&mut self, now: Time, direction: Direction) -> Option<Datagram> {
        self.log_frames(now);
        let Delivered { at, packet } =
            self.conditions.poll(now, direction, &mut recycle(&mut self.pool))?;
        self.lateness[direction as usize].record(now.since(at));
        Some(Datagram { dscp: self.dscp.unwrap_or(packet.dscp), ..packet })
    }

    /// If frames are logged or captured, they must be seen before the path advances.
    fn log_frames(&mut self, now: Time) {
        if self.frames.is_some() || self.air.is_some() {
            self.advance(now);
        }
    }

    /// Advances the path to `now`, and with it the log of frames and the capture of the air.
    fn advance(&mut self, now: Time) {
        let Self { conditions, frames, air, flows, pool, server, packet, .. } = self;
        let mut log = |passage: Passage<'_, Datagram>| {
            let Passage::Air(arrival) = passage else { return };
            if let Some(frames) = frames {
                frames.record(arrival);
            }
            if let (Some(air), Some(flow)) = (&mut *air, flows.get(arrival.packet.flow)) {
                let to_client = arrival.to == arrival.packet.station;
                let here = SocketAddr::new(flow.local.unwrap_or(server.ip()), server.port());
                let (from, to) = if to_client { (here, flow.client) } else { (flow.client, here) };
                arrival.packet.write_ip(from, to, packet);
                air.record(arrival, packet);
            }
        };
        conditions.advance(now, &mut recycle(pool), &mut log);
    }

    /// Counts the result of a datagram; `None` if its flow was forgotten.
    fn settle(&mut self, datagram: Datagram, sent: Option<io::Result<()>>) {
        match sent {
            Some(Ok(_)) => {}
            Some(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                self.target_unreachable += 1;
            }
            Some(Err(_)) | None => self.socket_errors += 1,
        }
        self.pool.recycle(datagram.payload);
    }

    /// Reads a batch from the socket of `token`; returns whether the socket is empty now.
    fn read_batch(&mut self, token: Token) -> bool {
        for _ in 0..BATCH {
            let read = match token {
                LISTENER => receive(&self.listener, &mut self.scratch),
                flow => match self.flows.get(flow) {
                    Some(flow) => receive(&flow.socket, &mut self.scratch),
                    None => return true,
                },
            };
            match read {
                Ok(received) => self.take_in(token, received),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return true,
                    ErrorKind::Interrupted => {}
                    // An ICMP answer to a datagram sent earlier; there may be others behind it.
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

    /// Puts the datagram in `scratch`, which came from `socket`, onto its path.
    fn take_in(&mut self, socket: Token, received: Received) {
        let now = self.now();
        let Received { len, from, info } = received;
        let dscp = info.dscp.unwrap_or_default();
        let (direction, token) = match socket {
            LISTENER => {
                let opened = from.and_then(|client| self.flows.of_client(now, client, info.to));
                let Some(flow) = opened else { return };
                (Direction::Forward, flow)
            }
            flow => (Direction::Reverse, flow),
        };
        let target = self.flows.target();
        let Some(flow) = self.flows.touch(now, token) else { return };
        let key = match direction {
            Direction::Forward => key(flow.client, target),
            Direction::Reverse => key(target, flow.client),
        };
        let (station, headers) = (flow.station, self.headers);
        let payload = self.pool.copy_of(&self.scratch[..len]);
        let datagram = Datagram { flow: token, station, payload, key, dscp, headers };
        self.log_frames(now);
        self.conditions.enqueue(now, direction, datagram, &mut recycle(&mut self.pool));
    }
}

/// A sink that returns the buffers of dropped datagrams to `pool`.
fn recycle(pool: &mut Pool) -> impl FnMut(Drop<Datagram>) {
    |drop| pool.recycle(drop.packet.payload)
}

fn send_to_target(
    flow: &ClientFlow,
    target: SocketAddr,
    datagram: &Datagram,
    unreachable: &mut u64,
) -> io::Result<()> {
    let marked = Marked {
        dscp: datagram.dscp,
        remote: target,
        is_connected: true,
        local: None,
        segment: None,
        contents: &datagram.payload,
    };
    match marked.send(&flow.socket) {
        // This error concerns an earlier datagram; the present one has not been tried yet.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            *unreachable += 1;
            marked.send(&flow.socket)
        }
        sent => sent,
    }
}
