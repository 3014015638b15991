//! The addresses of the two ends, chosen so that parallel and nested runs never collide.
//!
//! All come from the shared address space 100.64.0.0/10 (RFC 6598), as nested prefixes: a run in
//! the outermost namespace takes a /18, a run within it a /22 of that, and so on. So a run, with
//! all the runs within it, is behind one route. IPv6 addresses are the IPv4 addresses behind a
//! fixed prefix of a unique local range (RFC 4193).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::ifaddrs::getifaddrs;

/// The name of the interface to the path, in the namespace of the command.
pub(super) const INSIDE: &str = "freshline";

/// The first 96 bits of every IPv6 address: `fd66:7265:7368::/96`.
const IPV6_PREFIX: [u16; 6] = [0xfd66, 0x7265, 0x7368, 0, 0, 0];

/// An IPv4 prefix; its first two hosts are the ends of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix {
    network: u32,
    len: u8,
}

impl Prefix {
    const ALL: Self = Self { network: u32::from_be_bytes([100, 64, 0, 0]), len: 10 };
    /// The length of a prefix in the outermost namespace: there are 255 of them.
    const OUTERMOST: u8 = 18;
    /// The extra prefix bits per level: 15 prefixes, three levels deeper.
    const BITS_A_LEVEL: u8 = 4;
    /// The longest prefix with two hosts.
    const LONGEST: u8 = 30;

    /// The prefix of `len` around `address`.
    fn around(address: Ipv4Addr, len: u8) -> Self {
        Self { network: u32::from(address) & mask(len), len }
    }

    /// The prefixes for runs within this one, with their numbers from 1; empty if it is too small.
    /// Number 0 holds this run's own ends.
    fn parts(self) -> impl Iterator<Item = (u32, Self)> {
        let len = if self == Self::ALL { Self::OUTERMOST } else { self.len + Self::BITS_A_LEVEL };
        let count = if len <= Self::LONGEST { 1 << (len - self.len) } else { 0 };
        (1..count).map(move |number| {
            (number, Self { network: self.network | (number << (32 - len)), len })
        })
    }

    fn overlaps(self, other: Self) -> bool {
        let mask = mask(self.len.min(other.len));
        self.network & mask == other.network & mask
    }

    pub(super) fn outer(self) -> Ends {
        Ends::of(self.network + 1, self.len)
    }

    pub(super) fn inner(self) -> Ends {
        Ends::of(self.network + 2, self.len)
    }
}

fn mask(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

/// The addresses of one end, with the lengths of their prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) v4: Ipv4Addr,
    pub(super) v4_len: u8,
    pub(super) v6: Ipv6Addr,
    pub(super) v6_len: u8,
}

impl Ends {
    fn of(address: u32, len: u8) -> Self {
        let [a, b, c, d, e, f] = IPV6_PREFIX;
        let v6 = Ipv6Addr::new(a, b, c, d, e, f, (address >> 16) as u16, address as u16);
        Self { v4: Ipv4Addr::from(address), v4_len: len, v6, v6_len: 96 + len }
    }

    /// Both addresses, with the lengths of their prefixes.
    pub(super) fn addresses(self) -> [(IpAddr, u8); 2] {
        [(self.v4.into(), self.v4_len), (self.v6.into(), self.v6_len)]
    }
}

/// The prefixes that are free in this namespace, with numbers for the names of interfaces.
pub(super) fn free_prefixes() -> io::Result<impl Iterator<Item = (u32, Prefix)>> {
    let mut parent = Prefix::ALL;
    let mut taken = Vec::new();
    for interface in getifaddrs()? {
        let v4 = |address: Option<nix::sys::socket::SockaddrStorage>| {
            Some(address?.as_sockaddr_in()?.ip())
        };
        let (Some(address), Some(netmask)) = (v4(interface.address), v4(interface.netmask)) else {
            continue;
        };
        let prefix = Prefix::around(address, u32::from(netmask).leading_ones() as u8);
        if interface.interface_name == INSIDE {
            parent = prefix;
        } else {
            taken.push(prefix);
        }
    }
    let is_free = move |prefix: Prefix| !taken.iter().any(|taken| prefix.overlaps(*taken));
    Ok(parent.parts().filter(move |(_, prefix)| is_free(*prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_nest_four_levels_deep() {
        let mut prefix = Prefix::ALL;
        let mut ends = Vec::new();
        while let Some((number, part)) = prefix.parts().last() {
            assert!(prefix.overlaps(part) && !part.overlaps(Prefix { network: 0, len: 10 }));
            ends.push((number, part.outer().v4.to_string(), part.len));
            prefix = part;
        }
        let expected = [
            (255, "100.127.192.1", 18),
            (15, "100.127.252.1", 22),
            (15, "100.127.255.193", 26),
            (15, "100.127.255.253", 30),
        ];
        assert_eq!(ends, expected.map(|(number, outer, len)| (number, outer.to_owned(), len)));
    }

    #[test]
    fn parts_neither_overlap_each_other_nor_the_ends_of_the_whole() {
        let (_, whole) = Prefix::ALL.parts().next().unwrap();
        let parts: Vec<_> = whole.parts().map(|(_, part)| part).collect();
        for (index, part) in parts.iter().enumerate() {
            assert!(parts[..index].iter().all(|other| !other.overlaps(*part)));
            assert!(!part.overlaps(Prefix::around(whole.outer().v4, 32)));
            assert!(!part.overlaps(Prefix::around(whole.inner().v4, 32)));
        }
    }

    #[test]
    fn ipv6_addresses_end_in_those_of_ipv4() {
        let (_, prefix) = Prefix::ALL.parts().next().unwrap();
        let outer = prefix.outer();
        assert_eq!((outer.v4, outer.v4_len), (Ipv4Addr::new(100, 64, 64, 1), 18));
        assert_eq!(
            (outer.v6.to_string().as_str(), outer.v6_len),
            ("fd66:7265:7368::6440:4001", 114)
        );
    }

    #[test]
    fn the_whole_internet_overlaps_everything() {
        assert!(Prefix::ALL.overlaps(Prefix::around(Ipv4Addr::UNSPECIFIED, 0)));
    }
}
