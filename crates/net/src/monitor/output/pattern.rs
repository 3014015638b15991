//! Which states a subscriber wants.

use freshline_core::pattern::matches_with_marks;
use serde_json::{Map, Value, json};

/// Patterns of the names of a source, of a topic and of a key. In each, `*` matches any characters
/// and `?` one character.
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

    /// Patterns separated by tabs; a missing or empty pattern matches all.
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
        matches_with_marks(source, field("source"))
            && matches_with_marks(topic, field("topic"))
            && matches_with_marks(key, field("key"))
    }

    /// The answer to a reader that has sent these patterns.
    pub(super) fn line(&self) -> Value {
        let Self { source, topic, key } = self;
        json!({"subscribed": {"source": source, "topic": topic, "key": key}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
