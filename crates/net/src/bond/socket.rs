//! The UDP sockets of a bond: each bound to an interface or an address, with what waits to leave.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use freshline_core::dscp::Dscp;
use nix::sys::socket::{setsockopt, sockopt};

use crate::batch::{Address, Socket};
use crate::via::{Via, bind};

/// Wanted size of the kernel's send buffer: the queues of slow devices are filled from it.
const SEND_BUFFER: usize = 4 << 20;

/// The most datagrams of equal length that go out in one call.
const MOST_SEGMENTS: usize = 32;

/// The most that wait while a socket is full: acks and probes, which no gate holds back.
const MOST_WAITING: usize = 256;

/// Datagrams of one length to one address.
#[derive(Debug)]
struct Train {
    to: Address,
    segment: usize,
    contents: Vec<u8>,
    /// A shorter datagram has ended it.
    is_over: bool,
}

/// A socket with what it has not taken yet.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) socket: Socket,
    waiting: VecDeque<Train>,
    /// It is full; until the poll says that it is not.
    pub(super) is_full: bool,
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
        Ok(Self { socket, waiting: VecDeque::new(), is_full: false })
    }

    /// Sends a datagram with the next [`Outlet::flush`], or before; in one call with others to the
    /// same address, at most `train` together. Loses it where too many wait.
    pub(super) fn push(&mut self, to: Address, datagram: &[u8], train: usize) {
        let most = train.min(MOST_SEGMENTS).min(self.socket.segments());
        if self.waiting.len() > 1 && !self.is_full {
            self.flush();
        }
        if self.waiting.len() >= MOST_WAITING {
            // Lost, as in any full queue.
            return;
        }
        let last = self.waiting.back_mut().filter(|train| {
            let room = most * train.segment;
            train.to == to
                && !train.is_over
                && datagram.len() <= train.segment
                && train.contents.len() + train.segment <= room
        });
        match last {
            Some(train) => {
                train.contents.extend_from_slice(datagram);
                train.is_over = datagram.len() < train.segment;
            }
            None => self.waiting.push_back(Train {
                to,
                segment: datagram.len(),
                contents: datagram.to_vec(),
                is_over: false,
            }),
        }
    }

    /// Sends what waits, until the socket is full.
    pub(super) fn flush(&mut self) {
        while let Some(train) = self.waiting.front() {
            match self.socket.send(train.to, Dscp::DEFAULT, &train.contents, train.segment) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_full = true;
                    return;
                }
                // Lost like any other packet: no route, too long a probe, a device that is down.
                Err(error) => tracing::trace!("a datagram did not leave: {error}"),
                Ok(()) => {}
            }
            self.waiting.pop_front();
        }
        self.is_full = false;
    }
}
