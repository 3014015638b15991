//! Datagrams with the kernel's receive time of each.
//!
//! A socket asks for `SO_TIMESTAMPNS`, which needs no privilege, and does not ask for GRO, so that
//! each datagram has its own time. The kernel reports the wall clock, but only differences matter:
//! so the offset between the wall clock and the program's clock is kept, and checked with each
//! batch ([`Anchor`]).

use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::time::Duration;

use freshline_core::dscp::Dscp;
use freshline_core::unit::Time;
use mio::net::UdpSocket;
use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, recvmmsg, setsockopt, sockopt::ReceiveTimestampns,
};
use nix::sys::time::TimeSpec;
use socket2::SockRef;

use crate::clock::{Anchor, Clock};
use crate::link::Inlet;
use crate::received::{Info, ask_for_dscp};

/// Datagrams per system call: as many as the largest frame has.
const BATCH: usize = 64;

/// The longest datagram that is accepted: a jumbo frame's.
pub(super) const LONGEST: usize = 9_000;

/// The requested size of the kernel's receive buffer: 1 s at 30 Mbit/s and more than any frame.
const KERNEL_BUFFER: usize = 4 << 20;

/// The kernel's receive time of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelTime {
    /// Since 1970, by the wall clock, as the kernel reported it.
    pub unix: Duration,
    /// The same, by the program's clock.
    pub at: Time,
}

/// The metadata of a datagram.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stamped {
    /// The kernel's receive time, if it reported one.
    pub(super) kernel: Option<KernelTime>,
    /// Its code point, if the kernel reported it.
    pub(super) dscp: Option<Dscp>,
}

/// Receives datagrams with their times, many per system call.
pub(super) struct Stamps {
    clock: Clock,
    buffers: Vec<u8>,
    /// Per datagram of the batch: its length, or `None` if it was too long; its receive time; its
    /// code point.
    batch: Vec<(Option<usize>, Option<TimeSpec>, Option<Dscp>)>,
    taken: usize,
    anchor: Anchor,
}

impl Stamps {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            buffers: vec![0; LONGEST * BATCH],
            batch: Vec::with_capacity(BATCH),
            taken: 0,
            anchor: Anchor::of_now(clock),
        }
    }

    fn fill(&mut self, socket: &UdpSocket) -> io::Result<()> {
        (self.taken, self.batch) = (0, std::mem::take(&mut self.batch));
        self.batch.clear();
        // The kernel writes lengths into the headers, and nothing resets them: they can be used
        // only once.
        let mut headers =
            MultiHeaders::<()>::preallocate(BATCH, Some(cmsg_space!(TimeSpec, i32, i32)));
        let mut buffers = self.buffers.chunks_exact_mut(LONGEST);
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH] =
            std::array::from_fn(|_| [IoSliceMut::new(buffers.next().unwrap_or_default())]);
        let flags = MsgFlags::MSG_DONTWAIT;
        let received = recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None)?;
        for message in received {
            let whole = !message.flags.contains(MsgFlags::MSG_TRUNC);
            let stamp = message.cmsgs().ok().and_then(|mut all| {
                all.find_map(|one| match one {
                    ControlMessageOwned::ScmTimestampns(time) => Some(time),
                    _ => None,
                })
            });
            let info = message.cmsgs().map(Info::of).unwrap_or_default();
            self.batch.push((whole.then_some(message.bytes), stamp, info.dscp));
        }
        self.anchor.follow(Anchor::of_now(self.clock));
        Ok(())
    }
}

impl Inlet for Stamps {
    type Mark = Stamped;

    fn open(&mut self, socket: &UdpSocket) -> io::Result<()> {
        (self.taken, self.batch) = (0, Vec::with_capacity(BATCH));
        // A smaller buffer suffices if the system does not grant it.
        let _ = SockRef::from(socket).set_recv_buffer_size(KERNEL_BUFFER);
        setsockopt(socket, ReceiveTimestampns, &true)?;
        ask_for_dscp(socket)
    }

    fn receive(&mut self, socket: &UdpSocket, out: &mut [u8]) -> io::Result<(usize, Self::Mark)> {
        loop {
            while let Some((len, stamp, dscp)) = self.batch.get(self.taken).copied() {
                let begin = self.taken * LONGEST;
                self.taken += 1;
                let Some(len) = len.filter(|len| *len <= out.len()) else { continue };
                out[..len].copy_from_slice(&self.buffers[begin..begin + len]);
                let kernel = stamp.map(|stamp| {
                    let unix = Duration::from(stamp);
                    KernelTime { unix, at: self.anchor.time_of(unix) }
                });
                return Ok((len, Stamped { kernel, dscp }));
            }
            self.fill(socket)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use freshline_core::unit::Span;

    use super::*;
    /// The error of the offset between the two clocks.
    const TOLERANCE: Span = Span::from_micros(50);
    use std::net::Ipv4Addr;

    fn sockets() -> (std::net::UdpSocket, UdpSocket) {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let sender = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        (sender, receiver)
    }

    #[test]
    fn each_datagram_comes_with_a_time_between_its_sending_and_its_taking() {
        let (sender, receiver) = sockets();
        let clock = Clock::new();
        let mut stamps = Stamps::new(clock);
        stamps.open(&receiver).unwrap();
        let before = clock.now();
        for number in 0..100u8 {
            sender.send(&[number; 3]).unwrap();
        }
        sender.send(&vec![7; LONGEST + 1]).unwrap();
        sender.send(&[200]).unwrap();
        let (mut out, mut last) = ([0; LONGEST], before);
        for number in (0..100).chain([200]) {
            let (len, mark) = stamps.receive(&receiver, &mut out).unwrap();
            assert_eq!(out[..len], [number; 3][..if number == 200 { 1 } else { 3 }]);
            let at = mark.kernel.expect("the kernel reports times").at;
            assert_eq!(mark.dscp, Some(Dscp::DEFAULT));
            assert!(last <= at + TOLERANCE && at <= clock.now() + TOLERANCE, "{at:?}");
            last = at;
        }
        let empty = stamps.receive(&receiver, &mut out).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }
}
