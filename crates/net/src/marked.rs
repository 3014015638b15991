//! Sends datagrams with their own code point (DSCP), and several in one call.
//!
//! `quinn-udp` sends the field with each datagram, because of ECN, and its code point is always 0;
//! this would override an option of the socket (`IP_TOS`), which would also mark all packets.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use freshline_core::dscp::Dscp;
use nix::errno::Errno;
use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
#[cfg(feature = "listen")]
use nix::{
    cmsg_space,
    sys::socket::{MultiHeaders, sendmmsg},
};

/// One datagram, or several of equal length, with their code point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marked<'a> {
    /// The code point.
    pub(crate) dscp: Dscp,
    /// The destination.
    pub(crate) remote: SocketAddr,
    /// Whether the socket is connected to `remote`.
    pub(crate) is_connected: bool,
    /// The address of this host from which it leaves; `None` leaves the choice to the system.
    pub(crate) local: Option<IpAddr>,
    /// The length of each of several datagrams, of which the last may be shorter (GSO).
    pub(crate) segment: Option<u16>,
    /// Their bytes.
    pub(crate) contents: &'a [u8],
}

impl Marked<'_> {
    /// Sends it.
    ///
    /// # Errors
    /// The errors of `sendmsg`: `WouldBlock` if the socket's buffer is full, `EINVAL` or `EIO` if
    /// the device does not accept several datagrams.
    pub(crate) fn send(&self, socket: &impl AsRawFd) -> io::Result<()> {
        let headers = Headers::of(Some(self.dscp), self.remote, self.local);
        let (messages, count) = headers.messages(self.segment.as_ref());
        let to = (!self.is_connected).then(|| SockaddrStorage::from(self.remote));
        let contents = [IoSlice::new(self.contents)];
        let flags = MsgFlags::empty();
        loop {
            let fd = socket.as_raw_fd();
            match sendmsg(fd, &contents, &messages[..count], flags, to.as_ref()) {
                Err(Errno::EINTR) => {}
                sent => return Ok(sent.map(drop)?),
            }
        }
    }
}

/// Sends datagrams with one code point from one address of this host, each to its own address, in
/// one call unless the kernel refuses some. Returns the number of refused datagrams.
#[cfg(feature = "listen")]
pub(crate) fn send_each(
    socket: &impl AsRawFd,
    dscp: Dscp,
    local: Option<IpAddr>,
    datagrams: &[(SocketAddr, &[u8])],
) -> usize {
    let Some((first, _)) = datagrams.first() else { return 0 };
    let headers = Headers::of((dscp != Dscp::DEFAULT).then_some(dscp), *first, local);
    let (messages, count) = headers.messages(None);
    let to: Vec<_> = datagrams.iter().map(|(to, _)| Some(SockaddrStorage::from(*to))).collect();
    let contents: Vec<_> = datagrams.iter().map(|(_, bytes)| [IoSlice::new(bytes)]).collect();
    let space = Some(vec![0; headers.len()]).filter(|space| !space.is_empty());
    let mut multi = MultiHeaders::preallocate(datagrams.len(), space);
    let (mut done, mut refused) = (0, 0);
    while done < datagrams.len() {
        let (fd, flags) = (socket.as_raw_fd(), MsgFlags::empty());
        match sendmmsg(fd, &mut multi, &contents[done..], &to[done..], &messages[..count], flags) {
            Err(Errno::EINTR) => {}
            // The error concerns the first datagram.
            Err(_) => (done, refused) = (done + 1, refused + 1),
            Ok(sent) => done += sent.count(),
        }
    }
    refused
}

/// The headers that go with a datagram, in the kernel's format.
#[derive(Default)]
pub(crate) struct Headers {
    tos: Option<u8>,
    class: Option<i32>,
    from_v4: Option<in_pktinfo>,
    from_v6: Option<in6_pktinfo>,
}

impl Headers {
    /// The headers of a datagram to `remote` with this code point, from `local`. The system chooses
    /// missing values.
    pub(crate) fn of(dscp: Option<Dscp>, remote: SocketAddr, local: Option<IpAddr>) -> Self {
        let class = dscp.map(Dscp::traffic_class);
        // An IPv6 socket sends IPv4 packets to mapped addresses.
        let mut headers = match remote.ip().to_canonical() {
            IpAddr::V4(_) => Self { tos: class, ..Self::default() },
            IpAddr::V6(_) => Self { class: class.map(i32::from), ..Self::default() },
        };
        match local {
            None => {}
            Some(IpAddr::V4(address)) => {
                let address = in_addr { s_addr: address.to_bits().to_be() };
                let any = in_addr { s_addr: 0 };
                headers.from_v4 =
                    Some(in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: any });
            }
            Some(IpAddr::V6(address)) => {
                let ipi6_addr = in6_addr { s6_addr: address.octets() };
                headers.from_v6 = Some(in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 });
            }
        }
        headers
    }

    /// The control messages, with the length of the segments of a train, and their number.
    pub(crate) fn messages<'a>(
        &'a self,
        segment: Option<&'a u16>,
    ) -> ([ControlMessage<'a>; 3], usize) {
        let Self { tos, class, from_v4, from_v6 } = self;
        let mark = tos.as_ref().map(ControlMessage::Ipv4Tos);
        let mark = mark.or(class.as_ref().map(ControlMessage::Ipv6TClass));
        let from = from_v4.as_ref().map(ControlMessage::Ipv4PacketInfo);
        let from = from.or(from_v6.as_ref().map(ControlMessage::Ipv6PacketInfo));
        let segment = segment.map(ControlMessage::UdpGsoSegments);
        let (mut messages, mut count) = ([ControlMessage::Ipv4Tos(&0); 3], 0);
        for message in [mark, from, segment].into_iter().flatten() {
            messages[count] = message;
            count += 1;
        }
        (messages, count)
    }

    /// The bytes that the messages take.
    #[cfg(feature = "listen")]
    fn len(&self) -> usize {
        let Self { tos, class, from_v4, from_v6 } = self;
        let of_mark = tos.map(|_| cmsg_space!(u8)).or(class.map(|_| cmsg_space!(i32)));
        let v4 = from_v4.map(|_| cmsg_space!(in_pktinfo));
        let of_address = v4.or(from_v6.map(|_| cmsg_space!(in6_pktinfo)));
        [of_mark, of_address].into_iter().flatten().map(|space| space.len()).sum()
    }
}
