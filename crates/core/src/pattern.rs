//! Patterns of names, in which `*` stands for any characters, also none.

/// Whether all of `name` matches `pattern`. The work is at most the product of both lengths.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut from) = (0, 0);
    // The last `*`, and where in the name the text behind it was tried last.
    let mut star = None;
    while from < name.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at, from));
            at += 1;
        } else if pattern.get(at) == Some(&name[from]) {
            (at, from) = (at + 1, from + 1);
        } else if let Some((star_at, tried)) = star {
            star = Some((star_at, tried + 1));
            (at, from) = (star_at + 1, tried + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition.
    fn is_match(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|at| is_match(rest, &name[at..])),
            Some((byte, rest)) => name
                .split_first()
                .is_some_and(|(first, name)| first == byte && is_match(rest, name)),
        }
    }

    proptest! {
        #[test]
        fn matching_is_as_defined(pattern in "[ab*]{1,8}", name in "[ab]{0,8}") {
            prop_assert_eq!(
                matches(&pattern, &name),
                is_match(pattern.as_bytes(), name.as_bytes())
            );
        }
    }
}
