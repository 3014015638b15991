//! Interfaces, addresses and routes of the calling thread's network namespace.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily as SocketFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// A connection to the kernel's network configuration.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
}

/// Properties of an interface.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkSettings {
    /// The largest packet.
    pub(crate) mtu: u32,
    /// How many packets (super-packets count once) wait for the reader of a TUN device.
    pub(crate) queue_len: u32,
    /// Of how many packets a super-packet may consist.
    pub(crate) gso_max_segs: u32,
}

impl Netlink {
    /// Connects to the namespace in which the calling thread is now, for good.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = socket(
            SocketFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        Ok(Self { socket })
    }

    /// Brings an interface up as it is.
    pub(crate) fn bring_up(&self, interface: &str) -> io::Result<()> {
        let mut link = link(interface)?;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Brings up a TUN interface. It does not join multicast groups, so nothing but what programs
    /// send goes over it.
    pub(crate) fn set_up(&self, interface: &str, settings: LinkSettings) -> io::Result<()> {
        let mut link = link(interface)?;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up | LinkFlags::Multicast;
        link.attributes = vec![
            LinkAttribute::Mtu(settings.mtu),
            LinkAttribute::TxQueueLen(settings.queue_len),
            LinkAttribute::GsoMaxSegs(settings.gso_max_segs),
        ];
        self.request(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Gives an interface an address.
    pub(crate) fn add_address(&self, interface: &str, address: IpAddr, len: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = len;
        message.header.flags = AddressHeaderFlags::Nodad;
        message.header.index = if_nametoindex(interface)?;
        message.attributes =
            vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Sends what is for nobody else of the family of `address` over an interface.
    pub(crate) fn add_default_route(&self, interface: &str, address: IpAddr) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Boot;
        message.header.scope = RouteScope::Link;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![RouteAttribute::Oif(if_nametoindex(interface)?)];
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// What an interface's frames begin with (`ARPHRD_*`); also of one without an address, which
    /// `getifaddrs` does not tell.
    pub(crate) fn link_type(&self, interface: &str) -> io::Result<u16> {
        let question = RouteNetlinkMessage::GetLink(link(interface)?);
        match self.ask(question, 0)?.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                Ok(link.header.link_layer_type.into())
            }
            NetlinkPayload::Error(error) => Err(error.to_io()),
            _ => Err(io::Error::other("an answer to another question")),
        }
    }

    /// Sends a request and waits for the kernel's answer to it.
    fn request(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        match self.ask(message, NLM_F_ACK | flags)?.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
            _ => Ok(()),
        }
    }

    fn ask(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<NetlinkMessage<RouteNetlinkMessage>> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut buffer = vec![0; message.buffer_len()];
        message.serialize(&mut buffer);
        send(self.socket.as_raw_fd(), &buffer, MsgFlags::empty())?;

        let mut buffer = vec![0; 8192];
        let len = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        NetlinkMessage::deserialize(&buffer[..len]).map_err(io::Error::other)
    }
}

fn link(interface: &str) -> io::Result<LinkMessage> {
    let mut link = LinkMessage::default();
    link.header.index = if_nametoindex(interface)?;
    Ok(link)
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
