//! Which destinations a server connects to on behalf of its clients.
//!
//! By default any address on the Internet. Not allowed are the server's own host, under any of its
//! addresses, the networks of its interfaces, and private networks, because the server is closer to
//! them than its clients should be. A name is judged by its addresses, just before one of them is
//! used, so that no name can lead inside. The networks of interfaces are read at the same moment.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use super::Target;
use crate::via::Networks;

/// Services of Azure's hosts for their guests, at a public address.
const AZURE_HOST: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// A destination that is allowed although it is private.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allow {
    /// All hosts of a network, by its address and the length of its prefix, and all of their ports.
    Network(IpAddr, u8),
    /// A host, by name or address as the client gives it, and one of its ports.
    Port(String, u16),
}

/// A text that is not such a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither a network nor a destination; write 10.1.0.0/16 or 127.0.0.1:8080")]
pub struct BadAllow(String);

impl FromStr for Allow {
    type Err = BadAllow;

    fn from_str(text: &str) -> Result<Self, BadAllow> {
        let bad = || BadAllow(text.to_owned());
        if let Some((address, len)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| bad())?;
            let len: u8 = len.parse().map_err(|_| bad())?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            // IPv6 networks that embed IPv4 addresses must be written as IPv4.
            let is_one = len == most || (len < most && plain(address) == address);
            return if is_one { Ok(Self::Network(address, len)) } else { Err(bad()) };
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network(address, if address.is_ipv4() { 32 } else { 128 }));
        }
        let target: Target = text.parse().map_err(|_| bad())?;
        Ok(Self::Port(target.host(), target.port()))
    }
}

/// The rules of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules(pub(super) Vec<Allow>);

impl Rules {
    /// Whether a connection to `address`, an address of `target`, is allowed.
    ///
    /// # Errors
    /// If the system does not report whether the address is this host's, or the networks of its
    /// interfaces.
    pub(super) fn allow(&self, target: &Target, address: IpAddr) -> io::Result<bool> {
        if self.is_listed(target, address) {
            return Ok(true);
        }
        let canonical = plain(address);
        // Without a route, the address does not belong to this host.
        let leads_home = || canonical != address && is_own(canonical).unwrap_or(false);
        let is_far = is_public(canonical) && !is_own(address)? && !leads_home();
        Ok(is_far && !Networks::read()?.hold(&[address, canonical]))
    }

    /// Whether a rule allows it explicitly.
    fn is_listed(&self, target: &Target, address: IpAddr) -> bool {
        let address = plain(address);
        self.0.iter().any(|allow| match allow {
            Allow::Network(network, len) => contains(*network, *len, address),
            Allow::Port(host, port) => {
                let named = target.host();
                *port == target.port()
                    && (host.eq_ignore_ascii_case(&named)
                        || host.parse().is_ok_and(|host: IpAddr| plain(host) == address))
            }
        })
    }
}

/// Whether packets to this address stay on this host: then they would leave from the same address.
/// Nothing is sent to find out.
fn is_own(address: IpAddr) -> io::Result<bool> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    // Any port but 0.
    socket.connect(SocketAddr::new(address, 9))?;
    Ok(plain(socket.local_addr()?.ip()) == plain(address))
}

/// The IPv4 address that an IPv6 address embeds, if any.
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    if let Some(v4) = v6.to_ipv4_mapped() {
        return v4.into();
    }
    let s = v6.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into();
    match s {
        // NAT64 (RFC 6052) and 6to4 (RFC 3056).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        _ => address,
    }
}

/// Whether the address is reachable from the Internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// Whether it is outside IANA's registry of special-purpose addresses.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = a == 0
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address == AZURE_HOST
        // Multicast, reserved, broadcast.
        || a >= 224
        // Carriers' NAT, protocol assignments, 6to4 relays, benchmarks.
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19));
    !is_special
}

/// Global unicast, except addresses for documentation and for protocols.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let s = address.segments();
    let is_global = s[0] & 0xe000 == 0x2000;
    let is_special = (s[0] == 0x2001 && (s[1] < 0x200 || s[1] == 0xdb8)) || s[0] == 0x3fff;
    is_global && !is_special
}

fn contains(network: IpAddr, len: u8, address: IpAddr) -> bool {
    let same = |a: u128, b: u128, bits: u32| {
        let shift = bits - u32::from(len).min(bits);
        shift == u128::BITS || (a ^ b) >> shift == 0
    };
    match (plain(network), address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            same(u128::from(u32::from(a)), u128::from(u32::from(b)), 32)
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => same(u128::from(a), u128::from(b), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the rules allow the address, assuming that it is another host's.
    fn allows(rules: &[&str], address: &str) -> bool {
        let rules = Rules(rules.iter().map(|rule| rule.parse().unwrap()).collect());
        let ip = address.parse().unwrap();
        rules.is_listed(&Target::Address((ip, 80).into()), ip) || is_public(plain(ip))
    }

    #[test]
    fn this_host_is_known_by_any_of_its_addresses() {
        for own in ["127.0.0.1", "::ffff:127.0.0.1"] {
            assert!(is_own(own.parse().unwrap()).unwrap(), "{own}");
        }
        // There may be no route, which is not an error of the rules.
        assert!(!is_own("192.0.2.1".parse().unwrap()).unwrap_or(false));
    }

    #[test]
    fn the_internet_is_open_and_what_is_near_is_not() {
        for open in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101"] {
            assert!(allows(&[], open), "{open}");
        }
        for near in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "168.63.129.16",
            "::ffff:168.63.129.16",
            "64:ff9b::a83f:8110",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "2001:db8::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
        ] {
            assert!(!allows(&[], near), "{near}");
        }
    }

    #[test]
    fn what_is_allowed_is_open_and_nothing_beside_it() {
        assert!(allows(&["10.1.0.0/16"], "10.1.255.1") && !allows(&["10.1.0.0/16"], "10.2.0.1"));
        assert!(allows(&["0.0.0.0/0"], "127.0.0.1") && !allows(&["0.0.0.0/0"], "::1"));
        assert!(allows(&["fd00::/8"], "fd12::1") && !allows(&["fd00::/8"], "fe80::1"));
        assert!(allows(&["127.0.0.1:80"], "127.0.0.1"));
        assert!(allows(&["127.0.0.1:80"], "::ffff:127.0.0.1"));
        assert!(!allows(&["127.0.0.1:81"], "127.0.0.1"));
        assert!(allows(&["192.168.0.7"], "192.168.0.7"));
        let named = Rules(vec!["nas.lan:80".parse().unwrap()]);
        let inside = "192.168.0.7".parse().unwrap();
        assert!(named.is_listed(&Target::Name("NAS.lan".into(), 80), inside));
        assert!(!named.is_listed(&Target::Name("evil.example".into(), 80), inside));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in ["10.0.0.0/33", "x/8", "lan", "::/129", "a b:1"] {
            assert!(text.parse::<Allow>().is_err(), "{text}");
        }
    }
}
