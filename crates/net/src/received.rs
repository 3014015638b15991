//! Datagrams with what their headers say besides: the address that they were sent to, and the code
//! point (DSCP).

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

/// What came with a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    /// Bytes of payload.
    pub(crate) len: usize,
    /// The sender.
    pub(crate) from: Option<SocketAddr>,
    /// What its headers said.
    pub(crate) info: Info,
}

/// What the headers of a datagram say, where the socket was asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Info {
    /// The address of this host to answer from, where [`ask_for_addresses`] was called: the one that
    /// the datagram was sent to, unless that is a broadcast or multicast address.
    pub(crate) to: Option<IpAddr>,
    /// Where [`ask_for_dscp`] was called.
    pub(crate) dscp: Option<Dscp>,
    /// The length of each of several datagrams that the kernel has joined (GRO).
    pub(crate) stride: Option<usize>,
    /// How many packets the kernel had dropped at this socket, modulo 2³², where it was asked for and is not 0.
    pub(crate) dropped: Option<u32>,
}

impl Info {
    /// Reads the messages that came with a datagram, or several that were joined.
    pub(crate) fn of(messages: impl Iterator<Item = ControlMessageOwned>) -> Self {
        let mut info = Self::default();
        for message in messages {
            match message {
                ControlMessageOwned::Ipv4PacketInfo(packet) => {
                    // Of a broadcast or multicast datagram this is the address to answer from.
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

/// From now on `socket` says where its datagrams were sent to.
pub(crate) fn ask_for_addresses(socket: &UdpSocket) -> io::Result<()> {
    match socket.local_addr()? {
        SocketAddr::V4(_) => setsockopt(&socket.as_fd(), Ipv4PacketInfo, &true)?,
        SocketAddr::V6(_) => setsockopt(&socket.as_fd(), Ipv6RecvPacketInfo, &true)?,
    }
    Ok(())
}

/// From now on `socket` says of what class its datagrams are.
pub(crate) fn ask_for_dscp(socket: &UdpSocket) -> io::Result<()> {
    let is_v6 = socket.local_addr()?.is_ipv6();
    let socket = SockRef::from(socket);
    if is_v6 {
        socket.set_recv_tclass_v6(true)?;
    }
    // A socket of IPv6 may take packets of IPv4 as well.
    socket.set_recv_tos_v4(true)
}

/// The next datagram, into `scratch`, which takes any.
pub(crate) fn receive(socket: &UdpSocket, scratch: &mut [u8]) -> io::Result<Received> {
    // The last is of sockets that ask for stamps of departures, whose kernel may stamp arrivals too.
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

/// The address in a storage that holds one of IPv4 or IPv6.
pub(crate) fn address(storage: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}
