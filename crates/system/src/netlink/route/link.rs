//! Interfaces, their addresses, and routes.

use std::net::IpAddr;

use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkHeader, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::net::if_::if_nametoindex;

use super::{Route, behind};
use crate::netlink::attributes::{find, ne_u32};
use crate::netlink::error::NetlinkError;
use crate::netlink::request::flags::{CREATE, EXCLUSIVE};

/// `IFLA_MTU`.
const MTU: u16 = 4;
/// `RTA_OIF`.
const OUTPUT: u16 = 4;

/// Properties of an interface.
#[derive(Debug, Clone, Copy)]
pub struct LinkSettings {
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// How many packets (super-packets count once) the kernel queues for the reader of a TUN device.
    pub queue_len: u32,
    /// The number of packets in a super-packet, at most.
    pub gso_max_segs: u32,
}

impl Route {
    /// Brings an interface up as it is.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn bring_up(&mut self, interface: &str) -> Result<(), NetlinkError> {
        let mut link = link(index(interface)?);
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.change(&RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Brings up a TUN interface. It does not join multicast groups, so it carries only packets that programs
    /// send.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn set_up(&mut self, interface: &str, settings: LinkSettings) -> Result<(), NetlinkError> {
        let mut link = link(index(interface)?);
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up | LinkFlags::Multicast;
        link.attributes = vec![
            LinkAttribute::Mtu(settings.mtu),
            LinkAttribute::TxQueueLen(settings.queue_len),
            LinkAttribute::GsoMaxSegs(settings.gso_max_segs),
        ];
        self.change(&RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Gives an interface an address, with the length of its prefix in bits.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn add_address(
        &mut self,
        interface: &str,
        address: IpAddr,
        prefix_len: u8,
    ) -> Result<(), NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix_len;
        message.header.flags = AddressHeaderFlags::Nodad;
        message.header.index = index(interface)?;
        message.attributes =
            vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        self.change(&RouteNetlinkMessage::NewAddress(message), CREATE | EXCLUSIVE)
    }

    /// Adds a default route over an interface, for the family of `address`.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn add_default_route(
        &mut self,
        interface: &str,
        address: IpAddr,
    ) -> Result<(), NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Boot;
        message.header.scope = RouteScope::Link;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![RouteAttribute::Oif(index(interface)?)];
        self.change(&RouteNetlinkMessage::NewRoute(message), CREATE | EXCLUSIVE)
    }

    /// The type of an interface's frames (`ARPHRD_*`), also of an interface without an address, which
    /// `getifaddrs` does not report.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn link_type(&mut self, interface: &str) -> Result<u16, NetlinkError> {
        let question = RouteNetlinkMessage::GetLink(link(index(interface)?));
        self.get(&question, 0, |body| Some(LinkHeader::parse(body).ok()?.link_layer_type.into()))
    }

    /// The MTU of a device in bytes.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn mtu(&mut self, device: u32) -> Result<u32, NetlinkError> {
        let question = RouteNetlinkMessage::GetLink(link(device));
        self.get(&question, 0, |body| ne_u32(find(behind::<LinkHeader>(body)?, MTU)?))
    }

    /// The index of the device by which packets to an address leave.
    ///
    /// # Errors
    /// [`NetlinkError`]: `ENETUNREACH` if there is no route.
    pub fn output_device(&mut self, to: IpAddr) -> Result<u32, NetlinkError> {
        let mut question = RouteMessage::default();
        question.header.address_family = family(to);
        let (prefix_len, destination) = match to {
            IpAddr::V4(to) => (32, RouteAddress::Inet(to)),
            IpAddr::V6(to) => (128, RouteAddress::Inet6(to)),
        };
        question.header.destination_prefix_length = prefix_len;
        question.attributes = vec![RouteAttribute::Destination(destination)];
        self.get(&RouteNetlinkMessage::GetRoute(question), 0, |body| {
            ne_u32(find(behind::<RouteHeader>(body)?, OUTPUT)?)
        })
    }
}

fn index(interface: &str) -> Result<u32, NetlinkError> {
    Ok(if_nametoindex(interface).map_err(std::io::Error::from)?)
}

fn link(index: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use nix::sched::{CloneFlags, unshare};
    use nix::unistd::Uid;

    use super::*;

    #[test]
    fn packets_to_this_host_leave_by_the_loopback_device() {
        let mut route = Route::open().unwrap();
        let loopback = if_nametoindex("lo").unwrap();
        for address in ["127.0.0.1", "::1"] {
            match route.output_device(address.parse().unwrap()) {
                Err(error) if address == "::1" => println!("skipped: needs IPv6: {error}"),
                device => assert_eq!(device.unwrap(), loopback, "{address}"),
            }
        }
        assert_eq!(route.link_type("lo").unwrap(), 772, "ARPHRD_LOOPBACK");
        assert_eq!(route.mtu(loopback).unwrap(), 65_536);
        let unknown = route.mtu(i32::MAX as u32).unwrap_err();
        assert_eq!(unknown.errno(), Some(nix::errno::Errno::ENODEV as i32));
        let unknown = route.link_type("flnone9").unwrap_err();
        assert_eq!(unknown.errno(), Some(nix::errno::Errno::ENODEV as i32));
    }

    #[test]
    fn an_interface_gets_an_address_and_a_route_once() {
        if !Uid::effective().is_root() {
            println!("skipped: needs root");
            return;
        }
        let in_namespace = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let mut route = Route::open().unwrap();
            let address = "192.0.2.1".parse().unwrap();
            route.bring_up("lo").unwrap();
            route.add_address("lo", address, 24).unwrap();
            route.add_default_route("lo", address).unwrap();
            assert_eq!(route.output_device("198.51.100.1".parse().unwrap()).unwrap(), 1);
            let twice = route.add_address("lo", address, 24).unwrap_err();
            twice.to_string()
        };
        let text = thread::scope(|scope| scope.spawn(in_namespace).join().unwrap());
        assert!(text.starts_with("File exists (os error 17)"), "{text}");
    }
}
