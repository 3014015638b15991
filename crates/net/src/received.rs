//! Datagrams with information from their headers: the destination address, and the code point
//! (DSCP).

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use freshline_core::dscp::Dscp;
use mio::net::UdpSocket;
use nix::cmsg_space;
use nix::libc::{in_pktinfo, in6_pktinfo};
use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use socket2::SockRef;

/// The metadata of a received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    /// Bytes of payload.
    pub(crate) len: usize,
    /// The sender.
    pub(crate) from: Option<SocketAddr>,
    /// Information from its headers.
    pub(crate) info: Info,
}

/// Information from the headers of a datagram, as far as the socket was asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Info {
    /// The address of this host to answer from, if [`ask_for_addresses`] was called: the
    /// destination address of the datagram, unless that is a broadcast or multicast address.
    pub(crate) to: Option<IpAddr>,
    /// The code point, if [`ask_for_dscp`] was called.
    pub(crate) dscp: Option<Dscp>,
    /// The length of each of several datagrams that the kernel has joined (GRO).
    pub(crate) stride: Option<usize>,
    /// The number of packets that the kernel had dropped at this socket, modulo 2³², if it was
    /// asked for and is not 0.
    pub(crate) dropped: Option<u32>,
}

impl Info {
    /// Reads the control messages of a datagram, or of several joined ones.
    pub(crate) fn of(messages: impl Iterator<Item = ControlMessageOwned>) -> Self {
        let mut info = Self::default();
        for message in messages {
            match message {
                ControlMessageOwned::Ipv4PacketInfo(packet) => {
                    // For a broadcast or multicast datagram this is the address to answer from.
                    let address = Ipv4Addr::from_bits(u32::from_be(packet.ipi_spec_dst.s_addr));
                    info.to = Some(address.into());
                }
                ControlMessageOwned::Ipv6PacketInfo(packet) => {
                    let address = Ipv6Addr::from(packet.ipi6_addr.s6_addr);
                    info.to = (!address.is_multicast()).then_some(address.into());
                }
                ControlMessageOwned::Ipv4Tos(class) => {
                    info.dscp = Some(Dscp::of_traffic_class(class));
                }
                ControlMessageOwned::Ipv6TClass(class) => {
                    info.dscp = u8::try_from(class).ok().map(Dscp::of_traffic_class);
                }
                ControlMessageOwned::UdpGroSegments(stride) => {
                    info.stride = usize::try_from(stride).ok();
                }
                ControlMessageOwned::RxqOvfl(dropped) => info.dropped = Some(dropped),
                _ => {}
            }
        }
        info
    }
}

/// Makes `socket` report the destination addresses of its datagrams.
pub(crate) fn ask_for_addresses(socket: &UdpSocket) -> io::Result<()> {
    match socket.local_addr()? {
        SocketAddr::V4(_) => setsockopt(&socket.as_fd(), Ipv4PacketInfo, &true)?,
        SocketAddr::V6(_) => setsockopt(&socket.as_fd(), Ipv6RecvPacketInfo, &true)?,
    }
    Ok(())
}

/// Makes `socket` report the code points of its datagrams.
pub(crate) fn ask_for_dscp(socket: &UdpSocket) -> io::Result<()> {
    let is_v6 = socket.local_addr()?.is_ipv6();
    let socket = SockRef::from(socket);
    if is_v6 {
        socket.set_recv_tclass_v6(true)?;
    }
    // An IPv6 socket may receive IPv4 packets as well.
    socket.set_recv_tos_v4(true)
}

/// Reads the next datagram into `scratch`, which must have room for any datagram.
pub(crate) fn receive(socket: &UdpSocket, scratch: &mut [u8]) -> io::Result<Received> {
    // The last is for sockets that ask for departure stamps, whose kernel may stamp arrivals, too.
    let mut control = cmsg_space!(in6_pktinfo, in_pktinfo, i32, i32, [TimeSpec; 3]);
    let mut into = [IoSliceMut::new(scratch)];
    let got = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut into,
        Some(&mut control),
        MsgFlags::empty(),
    )?;
    let info = Info::of(got.cmsgs()?);
    Ok(Received { len: got.bytes, from: got.address.and_then(address), info })
}

/// The IPv4 or IPv6 address in a storage.
pub(crate) fn address(storage: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}
