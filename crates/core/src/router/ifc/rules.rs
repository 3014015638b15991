//! Parses and prints classifiers, as in files and in flags.
//!
//! ```text
//! rules = rule { ";" rule }
//! rule  = expression [ "as" class ] [ "force" ]
//! class = "aoi" | "drop_averse"
//! ```
//!
//! An expression is a [`Match`].

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use super::{Class, Classifier, Rule};
use crate::router::ParseMatchError;
use crate::router::matching::expression_and_rest;

/// A rule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseClassifierError {
    /// The expression.
    #[error(transparent)]
    Match(#[from] ParseMatchError),
    /// No such class.
    #[error("`{0}` is not a class; write `aoi` or `drop_averse`")]
    UnknownClass(String),
    /// A drop-averse packet cannot be forced to be an update.
    #[error("`force` is for updates; leave it out behind `as drop_averse`")]
    ForcedDropAverse,
    /// No rule at all.
    #[error("no rule is given; write at least one, such as `update` or `dscp=EF`")]
    Empty,
}

impl FromStr for Class {
    type Err = ParseClassifierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|class| class.name() == text);
        named.ok_or_else(|| ParseClassifierError::UnknownClass(text.to_string()))
    }
}

impl FromStr for Rule {
    type Err = ParseClassifierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (matches, rest) = expression_and_rest(text)?;
        let words: Vec<&str> = rest.iter().map(String::as_str).collect();
        let (class, rest) = match &words[..] {
            ["as", class, rest @ ..] => (class.parse()?, rest),
            ["as"] => return Err(ParseClassifierError::UnknownClass(String::new())),
            rest => (Class::Aoi, rest),
        };
        match (class, rest) {
            (class, []) => Ok(Self { matches, class, force: false }),
            (Class::Aoi, ["force"]) => Ok(Self { matches, class, force: true }),
            (Class::DropAverse, ["force"]) => Err(ParseClassifierError::ForcedDropAverse),
            (_, ["force", word, ..] | [word, ..]) => {
                Err(ParseMatchError::Trailing((*word).to_string()).into())
            }
        }
    }
}

impl FromStr for Classifier {
    type Err = ParseClassifierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rules = text.split(';').filter(|rule| !rule.trim().is_empty());
        let rules: Vec<_> = rules.map(str::parse).collect::<Result<_, _>>()?;
        if rules.is_empty() { Err(ParseClassifierError::Empty) } else { Ok(Self { rules }) }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { matches, class, force } = self;
        write!(f, "{matches}")?;
        if *class == Class::DropAverse {
            write!(f, " as {}", class.name())?;
        }
        if *force { f.write_str(" force") } else { Ok(()) }
    }
}

impl fmt::Display for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rule) in self.rules.iter().enumerate() {
            let separator = if index > 0 { "; " } else { "" };
            write!(f, "{separator}{rule}")?;
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
                    f.write_str("rules such as `dscp=EF`, in a string or an array of strings")
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
                    self.visit_str(&rules.join(";"))
                }
            }

            deserializer.deserialize_any(StringOrArray)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::matching::tests::any_match;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_read_is_explained() {
        for (text, explanation) in [
            ("", "no rule is given"),
            (" ; ", "no rule is given"),
            ("icmp", "`icmp` is not a test; write `any`"),
            ("udp as best", "`best` is not a class; write `aoi`"),
            ("udp as", "`` is not a class"),
            ("udp as drop_averse force", "leave it out"),
            ("udp force now", "`now` does not belong here"),
            ("udp port=5", "`port` does not belong here"),
            ("port:53=drop_averse udp", "`port:53` is not a test"),
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
        let array = read(r#"classifier = ["port=53 as drop_averse", "udp"]"#).unwrap();
        assert_eq!(Ok(array), "port=53 as drop_averse; udp".parse());
        let message = read("classifier = 17").unwrap_err().to_string();
        assert!(message.contains("rules such as `dscp=EF`"), "{message}");
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(
            rules in prop::collection::vec((any_match(), any::<bool>(), any::<bool>()), 1..5),
        ) {
            let rules = rules.into_iter().map(|(matches, is_aoi, force)| Rule {
                matches,
                class: if is_aoi { Class::Aoi } else { Class::DropAverse },
                force: is_aoi && force,
            });
            let classifier = Classifier { rules: rules.collect() };
            prop_assert_eq!(classifier.to_string().parse(), Ok(classifier));
        }

        #[test]
        fn the_reader_is_total(text in "\\PC{0,40}") {
            let _ = text.parse::<Classifier>();
        }
    }
}
