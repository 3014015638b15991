//! Public signatures name no type of a third-party crate, so that a dependency can be replaced or
//! updated without a change for users of this crate. Error sources may: a type of an error is for
//! its text.
//!
//! Items with `pub` in the text are public: the lint `unreachable_pub` makes everything else
//! `pub(crate)`.

use std::collections::BTreeSet;

use super::{Source, assert_tidy, code_of, has_word, sources};

/// The crates whose public signatures are checked.
const CRATES: &[&str] = &["core", "kernel", "lab", "net"];

/// Third-party crates whose types may be in a crate's signatures all the same.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("core", "rand", "traits: callers bring their generator"),
    ("core", "rand_pcg", "results depend on the stream of the generator, so it is named"),
    ("core", "serde", "traits"),
    ("kernel", "serde", "traits"),
    ("lab", "rand_pcg", "as in core"),
    ("lab", "serde", "traits"),
    ("lab", "toml", "a scenario's parameters are TOML values, whatever their types"),
    (
        "net",
        "prometheus_client",
        "the command adds its metrics to the text that the listener serves",
    ),
    ("net", "serde", "traits"),
];

#[test]
fn public_signatures_name_no_type_of_another_project() {
    let mut breaches = Vec::new();
    for name in CRATES {
        let folder = format!("crates/{name}");
        let manifest = Source::read(&format!("{folder}/Cargo.toml"));
        let third_party = third_party(name, &manifest);
        for source in sources(&format!("{folder}/src"), &["rs"]) {
            breaches.extend(foreign_types(&source, &third_party));
        }
    }
    assert_tidy(breaches);
}

#[test]
fn types_of_others_are_found_in_what_is_public() {
    let found = |text: &str| {
        let source = Source { path: "x.rs".to_owned(), text: text.to_owned() };
        let third_party = ["mio", "bytes"].map(str::to_owned);
        foreign_types(&source, &BTreeSet::from(third_party))
            .iter()
            .map(|breach| breach.split(':').nth(1).unwrap().parse().unwrap())
            .collect::<Vec<usize>>()
    };
    let imports = "use bytes::Bytes;\nuse mio::{Poll, Waker as W, net::UdpSocket};\n";
    for (item, lines) in [
        ("pub fn a(x: u8) -> Bytes {\n    let y: Poll;\n}\n", &[3][..]),
        ("pub fn a(\n    x: &[W],\n) {\n}\n", &[3]),
        ("pub fn a() -> mio::Events {\n}\n", &[3]),
        ("pub(crate) fn a() -> Bytes {\n}\nfn b() -> Bytes {\n}\n", &[]),
        ("pub struct A {\n    x: Bytes,\n    pub y: UdpSocket,\n    pub z: u8,\n}\n", &[5]),
        ("pub struct A {\n    pub y: Map<u8, Bytes>,\n}\npub const B: u8 = Poll::C;\n", &[4]),
        ("pub struct A(Bytes);\npub struct B(pub Bytes);\n", &[4]),
        ("pub enum A {\n    B(u8),\n    C(Bytes),\n}\n", &[3]),
        ("#[derive(Debug, thiserror::Error)]\npub enum A {\n    C(Bytes),\n}\n", &[]),
        ("pub trait A {\n    fn b(&self, x: Bytes) -> u8;\n}\n", &[3]),
        ("/// A [`Bytes`].\npub fn a() {}\n", &[]),
        ("#[cfg(test)]\nmod tests {\n    pub fn a() -> Bytes {}\n}\n", &[]),
        ("pub use mio::Token;\npub type A = Vec<Bytes>;\n", &[3, 4]),
    ] {
        assert_eq!(found(&format!("{imports}{item}")), lines, "{item}");
    }
}

/// The third-party crates that a crate depends on and whose types its signatures must not name.
fn third_party(name: &str, manifest: &Source) -> BTreeSet<String> {
    let parsed: toml::Table = manifest.text.parse().expect("a manifest");
    let dependencies = parsed["dependencies"].as_table().expect("a table");
    let is_allowed =
        |other: &String| ALLOWED.iter().any(|(ours, known, _)| *ours == name && known == other);
    dependencies
        .keys()
        .filter(|dependency| !dependency.starts_with("freshline"))
        .map(|dependency| dependency.replace('-', "_"))
        // The one whose library has another name.
        .map(|dependency| dependency.replace("rustls_webpki", "webpki"))
        .filter(|dependency| !is_allowed(dependency))
        .collect()
}

fn foreign_types(source: &Source, third_party: &BTreeSet<String>) -> Vec<String> {
    let lines: Vec<_> = source.text.lines().map(code_of).collect();
    let tests = source.text.lines().zip(source.text.lines().skip(1)).position(|(line, next)| {
        line.trim_start() == "#[cfg(test)]" && next.starts_with("mod ") && next.ends_with('{')
    });
    let lines = &lines[..tests.unwrap_or(lines.len())];
    let imported: BTreeSet<_> =
        (0..lines.len()).flat_map(|at| imported_types(lines, at, third_party)).collect();
    let is_foreign = |text: &str| {
        third_party.iter().any(|name| text.contains(&format!("{name}::")))
            || imported.iter().any(|name| has_word(text, name))
    };
    let mut breaches = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if !line.trim_start().starts_with("pub ") {
            continue;
        }
        let text = public_text(lines, at);
        if is_foreign(&text) {
            let what = "a public signature with a type of a third-party crate; use a type of this crate, \
                        or a reason in ALLOWED in tests/tidy/signatures.rs";
            breaches.push(source.breach(at + 1, what));
        }
    }
    breaches
}

/// The types that the statement in this line imports from one of these crates, by the names that they have
/// here.
fn imported_types(lines: &[String], at: usize, third_party: &BTreeSet<String>) -> Vec<String> {
    let line = lines[at].trim_start();
    let path = line.strip_prefix("use ").and_then(|path| path.split_once("::"));
    if !path.is_some_and(|(name, _)| third_party.contains(name)) {
        return Vec::new();
    }
    let statement = until(lines, at, &[';']);
    let is_renamed = |rest: &str| rest.trim_start().starts_with("as ");
    let mut names = Vec::new();
    for (index, name) in words(&statement) {
        if name.starts_with(char::is_uppercase) && !is_renamed(&statement[index + name.len()..]) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The words of a text, and where they begin.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.split(move |c| !is_part(c))
        .filter(|word| !word.is_empty())
        .map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

/// The public part of the item that begins in this line.
fn public_text(lines: &[String], at: usize) -> String {
    let line = lines[at].trim_start();
    let item = line.trim_start_matches("pub ");
    let indent = &lines[at][..lines[at].len() - line.len()];
    if item.starts_with("enum ") || item.starts_with("trait ") {
        let attributes = lines[..at].iter().rev().take_while(|line| line.trim().starts_with('#'));
        if attributes.into_iter().any(|line| line.contains("Error")) {
            return String::new();
        }
        let is_body = |line: &&String| **line != format!("{indent}}}");
        return lines[at..].iter().take_while(is_body).cloned().collect::<Vec<_>>().join("\n");
    }
    if item.starts_with("struct ") {
        // Fields with names begin lines of their own.
        let head = until(lines, at, &['{', ';']);
        let (front, fields) = head.split_once('(').unwrap_or((&head, ""));
        let fields = fields.split("pub ").skip(1).collect::<Vec<_>>().join(" ");
        return format!("{front} {fields}");
    }
    if item.contains(" fn ") || item.starts_with("fn ") {
        return until(lines, at, &['{', ';']);
    }
    // Fields, constants, types and re-exports.
    let last = lines[at..].iter().take_while(|line| !line.ends_with([',', ';'])).count();
    let text = lines[at..].iter().take(last + 1).cloned().collect::<Vec<_>>().join("\n");
    text.split(" = ").take(if item.starts_with("type ") { 2 } else { 1 }).collect()
}

/// The text from this line on, up to one of these characters.
fn until(lines: &[String], at: usize, ends: &[char]) -> String {
    let mut text = String::new();
    for line in &lines[at..] {
        match line.find(ends) {
            Some(end) => {
                text.push_str(&line[..end]);
                break;
            }
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}
