//! The present interfaces and addresses of this host.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

use super::Via;
use crate::received::address;

/// Interfaces that are up, one entry per address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Interfaces(Vec<(String, IpAddr)>);

impl Interfaces {
    /// These interfaces, by name and address.
    #[cfg(test)]
    pub(crate) fn listed(addresses: &[(&str, &str)]) -> Self {
        let parse =
            |(name, ip): &(&str, &str)| ((*name).to_owned(), ip.parse().expect("an address"));
        Self(addresses.iter().map(parse).collect())
    }

    /// The present list.
    pub(crate) fn read() -> io::Result<Self> {
        let mut found = Vec::new();
        for interface in getifaddrs()? {
            let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
            let storage = interface.address.filter(|_| interface.flags.contains(up));
            let address = storage.and_then(address);
            found.extend(address.map(|address| (interface.interface_name, address.ip())));
        }
        Ok(Self(found))
    }

    /// Whether packets to `peer` can leave by `via` now. A link-local address reaches link-local
    /// peers only.
    pub(crate) fn has(&self, via: &Via, peer: SocketAddr) -> bool {
        let leads_there = |(name, ip): &(String, IpAddr)| match via {
            Via::Any => true,
            Via::Address(address) => ip == address,
            Via::Interface(wanted) => {
                name == wanted
                    && ip.is_ipv4() == peer.is_ipv4()
                    && (!is_of_link(*ip) || is_of_link(peer.ip()))
            }
        };
        *via == Via::Any || self.0.iter().any(leads_there)
    }

    /// Whether packets to `peer` can leave by `via` now; for a peer that is known by name, whether
    /// `via` has an address at all.
    pub(crate) fn carries(&self, via: &Via, peer: Option<SocketAddr>) -> bool {
        let has_address = || *via == Via::Any || self.0.iter().any(|entry| is_by(via, entry));
        peer.map_or_else(has_address, |peer| self.has(via, peer))
    }

    /// Whether `ip` is (still) an address of `via`; an address that is unset always is.
    pub(crate) fn holds(&self, via: &Via, ip: IpAddr) -> bool {
        ip.is_unspecified() || self.0.iter().any(|entry| is_by(via, entry) && entry.1 == ip)
    }

    /// The index of the interface that `via` is bound to, if it is bound to one.
    pub(crate) fn index(&self, via: &Via) -> Option<u32> {
        match via {
            Via::Interface(name) => if_nametoindex(name.as_str()).ok(),
            Via::Address(_) | Via::Any => None,
        }
    }

    /// The index of the device by which `via` leaves, if one is given.
    pub(crate) fn device(&self, via: &Via) -> Option<u32> {
        if_nametoindex(self.name(via)?).ok()
    }

    /// The interface by which `via` leaves, if one is given.
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

/// Whether an interface's address is one by which `via` leaves.
fn is_by(via: &Via, (name, ip): &(String, IpAddr)) -> bool {
    match via {
        Via::Any => true,
        Via::Address(address) => ip == address,
        Via::Interface(wanted) => name == wanted,
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
    fn an_interface_leads_to_peers_of_its_families_and_with_a_link_local_address_to_such_peers() {
        let [global, link_local, v4] = ["[2001:db8:ff::1]:1", "[fe80::9]:1", "198.51.100.1:1"]
            .map(|peer| peer.parse().expect("an address"));
        let via = Via::from("wlan0");
        let leads_to = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|ip| ("wlan0", *ip));
            let interfaces = Interfaces::listed(&addresses.collect::<Vec<_>>());
            [global, link_local, v4].map(|peer| interfaces.has(&via, peer))
        };
        assert_eq!(leads_to(&["fe80::1", "2001:db8::1"]), [true, true, false]);
        assert_eq!(leads_to(&["fe80::1", "192.0.2.1"]), [false, true, true]);
        assert_eq!(leads_to(&["192.0.2.1"]), [false, false, true]);
        assert_eq!(leads_to(&[]), [false; 3]);
        let other = Interfaces::listed(&[("eth0", "192.0.2.1")]);
        assert!(!other.has(&via, v4) && other.has(&Via::Any, global));
    }

    #[test]
    fn an_address_is_held_while_the_interface_has_it_whatever_is_listed_first() {
        let via = Via::from("wlan0");
        let ip: IpAddr = "2001:db8::1".parse().expect("an address");
        // The kernel lists new IPv6 addresses, such as temporary ones (RFC 8981), before older ones.
        let with_new = [("wlan0", "2001:db8::2"), ("wlan0", "2001:db8::1")];
        assert!(Interfaces::listed(&with_new).holds(&via, ip));
        assert!(!Interfaces::listed(&with_new[..1]).holds(&via, ip));
        assert!(!Interfaces::listed(&[("eth0", "2001:db8::1")]).holds(&via, ip));
    }

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
