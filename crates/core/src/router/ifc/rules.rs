//! Classifiers as people write them, in files and in flags.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

use super::{Class, Classifier, Condition, DscpSet, Rule};
use crate::router::FlowKey;

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
            prop::collection::vec(0u8..64, 1..5).prop_map(|dscps| {
                let with = |set: DscpSet, dscp| set.with(dscp).unwrap();
                Condition::Dscp(dscps.into_iter().fold(DscpSet::default(), with))
            }),
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
