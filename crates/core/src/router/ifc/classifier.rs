//! Which packets are updates.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::router::{FlowKey, Header};

/// What a packet's sender wants of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// That the newest one arrives, soon; a packet that has been overtaken may go.
    Aoi,
    /// That all of them arrive (the paper's LDA, legacy drop-averse).
    DropAverse,
}

impl Class {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Aoi, Self::DropAverse];

    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Aoi => Self::DropAverse,
            Self::DropAverse => Self::Aoi,
        }
    }

    /// The name in files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aoi => "aoi",
            Self::DropAverse => "drop_averse",
        }
    }
}

/// What a header may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Anything: `any`.
    Any,
    /// Of this protocol above IP: `udp`, `tcp`, or a number, `protocol:132`.
    Protocol(u8),
    /// With one of these code points: `dscp:46,34`.
    Dscp(DscpSet),
    /// From or to one of these ports, of whichever protocol: `port:53,5000-5010`.
    Port(Vec<RangeInclusive<u16>>),
    /// An update of our own protocol ([`crate::wire`]): `update`.
    Update,
}

impl Condition {
    #[inline]
    fn holds(&self, header: &Header) -> bool {
        let FlowKey { source_port, destination_port, protocol, .. } = header.flow;
        match self {
            Self::Any => true,
            Self::Protocol(wanted) => protocol == *wanted,
            Self::Dscp(set) => set.contains(header.dscp),
            Self::Port(ranges) => ranges
                .iter()
                .any(|range| range.contains(&source_port) || range.contains(&destination_port)),
            Self::Update => header.is_update,
        }
    }
}

/// A set of differentiated services code points, each from 0 to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DscpSet(u64);

impl DscpSet {
    /// This set and `dscp`; `None` if that is no code point.
    pub fn with(self, dscp: u8) -> Option<Self> {
        Some(Self(self.0 | 1u64.checked_shl(dscp.into())?))
    }

    /// Whether `dscp` is in it.
    pub fn contains(self, dscp: u8) -> bool {
        self.0.checked_shr(dscp.into()).is_some_and(|rest| rest & 1 == 1)
    }
}

/// What a packet is if it is what the condition says: `dscp:46=aoi`, `port:53=drop_averse`. A
/// condition by itself means the AoI class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What the header has to be.
    pub condition: Condition,
    /// Its class then.
    pub class: Class,
}

/// Tells the class of packets by their headers: the first rule whose condition holds decides.
///
/// A packet of which no rule speaks is drop-averse. So is, before any rule, a fragment: it is of
/// use only with all the others of its packet, and to replace one is to waste them all.
///
/// In a flag the rules stand one after the other, `port:53=drop_averse udp`; in a file, too, or in
/// an array.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(into = "alloc::string::String"))]
pub struct Classifier {
    /// The rules, from first to last.
    pub rules: Vec<Rule>,
}

impl Classifier {
    /// The class of a packet with this header.
    #[inline]
    pub fn class_of(&self, header: &Header) -> Class {
        if header.is_fragment {
            return Class::DropAverse;
        }
        let decides = |rule: &&Rule| rule.condition.holds(header);
        self.rules.iter().find(decides).map_or(Class::DropAverse, |rule| rule.class)
    }
}

impl Default for Classifier {
    /// The paper's: UDP is AoI, all else is drop-averse. Where UDP also carries names or QUIC, say
    /// so: `port:53,443=drop_averse udp`.
    fn default() -> Self {
        let udp = Rule { condition: Condition::Protocol(FlowKey::UDP), class: Class::Aoi };
        Self { rules: Vec::from([udp]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_of(rules: &str, header: Header) -> Class {
        rules.parse::<Classifier>().unwrap().class_of(&header)
    }

    fn header(protocol: u8, source_port: u16, destination_port: u16) -> Header {
        let flow = FlowKey { protocol, source_port, destination_port, ..FlowKey::default() };
        Header { flow, ..Header::default() }
    }

    #[test]
    fn each_condition_looks_at_its_part_of_the_header() {
        let udp = header(FlowKey::UDP, 5000, 53);
        let tcp = header(FlowKey::TCP, 1, 2);
        let aoi = |rules, header| class_of(rules, header) == Class::Aoi;
        assert!(aoi("udp", udp) && !aoi("udp", tcp));
        assert!(aoi("tcp", tcp) && !aoi("tcp", udp));
        assert!(aoi("protocol:17", udp) && !aoi("protocol:132", udp));
        assert!(aoi("port:53", udp) && aoi("port:4000-5000", udp) && !aoi("port:54-4999", udp));
        assert!(aoi("dscp:46,0", tcp) && !aoi("dscp:46", tcp));
        assert!(aoi("dscp:46", Header { dscp: 46, ..tcp }));
        assert!(aoi("update", Header { is_update: true, ..tcp }) && !aoi("update", udp));
        assert!(aoi("any", tcp));
    }

    #[test]
    fn the_first_rule_that_holds_decides_and_what_none_knows_is_drop_averse() {
        let rules = "port:53=drop_averse udp";
        assert_eq!(class_of(rules, header(FlowKey::UDP, 4000, 53)), Class::DropAverse);
        assert_eq!(class_of(rules, header(FlowKey::UDP, 4000, 54)), Class::Aoi);
        assert_eq!(class_of(rules, header(FlowKey::TCP, 4000, 54)), Class::DropAverse);
        assert_eq!(class_of("tcp=drop_averse any", header(132, 0, 0)), Class::Aoi);
    }

    #[test]
    fn a_fragment_is_never_aoi() {
        let fragment = Header { is_fragment: true, ..header(FlowKey::UDP, 0, 0) };
        assert_eq!(class_of("udp any", fragment), Class::DropAverse);
    }
}
