//! The minimum work of a receiver of single packets: `recvmmsg` for only the bytes and the addresses, and `sendmmsg`.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use freshline_core::wire::Ack;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg};
use socket2::SockRef;

/// Packets per system call, as in the monitor.
const BATCH: usize = 32;

const LEN: usize = 2_048;

/// The kernel's receive buffer in bytes, as large as the monitor's.
const BUFFER: usize = 4 << 20;

pub(crate) struct Bare {
    socket: UdpSocket,
    headers: MultiHeaders<SockaddrStorage>,
    outgoing: MultiHeaders<SockaddrStorage>,
    buffers: Vec<u8>,
    from: Vec<Option<SockaddrStorage>>,
}

/// A socket with a receive buffer as large as the monitor's.
pub(crate) fn bind() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let _ = SockRef::from(&socket).set_recv_buffer_size(BUFFER);
    let _ = SockRef::from(&socket).set_send_buffer_size(BUFFER);
    socket
}

/// The size of its receive buffer in bytes.
pub(crate) fn buffer(socket: &UdpSocket) -> usize {
    SockRef::from(socket).recv_buffer_size().unwrap()
}

impl Bare {
    pub(crate) fn new(socket: UdpSocket) -> Self {
        Self {
            socket,
            headers: MultiHeaders::preallocate(BATCH, None),
            outgoing: MultiHeaders::preallocate(BATCH, None),
            buffers: vec![0; LEN * BATCH],
            from: Vec::with_capacity(BATCH),
        }
    }

    /// Receives a batch, and answers each packet if `is_answered`; returns the number of packets.
    pub(crate) fn receive(&mut self, is_answered: bool) -> usize {
        let Self { socket, headers, outgoing, buffers, from } = self;
        let mut slices = buffers.chunks_exact_mut(LEN).map(|buffer| [IoSliceMut::new(buffer)]);
        let mut slices: [_; BATCH] = std::array::from_fn(|_| slices.next().unwrap());
        let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        from.clear();
        match recvmmsg(fd, headers, slices.iter_mut(), flags, None) {
            Ok(received) => from.extend(received.map(|message| message.address)),
            Err(Errno::EWOULDBLOCK) => return 0,
            Err(error) => panic!("cannot receive: {error}"),
        }
        if is_answered {
            let answer = [0xA5; Ack::LEN];
            let answers = [[IoSlice::new(&answer)]; BATCH];
            let sent =
                sendmmsg(fd, outgoing, &answers[..from.len()], &*from, [], MsgFlags::empty());
            assert_eq!(sent.unwrap().count(), from.len());
        }
        from.len()
    }

    /// Sleeps until a packet arrives, at most 0.1 s.
    pub(crate) fn wait(&self) {
        let mut readable = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        poll(&mut readable, PollTimeout::from(100u8)).unwrap();
    }
}
