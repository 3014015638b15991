//! The networks of this host's interfaces, which contain its neighbours.

use std::io;
use std::net::IpAddr;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::sys::socket::SockaddrStorage;

use crate::received::address;

/// Networks, each by an address in it and its mask.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Networks(Vec<(IpAddr, IpAddr)>);

impl Networks {
    /// The present networks: those of all addresses of all interfaces, and the remote ends of
    /// point-to-point links.
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self(getifaddrs()?.flat_map(|interface| of(&interface)).collect()))
    }

    /// Whether one of these addresses is in one of the networks. A network of all addresses, as
    /// tunnels may have, does not identify neighbours.
    pub(crate) fn hold(&self, addresses: &[IpAddr]) -> bool {
        let holds =
            |(network, mask): &(IpAddr, IpAddr), address: &IpAddr| match (network, mask, address) {
                (IpAddr::V4(network), IpAddr::V4(mask), IpAddr::V4(address)) => {
                    !mask.is_unspecified() && (*network & *mask) == (*address & *mask)
                }
                (IpAddr::V6(network), IpAddr::V6(mask), IpAddr::V6(address)) => {
                    !mask.is_unspecified() && (*network & *mask) == (*address & *mask)
                }
                _ => false,
            };
        self.0.iter().any(|network| addresses.iter().any(|address| holds(network, address)))
    }
}

fn of(interface: &InterfaceAddress) -> impl Iterator<Item = (IpAddr, IpAddr)> + use<> {
    let ip = |storage: Option<SockaddrStorage>| Some(address(storage?)?.ip());
    let own = ip(interface.address).zip(ip(interface.netmask));
    let peer = ip(interface.destination).map(|peer| (peer, all_ones(peer)));
    own.into_iter().chain(peer)
}

/// The mask of a network of one address.
fn all_ones(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => [0xff; 4].into(),
        IpAddr::V6(_) => [0xff; 16].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(list: &[(&str, &str)]) -> Networks {
        let parsed = |text: &str| text.parse().expect("an address");
        Networks(list.iter().map(|(address, mask)| (parsed(address), parsed(mask))).collect())
    }

    #[test]
    fn neighbours_are_in_the_networks_and_others_are_not() {
        let networks = networks(&[
            ("11.7.2.9", "255.255.252.0"),
            ("2600:1:2:3::9", "ffff:ffff:ffff:ffff::"),
            ("12.0.0.1", "255.255.255.255"),
            ("13.0.0.1", "0.0.0.0"),
            ("2601::1", "::"),
        ]);
        let hold = |address: &str| networks.hold(&[address.parse().expect("an address")]);
        for near in ["11.7.0.1", "11.7.3.255", "2600:1:2:3:ffff::1", "12.0.0.1"] {
            assert!(hold(near), "{near}");
        }
        for far in ["11.7.4.0", "11.6.255.255", "2600:1:2:4::1", "12.0.0.2", "13.0.0.2", "2601::2"]
        {
            assert!(!hold(far), "{far}");
        }
    }

    #[test]
    fn that_of_loopback_is_read() {
        assert!(Networks::read().unwrap().hold(&["127.9.9.9".parse().unwrap()]));
    }
}
