//! Classifies packets by rules: which of them are updates.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::guard::Irregularity;
use crate::router::{Header, Match, StreamProtocol, Test};

/// The requirement of a packet on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The newest packet matters: it should arrive soon, and may replace older ones.
    Aoi,
    /// All packets matter (the paper's LDA, legacy drop-averse).
    DropAverse,
}

impl Class {
    /// Both classes.
    pub const ALL: [Self; 2] = [Self::Aoi, Self::DropAverse];

    /// The other class.
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

/// The class of packets that match an expression: `dscp=EF`, `port=53 as drop_averse`,
/// `udp and dport=5000 force`. A rule without `as` means the AoI class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The packets it matches.
    pub matches: Match,
    /// Their class.
    pub class: Class,
    /// Whether a packet is an update even if it looks like a part of a stream. Without it, packets
    /// of known streams ([`StreamProtocol`]) and of flows that do not behave like updates
    /// ([`Guard`](super::Guard)) are drop-averse.
    pub force: bool,
}

/// Classifies packets: the first rule that matches decides.
///
/// A packet that no rule matches is drop-averse. A fragment is drop-averse before any rule, as it
/// is of use only with all the others of its packet.
///
/// In a flag the rules are separated by `;`, as in `port=53 as drop_averse; udp`. In a file they
/// may be an array.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(into = "alloc::string::String"))]
pub struct Classifier {
    /// The rules, in order.
    pub rules: Vec<Rule>,
}

/// The class of a packet, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The class.
    pub class: Class,
    /// The reason.
    pub reason: Reason,
}

/// Why a packet has its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is a fragment.
    Fragment,
    /// No rule matches it.
    NoRule,
    /// The rule with this index decides.
    Rule(usize),
    /// The rule with this index would make it an update, but it looks like this protocol.
    Protocol(usize, StreamProtocol),
    /// The rule with this index would make it an update, but its flow does not behave like updates.
    Irregular(usize, Irregularity),
}

impl Decision {
    const fn drop_averse(reason: Reason) -> Self {
        Self { class: Class::DropAverse, reason }
    }
}

impl Classifier {
    /// The class of a packet with this header, as far as headers show it.
    #[inline]
    pub fn class_of(&self, header: &Header) -> Class {
        self.decide(header).class
    }

    /// The same, with the reason.
    #[inline]
    pub fn decide(&self, header: &Header) -> Decision {
        if header.is_fragment {
            return Decision::drop_averse(Reason::Fragment);
        }
        let Some(index) = self.rules.iter().position(|rule| rule.matches.holds(header)) else {
            return Decision::drop_averse(Reason::NoRule);
        };
        match header.stream {
            Some(protocol) if self.rules[index].is_guarded(header) => {
                Decision::drop_averse(Reason::Protocol(index, protocol))
            }
            _ => Decision { class: self.rules[index].class, reason: Reason::Rule(index) },
        }
    }

    /// The reason in a few words, for reports.
    pub fn explain(&self, reason: Reason) -> String {
        let rule = |index: usize| match self.rules.get(index) {
            Some(rule) => format!("`{rule}`"),
            None => "a rule".to_string(),
        };
        match reason {
            Reason::Fragment => "it is a fragment".to_string(),
            Reason::NoRule => "no rule matches".to_string(),
            Reason::Rule(index) => format!("rule {}", rule(index)),
            Reason::Protocol(index, protocol) => {
                format!("looks like {}, which {} does not force", protocol.name(), rule(index))
            }
            Reason::Irregular(index, irregularity) => {
                format!("{}, and {} does not force it", irregularity.describe(), rule(index))
            }
        }
    }

    /// Whether some rule needs a guard: it makes packets updates without forcing them.
    pub fn needs_guard(&self) -> bool {
        let is_update = |rule: &Rule| rule.matches == Match::Test(Test::Update);
        self.rules.iter().any(|rule| rule.class == Class::Aoi && !rule.force && !is_update(rule))
    }
}

impl Rule {
    /// Whether a packet that this rule would make an update is one only if it does not look like a
    /// stream. Updates of our own protocol are exempt: it declares that a newer update replaces an
    /// older one.
    pub(super) fn is_guarded(&self, header: &Header) -> bool {
        self.class == Class::Aoi && !self.force && !header.is_update
    }
}

impl Default for Classifier {
    /// Only updates of our own protocol, which are marked as such: `update`. The paper's classifier
    /// is `udp force`.
    fn default() -> Self {
        let matches = Match::Test(Test::Update);
        Self { rules: Vec::from([Rule { matches, class: Class::Aoi, force: false }]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::FlowKey;

    fn decided(rules: &str, header: Header) -> Decision {
        rules.parse::<Classifier>().unwrap().decide(&header)
    }

    fn class_of(rules: &str, header: Header) -> Class {
        decided(rules, header).class
    }

    fn header(protocol: u8, source_port: u16, destination_port: u16) -> Header {
        let flow = FlowKey { protocol, source_port, destination_port, ..FlowKey::default() };
        Header { flow, ..Header::default() }
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_what_none_matches_is_drop_averse() {
        let rules = "port=53 as drop_averse; udp";
        assert_eq!(class_of(rules, header(FlowKey::UDP, 4000, 53)), Class::DropAverse);
        assert_eq!(class_of(rules, header(FlowKey::UDP, 4000, 54)), Class::Aoi);
        assert_eq!(class_of(rules, header(FlowKey::TCP, 4000, 54)), Class::DropAverse);
        assert_eq!(class_of("tcp as drop_averse; any", header(132, 0, 0)), Class::Aoi);
    }

    #[test]
    fn by_default_only_our_own_updates_are_aoi() {
        let rules = Classifier::default();
        let udp = header(FlowKey::UDP, 5000, 5001);
        assert_eq!(rules.class_of(&udp), Class::DropAverse);
        assert_eq!(rules.class_of(&Header { is_update: true, ..udp }), Class::Aoi);
        assert!(!rules.needs_guard());
    }

    #[test]
    fn known_streams_are_drop_averse_unless_a_rule_forces_them() {
        for stream in StreamProtocol::ALL {
            let header = Header { stream: Some(stream), ..header(FlowKey::UDP, 1, 2) };
            for rules in ["udp", "any", "dscp=0", "port=2"] {
                assert_eq!(
                    decided(rules, header),
                    Decision { class: Class::DropAverse, reason: Reason::Protocol(0, stream) }
                );
            }
            assert_eq!(class_of("udp force", header), Class::Aoi);
            assert_eq!(class_of("udp", Header { is_update: true, ..header }), Class::Aoi);
        }
    }

    #[test]
    fn a_fragment_is_never_aoi() {
        let fragment = Header { is_fragment: true, ..header(FlowKey::UDP, 0, 0) };
        assert_eq!(class_of("udp force; any force", fragment), Class::DropAverse);
    }
}
