//! The first bytes on a stream: the destination; and the server's answer.
//!
//! ```text
//!   version 1 │ kind: 1 IPv4, 3 name, 4 IPv6 │ address, or length and name │ port    (as SOCKS5)
//!   answer: one byte, 0 for "connected", else a reply code of SOCKS5 (RFC 1928, section 6)
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The value of the first byte.
const VERSION: u8 = 1;

/// The maximum length of a head: version, kind, length, a name of 255 bytes, port.
pub const LONGEST: usize = 3 + 255 + 2;

/// The destination of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// An address.
    Address(SocketAddr),
    /// A name that the server resolves, and a port.
    Name(String, u16),
}

impl Target {
    /// The port.
    pub fn port(&self) -> u16 {
        match self {
            Self::Address(address) => address.port(),
            Self::Name(_, port) => *port,
        }
    }

    /// The host as it was given.
    pub fn host(&self) -> String {
        match self {
            Self::Address(address) => address.ip().to_string(),
            Self::Name(name, _) => name.clone(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// A text that is not a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a destination; write HOST:PORT, e.g. example.org:443 or [2001:db8::1]:443")]
pub struct BadTarget(String);

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, BadTarget> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let bad = || BadTarget(text.to_owned());
        let (name, port) = text.rsplit_once(':').ok_or_else(bad)?;
        if !is_name(name.as_bytes()) {
            return Err(bad());
        }
        Ok(Self::Name(name.to_owned(), port.parse().map_err(|_| bad())?))
    }
}

/// Whether it may be a host's name: a resolver accepts it, and a terminal shows it unchanged.
fn is_name(name: &[u8]) -> bool {
    let is_fit = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
    !name.is_empty() && name.len() <= 255 && name.iter().all(is_fit)
}

/// The result of parsing the first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed<T> {
    /// Complete, with its length.
    Whole(T, usize),
    /// Incomplete.
    Partial,
    /// Invalid.
    Bad,
}

/// Parses the address part that heads and SOCKS5 share: kind, address, port.
pub(super) fn parse_target(bytes: &[u8]) -> Parsed<Target> {
    let Some((&kind, rest)) = bytes.split_first() else { return Parsed::Partial };
    let (skip, len) = match kind {
        1 => (0, 4),
        4 => (0, 16),
        3 => match rest.first() {
            None => return Parsed::Partial,
            Some(&len) => (1, usize::from(len)),
        },
        _ => return Parsed::Bad,
    };
    let Some(host) = rest.get(skip..skip + len) else { return Parsed::Partial };
    let Some(port) = rest.get(skip + len..skip + len + 2) else { return Parsed::Partial };
    let port = u16::from_be_bytes([port[0], port[1]]);
    let whole = 1 + skip + len + 2;
    let address = |ip: IpAddr| Parsed::Whole(Target::Address((ip, port).into()), whole);
    if let Ok(four) = <[u8; 4]>::try_from(host)
        && kind == 1
    {
        return address(Ipv4Addr::from(four).into());
    }
    if let Ok(sixteen) = <[u8; 16]>::try_from(host)
        && kind == 4
    {
        return address(Ipv6Addr::from(sixteen).into());
    }
    match std::str::from_utf8(host) {
        // Some programs send addresses as names.
        Ok(name) if is_name(host) || name.parse::<IpAddr>().is_ok() => match name.parse() {
            Ok(ip) => address(ip),
            Err(_) => Parsed::Whole(Target::Name(name.to_owned(), port), whole),
        },
        _ => Parsed::Bad,
    }
}

/// Reads a head.
pub fn parse(bytes: &[u8]) -> Parsed<Target> {
    match bytes.split_first() {
        None => Parsed::Partial,
        Some((&VERSION, rest)) => match parse_target(rest) {
            Parsed::Whole(target, len) => Parsed::Whole(target, len + 1),
            other => other,
        },
        Some(_) => Parsed::Bad,
    }
}

/// Writes a head.
pub fn write(target: &Target) -> Vec<u8> {
    let mut head = vec![VERSION];
    match target {
        Target::Address(SocketAddr::V4(address)) => {
            head.push(1);
            head.extend(address.ip().octets());
        }
        Target::Address(SocketAddr::V6(address)) => {
            head.push(4);
            head.extend(address.ip().octets());
        }
        Target::Name(name, _) => {
            let name = &name.as_bytes()[..name.len().min(255)];
            head.extend([3, name.len() as u8]);
            head.extend(name);
        }
    }
    head.extend(target.port().to_be_bytes());
    head
}

/// How a connection attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Reply {
    Connected = 0,
    Failed = 1,
    /// The server's rules forbid the destination.
    Forbidden = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    Refused = 5,
    /// No answer in time; SOCKS5's "TTL expired".
    TimedOut = 6,
}

impl From<u8> for Reply {
    fn from(code: u8) -> Self {
        let known = [
            Self::Connected,
            Self::Forbidden,
            Self::NetworkUnreachable,
            Self::HostUnreachable,
            Self::Refused,
            Self::TimedOut,
        ];
        known.into_iter().find(|reply| *reply as u8 == code).unwrap_or(Self::Failed)
    }
}

impl Reply {
    /// The reply for an error of `connect`.
    pub(super) fn of(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::ConnectionRefused => Self::Refused,
            std::io::ErrorKind::NetworkUnreachable => Self::NetworkUnreachable,
            std::io::ErrorKind::HostUnreachable => Self::HostUnreachable,
            std::io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
        for text in ["10.0.0.1:80", "[2001:db8::1]:443", "example.org:65535"] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), text);
            let head = write(&target);
            assert!(head.len() <= LONGEST);
            assert_eq!(parse(&head), Parsed::Whole(target, head.len()));
            for len in 0..head.len() {
                assert_eq!(parse(&head[..len]), Parsed::Partial, "{text} {len}");
            }
        }
    }

    #[test]
    fn what_is_no_destination_is_refused() {
        for text in ["example.org", "a b:1", ":80", "a:99999", "2001:db8::1:443x"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
        for head in [&[2, 1][..], &[1, 2], &[1, 3, 1, b' ', 0, 1], &[1, 3, 0, 0, 1]] {
            assert_eq!(parse(head), Parsed::Bad, "{head:?}");
        }
    }

    #[test]
    fn an_address_as_a_name_is_an_address() {
        let mut head = vec![1, 3, 9];
        head.extend(b"127.0.0.1");
        head.extend([0, 80]);
        let expected = Target::Address("127.0.0.1:80".parse().unwrap());
        assert_eq!(parse(&head), Parsed::Whole(expected, head.len()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Parsed::Whole(target, len) = parse(&bytes) {
                prop_assert!(len <= bytes.len() && len <= LONGEST);
                let head = write(&target);
                prop_assert_eq!(parse(&head), Parsed::Whole(target, head.len()));
            }
        }
    }
}
