//! Match expressions: the packets that a rule applies to.
//!
//! ```text
//! expression = term { "or" term }
//! term       = factor { "and" factor }
//! factor     = "not" factor | "(" expression ")" | test
//! test       = "any" | "udp" | "tcp" | "update" | FIELD "=" LIST | FIELD "!=" LIST
//! ```
//!
//! | field | values | compares |
//! |---|---|---|
//! | `dscp` | 0 to 63, or a name: `EF`, `CS0`-`CS7`, `AF11`-`AF43`, `LE`, `VA`, `DF` | the code point |
//! | `proto` | 0 to 255, or `udp`, `tcp`, `icmp`, `icmp6`, `sctp`, `dccp`, `udplite` | the protocol above IP |
//! | `port`, `sport`, `dport` | a port, or a range such as `5000-5010` | either port, the source's, the destination's |
//! | `host`, `src`, `dst` | an address, or a prefix such as `10.0.0.0/8` | either address, the source, the destination |
//!
//! A list has commas and no spaces: `dscp=EF,CS5`. `update` is an update of this project's own
//! protocol ([`crate::wire`]). For example: `udp and dport=5000-5010 and src=10.0.0.0/8`.

mod reading;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv6Addr;
use core::ops::RangeInclusive;

use super::{FlowKey, Header};
pub use reading::ParseMatchError;
pub(in crate::router) use reading::expression_and_rest;

/// A condition on a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// One test.
    Test(Test),
    /// Not this.
    Not(Box<Self>),
    /// All of these, two or more.
    All(Vec<Self>),
    /// At least one of these, two or more.
    Any(Vec<Self>),
}

/// One property of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// Every packet: `any`.
    Always,
    /// An update of our own protocol ([`crate::wire`]): `update`.
    Update,
    /// Of this protocol above IP: `udp`, `tcp`, `proto=132`.
    Protocol(u8),
    /// With one of these code points: `dscp=EF,34`.
    Dscp(DscpSet),
    /// With a port in one of these ranges: `port=53,5000-5010`.
    Port(Ends, Vec<RangeInclusive<u16>>),
    /// With an address in one of these prefixes: `src=10.0.0.0/8`.
    Address(Ends, Vec<Prefix>),
}

/// The end of a flow that a test looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// At both; one is enough.
    Either,
    /// At the sender's.
    Source,
    /// At the receiver's.
    Destination,
}

/// Addresses with the same leading bits. IPv4 addresses are mapped into IPv6, with 96 bits more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    address: Ipv6Addr,
    length: u8,
}

/// A set of differentiated services code points, each from 0 to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DscpSet(u64);

/// A test that has to hold, or not to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Literal<'a> {
    /// The test.
    pub test: &'a Test,
    /// Whether it has to hold.
    pub holds: bool,
}

impl Match {
    /// Whether a packet with this header matches.
    #[inline]
    pub fn holds(&self, header: &Header) -> bool {
        match self {
            Self::Test(test) => test.holds(header),
            Self::Not(inner) => !inner.holds(header),
            Self::All(parts) => parts.iter().all(|part| part.holds(header)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(header)),
        }
    }

    /// The same expression as alternatives, each of which is a list of literals that all have to
    /// hold (the disjunctive normal form); `None` if there are more than `limit` literals in all.
    pub fn alternatives(&self, limit: usize) -> Option<Vec<Vec<Literal<'_>>>> {
        self.normal_form(true, limit)
    }

    fn normal_form(&self, holds: bool, limit: usize) -> Option<Vec<Vec<Literal<'_>>>> {
        match self {
            Self::Test(test) => Some(vec![vec![Literal { test, holds }]]),
            Self::Not(inner) => inner.normal_form(!holds, limit),
            // By De Morgan's laws the negation swaps "all" and "any".
            Self::All(parts) if holds => product(parts, holds, limit),
            Self::Any(parts) if !holds => product(parts, holds, limit),
            Self::All(parts) | Self::Any(parts) => {
                let forms = parts.iter().map(|part| part.normal_form(holds, limit));
                let forms: Vec<_> = forms.collect::<Option<_>>()?;
                let sum: Vec<_> = forms.into_iter().flatten().collect();
                fits(&sum, limit).then_some(sum)
            }
        }
    }
}

/// Every combination of one alternative of each part.
fn product(parts: &[Match], holds: bool, limit: usize) -> Option<Vec<Vec<Literal<'_>>>> {
    let mut product: Vec<Vec<Literal<'_>>> = vec![Vec::new()];
    for part in parts {
        let form = part.normal_form(holds, limit)?;
        let with = |all: &Vec<_>| {
            let all = all.clone();
            form.iter().map(move |alternative| [all.as_slice(), alternative.as_slice()].concat())
        };
        product = product.iter().flat_map(with).collect();
        if !fits(&product, limit) {
            return None;
        }
    }
    Some(product)
}

fn fits(alternatives: &[Vec<Literal<'_>>], limit: usize) -> bool {
    alternatives.iter().map(Vec::len).sum::<usize>() <= limit
}

impl Test {
    /// Whether it holds for a packet with this header.
    #[inline]
    pub fn holds(&self, header: &Header) -> bool {
        let flow = &header.flow;
        match self {
            Self::Always => true,
            Self::Update => header.is_update,
            Self::Protocol(wanted) => flow.protocol == *wanted,
            Self::Dscp(set) => set.contains(header.dscp),
            Self::Port(ends, ranges) => ends.any(flow.source_port, flow.destination_port, |port| {
                ranges.iter().any(|range| range.contains(&port))
            }),
            Self::Address(ends, prefixes) => ends.any(flow.source, flow.destination, |address| {
                prefixes.iter().any(|prefix| prefix.contains(address))
            }),
        }
    }
}

impl Ends {
    fn any<T>(self, source: T, destination: T, holds: impl Fn(T) -> bool) -> bool {
        match self {
            Self::Either => holds(source) || holds(destination),
            Self::Source => holds(source),
            Self::Destination => holds(destination),
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Either => 0,
            Self::Source => 1,
            Self::Destination => 2,
        }
    }
}

impl Prefix {
    /// The first `length` bits of an address, up to 128; the others do not count.
    pub fn new(address: Ipv6Addr, length: u8) -> Option<Self> {
        let mask = Self::mask(length);
        (length <= 128)
            .then(|| Self { address: Ipv6Addr::from(u128::from(address) & mask), length })
    }

    /// The address, with zeros behind the prefix.
    pub const fn address(self) -> Ipv6Addr {
        self.address
    }

    /// How many bits count, at most 128.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Whether an address begins with it.
    pub fn contains(self, address: Ipv6Addr) -> bool {
        u128::from(address) & Self::mask(self.length) == u128::from(self.address)
    }

    fn mask(length: u8) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0)
    }
}

impl DscpSet {
    /// This set and `dscp`; `None` if that is not a code point.
    pub fn with(self, dscp: u8) -> Option<Self> {
        Some(Self(self.0 | 1u64.checked_shl(dscp.into())?))
    }

    /// Whether `dscp` is in it.
    pub fn contains(self, dscp: u8) -> bool {
        self.0.checked_shr(dscp.into()).is_some_and(|rest| rest & 1 == 1)
    }

    /// A bit for each code point, the lowest for code point 0.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// The names of fields, by [`Ends`].
const PORT_FIELDS: [&str; 3] = ["port", "sport", "dport"];
const ADDRESS_FIELDS: [&str; 3] = ["host", "src", "dst"];

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, parts: &[Self], word: &str| {
            for (index, part) in parts.iter().enumerate() {
                if index > 0 {
                    write!(f, " {word} ")?;
                }
                part.fmt_inner(f)?;
            }
            Ok(())
        };
        match self {
            Self::Test(test) => test.fmt(f),
            Self::Not(inner) => {
                f.write_str("not ")?;
                inner.fmt_inner(f)
            }
            Self::All(parts) => joined(f, parts, "and"),
            Self::Any(parts) => joined(f, parts, "or"),
        }
    }
}

impl Match {
    /// As a part of another expression.
    fn fmt_inner(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(_) | Self::Any(_) => write!(f, "({self})"),
            Self::Test(_) | Self::Not(_) => fmt::Display::fmt(self, f),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("any"),
            Self::Update => f.write_str("update"),
            Self::Protocol(FlowKey::UDP) => f.write_str("udp"),
            Self::Protocol(FlowKey::TCP) => f.write_str("tcp"),
            Self::Protocol(number) => write!(f, "proto={number}"),
            Self::Dscp(set) => {
                f.write_str("dscp=")?;
                list(f, (0..64).filter(|dscp| set.contains(*dscp)), |f, dscp| write!(f, "{dscp}"))
            }
            Self::Port(ends, ranges) => {
                write!(f, "{}=", PORT_FIELDS[ends.index()])?;
                list(f, ranges.iter(), |f, range| match range.clone().into_inner() {
                    (from, to) if from == to => write!(f, "{from}"),
                    (from, to) => write!(f, "{from}-{to}"),
                })
            }
            Self::Address(ends, prefixes) => {
                write!(f, "{}=", ADDRESS_FIELDS[ends.index()])?;
                list(f, prefixes.iter(), |f, prefix| prefix.fmt(f))
            }
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address.to_ipv4_mapped(), self.length) {
            (Some(address), 128) => write!(f, "{address}"),
            (Some(address), 96..) => write!(f, "{address}/{}", self.length - 96),
            (_, 128) => write!(f, "{}", self.address),
            (_, length) => write!(f, "{}/{length}", self.address),
        }
    }
}

fn list<T>(
    f: &mut fmt::Formatter<'_>,
    items: impl Iterator<Item = T>,
    write: impl Fn(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.enumerate() {
        if index > 0 {
            f.write_str(",")?;
        }
        write(f, item)?;
    }
    Ok(())
}

#[cfg(test)]
pub(in crate::router) mod tests;
