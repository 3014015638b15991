//! Datagrams that leave one socket together.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use mio::net::UdpSocket;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg};

use super::datagram::{Datagram, Pool};

/// Up to [`Volley::SIZE`] datagrams, which one system call sends. So the packets of a frame reach
/// their receiver back to back, as a network card's driver hands them up, and each with a time of
/// its own: segmentation offload would give all of them the same.
pub(super) struct Volley {
    datagrams: Vec<Datagram>,
    addresses: Vec<Option<SockaddrStorage>>,
    headers: MultiHeaders<SockaddrStorage>,
}

impl Volley {
    /// As many as there are in the largest frame.
    const SIZE: usize = 64;

    pub(super) fn new() -> Self {
        Self {
            datagrams: Vec::with_capacity(Self::SIZE),
            addresses: Vec::with_capacity(Self::SIZE),
            headers: MultiHeaders::preallocate(Self::SIZE, None),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.datagrams.len() == Self::SIZE
    }

    /// Adds a datagram; there must be room.
    pub(super) fn push(&mut self, datagram: Datagram, to: SocketAddr) {
        self.datagrams.push(datagram);
        self.addresses.push(Some(to.into()));
    }

    /// Sends all that was added; how many the system refused.
    pub(super) fn send(&mut self, socket: &UdpSocket, pool: &mut Pool) -> u64 {
        let (mut sent, mut refused) = (0, 0);
        while sent < self.datagrams.len() {
            match self.send_from(sent, socket) {
                Ok(count) => sent += count,
                // It is of the first one; others may follow it.
                Err(_) => (sent, refused) = (sent + 1, refused + 1),
            }
        }
        self.addresses.clear();
        self.datagrams.drain(..).for_each(|datagram| pool.recycle(datagram.payload));
        refused
    }

    fn send_from(&mut self, first: usize, socket: &UdpSocket) -> io::Result<usize> {
        let mut payloads = self.datagrams[first..].iter().map(|datagram| &datagram.payload[..]);
        let mut next = || IoSlice::new(payloads.next().unwrap_or_default());
        let slices: [_; Self::SIZE] = std::array::from_fn(|_| [next()]);
        let (addresses, no_extras) = (&self.addresses[first..], MsgFlags::empty());
        let sent =
            sendmmsg(socket.as_raw_fd(), &mut self.headers, &slices, addresses, [], no_extras)?;
        Ok(sent.count())
    }
}
