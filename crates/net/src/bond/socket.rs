//! The UDP sockets of a bond, each bound to an interface or an address, and their queued datagrams.
//!
//! Consecutive datagrams of equal length to one address form a train, which leaves in one system
//! call (GSO). Datagrams are queued while the socket is full.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use freshline_core::dscp::Dscp;
use nix::sys::socket::{setsockopt, sockopt};

use super::gate::Pending;
use crate::batch::{Address, Calls, Socket};
use crate::clock::Clock;
use crate::via::{Departures, Via, bind};

/// Requested size of the kernel's send buffer, in bytes: packets in the queue of a slow device
/// count against it.
const SEND_BUFFER: usize = 4 << 20;

/// Requested size of the kernel's receive buffer, in bytes: a window of large packets may arrive at
/// once.
const RECEIVE_BUFFER: usize = 8 << 20;

/// The maximum size of a train: datagrams, and bytes. The latter is the largest UDP payload over
/// IPv4.
const MAX_SEGMENTS: usize = 32;
const MAX_BYTES: usize = 65_507;

/// The maximum number of unused buffers that are kept: while the socket is not full, one train is
/// filled and another one leaves.
const SPARE: usize = 2;

/// The maximum number of queued trains while a socket is full: they are acks and probes, which no
/// gate holds back.
const MAX_WAITING: usize = 256;

/// A datagram to send.
#[derive(Debug)]
pub(super) struct Parcel<'a> {
    pub(super) contents: &'a [u8],
    /// The maximum number of datagrams of its path that may leave as one train.
    pub(super) train: usize,
    /// Its packet, if its departure from the device is to be recorded.
    pub(super) packet: Option<Pending>,
}

impl<'a> Parcel<'a> {
    /// A datagram that leaves alone, not in a train.
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
    /// The packet in each datagram, as in [`Parcel`].
    packets: Vec<Option<Pending>>,
    /// A shorter datagram has ended the train, or it is of one that leaves alone.
    is_over: bool,
}

/// A socket, and the datagrams that it has not accepted yet.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) socket: Socket,
    waiting: VecDeque<Train>,
    /// Empty buffers of trains that have left, at most [`SPARE`].
    spare: Vec<Vec<u8>>,
    /// The socket is full, until the poll reports that it is writable.
    pub(super) is_full: bool,
    /// Departure times of packets from their device, if they are needed.
    departures: Option<Departures<Pending>>,
}

impl Outlet {
    /// A socket that leaves by `via`, for the address family of `peer`.
    pub(super) fn open(via: &Via, peer: SocketAddr) -> io::Result<Self> {
        Self::of(bind(via, peer)?)
    }

    /// A socket that listens at an address.
    pub(super) fn listen(at: SocketAddr) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        Self::of(socket)
    }

    fn of(socket: std::net::UdpSocket) -> io::Result<Self> {
        // Exceeds the system's limit, for which a process needs `CAP_NET_ADMIN`; without it, the
        // size is that of `Socket`.
        let _ = setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER);
        let socket = Socket::from_std(socket)?;
        let _ = setsockopt(&socket.udp, sockopt::SndBufForce, &SEND_BUFFER);
        let _ = setsockopt(&socket.udp, sockopt::RcvBufForce, &RECEIVE_BUFFER);
        let (waiting, spare) = (VecDeque::new(), Vec::new());
        Ok(Self { socket, waiting, spare, is_full: false, departures: None })
    }

    /// Records departures of packets from the device from now on, as far as the kernel stamps them.
    pub(super) fn stamp_departures(&mut self, clock: Clock) {
        self.departures = Some(Departures::new(clock));
    }

    /// Records the departures that the kernel has stamped. Must be called before the acks of these
    /// packets are processed.
    pub(super) fn read_departures(&mut self) {
        if let Some(departures) = &mut self.departures {
            departures.read(&self.socket.udp, |packet, wait| packet.on_left(wait));
        }
    }

    /// Queues a datagram, which leaves at the latest with the next [`Outlet::flush`], in a train of
    /// at most [`Parcel::train`] datagrams. Drops it if too many trains are queued.
    pub(super) fn push(&mut self, to: Address, parcel: Parcel<'_>) {
        let Parcel { contents: datagram, train, packet } = parcel;
        let most = train.min(MAX_SEGMENTS).min(self.socket.segments());
        if self.waiting.len() > 1 && !self.is_full {
            self.flush();
        }
        if self.waiting.len() >= MAX_WAITING {
            // Dropped, as by any full queue.
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
                    is_over: train == 1,
                });
            }
        }
    }

    /// Sends the queued datagrams, until the socket is full.
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
                // Lost like any other packet: no route, a probe that is too large, or a device that
                // is down.
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
    fn a_probe_that_the_device_may_refuse_takes_no_other_datagram_along() {
        let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let to = Address { remote: far.local_addr().unwrap(), local: None };
        let mut outlet = Outlet::open(&Via::Any, to.remote).unwrap();
        outlet.push(to, Parcel::alone(&[0; 5000]));
        outlet.push(to, Parcel { contents: &[1; 1000], train: 32, packet: None });
        assert_eq!(outlet.waiting.len(), 2, "the kernel refuses a train as a whole");
        outlet.flush();
        assert_eq!([5000, 1000], [(); 2].map(|()| far.recv(&mut [0; 6000]).unwrap()));
    }

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
