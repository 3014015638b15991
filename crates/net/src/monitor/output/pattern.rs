//! Which states a subscriber wants.

use serde_json::{Map, Value, json};

/// Patterns of the names of a source, of a topic and of a key. In each, `*` is any characters and `?` is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    source: String,
    topic: String,
    key: String,
}

impl Wanted {
    /// All states.
    pub(super) fn all() -> Self {
        Self::parse("")
    }

    /// Patterns with tabs between them; those that are missing or empty stand for all.
    pub(super) fn parse(line: &str) -> Self {
        let mut fields = line.trim_end_matches(['\r', '\n']).split('\t');
        let mut next = || match fields.next().unwrap_or_default() {
            "" => "*".to_owned(),
            pattern => pattern.to_owned(),
        };
        Self { source: next(), topic: next(), key: next() }
    }

    /// Whether a line is wanted.
    pub(super) fn takes(&self, line: &Map<String, Value>) -> bool {
        let field = |name| line.get(name).and_then(Value::as_str).unwrap_or_default();
        let Self { source, topic, key } = self;
        matches(source, field("source"))
            && matches(topic, field("topic"))
            && matches(key, field("key"))
    }

    /// The answer to a reader that has sent it.
    pub(super) fn line(&self) -> Value {
        let Self { source, topic, key } = self;
        json!({"subscribed": {"source": source, "topic": topic, "key": key}})
    }
}

/// Whether a text is of a pattern. Takes at most as many steps as the product of their lengths.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut of) = (0, 0);
    // After the last star, and what it stands for so far.
    let mut star = None;
    while at < text.len() {
        match pattern.get(of) {
            Some('*') => {
                of += 1;
                star = Some((of, at));
            }
            Some(one) if *one == '?' || *one == text[at] => (at, of) = (at + 1, of + 1),
            _ => match &mut star {
                Some((after, end)) => {
                    *end += 1;
                    (at, of) = (*end, *after);
                }
                None => return false,
            },
        }
    }
    pattern[of..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_stand_for_characters() {
        for (pattern, text, is_match) in [
            ("*", "", true),
            ("*", "tf", true),
            ("arm_*", "arm_left", true),
            ("arm_*", "base", false),
            ("*_link", "arm_link_link", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("l?nk", "link", true),
            ("l?nk", "lnk", false),
            ("gr?n", "gr\u{fc}n", true),
            ("link", "link_2", false),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, text), is_match, "{pattern} {text}");
        }
        let long = "a".repeat(63);
        assert!(!matches(&"a*".repeat(500), &format!("{long}b").replace('a', "b")));
    }

    #[test]
    fn missing_patterns_take_all() {
        let line = |key: &str| {
            let line = json!({"source": "robot-7", "topic": "tf", "key": key});
            line.as_object().cloned().unwrap_or_default()
        };
        let takes = |request, key| Wanted::parse(request).takes(&line(key));
        assert!(takes("\n", "arm") && takes("robot-*\n", "arm") && takes("\ttf\tarm*", "arm_1"));
        assert!(
            !takes("robot-8", "arm") && !takes("\ttf\tarm*", "base") && !takes("*\tmap", "arm")
        );
        assert!(Wanted::parse("\t\t*").takes(&Map::new()));
    }
}
