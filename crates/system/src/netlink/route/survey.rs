//! A host's network: its links with their counters, its queueing disciplines, and its next hop to
//! an address.

use std::net::IpAddr;

use netlink_packet_route::link::{LinkFlags, LinkHeader, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType,
};
use netlink_packet_route::tc::TcMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Qdisc, Route, behind};
use crate::netlink::attributes::{find, ne_u32};
use crate::netlink::error::NetlinkError;

/// Attributes (`IFLA_*` and `RTA_*`), and the kind in `IFLA_LINKINFO`.
const NAME: u16 = 3;
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const STATS64: u16 = 23;
const OUTPUT: u16 = 4;
const GATEWAY: u16 = 5;

/// A link with its counters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkReport {
    /// The device's index.
    pub device: u32,
    /// Its name.
    pub name: String,
    /// Its kind, such as `veth`; empty for hardware.
    pub kind: String,
    /// It is up, and is not the loopback device.
    pub is_up: bool,
    /// The loopback device.
    pub is_loopback: bool,
    /// Bytes received and sent since the device was made.
    pub received_bytes: u64,
    /// Likewise.
    pub sent_bytes: u64,
}

/// The next hop of packets to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// The device's index.
    pub device: u32,
    /// The router, unless the address is on the link itself.
    pub gateway: Option<IpAddr>,
}

impl LinkReport {
    /// Reads the body of a message (`RTM_NEWLINK`).
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let header = LinkHeader::parse(body).ok()?;
        let attributes = behind::<LinkHeader>(body)?;
        let counters = find(attributes, STATS64).unwrap_or_default();
        let counter = |number: usize| {
            let value = counters.get(number * 8..).and_then(|rest| rest.first_chunk());
            value.map_or(0, |value| u64::from_ne_bytes(*value))
        };
        let kind = find(attributes, LINK_INFO).and_then(|info| find(info, INFO_KIND));
        let is_loopback = header.flags.contains(LinkFlags::Loopback);
        Some(Self {
            device: header.index,
            name: text(find(attributes, NAME)?),
            kind: kind.map(text).unwrap_or_default(),
            is_up: header.flags.contains(LinkFlags::Up) && !is_loopback,
            is_loopback,
            received_bytes: counter(2),
            sent_bytes: counter(3),
        })
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

impl Route {
    /// All links.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn links(&mut self) -> Result<Vec<LinkReport>, NetlinkError> {
        self.dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()), LinkReport::parse)
    }

    /// The queueing disciplines of all devices, those below another one too.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn all_qdiscs(&mut self) -> Result<Vec<Qdisc>, NetlinkError> {
        self.dump(&RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()), Qdisc::parse)
    }

    /// The next hop of packets to an address.
    ///
    /// # Errors
    /// [`NetlinkError`]: `ENETUNREACH` if there is no route.
    pub fn next_hop(&mut self, to: IpAddr) -> Result<NextHop, NetlinkError> {
        let mut question = RouteMessage::default();
        let (family, prefix_len, destination) = match to {
            IpAddr::V4(to) => (AddressFamily::Inet, 32, RouteAddress::Inet(to)),
            IpAddr::V6(to) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(to)),
        };
        question.header.address_family = family;
        question.header.destination_prefix_length = prefix_len;
        question.attributes = vec![RouteAttribute::Destination(destination)];
        self.get(&RouteNetlinkMessage::GetRoute(question), 0, |body| {
            next_hop(behind::<RouteHeader>(body)?)
        })
    }

    /// The devices of the default routes over IPv4, in the order of the kernel's list.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn default_devices(&mut self) -> Result<Vec<u32>, NetlinkError> {
        let mut question = RouteMessage::default();
        question.header.address_family = AddressFamily::Inet;
        self.dump(&RouteNetlinkMessage::GetRoute(question), |body| {
            let header = RouteHeader::parse(body).ok()?;
            let is_default = header.destination_prefix_length == 0
                && header.kind == RouteType::Unicast
                && header.table == RouteHeader::RT_TABLE_MAIN;
            is_default
                .then(|| next_hop(behind::<RouteHeader>(body)?))
                .flatten()
                .map(|hop| hop.device)
        })
    }
}

fn next_hop(attributes: &[u8]) -> Option<NextHop> {
    let gateway = find(attributes, GATEWAY).and_then(|bytes| match bytes.len() {
        4 => Some(IpAddr::from(*bytes.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*bytes.first_chunk::<16>()?)),
        _ => None,
    });
    Some(NextHop { device: ne_u32(find(attributes, OUTPUT)?)?, gateway })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_loopback_device_is_among_the_links_and_leads_to_this_host() {
        let mut route = Route::open().unwrap();
        let links = route.links().unwrap();
        let loopback = links.iter().find(|link| link.name == "lo").unwrap();
        assert!(loopback.is_loopback && !loopback.is_up, "{loopback:?}");
        let hop = route.next_hop("127.0.0.1".parse().unwrap()).unwrap();
        assert_eq!(hop, NextHop { device: loopback.device, gateway: None });
        let defaults = route.default_devices().unwrap();
        assert!(defaults.iter().all(|device| links.iter().any(|link| link.device == *device)));
        route.all_qdiscs().unwrap();
    }

    proptest! {
        #[test]
        fn any_body_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (LinkReport::parse(&bytes), next_hop(&bytes));
        }
    }
}
