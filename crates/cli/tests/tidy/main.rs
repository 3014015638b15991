//! The repository keeps its own rules. Each test lists every breach as `file:line: what to do`.

mod cycles;
mod names;
mod rust;
mod signatures;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::rust::RustFile;

/// Crates of this workspace that each crate may import. A new crate is entered here first.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("freshline-core", &[]),
    ("freshline-system", &[]),
    ("freshline-report", &[]),
    ("freshline-lab", &["freshline-core"]),
    // The lab only for an example, whose QUIC comes from here.
    ("freshline-net", &["freshline-core", "freshline-system", "freshline-lab"]),
    ("freshline-kernel", &["freshline-core", "freshline-system"]),
    // The lab for simulations.
    ("freshline", &["freshline-core", "freshline-net", "freshline-lab"]),
    ("freshline-web", &["freshline", "freshline-core"]),
    ("freshline-c", &["freshline"]),
    ("freshline-py", &["freshline", "freshline-core", "freshline-lab"]),
    // A page runs the lab, and the laws in it.
    ("freshline-wasm", &["freshline-core", "freshline-lab"]),
    (
        "freshline-cli",
        &[
            "freshline",
            "freshline-core",
            "freshline-system",
            "freshline-lab",
            "freshline-net",
            "freshline-kernel",
            "freshline-web",
            "freshline-report",
        ],
    ),
];

/// Packages with such a prefix are imported by one crate only, and the module that other crates use
/// instead.
const ONLY_IN: &[(&str, &str, &str)] =
    &[("netlink-", "freshline-system", "freshline_system::netlink")];

/// Beyond this many lines a file holds two ideas.
const LONGEST: usize = 600;

/// Files that are longer all the same, with their length, which may only shrink.
const LONGER: &[(&str, usize)] = &[];

/// Generated files, whose length follows from their sources.
const GENERATED: &[&str] = &["crates/c/include/freshline.h"];

/// Functions of more lines hold two steps.
const LONGEST_FUNCTION: usize = 70;

/// The one file that reads clocks; all other code gets the time as an argument.
const CLOCK_FILE: &str = "crates/net/src/clock.rs";

/// The one file that writes standard error, so that a reader that is gone or hangs ends no run.
const STDERR_FILE: &str = "crates/cli/src/said.rs";

/// A text file of the repository, by its path from the root.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn read(path: &str) -> Self {
        let text = fs::read_to_string(root().join(path))
            .unwrap_or_else(|error| panic!("{path}: {error}; is it missing from the repository?"));
        Self { path: path.to_owned(), text }
    }

    /// The lines with their numbers from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    fn breach(&self, line: usize, what: impl AsRef<str>) -> String {
        format!("{}:{line}: {}", self.path, what.as_ref())
    }

    /// The number of the first line with `word` in it, or 1.
    fn line_of(&self, word: &str) -> usize {
        self.lines().find(|(_, line)| has_word(line, word)).map_or(1, |(number, _)| number)
    }
}

#[test]
fn crates_import_only_what_lies_below_them() {
    let breaches = sources("crates", &["toml"])
        .iter()
        .filter(|source| source.path.ends_with("/Cargo.toml"))
        .flat_map(forbidden_imports)
        .collect();
    assert_tidy(breaches);
}

#[test]
fn a_file_holds_one_idea() {
    let breaches = sources("crates", &["rs", "c", "h", "toml"])
        .iter()
        .filter(|source| !GENERATED.contains(&source.path.as_str()))
        .filter_map(too_long)
        .collect();
    assert_tidy(breaches);
}

#[test]
fn no_module_uses_one_that_uses_it() {
    assert_tidy(cycles::cycles(rust::files()));
}

#[test]
fn a_function_holds_one_step() {
    let breaches = rust::files().iter().flat_map(long_functions).collect();
    assert_tidy(breaches);
}

#[test]
fn public_fields_have_names_inside() {
    let fields =
        rust::files().iter().flat_map(|file| file.tuple_fields.iter().map(move |it| (file, it)));
    let breaches = fields
        .map(|(file, it)| {
            let what = format!("{} is a tuple; make it a struct with named fields", it.field);
            file.source.breach(it.line, what)
        })
        .collect();
    assert_tidy(breaches);
}

#[test]
fn identifiers_are_terms_of_the_field() {
    assert_tidy(names::breaches(rust::files()));
}

#[test]
fn clocks_are_read_in_one_file() {
    let breaches = sources("crates", &["rs"])
        .iter()
        .filter(|source| source.path.contains("/src/") && source.path != CLOCK_FILE)
        .flat_map(clock_readings)
        .collect();
    assert_tidy(breaches);
}

#[test]
fn sources_monitors_and_relays_go_by_the_library() {
    let is_of_them = |source: &&Source| {
        let name = source.path.trim_start_matches("crates/cli/src/");
        ["source", "monitor", "relay"].iter().any(|command| name.starts_with(command))
    };
    let breaches = sources("crates/cli/src", &["rs"])
        .iter()
        .filter(is_of_them)
        .flat_map(|source| {
            let what = "goes past the library; take it from `freshline` or `freshline::driver`";
            let past = source.lines().filter(|(_, line)| has_word(line, "freshline_net"));
            past.map(|(number, _)| source.breach(number, what)).collect::<Vec<_>>()
        })
        .collect();
    assert_tidy(breaches);
}

#[test]
fn standard_error_is_written_in_one_file() {
    let breaches = sources("crates/cli/src", &["rs"])
        .iter()
        .filter(|source| source.path != STDERR_FILE)
        .flat_map(stderr_writings)
        .collect();
    assert_tidy(breaches);
}

#[test]
fn unsafe_code_says_why_at_the_head_of_its_file() {
    let breaches = sources("crates", &["rs"]).iter().flat_map(unexplained_unsafe).collect();
    assert_tidy(breaches);
}

#[test]
fn ebpf_programs_are_shaped_alike() {
    let breaches = sources("crates/kernel/src", &["c"]).iter().flat_map(misshapen).collect();
    assert_tidy(breaches);
}

#[test]
fn relative_links_lead_to_files() {
    assert_tidy(documents().iter().flat_map(dead_links).collect());
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let summary = Source::read("docs/SUMMARY.md");
    let listed: BTreeSet<PathBuf> =
        links(&summary).filter_map(|(_, link)| target_of(&summary, link)).collect();
    let breaches = sources("docs", &["md"])
        .iter()
        .filter(|page| page.path != summary.path && !listed.contains(Path::new(&page.path)))
        .map(|page| page.breach(1, "not in docs/SUMMARY.md; add a line for it there"))
        .collect();
    assert_tidy(breaches);
}

#[test]
fn commands_in_the_documents_exist() {
    assert_tidy(documents().iter().flat_map(unknown_commands).collect());
}

#[test]
fn lock_files_are_kept() {
    let breaches = ["Cargo.lock", "fuzz/Cargo.lock"]
        .iter()
        .filter(|path| !root().join(path).is_file())
        .map(|path| format!("{path}:1: missing; builds must be repeatable, so commit it"))
        .collect();
    assert_tidy(breaches);
}

#[test]
fn modules_in_a_circle_are_found_through_re_exports_and_macros() {
    let file = |path: &str, text: &str| {
        RustFile::read(Source { path: format!("crates/x/src/{path}"), text: text.to_owned() })
    };
    let found = |files: &[RustFile]| cycles::cycles(files).len();
    let lib = || file("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;");
    let a = || file("a.rs", "use crate::B; pub struct A(B);");
    let in_macro = "fn f() { say!(\"{}\", crate::a::A::new()) } pub struct B;";
    assert_eq!(found(&[lib(), a(), file("b.rs", in_macro)]), 1);
    assert_eq!(found(&[lib(), a(), file("b.rs", "pub struct B;")]), 0);
    // Tests may use a module that uses theirs, and a module may use those below it.
    let in_test = "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }";
    assert_eq!(found(&[lib(), a(), file("b.rs", in_test)]), 0);
    let below = [file("lib.rs", "mod a;"), file("a/mod.rs", "mod c; use c::C; struct A(C);")];
    let [root, a] = below;
    assert_eq!(found(&[root, a, file("a/c.rs", "use super::A; pub struct C;")]), 0);
    // Nothing may use the definitions of the root.
    let root = file("lib.rs", "mod a; struct Failure; fn main() { a::run() }");
    assert_eq!(found(&[root, file("a.rs", "use crate::Failure; pub fn run() {}")]), 1);
}

#[test]
fn long_functions_tuples_and_names_are_found() {
    let long = format!("pub fn long() {{\n{}}}\n", "    step();\n".repeat(LONGEST_FUNCTION));
    let text = format!("{long}pub struct S {{ pub at: Option<(u8, u8)>, kept: (u8, u8) }}");
    let file = RustFile::read(Source { path: "crates/x/src/y.rs".to_owned(), text });
    assert_eq!(long_functions(&file).len(), 1);
    let fields: Vec<_> = file.tuple_fields.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(fields, ["S::at"]);
    for name in ["least_rtt", "LONGEST_WAIT", "MostWindow", "on_told", "Door", "way", "on_the_way"]
    {
        assert!(names::instead_of(name).is_some(), "{name}");
    }
    for name in ["min_rtt", "at_least", "most", "always", "away", "Longest", "comet"] {
        assert_eq!(names::instead_of(name), None, "{name}");
    }
}

#[test]
fn strings_and_comments_are_not_code() {
    assert_eq!(code_of("let url = \"udp://a\"; now() // unsafe"), "let url = \"\"; now() ");
    assert_eq!(code_of(r#"say("a \" quote"); rest"#), r#"say(""); rest"#);
    assert!(has_word("unsafe { x }", "unsafe") && has_word("#[unsafe(no_mangle)]", "unsafe"));
    assert!(!has_word("#![deny(unsafe_code)]", "unsafe"));
    assert!(!has_word("name = \"freshline-net\"", "freshline"));
}

#[test]
fn links_are_found_in_prose_and_commands_in_code() {
    let text = "[a](b.md) and ![c](d.png)\n```\n[no](no.md)\n$ freshline probe udp://a\n```\n\
                `[no](no.md)` [e](f.md#part)\nfreshline is no command here";
    let source = Source { path: "docs/x.md".to_owned(), text: text.to_owned() };
    let found: Vec<_> = links(&source).collect();
    assert_eq!(found, [(1, "b.md"), (1, "d.png"), (6, "f.md#part")]);
    assert_eq!(commands(&source).collect::<Vec<_>>(), [(4, "probe")]);
    assert_eq!(target_of(&source, "../y.md#part"), Some(PathBuf::from("y.md")));
    assert_eq!(target_of(&source, "https://example.org"), None);
}

fn forbidden_imports(manifest: &Source) -> Vec<String> {
    let parsed: toml::Table = match manifest.text.parse() {
        Ok(parsed) => parsed,
        Err(error) => return vec![manifest.breach(1, error.to_string())],
    };
    let name = parsed.get("package").and_then(|package| package.get("name")?.as_str());
    let Some((_, allowed)) = MAY_IMPORT.iter().find(|(known, _)| Some(*known) == name) else {
        let what = "no rule says what this crate may import; add it to MAY_IMPORT in tidy";
        return vec![manifest.breach(1, what)];
    };
    let mut breaches = Vec::new();
    for import in imports(&parsed) {
        let line = manifest.line_of(&import);
        if import.starts_with("freshline") && !allowed.contains(&import.as_str()) {
            let what = format!("must not import {import}; move shared parts to freshline-core");
            breaches.push(manifest.breach(line, what));
        }
        let only_in = ONLY_IN.iter().find(|(prefix, ..)| import.starts_with(prefix));
        if let Some((_, only, instead)) = only_in.filter(|(_, only, _)| Some(*only) != name) {
            let what = format!("{import} is for {only} alone; use {instead}");
            breaches.push(manifest.breach(line, what));
        }
    }
    breaches
}

/// The packages in every dependency table of a manifest, by their real names.
fn imports(table: &toml::Table) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in table {
        let Some(value) = value.as_table() else { continue };
        if key.ends_with("dependencies") {
            found.extend(value.iter().map(|(name, dependency)| {
                let renamed = dependency.get("package").and_then(toml::Value::as_str);
                renamed.unwrap_or(name).to_owned()
            }));
        } else {
            found.extend(imports(value));
        }
    }
    found
}

fn too_long(source: &Source) -> Option<String> {
    let lines = source.text.lines().count();
    let limit = match LONGER.iter().find(|(path, _)| *path == source.path) {
        Some((_, limit)) if lines < *limit => {
            let what = format!("shrank to {lines} lines; say so in LONGER in tidy");
            return Some(source.breach(lines, what));
        }
        Some((_, limit)) => *limit,
        None => LONGEST,
    };
    let what = format!("{lines} lines, {limit} are allowed; split it where the second idea begins");
    (lines > limit).then(|| source.breach(lines, what))
}

fn long_functions(file: &RustFile) -> Vec<String> {
    let breach = |function: &rust::Function| {
        let rust::Function { line, name, lines } = function;
        let what = format!(
            "`{name}` has {lines} lines, {LONGEST_FUNCTION} are allowed; split it into its steps"
        );
        (*lines > LONGEST_FUNCTION).then(|| file.source.breach(*line, what))
    };
    file.functions.iter().filter_map(breach).collect()
}

fn clock_readings(source: &Source) -> Vec<String> {
    let reads = |line: &str| {
        let code = code_of(line);
        ["Instant::now", "SystemTime::now", "clock_gettime"].iter().any(|call| code.contains(call))
    };
    let what = format!("reads a clock; take `now: Time` as an argument, or go by {CLOCK_FILE}");
    let found = source.lines().filter(|(_, line)| reads(line));
    found.map(|(number, _)| source.breach(number, &what)).collect()
}

fn stderr_writings(source: &Source) -> Vec<String> {
    let writes = |line: &str| {
        let code = code_of(line);
        let asks_only = code.contains("is_terminal");
        !asks_only && ["eprint", "io::stderr()"].iter().any(|call| code.contains(call))
    };
    let what = format!("writes standard error; use `say!` or `Stderr` of {STDERR_FILE}");
    let found = source.lines().filter(|(_, line)| writes(line));
    found.map(|(number, _)| source.breach(number, &what)).collect()
}

fn unexplained_unsafe(source: &Source) -> Option<String> {
    let mut header = source.text.lines().take_while(|line| line.starts_with("//!"));
    if header.any(|line| line.starts_with("//! Unsafe: ")) {
        return None;
    }
    let (number, _) = source.lines().find(|(_, line)| has_word(&code_of(line), "unsafe"))?;
    let what = "unsafe code; do without, or say why in the file's header: `//! Unsafe: <why>`";
    Some(source.breach(number, what))
}

/// The files that are missing next to an eBPF program.
fn misshapen(program: &Source) -> Vec<String> {
    let Some(folder) = program.path.strip_suffix("/main.bpf.c") else {
        return vec![program.breach(1, "a program's file is main.bpf.c, in a folder of its own")];
    };
    // Similar programs share it, in the folder above.
    let interfaces = ["intf.h", "../intf.h"];
    [(&interfaces[..], "the interface with its loader"), (&["mod.rs"], "its loader")]
        .into_iter()
        .filter(|(names, _)| !names.iter().any(|name| root().join(folder).join(name).is_file()))
        .map(|(names, what)| program.breach(1, format!("no {} for {what}", names.join(" or "))))
        .collect()
}

fn dead_links(document: &Source) -> Vec<String> {
    let dead =
        |link: &str| target_of(document, link).is_some_and(|path| !root().join(path).exists());
    links(document)
        .filter(|(_, link)| dead(link))
        .map(|(number, link)| {
            document.breach(number, format!("`{link}` leads nowhere; correct it"))
        })
        .collect()
}

fn unknown_commands(document: &Source) -> Vec<String> {
    commands(document)
        .filter(|(_, name)| !is_subcommand(name))
        .map(|(number, name)| {
            document
                .breach(number, format!("`freshline {name}` does not exist; correct the example"))
        })
        .collect()
}

/// The targets of a document's inline links and images, with their lines, code left out.
fn links(document: &Source) -> impl Iterator<Item = (usize, &str)> {
    lines_in(Part::Prose, document).flat_map(|(number, line)| {
        // Every second piece between backticks is code.
        let prose = line.split('`').step_by(2);
        let starts = prose.flat_map(|piece| piece.split("](").skip(1));
        starts.filter_map(move |start| Some((number, start.split_once(')')?.0)))
    })
}

/// The subcommands of `freshline` that a document's examples call, with their lines.
fn commands(document: &Source) -> impl Iterator<Item = (usize, &str)> {
    lines_in(Part::Code, document).filter_map(|(number, line)| {
        let line = line.trim_start();
        let call = line.strip_prefix("$ ").unwrap_or(line).strip_prefix("freshline ")?;
        let name = call.split_whitespace().next()?;
        (!name.starts_with('-')).then_some((number, name))
    })
}

fn is_subcommand(name: &str) -> bool {
    let help = Command::new(env!("CARGO_BIN_EXE_freshline")).args([name, "--help"]).output();
    help.expect("freshline starts").status.success()
}

/// The two parts of a document: the text outside of fences, and the text inside.
#[derive(PartialEq)]
enum Part {
    Prose,
    Code,
}

fn lines_in(part: Part, document: &Source) -> impl Iterator<Item = (usize, &str)> {
    let mut now = Part::Prose;
    document.lines().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        if fence {
            now = if now == Part::Prose { Part::Code } else { Part::Prose };
        }
        !fence && now == part
    })
}

/// The file that a relative link leads to, from the root; nothing for links to other sites or
/// within the page.
fn target_of(document: &Source, link: &str) -> Option<PathBuf> {
    let file = link.split('#').next().filter(|file| !file.is_empty())?;
    if file.contains("://") || file.starts_with("mailto:") {
        return None;
    }
    let mut path = PathBuf::new();
    for part in Path::new(&document.path).parent()?.join(file).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    Some(path)
}

/// A line of Rust without its line comment and with its strings emptied. Strings are taken to end
/// with their line, which is near enough for looking for words.
fn code_of(line: &str) -> String {
    let mut code = String::new();
    let mut rest = line.chars().peekable();
    let mut in_string = false;
    while let Some(c) = rest.next() {
        match c {
            '\\' if in_string => _ = rest.next(),
            '"' => {
                in_string = !in_string;
                code.push(c);
            }
            _ if in_string => {}
            '/' if rest.peek() == Some(&'/') => break,
            _ => code.push(c),
        }
    }
    code
}

/// Whether `word` occurs in the text as a whole word; `-` and `_` belong to words, as in package
/// names.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').any(|token| token == word)
}

/// The prose of the repository: the pages at its root and the book.
fn documents() -> Vec<Source> {
    let at_root = entries(&root()).into_iter().filter(|path| has_extension(path, &["md"]));
    let mut documents: Vec<_> = at_root.map(|path| Source::read(&from_root(&path))).collect();
    documents.extend(sources("docs", &["md"]));
    documents
}

/// Every file below `folder` with one of the extensions, in order of path.
fn sources(folder: &str, extensions: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else if has_extension(&path, extensions) {
                found.push(Source::read(&from_root(&path)));
            }
        }
    }
    assert!(!found.is_empty(), "{folder}: no files to look at; has it moved?");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listing =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = listing.map(|entry| entry.expect("a readable folder").path());
    // A symbolic link duplicates another path.
    paths.filter(|path| !path.is_symlink()).collect()
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|found| extensions.iter().any(|wanted| found == *wanted))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn from_root(path: &Path) -> String {
    let relative = path.strip_prefix(root()).expect("a path below the root");
    relative.to_str().expect("a path in UTF-8").to_owned()
}

fn assert_tidy(breaches: Vec<String>) {
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}
