//! Many datagrams per system call: `recvmmsg` with GRO to receive, GSO and `sendmmsg` to send.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};

use freshline_core::dscp::Dscp;
use mio::net::UdpSocket;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc::{in_pktinfo, in6_pktinfo};
use nix::sys::socket::sockopt::{ReceiveTimestampns, RxqOvfl};
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrIn, SockaddrIn6, SockaddrLike, recvmmsg, setsockopt,
};
use nix::sys::time::TimeSpec;
use quinn_udp::{BATCH_SIZE, Transmit, UdpSockRef, UdpSocketState};

use crate::marked::{self, Marked};
use crate::received::Info;

/// The most that one receive can hold: a whole batch of coalesced segments. Some lines of a cache more, as buffers whose
/// distance is a power of two share a few places of the caches.
const BUFFER: usize = 65_536 + 192;

/// Stands for a sender that the kernel did not name.
const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The most segments that go out in one call; the kernel's own limit (`UDP_MAX_SEGMENTS`) was
/// 64 up to Linux 6.8.
const MAX_SEGMENTS: usize = 64;

/// Wanted size of the kernel's receive buffer; the kernel gives up to `net.core.rmem_max`.
const KERNEL_BUFFER: usize = 4 << 20;

/// A UDP socket with the state for batches.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) udp: UdpSocket,
    state: UdpSocketState,
    /// Whether its peers have addresses of IPv4; those of IPv6 otherwise, which may stand for some of IPv4.
    is_v4: bool,
    /// The segments per call when the socket was new.
    segments: usize,
    refusals: Mutex<Refusals>,
}

/// The system calls by which datagrams were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// One for all.
    One,
    /// One for each, and the kernel took all.
    Each,
    /// Some failed.
    Unknown,
}

/// Hosts for which the kernel refused segmentation, as their devices do not segment, each with the
/// number of trains after which it is tried again; the one refused first comes first.
#[derive(Debug, Default)]
struct Refusals(Vec<(IpAddr, u32)>);

impl Refusals {
    /// The largest number of hosts.
    const MAX: usize = 64;

    /// Trains that are sent datagram by datagram before segmentation is tried again.
    const TRAINS: u32 = 1000;

    fn add(&mut self, host: IpAddr) {
        self.0.retain(|(refused, _)| *refused != host);
        if self.0.len() >= Self::MAX {
            self.0.remove(0);
        }
        self.0.push((host, Self::TRAINS));
    }

    /// Whether the next train to this host is sent datagram by datagram.
    fn take(&mut self, host: IpAddr) -> bool {
        let Some(index) = self.0.iter().position(|(refused, _)| *refused == host) else {
            return false;
        };
        self.0[index].1 -= 1;
        if self.0[index].1 == 0 {
            self.0.remove(index);
        }
        true
    }
}

impl Socket {
    /// One that is bound already, and does not block.
    pub(crate) fn from_std(udp: std::net::UdpSocket) -> io::Result<Self> {
        let is_v4 = udp.local_addr()?.is_ipv4();
        let udp = UdpSocket::from_std(udp);
        let state = UdpSocketState::new(UdpSockRef::from(&udp))?;
        // Less is enough to run, if the system does not grant it.
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&udp), KERNEL_BUFFER);
        let _ = state.set_send_buffer_size(UdpSockRef::from(&udp), KERNEL_BUFFER);
        // `quinn-udp` enables arrival timestamps, which are not read and cost time for each packet.
        let _ = setsockopt(&udp, ReceiveTimestampns, &false);
        // A count of dropped packets for reports only.
        let _ = setsockopt(&udp, RxqOvfl, &1);
        let segments = state.max_gso_segments().clamp(1, MAX_SEGMENTS);
        Ok(Self { udp, state, is_v4, segments, refusals: Mutex::default() })
    }

    /// The most datagrams of equal length that one call sends.
    pub(crate) fn segments(&self) -> usize {
        self.segments
    }

    /// Sends one datagram, or several of `segment` bytes each, the last of which may be shorter, with
    /// a code point. If the kernel refuses to segment for this destination, they are sent one by one,
    /// now and for some time; other destinations keep segmentation. By which calls they left.
    pub(crate) fn send(
        &self,
        to: Address,
        dscp: Dscp,
        contents: &[u8],
        segment: usize,
    ) -> io::Result<Calls> {
        if segment >= contents.len() {
            return self.send_at_once(to, dscp, contents, segment).map(|()| Calls::One);
        }
        let host = to.remote.ip();
        let refusals = || self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let mut calls = Calls::Each;
        if !refusals().take(host) {
            const REFUSED: [i32; 2] = [Errno::EIO as i32, Errno::EINVAL as i32];
            match self.send_at_once(to, dscp, contents, segment) {
                Err(error) if error.raw_os_error().is_some_and(|it| REFUSED.contains(&it)) => {
                    tracing::debug!("no segmentation for {host}: {error}");
                    refusals().add(host);
                    calls = Calls::Unknown;
                }
                result => return result.map(|()| Calls::One),
            }
        }
        let mut datagrams = contents.chunks(segment.max(1));
        let first = datagrams.next().unwrap_or_default();
        self.send_at_once(to, dscp, first, segment)?;
        for datagram in datagrams {
            // Lost, as in any full queue: the first ones have left.
            if self.send_at_once(to, dscp, datagram, segment).is_err() {
                calls = Calls::Unknown;
            }
        }
        Ok(calls)
    }

    /// Sends datagrams with one code point from one address of this host, each to its own address. Returns the number
    /// of datagrams that the socket did not accept because it is full or fails.
    pub(crate) fn send_each(
        &self,
        dscp: Dscp,
        local: Option<IpAddr>,
        datagrams: &[(SocketAddr, &[u8])],
    ) -> usize {
        marked::send_each(&self.udp, dscp, local, datagrams)
    }

    fn send_at_once(
        &self,
        to: Address,
        dscp: Dscp,
        contents: &[u8],
        segment: usize,
    ) -> io::Result<()> {
        let segment_size = (segment < contents.len()).then_some(segment);
        if dscp != Dscp::DEFAULT {
            let marked = Marked {
                dscp,
                remote: to.remote,
                is_connected: false,
                local: to.local,
                // No datagram is longer than a length of 16 bits says.
                segment: segment_size.map(|size| u16::try_from(size).unwrap_or(u16::MAX)),
                contents,
            };
            return marked.send(&self.udp);
        }
        let transmit = Transmit {
            destination: to.remote,
            ecn: None,
            contents,
            segment_size,
            src_ip: to.local,
        };
        self.state.try_send(UdpSockRef::from(&self.udp), &transmit)
    }
}

/// Both ends of a datagram's way. Answers leave from the address that was written to, also on a
/// host that has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
}

/// Datagrams of one address and one code point that came together.
pub(crate) struct Train<'a> {
    pub(crate) from: Address,
    pub(crate) dscp: Option<Dscp>,
    bytes: &'a [u8],
    stride: usize,
}

impl<'a> Train<'a> {
    /// Of one datagram.
    pub(crate) fn alone(from: Address, dscp: Option<Dscp>, bytes: &'a [u8]) -> Self {
        Self { from, dscp, bytes, stride: bytes.len() }
    }

    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        // An empty datagram has no chunk. No message of the protocol is empty.
        self.bytes.chunks(self.stride.max(1))
    }
}

/// The maximum bytes per received datagram on a socket without GRO: longer than any message of the
/// protocol.
const DATAGRAM: usize = 2048;

/// Receives in batches.
pub(crate) struct Inbox {
    buffers: Vec<u8>,
    /// The length of each.
    size: usize,
    /// For each filled buffer: the number of bytes, the sender's address, and the headers' content.
    filled: Vec<(usize, SocketAddr, Info)>,
}

/// How many packets the kernel has dropped at a socket.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    last: u32,
    /// By the newest packet that was received.
    pub(crate) total: u64,
}

impl Drops {
    /// Reads the count that came with the packets of a batch.
    pub(crate) fn read(&mut self, inbox: &Inbox) {
        if let Some(now) = inbox.filled.iter().rev().find_map(|(.., info)| info.dropped) {
            self.total += u64::from(now.wrapping_sub(self.last));
            self.last = now;
        }
    }
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self::of(BUFFER, BATCH_SIZE)
    }

    /// A quarter of a batch, where there are several of them.
    pub(crate) fn small() -> Self {
        Self::of(BUFFER, BATCH_SIZE / 4)
    }

    /// For a socket without GRO.
    pub(crate) fn of_datagrams() -> Self {
        Self::of(DATAGRAM, BATCH_SIZE)
    }

    fn of(size: usize, batch: usize) -> Self {
        Self { buffers: vec![0; size * batch], size, filled: Vec::with_capacity(batch) }
    }

    /// Receives the next batch. Returns false if the socket is empty.
    pub(crate) fn fill(&mut self, socket: &Socket) -> io::Result<bool> {
        match socket.is_v4 {
            true => self.fill_from::<SockaddrIn>(socket, |from| SocketAddr::V4(from.into())),
            false => self.fill_from::<SockaddrIn6>(socket, |from| SocketAddr::V6(from.into())),
        }
    }

    /// The same of a socket whose peers have addresses of type `S`.
    fn fill_from<S: Copy + SockaddrLike>(
        &mut self,
        socket: &Socket,
        address: fn(S) -> SocketAddr,
    ) -> io::Result<bool> {
        self.filled.clear();
        let batch = self.batch();
        // The kernel writes lengths into the headers, and nothing sets them back: they serve once.
        let control =
            cmsg_space!(in6_pktinfo, in_pktinfo, i32, i32, i32, u32, TimeSpec, [TimeSpec; 3]);
        let mut headers = MultiHeaders::<S>::preallocate(BATCH_SIZE, Some(control));
        let mut buffers = self.buffers.chunks_exact_mut(self.size);
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH_SIZE] =
            std::array::from_fn(|_| [IoSliceMut::new(buffers.next().unwrap_or_default())]);
        let (fd, flags) = (socket.udp.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        match recvmmsg(fd, &mut headers, slices.iter_mut().take(batch), flags, None) {
            Ok(received) => self.filled.extend(received.map(|message| {
                let info = message.cmsgs().map(Info::of).unwrap_or_default();
                // A message without an address is replaced by an empty train.
                let empty = (0, NO_ADDRESS, Info::default());
                message.address.map_or(empty, |from| (message.bytes, address(from), info))
            })),
            // The ICMP answer to an earlier packet: the port is closed there.
            Err(Errno::ECONNREFUSED | Errno::EINTR) => {}
            Err(Errno::EWOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// The number of buffers.
    fn batch(&self) -> usize {
        self.buffers.len() / self.size
    }

    /// Whether the last batch was as large as one can be, so that more may wait.
    pub(crate) fn is_full(&self) -> bool {
        self.filled.len() == self.batch()
    }

    pub(crate) fn trains(&self) -> impl ExactSizeIterator<Item = Train<'_>> {
        let buffers = self.buffers.chunks_exact(self.size);
        self.filled.iter().zip(buffers).map(|(&(len, remote, info), buffer)| Train {
            from: Address { remote, local: info.to },
            dscp: info.dscp,
            bytes: &buffer[..len],
            stride: info.stride.unwrap_or(len),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_train_that_the_kernel_refuses_is_sent_one_by_one_and_other_hosts_keep_segmentation() {
        const DATAGRAMS: usize = 200;
        let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = Socket::from_std(socket).unwrap();
        let to = Address { remote: far.local_addr().unwrap(), local: None };
        let before = socket.segments();
        // More segments than any kernel takes: EINVAL.
        let send = || socket.send(to, Dscp::DEFAULT, &[7; DATAGRAMS * 10], 10).unwrap();
        assert_eq!(send(), Calls::Unknown);
        for _ in 0..DATAGRAMS {
            assert_eq!(far.recv(&mut [0; 100]).unwrap(), 10);
        }
        assert_eq!(socket.segments(), before);
        let mut refusals = socket.refusals.lock().unwrap();
        assert!(refusals.take(to.remote.ip()));
        assert!(!refusals.take("127.0.0.2".parse().unwrap()));
    }

    #[test]
    fn a_refusal_ends_after_some_trains_and_few_hosts_are_kept() {
        let mut refusals = Refusals::default();
        let host = |number: u8| IpAddr::from([10, 0, 0, number]);
        for number in 0..=64 {
            refusals.add(host(number));
        }
        assert!(!refusals.take(host(0)), "it made room");
        assert!((0..Refusals::TRAINS).all(|_| refusals.take(host(1))));
        assert!(!refusals.take(host(1)));
    }
}
