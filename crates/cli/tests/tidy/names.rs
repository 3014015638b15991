//! Identifiers are terms of the field, for which an engineer would search.
//!
//! Tests are not checked. An identifier is split at `_` and at capital letters, and its
//! words are compared with the lists below.

use crate::rust::{Declared, RustFile};

/// Words that no identifier has, each with what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("anew", "restart"),
    ("anybody", "the role, such as peer"),
    ("beside", "other or alongside"),
    ("came", "arrived or received"),
    ("come", "arrived or received"),
    ("comes", "arrives"),
    ("door", "the protocol's term"),
    ("nobody", "none"),
    ("somebody", "the role, such as peer"),
    ("stands", "standing, as in standing queue"),
    ("stood", "standing, as in standing queue"),
    ("tell", "report, print or notify"),
    ("teller", "reporter"),
    ("tells", "reports"),
    ("told", "reported"),
    ("unasking", "without_ack_request"),
    ("waits", "queueing_delays or is_waiting"),
    ("way", "path or direction"),
    ("ways", "paths or directions"),
    ("who", "the role, such as peer"),
    ("whom", "the role, such as peer"),
];

/// First words of identifiers of several words, likewise.
const FIRST_WORDS: &[(&str, &str)] =
    &[("least", "min"), ("longest", "max"), ("most", "max"), ("shortest", "min")];

/// Identifiers that stay, with the reason.
const KEPT: &[(&str, &str)] = &[
    ("gives_way", "to yield a place to a newcomer"),
    ("one_way", "a one-way delay"),
    ("one_way_delay_ms", "likewise, a key of JSON"),
    ("least_common_multiple", "a term of arithmetic"),
];

/// Files and folders whose identifiers are renamed with the work that goes on there, with the reason.
const LATER: &[(&str, &str)] = &[
    ("crates/core/src/session/downlink/", "names of before the endpoint contract"),
    ("crates/net/src/downlink/", "names of before the endpoint contract"),
];

/// One message per file and identifier that is not a term, and per exception that is not needed.
pub(crate) fn breaches(files: &[RustFile]) -> Vec<String> {
    let mut found = Vec::new();
    let (mut kept, mut later) = (vec![false; KEPT.len()], vec![false; LATER.len()]);
    for file in files {
        let postponed = LATER.iter().position(|(path, _)| file.source.path.starts_with(path));
        let mut known: Vec<&str> = Vec::new();
        for Declared { line, name, .. } in file.declared.iter().filter(|it| !it.in_test) {
            let Some(instead) = instead_of(name) else { continue };
            if let Some(at) = KEPT.iter().position(|(kept, _)| kept == name) {
                kept[at] = true;
            } else if let Some(at) = postponed {
                later[at] = true;
            } else if !known.contains(&name.as_str()) {
                known.push(name);
                found.push(file.source.breach(*line, format!("`{name}`: write {instead}")));
            }
        }
    }
    let entries = KEPT.iter().zip(kept).chain(LATER.iter().zip(later));
    let unused = entries.filter(|(_, is_used)| !is_used).map(|((name, _), _)| name);
    found.extend(unused.map(|name| {
        format!("crates/cli/tests/tidy/names.rs:1: `{name}` needs no exception; remove it")
    }));
    found
}

/// What to write instead of an identifier, or of a part of it.
pub(crate) fn instead_of(name: &str) -> Option<String> {
    let words = words(name);
    let of = |list: &[(&str, &str)], word: &str| {
        let entry = list.iter().find(|(known, _)| *known == word)?;
        Some(format!("{} instead of `{}`", entry.1, entry.0))
    };
    let first = words.first().filter(|_| words.len() > 1).and_then(|word| of(FIRST_WORDS, word));
    first.or_else(|| words.iter().find_map(|word| of(WORDS, word)))
}

/// The words of an identifier in any of Rust's cases, in small letters.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() && was_small {
            words.push(String::new());
        }
        was_small = letter.is_lowercase() || letter.is_ascii_digit();
        if letter != '_' {
            words.last_mut().expect("never empty").extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
