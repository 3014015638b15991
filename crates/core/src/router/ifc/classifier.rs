//! Which packets are updates.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

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
#[cfg_attr(feature = "serde", serde(into = "String"))]
pub struct Classifier {
    /// The rules, from first to last.
    pub rules: Vec<Rule>,
}

impl Classifier {
    /// The class of a packet with this header.
    pub fn class_of(&self, header: &Header) -> Class {
        if header.is_fragment {
            return Class::DropAverse;
        }
        let decides = |rule: &&Rule| rule.condition.holds(header);
        self.rules.iter().find(decides).map_or(Class::DropAverse, |rule| rule.class)
    }
}

impl Default for Classifier {
    /// The paper's: UDP is AoI, all else is drop-averse.
    fn default() -> Self {
        let udp = Rule { condition: Condition::Protocol(FlowKey::UDP), class: Class::Aoi };
        Self { rules: Vec::from([udp]) }
    }
}

/// A rule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseClassifierError {
    /// No such condition.
    #[error(
        "`{0}` is no condition; write `udp`, `tcp`, `protocol:132`, `dscp:46,34`, \
         `port:53,5000-5010`, `update` or `any`"
    )]
    UnknownCondition(String),
    /// No such class.
    #[error("`{0}` is no class; write `aoi` or `drop_averse`")]
    UnknownClass(String),
    /// A number that is none, or too large, or a range that is empty.
    #[error("`{value}` is no {kind}; write a number from 0 to {max}{ranges}")]
    BadNumber {
        /// What was wanted.
        kind: &'static str,
        /// What was found.
        value: String,
        /// The largest that it may be.
        max: u16,
        /// What else may be written.
        ranges: &'static str,
    },
    /// No rule at all.
    #[error("no rule is given; write at least one, such as `udp`")]
    Empty,
}

impl FromStr for Class {
    type Err = ParseClassifierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|class| class.name() == text);
        named.ok_or_else(|| ParseClassifierError::UnknownClass(text.to_string()))
    }
}

impl FromStr for Condition {
    type Err = ParseClassifierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "any" => Ok(Self::Any),
            None if text == "udp" => Ok(Self::Protocol(FlowKey::UDP)),
            None if text == "tcp" => Ok(Self::Protocol(FlowKey::TCP)),
            None if text == "update" => Ok(Self::Update),
            Some(("protocol", number)) => {
                let refused = || bad_number("protocol", number, u8::MAX.into(), "");
                number.parse().map(Self::Protocol).map_err(|_| refused())
            }
            Some(("dscp", list)) => {
                let with = |set: DscpSet, number: &str| {
                    let refused = || bad_number("code point", number, 63, "");
                    number.parse().ok().and_then(|dscp| set.with(dscp)).ok_or_else(refused)
                };
                list.split(',').try_fold(DscpSet::default(), with).map(Self::Dscp)
            }
            Some(("port", list)) => {
                list.split(',').map(ports).collect::<Result<_, _>>().map(Self::Port)
            }
            _ => Err(ParseClassifierError::UnknownCondition(text.to_string())),
        }
    }
}

fn bad_number(
    kind: &'static str,
    value: &str,
    max: u16,
    ranges: &'static str,
) -> ParseClassifierError {
    ParseClassifierError::BadNumber { kind, value: value.to_string(), max, ranges }
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, ParseClassifierError> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) if from <= to => Ok(from..=to),
        _ => Err(bad_number("port", text, u16::MAX, ", or two with `-` between, the lower first")),
    }
}

impl FromStr for Rule {
    type Err = ParseClassifierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (condition, class) = text.split_once('=').unwrap_or((text, Class::Aoi.name()));
        Ok(Self { condition: condition.parse()?, class: class.parse()? })
    }
}

impl FromStr for Classifier {
    type Err = ParseClassifierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rules: Vec<_> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        if rules.is_empty() { Err(ParseClassifierError::Empty) } else { Ok(Self { rules }) }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Protocol(FlowKey::UDP) => f.write_str("udp"),
            Self::Protocol(FlowKey::TCP) => f.write_str("tcp"),
            Self::Protocol(number) => write!(f, "protocol:{number}"),
            Self::Dscp(set) => {
                f.write_str("dscp:")?;
                list(f, (0..64).filter(|dscp| set.contains(*dscp)), |f, dscp| write!(f, "{dscp}"))
            }
            Self::Port(ranges) => {
                f.write_str("port:")?;
                list(f, ranges.iter(), |f, range| match range.clone().into_inner() {
                    (from, to) if from == to => write!(f, "{from}"),
                    (from, to) => write!(f, "{from}-{to}"),
                })
            }
            Self::Update => f.write_str("update"),
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

impl fmt::Display for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Rule { condition, class }) in self.rules.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            match class {
                Class::Aoi => write!(f, "{space}{condition}")?,
                Class::DropAverse => write!(f, "{space}{condition}={}", class.name())?,
            }
        }
        Ok(())
    }
}

impl From<Classifier> for String {
    fn from(classifier: Classifier) -> Self {
        classifier.to_string()
    }
}

/// A classifier in a file: a string as in a flag, or an array of rules.
#[cfg(feature = "serde")]
mod reading {
    use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

    use super::*;

    impl<'de> Deserialize<'de> for Classifier {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct StringOrArray;

            impl<'de> Visitor<'de> for StringOrArray {
                type Value = Classifier;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("rules such as `udp`, in a string or an array of strings")
                }

                fn visit_str<E: Error>(self, text: &str) -> Result<Classifier, E> {
                    text.parse().map_err(E::custom)
                }

                fn visit_seq<A: SeqAccess<'de>>(
                    self,
                    mut array: A,
                ) -> Result<Classifier, A::Error> {
                    let mut rules = Vec::new();
                    while let Some(rule) = array.next_element::<String>()? {
                        rules.push(rule);
                    }
                    self.visit_str(&rules.join(" "))
                }
            }

            deserializer.deserialize_any(StringOrArray)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    #[test]
    fn what_cannot_be_read_is_explained() {
        for (text, explanation) in [
            ("", "no rule is given"),
            ("icmp", "`icmp` is no condition; write `udp`"),
            ("udp=best", "`best` is no class; write `aoi`"),
            ("dscp:64", "`64` is no code point; write a number from 0 to 63"),
            ("protocol:256", "`256` is no protocol; write a number from 0 to 255"),
            ("port:70000", "`70000` is no port; write a number from 0 to 65535, or two"),
            ("port:9-5", "`9-5` is no port"),
        ] {
            let message = text.parse::<Classifier>().unwrap_err().to_string();
            assert!(message.contains(explanation), "{text}: {message}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_file_may_give_an_array() {
        #[derive(serde::Deserialize)]
        struct File {
            classifier: Classifier,
        }
        let read = |text| toml::from_str::<File>(text).map(|file| file.classifier);
        let array = read(r#"classifier = ["port:53=drop_averse", "udp"]"#).unwrap();
        assert_eq!(Ok(array), "port:53=drop_averse udp".parse());
        let message = read("classifier = 17").unwrap_err().to_string();
        assert!(message.contains("rules such as `udp`"), "{message}");
    }

    fn any_condition() -> impl Strategy<Value = Condition> {
        let range = (any::<u16>(), any::<u16>()).prop_map(|(a, b)| a.min(b)..=a.max(b));
        prop_oneof![
            Just(Condition::Any),
            Just(Condition::Update),
            any::<u8>().prop_map(Condition::Protocol),
            (1..=u64::MAX).prop_map(|bits| Condition::Dscp(DscpSet(bits))),
            prop::collection::vec(range, 1..4).prop_map(Condition::Port),
        ]
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(
            rules in prop::collection::vec((any_condition(), prop::sample::select(&Class::ALL[..])), 1..5),
        ) {
            let rules = rules.into_iter().map(|(condition, class)| Rule { condition, class });
            let classifier = Classifier { rules: rules.collect() };
            prop_assert_eq!(classifier.to_string().parse(), Ok(classifier));
        }

        #[test]
        fn the_reader_is_total(text in "\\PC{0,40}") {
            let _ = text.parse::<Classifier>();
        }
    }
}
