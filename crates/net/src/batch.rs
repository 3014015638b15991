//! Many datagrams a system call: `recvmmsg` with GRO on the way in, GSO on the way out.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use mio::net::UdpSocket;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

/// The most that one receive can hold: a whole batch of coalesced segments.
const BUFFER: usize = 65_535;

/// The most segments that go out in one call; the kernel's own limit (`UDP_MAX_SEGMENTS`) was
/// 64 up to Linux 6.8.
const MAX_SEGMENTS: usize = 64;

/// Wanted size of the kernel's receive buffer; the kernel gives up to `net.core.rmem_max`.
const KERNEL_BUFFER: usize = 4 << 20;

/// A UDP socket with what is needed for batches.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) udp: UdpSocket,
    state: UdpSocketState,
}

impl Socket {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::of(UdpSocket::bind(address)?)
    }

    /// One that is bound already, and does not block.
    pub(crate) fn from_std(udp: std::net::UdpSocket) -> io::Result<Self> {
        Self::of(UdpSocket::from_std(udp))
    }

    fn of(udp: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&udp))?;
        // Less is enough to run, if the system does not grant it.
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&udp), KERNEL_BUFFER);
        let _ = state.set_send_buffer_size(UdpSockRef::from(&udp), KERNEL_BUFFER);
        Ok(Self { udp, state })
    }

    /// The most datagrams of equal length that one call sends. It falls to one when the network
    /// card turns out not to segment.
    pub(crate) fn segments(&self) -> usize {
        self.state.max_gso_segments().clamp(1, MAX_SEGMENTS)
    }

    /// Sends one datagram, or several of `segment` bytes each, the last of which may be shorter.
    pub(crate) fn send(&self, to: Address, contents: &[u8], segment: usize) -> io::Result<()> {
        let transmit = Transmit {
            destination: to.remote,
            ecn: None,
            contents,
            segment_size: (segment < contents.len()).then_some(segment),
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

/// Datagrams of one address that came together.
pub(crate) struct Train<'a> {
    pub(crate) from: Address,
    bytes: &'a [u8],
    stride: usize,
}

impl<'a> Train<'a> {
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        // An empty datagram has no chunk; nothing of ours is empty.
        self.bytes.chunks(self.stride.max(1))
    }
}

/// Receives in batches.
pub(crate) struct Inbox {
    buffers: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    filled: usize,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        let buffers = vec![0; BUFFER * BATCH_SIZE];
        Self { buffers, metas: [RecvMeta::default(); BATCH_SIZE], filled: 0 }
    }

    /// Takes what has come; whether there was anything.
    pub(crate) fn fill(&mut self, socket: &Socket) -> io::Result<bool> {
        let mut slices = self.buffers.chunks_exact_mut(BUFFER).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| slices.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        self.filled = 0;
        match socket.state.recv(UdpSockRef::from(&socket.udp), &mut slices, &mut self.metas) {
            Ok(filled) => self.filled = filled,
            // What a host answered to an earlier packet of ours, as nobody listens there.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    pub(crate) fn trains(&self) -> impl Iterator<Item = Train<'_>> {
        let buffers = self.buffers.chunks_exact(BUFFER);
        self.metas[..self.filled].iter().zip(buffers).map(|(meta, buffer)| Train {
            from: Address { remote: meta.addr, local: meta.dst_ip },
            bytes: &buffer[..meta.len],
            stride: meta.stride,
        })
    }
}

/// Gathers answers of equal length to one address, and sends them in one call.
pub(crate) struct Outbox {
    to: Option<Address>,
    segment: usize,
    contents: Vec<u8>,
    /// Answers that a full or failing socket did not take.
    pub(crate) dropped: u64,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self { to: None, segment: 0, contents: Vec::new(), dropped: 0 }
    }

    pub(crate) fn push(&mut self, socket: &Socket, to: Address, answer: &[u8]) {
        let full = self.contents.len() >= socket.segments() * self.segment;
        if self.to != Some(to) || self.segment != answer.len() || full {
            self.flush(socket);
            (self.to, self.segment) = (Some(to), answer.len());
        }
        self.contents.extend_from_slice(answer);
    }

    pub(crate) fn flush(&mut self, socket: &Socket) {
        if let Some(to) = self.to.filter(|_| !self.contents.is_empty())
            && socket.send(to, &self.contents, self.segment).is_err()
        {
            // An answer that cannot leave now is stale when it could; the next one says more.
            self.dropped += (self.contents.len() / self.segment.max(1)) as u64;
        }
        self.contents.clear();
    }
}
