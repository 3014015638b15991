//! Sends each datagram with its own code point (DSCP).
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
        let class = self.dscp.traffic_class();
        let wide_class = i32::from(class);
        // An IPv6 socket sends IPv4 packets to mapped addresses.
        let mark = match self.remote.ip().to_canonical() {
            IpAddr::V4(_) => ControlMessage::Ipv4Tos(&class),
            IpAddr::V6(_) => ControlMessage::Ipv6TClass(&wide_class),
        };
        let (v4, v6);
        let from = match self.local {
            None => None,
            Some(IpAddr::V4(address)) => {
                let address = in_addr { s_addr: address.to_bits().to_be() };
                let any = in_addr { s_addr: 0 };
                v4 = in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: any };
                Some(ControlMessage::Ipv4PacketInfo(&v4))
            }
            Some(IpAddr::V6(address)) => {
                let ipi6_addr = in6_addr { s6_addr: address.octets() };
                v6 = in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
                Some(ControlMessage::Ipv6PacketInfo(&v6))
            }
        };
        let segment = self.segment.as_ref().map(ControlMessage::UdpGsoSegments);
        let mut messages = [mark; 3];
        let mut count = 1;
        for message in [from, segment].into_iter().flatten() {
            messages[count] = message;
            count += 1;
        }
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
