//! The origin of a peer: its network, and its host in it, as numbers for sharing places and rates.

use std::net::{IpAddr, SocketAddr};

use freshline_core::session::Origin;

/// An IPv4 network of 24 bits, or an IPv6 network of 48: a host with one address in it can often
/// use all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Network(u64);

/// An IPv4 address, or an IPv6 network of 64 bits, in which a host chooses its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Host(u64);

impl Network {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            // No routed IPv6 network begins with zeros.
            IpAddr::V4(address) => Self((address.to_bits() >> 8).into()),
            IpAddr::V6(address) => Self((address.to_bits() >> 80) as u64),
        }
    }
}

impl Host {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.to_bits().into()),
            IpAddr::V6(address) => Self((address.to_bits() >> 64) as u64),
        }
    }
}

/// The party that is charged for a place held from an address; `identity` identifies the presented
/// certificate, 0 without one.
pub(crate) fn origin(address: SocketAddr, identity: u64) -> Origin {
    let address = address.ip();
    Origin { owner: identity, network: Network::of(address).0, address: Host::of(address).0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_its_whole_network_of_64_bits_and_shares_one_of_48() {
        let of = |address: &str| {
            let address = address.parse().expect("an address");
            (Network::of(address), Host::of(address))
        };
        assert_eq!(of("192.0.2.1").0, of("192.0.2.200").0);
        assert_ne!(of("192.0.2.1").1, of("192.0.2.200").1);
        assert_ne!(of("192.0.2.1").0, of("192.0.3.1").0);
        assert_eq!(of("::ffff:192.0.2.9"), of("192.0.2.9"), "the same, over a socket of IPv6");
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_eq!(of("2001:db8::1").0, of("2001:db8:0:ffff::2").0);
        assert_ne!(of("2001:db8::1").1, of("2001:db8:0:ffff::2").1);
        assert_ne!(of("2001:db8:1::1").0, of("2001:db8::1").0);
    }
}
