//! Patterns of names, in which `*` matches any number of characters, including none.

use std::fmt;
use std::str::FromStr;

use freshline_core::pattern;
use freshline_core::wire::Opening;
use thiserror::Error;

/// A name, or a pattern with `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Box<str>);

impl Pattern {
    /// Matches all names, including the empty name of peers without one.
    pub fn all() -> Self {
        Self("*".into())
    }

    /// Whether the whole `name` matches. The work is at most the product of both lengths.
    pub fn matches(&self, name: &str) -> bool {
        pattern::matches(&self.0, name)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Pattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        let longest = text.bytes().filter(|byte| *byte != b'*').count();
        let is_word = !text.is_empty()
            && !text.starts_with('#')
            && !text.chars().any(|c| c.is_whitespace() || c.is_control());
        if longest > Opening::MAX_NAME || text.len() > MAX_PATTERN || !is_word {
            return Err(BadPattern);
        }
        Ok(Self(text.into()))
    }
}

/// The longest pattern, in bytes: a `*` around each byte of the longest name.
const MAX_PATTERN: usize = 2 * Opening::MAX_NAME + 1;

/// A text that is not a pattern of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the pattern matches no name, or cannot be a field of a line: write a name of at most {max} bytes \
     without blanks, such as robot-7, or with `*` for any characters, such as robot-*",
    max = Opening::MAX_NAME
)]
pub struct BadPattern;

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(name)
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, is_match) in [
            ("robot-7", "robot-7", true),
            ("robot-7", "robot-70", false),
            ("robot-7", "Robot-7", false),
            ("robot-*", "robot-", true),
            ("robot-*", "robot-7", true),
            ("robot-*", "robot", false),
            ("*", "", true),
            ("a", "", false),
            ("*-7", "robot-7-7", true),
            ("*-7", "robot-7-8", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("**", "x", true),
            ("*é", "café", true),
            ("fleet/*/arm", "fleet/3/4/arm", true),
        ] {
            assert_eq!(matches(pattern, name), is_match, "{pattern} {name}");
        }
    }

    #[test]
    fn what_can_match_no_name_is_no_pattern() {
        let (longest, too_long) = ("x".repeat(63), "x".repeat(64));
        assert!(longest.parse::<Pattern>().is_ok());
        assert!(format!("*{longest}*").parse::<Pattern>().is_ok());
        for bad in ["", "a b", "#robot", "a\tb", "a\u{7f}", &too_long, &"*".repeat(200)] {
            assert_eq!(bad.parse::<Pattern>(), Err(BadPattern), "{bad}");
        }
    }
}
