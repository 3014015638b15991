//! Maximum ages of topics at the monitor.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::pattern;
use crate::unit::Span;
use crate::wire::Opening;

/// The maximum age of the states of some topics, such as `robot/pose=200ms`.
///
/// The pattern is compared with `SOURCE/TOPIC`, or with `SOURCE` if the source has no topics or the
/// topic no name; `*` stands for any number of any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaxAge {
    pattern: Box<str>,
    limit: Span,
}

impl MaxAge {
    /// States of topics that match `pattern` are delivered while they are not older than `limit`.
    ///
    /// # Errors
    /// [`BadMaxAge`] for a pattern that is empty, contains blanks or is longer than names can be,
    /// and for a limit of zero.
    pub fn new(pattern: &str, limit: Span) -> Result<Self, BadMaxAge> {
        let is_word = !pattern.is_empty() && !pattern.contains(char::is_whitespace);
        if !is_word || pattern.len() > MAX_PATTERN || limit == Span::ZERO {
            return Err(BadMaxAge);
        }
        Ok(Self { pattern: pattern.into(), limit })
    }

    /// The limit of the first rule that matches a topic; `topic` is empty for a source without
    /// topics.
    pub fn of(rules: &[Self], source: &str, topic: &str) -> Option<Span> {
        if rules.is_empty() {
            return None;
        }
        let mut name = String::from(source);
        if !topic.is_empty() {
            name.push('/');
            name.push_str(topic);
        }
        let rule = rules.iter().find(|rule| pattern::matches(&rule.pattern, &name));
        rule.map(|rule| rule.limit)
    }
}

/// The longest pattern, in bytes: a `*` around each byte of the longest name.
const MAX_PATTERN: usize = 2 * (2 * Opening::MAX_NAME + 1) + 1;

impl FromStr for MaxAge {
    type Err = BadMaxAge;

    fn from_str(text: &str) -> Result<Self, BadMaxAge> {
        let (pattern, limit) = text.rsplit_once('=').ok_or(BadMaxAge)?;
        Self::new(pattern, limit.parse().map_err(|_| BadMaxAge)?)
    }
}

impl fmt::Display for MaxAge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.pattern, self.limit)
    }
}

/// A text that is not a [`MaxAge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a pattern and a time above zero; write for example robot/pose=200ms, or 'cmd/*=200ms' with `*` for \
     any characters"
)]
pub struct BadMaxAge;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    #[test]
    fn the_first_rule_that_matches_source_and_topic_counts() {
        let rules = ["cmd/*=200ms", "robot=1s", "*/pose=2s", "r*=3s"];
        let rules: Vec<MaxAge> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        for (source, topic, limit_ms) in [
            ("cmd", "arm", Some(200)),
            ("cmd/arm", "", Some(200)),
            ("cmd", "", None),
            ("robot", "", Some(1_000)),
            ("robot", "pose", Some(2_000)),
            ("robot", "map", Some(3_000)),
            ("", "pose", Some(2_000)),
            ("", "", None),
        ] {
            let limit = MaxAge::of(&rules, source, topic);
            assert_eq!(limit, limit_ms.map(Span::from_millis), "{source} {topic}");
        }
        assert_eq!(rules[0].to_string(), "cmd/*=200ms");
        assert_eq!(MaxAge::of(&[], "robot", ""), None);
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in ["", "robot", "=1s", "robot=", "robot=0s", "robot=5", "a b=1s"] {
            assert_eq!(text.parse::<MaxAge>(), Err(BadMaxAge), "{text}");
        }
        let long = "*".repeat(MAX_PATTERN + 1) + "=1s";
        assert_eq!(long.parse::<MaxAge>(), Err(BadMaxAge));
    }
}
