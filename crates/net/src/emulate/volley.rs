//! Datagrams that leave one socket together.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use mio::net::UdpSocket;
use nix::cmsg_space;
use nix::libc::{in_pktinfo, in6_pktinfo};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg};

use super::datagram::{Datagram, Pool};
use crate::marked::Headers;

/// Up to [`Volley::SIZE`] datagrams, sent by one system call. So the packets of a frame reach their
/// receiver back to back, as a network card's driver hands them up, and each with its own time:
/// segmentation offload would give all of them the same time.
pub(super) struct Volley {
    datagrams: Vec<Datagram>,
    remotes: Vec<SocketAddr>,
    /// The addresses in the system's format.
    addresses: Vec<Option<SockaddrStorage>>,
    /// The addresses of this host from which they leave, unless the system chooses.
    sources: Vec<Option<IpAddr>>,
    /// With a code point only, and with a source address as well.
    plain: MultiHeaders<SockaddrStorage>,
    from_v4: MultiHeaders<SockaddrStorage>,
    from_v6: MultiHeaders<SockaddrStorage>,
}

impl Volley {
    /// The number of packets in the largest frame.
    const SIZE: usize = 64;

    pub(super) fn new() -> Self {
        Self {
            datagrams: Vec::with_capacity(Self::SIZE),
            remotes: Vec::with_capacity(Self::SIZE),
            addresses: Vec::with_capacity(Self::SIZE),
            sources: Vec::with_capacity(Self::SIZE),
            plain: MultiHeaders::preallocate(Self::SIZE, Some(cmsg_space!(i32))),
            from_v4: MultiHeaders::preallocate(Self::SIZE, Some(cmsg_space!(i32, in_pktinfo))),
            from_v6: MultiHeaders::preallocate(Self::SIZE, Some(cmsg_space!(i32, in6_pktinfo))),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.datagrams.len() == Self::SIZE
    }

    /// Adds a datagram that leaves from the given address of this host, or from any; there must be
    /// room.
    pub(super) fn push(&mut self, datagram: Datagram, from: Option<IpAddr>, to: SocketAddr) {
        self.datagrams.push(datagram);
        self.remotes.push(to);
        self.addresses.push(Some(to.into()));
        self.sources.push(from);
    }

    /// Sends all datagrams; returns how many the system refused.
    pub(super) fn send(&mut self, socket: &UdpSocket, pool: &mut Pool) -> u64 {
        let (mut sent, mut refused) = (0, 0);
        while sent < self.datagrams.len() {
            match self.send_from(sent, socket) {
                Ok(count) => sent += count,
                // The error concerns the first datagram; others may follow it.
                Err(_) => (sent, refused) = (sent + 1, refused + 1),
            }
        }
        self.remotes.clear();
        self.addresses.clear();
        self.sources.clear();
        self.datagrams.drain(..).for_each(|datagram| pool.recycle(datagram.payload));
        refused
    }

    /// Sends the datagrams from `first` on that leave from the same address with the same code
    /// point; returns their number.
    fn send_from(&mut self, first: usize, socket: &UdpSocket) -> io::Result<usize> {
        let kind_of = |at: usize| (self.sources[at], self.datagrams[at].dscp, self.is_v4(at));
        let kind @ (source, dscp, _) = kind_of(first);
        let alike = (first..self.sources.len()).take_while(|at| kind_of(*at) == kind).count();
        let mut payloads = self.datagrams[first..].iter().map(|datagram| &datagram.payload[..]);
        let mut next = || IoSlice::new(payloads.next().unwrap_or_default());
        let slices: [_; Self::SIZE] = std::array::from_fn(|_| [next()]);
        let addresses = &self.addresses[first..first + alike];
        let extras = Headers::of(Some(dscp), self.remotes[first], source);
        let (messages, count) = extras.messages(None);
        let headers = match source {
            None => &mut self.plain,
            Some(IpAddr::V4(_)) => &mut self.from_v4,
            Some(IpAddr::V6(_)) => &mut self.from_v6,
        };
        let (fd, flags) = (socket.as_raw_fd(), MsgFlags::empty());
        let sent = sendmmsg(fd, headers, &slices, addresses, &messages[..count], flags)?;
        Ok(sent.count())
    }

    /// Whether a datagram leaves as an IPv4 packet, which an IPv6 socket sends to mapped addresses.
    fn is_v4(&self, at: usize) -> bool {
        self.remotes[at].ip().to_canonical().is_ipv4()
    }
}
