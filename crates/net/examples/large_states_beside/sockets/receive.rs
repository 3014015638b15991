//! The receiving end of the path.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::time::Instant;

use freshline_core::session::{MonitorParams, SourceKey};
use freshline_core::unit::{Span, Time};
use freshline_net::clock::Clock;
use freshline_net::credentials::{Right, Rules};
use freshline_net::monitor::{Monitor, MonitorConfig, Record, Watch};
use freshline_net::stop::Stop;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use socket2::SockRef;

use super::send::due;
use super::{Arrival, Contender, Failure, now};
use crate::ends::{self, Certified};
use crate::streams::read;

/// The length of the sampling time at the beginning of each of our states and of TCP's, in bytes.
pub(super) const STAMP: usize = 8;

/// The size of a buffer for a datagram, or for one read from a stream.
pub(super) const BUFFER: usize = 65_536;

/// The size of receive buffers in bytes, large enough never to limit a sender here.
const ROOM: usize = 32 << 20;

/// The maximum number of datagrams that are handled before acks are sent, so that acks are not delayed.
const BATCH: usize = 16;

/// A complete state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Complete {
    at: Time,
    state: State,
}

/// The identification that a state carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    SampledAt(Time),
    /// The number of its stream.
    Number(u64),
}

impl Complete {
    /// `sampled` holds the sampling times of numbered states; `None` for a state that was never begun.
    pub(super) fn arrival(self, sampled: &[Time]) -> Option<Arrival> {
        let sampled_at = match self.state {
            State::SampledAt(at) => at,
            State::Number(number) => *sampled.get(usize::try_from(number).ok()?)?,
        };
        Some(Arrival { at: self.at, sampled_at })
    }
}

/// The time that a state carries.
pub(super) fn time(stamp: [u8; STAMP]) -> Time {
    Time::ZERO + Span::from_nanos(u64::from_be_bytes(stamp))
}

/// Waits until the socket is ready; `false` if it is not ready by `until`, or a signal has arrived.
pub(super) fn wait(socket: &impl AsFd, ready: PollFlags, until: Time) -> io::Result<bool> {
    let mut sockets = [PollFd::new(socket.as_fd(), ready)];
    let left = TimeSpec::from_duration(until.since(now()).into());
    match ppoll(&mut sockets, Some(left), None) {
        Err(Errno::EINTR) => Ok(false),
        polled => Ok(polled? > 0),
    }
}

/// The receiver of a contender's states.
pub(super) enum Receiver {
    Ours(Box<Monitor>),
    Tcp(TcpListener, usize),
    Quic(UdpSocket),
}

impl Receiver {
    /// Listens at `host` for states of `size` bytes.
    pub(super) fn bind(contender: Contender, host: Ipv4Addr, size: u64) -> Result<Self, Failure> {
        let listen = SocketAddr::from((host, 0));
        Ok(match contender {
            Contender::Tenth => Self::Ours(Box::new(Monitor::bind(MonitorConfig {
                listen,
                quic: None,
                params: MonitorParams::default(),
                rules: Rules::none(Right::Publish),
                detailed: 0,
                forget: MonitorConfig::FORGET,
            })?)),
            Contender::Tcp => {
                let listener = TcpListener::bind(listen)?;
                give_room(&listener)?;
                Self::Tcp(listener, size as usize)
            }
            Contender::Quic(_) => {
                let socket = UdpSocket::bind(listen)?;
                give_room(&socket)?;
                socket.set_nonblocking(true)?;
                Self::Quic(socket)
            }
        })
    }

    pub(super) fn address(&self) -> Result<SocketAddr, Failure> {
        Ok(match self {
            Self::Ours(monitor) => monitor.local_addr()?,
            Self::Tcp(listener, _) => listener.local_addr()?,
            Self::Quic(socket) => socket.local_addr()?,
        })
    }

    /// Receives until `until`; returns all complete states in order.
    pub(super) fn run(self, certified: &Certified, until: Time) -> Result<Vec<Complete>, Failure> {
        match self {
            Self::Ours(monitor) => ours(*monitor, until),
            Self::Tcp(listener, size) => Ok(tcp(&listener, size, until)?),
            Self::Quic(socket) => Ok(quic(&socket, certified, until)?),
        }
    }
}

/// Sets the receive buffer to [`ROOM`], beyond the system's limit if this process is allowed to.
fn give_room(socket: &impl AsFd) -> io::Result<()> {
    if setsockopt(socket, sockopt::RcvBufForce, &ROOM).is_err() {
        SockRef::from(socket).set_recv_buffer_size(ROOM)?;
    }
    Ok(())
}

#[derive(Default)]
struct States {
    complete: Vec<Complete>,
}

impl Watch for States {
    fn fresh(&mut self, _now: Time, _source: SourceKey, record: &Record) {
        let stamp = record.payload().and_then(|state| state.first_chunk());
        if let Some(stamp) = stamp {
            self.complete.push(Complete { at: now(), state: State::SampledAt(time(*stamp)) });
        }
    }
}

fn ours(mut monitor: Monitor, until: Time) -> Result<Vec<Complete>, Failure> {
    let mut states = States::default();
    let until = Clock::new().now() + until.since(now());
    monitor.run(&Stop::new(), Some(until), &mut states)?;
    Ok(states.complete)
}

fn tcp(listener: &TcpListener, size: usize, until: Time) -> io::Result<Vec<Complete>> {
    let mut complete = Vec::new();
    if !wait(listener, PollFlags::POLLIN, until)? {
        return Ok(complete);
    }
    let (mut stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    let mut buffer = vec![0; BUFFER];
    let mut blocks = Blocks::new(size);
    while wait(&stream, PollFlags::POLLIN, until)? {
        match stream.read(&mut buffer) {
            // The sender has closed the connection.
            Ok(0) | Err(_) => break,
            Ok(len) => {
                let at = now();
                blocks.take(&buffer[..len], |stamp| {
                    complete.push(Complete { at, state: State::SampledAt(time(stamp)) });
                });
            }
        }
    }
    Ok(complete)
}

/// States of one length that follow each other in a stream.
struct Blocks {
    size: usize,
    /// The received bytes of the current state.
    len: usize,
    stamp: [u8; STAMP],
}

impl Blocks {
    fn new(size: usize) -> Self {
        Self { size, len: 0, stamp: [0; STAMP] }
    }

    /// `complete` gets the stamp of each state that ends in `bytes`.
    fn take(&mut self, mut bytes: &[u8], mut complete: impl FnMut([u8; STAMP])) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(self.size - self.len));
            if let Some(left) = self.stamp.get_mut(self.len..) {
                let len = left.len().min(part.len());
                left[..len].copy_from_slice(&part[..len]);
            }
            self.len += part.len();
            bytes = rest;
            if self.len == self.size {
                self.len = 0;
                complete(self.stamp);
            }
        }
    }
}

fn quic(socket: &UdpSocket, certified: &Certified, until: Time) -> io::Result<Vec<Complete>> {
    let mut complete = Vec::new();
    let mut end = ends::receiver(certified);
    let mut peer = None;
    let mut buffer = vec![0; BUFFER];
    while now() < until {
        wait(socket, PollFlags::POLLIN, due(end.poll_timeout(), until))?;
        for _ in 0..BATCH {
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { break };
            end.handle(Instant::now(), &buffer[..len]);
            peer = Some(from);
        }
        end.handle_timeout(Instant::now());
        let at = now();
        read(&mut end, |number| complete.push(Complete { at, state: State::Number(number) }));
        while end.poll_transmit(Instant::now()) {
            if let Some(peer) = peer {
                // A datagram that the kernel refuses is lost.
                let _ = socket.send_to(&end.datagram, peer);
            }
        }
    }
    Ok(complete)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However the stream is split, each state is complete with its last byte, and has its own stamp.
        #[test]
        fn a_stream_has_the_same_states_wherever_it_is_cut(
            size in STAMP..40,
            count in 1..6_u64,
            cuts in prop::collection::vec(1..60_usize, 1..40),
        ) {
            let state = |number: u64| {
                let mut state = number.to_be_bytes().to_vec();
                state.resize(size, 0xff);
                state
            };
            let stream: Vec<u8> = (0..count).flat_map(state).collect();
            let mut blocks = Blocks::new(size);
            let (mut left, mut complete) = (&stream[..], Vec::new());
            for cut in cuts {
                let (part, rest) = left.split_at(cut.min(left.len()));
                blocks.take(part, |stamp| complete.push(u64::from_be_bytes(stamp)));
                left = rest;
                let whole = (stream.len() - left.len()) / size;
                prop_assert_eq!(&complete, &(0..whole as u64).collect::<Vec<_>>());
            }
        }
    }
}
