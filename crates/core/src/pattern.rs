//! Patterns of names, in which `*` matches any characters, including none.

use alloc::vec::Vec;

/// Whether all of `name` matches `pattern`. The work is at most the product of both lengths.
pub fn matches(pattern: &str, name: &str) -> bool {
    all_match(pattern.as_bytes(), name.as_bytes(), b'*', |one, other| one == other)
}

/// The same, for patterns in which `?` stands for one character.
pub fn matches_with_marks(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    all_match(&pattern, &name, '*', |one, other| one == '?' || one == other)
}

fn all_match<T: Copy + PartialEq>(
    pattern: &[T],
    name: &[T],
    any: T,
    fits: impl Fn(T, T) -> bool,
) -> bool {
    let (mut at, mut from) = (0, 0);
    // The last `*`, and where in the name the text behind it was tried last.
    let mut star = None;
    while from < name.len() {
        if pattern.get(at) == Some(&any) {
            star = Some((at, from));
            at += 1;
        } else if pattern.get(at).is_some_and(|one| fits(*one, name[from])) {
            (at, from) = (at + 1, from + 1);
        } else if let Some((star_at, tried)) = star {
            star = Some((star_at, tried + 1));
            (at, from) = (star_at + 1, tried + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|rest| *rest == any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
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
            assert_eq!(matches_with_marks(pattern, text), is_match, "{pattern} {text}");
        }
        let long = "a".repeat(63);
        assert!(!matches_with_marks(&"a*".repeat(500), &format!("{long}b").replace('a', "b")));
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
