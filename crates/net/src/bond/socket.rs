//! The UDP sockets of a bond: each bound to an interface or an address, with what waits to leave.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use freshline_core::dscp::Dscp;
use nix::sys::socket::{setsockopt, sockopt};

use super::gate::Pending;
use crate::batch::{Address, Calls, Socket};
use crate::clock::Clock;
use crate::via::{Departures, Via, bind};

/// Wanted size of the kernel's send buffer: the queues of slow devices are filled from it.
const SEND_BUFFER: usize = 4 << 20;

/// Wanted size of the kernel's receive buffer: a window of large packets arrives at once.
const RECEIVE_BUFFER: usize = 8 << 20;

/// The most datagrams of equal length that go out in one call, and the most bytes: the payload of one
/// datagram over IPv4.
const MAX_SEGMENTS: usize = 32;
const MAX_BYTES: usize = 65_507;

/// The most buffers that are kept: while the socket takes all, one train fills and one leaves.
const SPARE: usize = 2;

/// The most that wait while a socket is full: acks and probes, which no gate holds back.
const MAX_WAITING: usize = 256;

/// A datagram that leaves.
#[derive(Debug)]
pub(super) struct Parcel<'a> {
    pub(super) contents: &'a [u8],
    /// How many of its path may leave as one.
    pub(super) train: usize,
    /// Its packet, where that wants to know when it left the device.
    pub(super) packet: Option<Pending>,
}

impl<'a> Parcel<'a> {
    /// One that leaves by itself.
    pub(super) fn alone(contents: &'a [u8]) -> Self {
        Self { contents, train: 1, packet: None }
    }
}

/// Datagrams of one length to one address.
#[derive(Debug)]
struct Train {
    to: Address,
    segment: usize,
    contents: Vec<u8>,
    /// The packet in each, as of [`Parcel`].
    packets: Vec<Option<Pending>>,
    /// A shorter datagram has ended it.
    is_over: bool,
}

/// A socket with what it has not taken yet.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) socket: Socket,
    waiting: VecDeque<Train>,
    /// Empty buffers of trains that have left, at most [`SPARE`].
    spare: Vec<Vec<u8>>,
    /// It is full; until the poll says that it is not.
    pub(super) is_full: bool,
    /// When packets left their device, where that is asked for.
    departures: Option<Departures<Pending>>,
}

impl Outlet {
    /// A socket that leaves by `via`, for the family of `peer`.
    pub(super) fn open(via: &Via, peer: SocketAddr) -> io::Result<Self> {
        Self::of(bind(via, peer)?)
    }

    /// A socket that listens.
    pub(super) fn listen(at: SocketAddr) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        Self::of(socket)
    }

    fn of(socket: std::net::UdpSocket) -> io::Result<Self> {
        // Beyond the system's limit for those who may; others have what `Socket` asks for.
        let _ = setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER);
        let socket = Socket::from_std(socket)?;
        let _ = setsockopt(&socket.udp, sockopt::SndBufForce, &SEND_BUFFER);
        let _ = setsockopt(&socket.udp, sockopt::RcvBufForce, &RECEIVE_BUFFER);
        let (waiting, spare) = (VecDeque::new(), Vec::new());
        Ok(Self { socket, waiting, spare, is_full: false, departures: None })
    }

    /// From now on packets are told when they left their device, where the kernel says.
    pub(super) fn stamp_departures(&mut self, clock: Clock) {
        self.departures = Some(Departures::new(clock));
    }

    /// Tells packets when they left. Before the acks of packets are taken in, this must have been
    /// called.
    pub(super) fn read_departures(&mut self) {
        if let Some(departures) = &mut self.departures {
            departures.read(&self.socket.udp, |packet, wait| packet.on_left(wait));
        }
    }

    /// Sends a datagram with the next [`Outlet::flush`], or before; in one call with others to the
    /// same address, at most [`Parcel::train`] together. Loses it where too many wait.
    pub(super) fn push(&mut self, to: Address, parcel: Parcel<'_>) {
        let Parcel { contents: datagram, train, packet } = parcel;
        let most = train.min(MAX_SEGMENTS).min(self.socket.segments());
        if self.waiting.len() > 1 && !self.is_full {
            self.flush();
        }
        if self.waiting.len() >= MAX_WAITING {
            // Lost, as in any full queue.
            return;
        }
        let last = self.waiting.back_mut().filter(|train| {
            let room = (most * train.segment).min(MAX_BYTES);
            train.to == to
                && !train.is_over
                && datagram.len() <= train.segment
                && train.contents.len() + train.segment <= room
        });
        match last {
            Some(train) => {
                train.contents.extend_from_slice(datagram);
                train.packets.push(packet);
                train.is_over = datagram.len() < train.segment;
            }
            None => {
                let mut contents = self.spare.pop().unwrap_or_default();
                contents.extend_from_slice(datagram);
                self.waiting.push_back(Train {
                    to,
                    segment: datagram.len(),
                    contents,
                    packets: vec![packet],
                    is_over: false,
                });
            }
        }
    }

    /// Sends what waits, until the socket is full.
    pub(super) fn flush(&mut self) {
        while let Some(train) = self.waiting.front_mut() {
            let mut departures = self.departures.as_mut();
            if let Some(departures) = &mut departures {
                departures.prepare(&self.socket.udp);
            }
            let sent = self.socket.send(train.to, Dscp::DEFAULT, &train.contents, train.segment);
            if let Some(departures) = departures {
                let packets = std::mem::take(&mut train.packets).into_iter();
                let clock = departures.clock();
                let timed = |packet: Pending| (clock.time_of(packet.sent_at()), packet);
                match sent {
                    Ok(Calls::One) => departures.on_sent(packets.flatten().map(timed).collect()),
                    Ok(Calls::Each) => packets
                        .for_each(|packet| departures.on_sent(Vec::from_iter(packet.map(timed)))),
                    Ok(Calls::Unknown) | Err(_) => departures.on_doubt(&self.socket.udp),
                }
            }
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_full = true;
                    return;
                }
                // Lost like any other packet: no route, too long a probe, a device that is down.
                Err(error) => tracing::trace!("a datagram did not leave: {error}"),
                Ok(_) => {}
            }
            if let Some(Train { mut contents, .. }) = self.waiting.pop_front()
                && self.spare.len() < SPARE
            {
                contents.clear();
                self.spare.push(contents);
            }
        }
        self.is_full = false;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn trains_of_large_datagrams_are_no_longer_than_the_kernel_takes() {
        let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let to = Address { remote: far.local_addr().unwrap(), local: None };
        let mut outlet = Outlet::open(&Via::Any, to.remote).unwrap();
        let mut buffer = vec![0; 1 << 16];
        for len in [1452, 8952, 16 * 1024, 40_000] {
            for round in 0..4 {
                for number in 0..4 {
                    let contents = vec![round * 4 + number; len];
                    outlet.push(to, Parcel { contents: &contents, train: 32, packet: None });
                }
                outlet.flush();
                for number in 0..4 {
                    assert_eq!(far.recv(&mut buffer).unwrap(), len);
                    assert!(buffer[..len].iter().all(|byte| *byte == round * 4 + number));
                }
            }
        }
    }
}
