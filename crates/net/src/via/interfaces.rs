//! Which interfaces and addresses this host has now.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

use super::Via;

/// Interfaces that are up, with an address each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Interfaces(Vec<(String, IpAddr)>);

impl Interfaces {
    /// As they are now.
    pub(crate) fn read() -> io::Result<Self> {
        let mut found = Vec::new();
        for interface in getifaddrs()? {
            let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
            let Some(address) = interface.address.filter(|_| interface.flags.contains(up)) else {
                continue;
            };
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
            let v6 = address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip()));
            found.extend(v4.or(v6).map(|ip| (interface.interface_name.clone(), ip)));
        }
        Ok(Self(found))
    }

    /// Whether packets to `peer` can leave by `via` now.
    pub(crate) fn has(&self, via: &Via, peer: SocketAddr) -> bool {
        *via == Via::Any || self.address(via, peer).is_some()
    }

    /// From which address packets to `peer` leave by `via`, where that says it. An address of its
    /// link alone leads nowhere else.
    pub(crate) fn address(&self, via: &Via, peer: SocketAddr) -> Option<IpAddr> {
        let is_it = |(name, ip): &&(String, IpAddr)| match via {
            Via::Any => false,
            Via::Address(address) => ip == address,
            Via::Interface(wanted) => {
                name == wanted
                    && ip.is_ipv4() == peer.is_ipv4()
                    && (!is_of_link(*ip) || is_of_link(peer.ip()))
            }
        };
        self.0.iter().find(is_it).map(|(_, ip)| *ip)
    }

    /// The number of the interface that `via` is bound to, if it is bound to one.
    pub(crate) fn index(&self, via: &Via) -> Option<u32> {
        match via {
            Via::Interface(name) => if_nametoindex(name.as_str()).ok(),
            Via::Address(_) | Via::Any => None,
        }
    }

    /// The interface by which `via` leaves, if that is given.
    pub(crate) fn name<'a>(&'a self, via: &'a Via) -> Option<&'a str> {
        match via {
            Via::Any => None,
            Via::Interface(name) => Some(name),
            Via::Address(address) => {
                self.0.iter().find(|(_, ip)| ip == address).map(|(name, _)| name.as_str())
            }
        }
    }
}

/// Whether this is an IPv6 address that an interface gives to itself.
fn is_of_link(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_and_others_are_not() {
        let interfaces = Interfaces::read().unwrap();
        let peer = "127.0.0.1:1".parse().unwrap();
        assert!(interfaces.has(&Via::from("lo"), peer));
        assert!(interfaces.has(&Via::from("127.0.0.1"), peer));
        assert_eq!(interfaces.name(&Via::from("127.0.0.1")), Some("lo"));
        assert!(!interfaces.has(&Via::from("no-such-one"), peer));
        assert!(!interfaces.has(&Via::from("192.0.2.77"), peer));
    }
}
