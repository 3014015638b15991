//! The figures and tables of the papers, and the lines that reproduce each of them.
//!
//! ```text
//!   papers.toml: each figure, table, number ─┐
//!   a line's `quote` or `what`, otherwise    ├─► one row per figure: lines that hold, are broken, …
//!   its scenario's `of`: "Figures 4, 15" ────┤                       or why no line shows it
//!   `omitted`: "Figure 12: …" ───────────────┘
//!
//!   "Shreedhar-et-al Figure 6; Shreedhar-thesis Figure 4.6": without a key, the paper of the
//!   previous reference
//! ```

use std::fmt::Write;
use std::sync::LazyLock;

use freshline_lab::reproduce::{Compared, Verdict};
use freshline_lab::scenario::Omitted;
use serde::Deserialize;

use super::table::{Table, cell, holds_without_law, is_judged};

const PAPERS: &str = include_str!("papers.toml");

/// A paper, and its figures and tables.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    /// The prefix of `of` in its scenarios.
    id: String,
    /// Authors and title.
    name: String,
    /// Each figure and table, with a description.
    shows: Vec<(String, String)>,
    /// The numbers in its text; only a test needs them.
    #[cfg_attr(not(test), expect(dead_code, reason = "the test of completeness alone needs it"))]
    says: Vec<String>,
}

/// The papers whose figures are all known.
pub(super) fn all() -> &'static [Paper] {
    #[derive(Deserialize)]
    struct File {
        paper: Vec<Paper>,
    }
    static ALL: LazyLock<Vec<Paper>> =
        LazyLock::new(|| toml::from_str::<File>(PAPERS).map(|file| file.paper).unwrap_or_default());
    &ALL
}

/// The reference of a scenario, with the authors in place of the keys of papers.
pub(super) fn cited(of: &str) -> String {
    quoted(of, "")
}

/// A quotation or the text of an omitted entry, with the authors in place of the keys of papers;
/// the scenario's own paper is left out.
pub(super) fn quoted(text: &str, of: &str) -> String {
    let parts = parts(text).into_iter().map(|(paper, text)| match paper {
        Some(paper) if !paper.has(of) => format!("{}, {text}", paper.authors()),
        _ => text,
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// A text split before the key of each paper, with the papers.
fn parts(text: &str) -> Vec<(Option<&'static Paper>, String)> {
    let mut parts: Vec<(Option<&Paper>, String)> = Vec::new();
    for word in text.split_whitespace() {
        let paper = all().iter().find(|paper| paper.id == word);
        match parts.last_mut() {
            Some((_, text)) if paper.is_none() => {
                text.push_str(if text.is_empty() { "" } else { " " });
                text.push_str(word);
            }
            _ if paper.is_some() => parts.push((paper, String::new())),
            _ => parts.push((None, word.to_owned())),
        }
    }
    let last = parts.len().saturating_sub(1);
    for (_, text) in parts.iter_mut().take(last) {
        text.truncate(text.trim_end_matches([',', ';']).len());
    }
    parts
}

/// An omitted entry, with the name of its scenario and the reference of that scenario.
pub(super) struct Left {
    pub(super) name: String,
    pub(super) of: String,
    pub(super) omitted: Omitted,
}

impl Paper {
    fn authors(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }

    /// Whether a scenario's `of` begins with the paper.
    fn has(&self, of: &str) -> bool {
        of.split_whitespace().next() == Some(&self.id)
    }

    /// Whether a scenario's `of` cites the paper, in any position.
    fn is_in(&self, of: &str) -> bool {
        of.split_whitespace().any(|word| word == self.id)
    }

    /// The figures and tables of this paper that are named in a text of a scenario.
    fn labels(&self, text: &str, of: &str) -> Vec<String> {
        let cites = |paper: Option<&Paper>| paper.map_or(self.has(of), |paper| paper.id == self.id);
        let parts = parts(text).into_iter().filter(|(paper, _)| cites(*paper));
        parts.flat_map(|(_, text)| labels(&text)).collect()
    }

    /// Whether a line belongs to a figure: its quotation or its words name it, or they name no
    /// figure and the scenario reproduces only this one. A line with a quotation from the text
    /// belongs to none of several figures.
    fn shows(&self, table: &Table, row: &Compared, label: &str) -> bool {
        if !is_judged(row) {
            return false;
        }
        let Table { of, .. } = table;
        let texts = || [Some(&row.what), row.quote.as_ref()].into_iter().flatten();
        let names_none = texts().all(|text| labels(text).is_empty());
        let mut named = texts().flat_map(|text| self.labels(text, of));
        named.any(|named| named == label)
            || names_none && labels(of).len() == 1 && self.labels(of, of) == [label]
    }

    /// One row per figure and table: its lines by verdict, or why it has no lines.
    pub(super) fn page(&self, tables: &[Table], left: &[Left]) -> String {
        let mut rows = String::new();
        let (mut shown, mut in_part, mut omitted) = (0, 0, 0);
        for (label, what) in &self.shows {
            let mut names = Vec::new();
            let mut counts = [0; 4];
            for table in tables.iter().filter(|table| self.is_in(&table.of)) {
                for row in table.rows.iter().filter(|row| self.shows(table, row, label)) {
                    counts[match row.verdict {
                        Verdict::Holds if holds_without_law(row) => 1,
                        Verdict::Holds => 0,
                        Verdict::Broken => 2,
                        _ => 3,
                    }] += 1;
                    if !names.contains(&table.name.as_str()) {
                        names.push(&table.name);
                    }
                }
            }
            let why = self.left_out(left, label);
            match (names.is_empty(), why.is_empty()) {
                (false, true) => shown += 1,
                (false, false) => in_part += 1,
                (true, _) => omitted += 1,
            }
            let counts = counts
                .map(|count| if names.is_empty() { String::new() } else { count.to_string() });
            let [holds, both, broken, undecided] = counts;
            let names = names.join(", ");
            let (what, why) = (cell(what), cell(&why.join("; ")));
            let _ = writeln!(
                rows,
                "| {label} | {what} | {names} | {holds} | {both} | {broken} | {undecided} | {why} |"
            );
        }
        format!(
            "\n## {}: figures and tables\n\n{} figures and tables: {shown} have lines for all that \
             can be judged, {in_part} in part, {omitted} have none, for the reason given.\n\n\
             | | shows | `lab reproduce` | hold | hold also without the law | broken | undecided | not \
             shown, and why |\n|---|---|---|---:|---:|---:|---:|---|\n{rows}",
            self.name,
            self.shows.len()
        )
    }

    /// The parts of a figure that no line reproduces, with reasons.
    fn left_out(&self, left: &[Left], label: &str) -> Vec<String> {
        let of_paper = left.iter().filter(|left| self.is_in(&left.of));
        let entries = of_paper.filter(|Left { of, omitted, .. }| {
            self.labels(&omitted.what, of).iter().any(|named| named == label)
        });
        entries
            .map(|Left { of, omitted: Omitted { what, why }, .. }| {
                let what = quoted(what, of);
                match what.split_once(": ").filter(|(place, _)| *place == label) {
                    Some((_, rest)) => format!("{rest}: {why}"),
                    None if what == label => why.clone(),
                    None => format!("{what}: {why}"),
                }
            })
            .collect()
    }
}

/// The figures and tables named in a text: "Figures 2.10 to 2.12, 2.17 and Table II".
pub(super) fn labels(text: &str) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    let mut kind = None;
    let mut is_range = false;
    for word in text.split_whitespace() {
        let bare = word.trim_matches(&[',', ';', ':', '.', ')', '('][..]);
        match (bare, kind) {
            ("Figure" | "Figures", _) => (kind, is_range) = (Some("Figure"), false),
            ("Table" | "Tables", _) => (kind, is_range) = (Some("Table"), false),
            ("and", Some(_)) => {}
            ("to", Some(_)) => is_range = true,
            // A part of the previous figure: "(b)".
            (_, Some(_)) if word.starts_with('(') && bare.len() <= 1 => {}
            (_, Some(which)) if is_label(whole(bare)) => {
                let bare = whole(bare);
                if let Some(before) = labels.last().filter(|_| is_range) {
                    labels.extend(between(before, &format!("{which} {bare}")));
                }
                is_range = false;
                labels.push(format!("{which} {bare}"));
                if word.ends_with([':', ';', '.']) {
                    kind = None;
                }
            }
            _ => kind = None,
        }
    }
    labels
}

/// A label without the letter of a part: "4.8a".
fn whole(word: &str) -> &str {
    word.strip_suffix(|last: char| last.is_ascii_lowercase()).unwrap_or(word)
}

/// A number with or without its chapter, or a Roman one.
fn is_label(word: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_roman = !word.is_empty() && word.bytes().all(|byte| b"IVX".contains(&byte));
    is_roman || word.splitn(2, '.').all(is_number)
}

/// The labels between two labels of one chapter.
fn between(from: &str, to: &str) -> Vec<String> {
    let split = |label: &str| {
        let at = label.rfind(['.', ' '])?;
        Some((label[..=at].to_owned(), label[at + 1..].parse::<u32>().ok()?))
    };
    match (split(from), split(to)) {
        (Some((chapter, from)), Some((same, to))) if chapter == same => {
            (from + 1..to).map(|number| format!("{chapter}{number}")).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::record::{omitted, recorded};
    use super::*;
    use freshline_lab::library;

    #[test]
    fn labels_are_read_as_papers_are_cited() {
        let read = |text| labels(text).join(" ");
        assert_eq!(
            read("Im-thesis Figures 2.10 to 2.12, 2.17"),
            "Figure 2.10 Figure 2.11 Figure 2.12 Figure 2.17"
        );
        assert_eq!(read("Tseng-et-al Figure 16, Table II"), "Figure 16 Table II");
        assert_eq!(read("Table I: (13.57 ms, 7.52 Mbps)"), "Table I");
        assert_eq!(
            read("Hassani-thesis Figures 4.12 (b), (c) and 4.13 (c), (d)"),
            "Figure 4.12 Figure 4.13"
        );
        assert_eq!(read("Figure 2.8 with 8 flows"), "Figure 2.8");
        assert_eq!(read("Figures 4.11b, 5.5a: a"), "Figure 4.11 Figure 5.5");
        assert_eq!(read("section 3.4.2: less than 300 msec"), "");
    }

    #[test]
    fn a_text_cites_each_paper_up_to_the_next_ones_number() {
        let of = "Shreedhar-et-al Figures 5 to 7, section III; Shreedhar-thesis Figure 4.5";
        let [first, second] = ["Shreedhar-et-al", "Shreedhar-thesis"]
            .map(|id| all().iter().find(|p| p.id == id).unwrap());
        assert_eq!(first.labels(of, of).join(" "), "Figure 5 Figure 6 Figure 7");
        assert_eq!(second.labels(of, of).join(" "), "Figure 4.5");
        assert_eq!(first.labels("Figure 6: 1000 bytes", of).join(" "), "Figure 6");
        assert!(second.labels("Figure 6", of).is_empty());
        let [one, other] = [first, second].map(Paper::authors);
        assert_eq!(cited(of), format!("{one}, Figures 5 to 7, section III; {other}, Figure 4.5"));
        assert_eq!(quoted("Shreedhar-et-al Figure 5: 14 KB", of), "Figure 5: 14 KB");
        assert_eq!(
            quoted("Shreedhar-thesis Figure 4.5: 14 KB", of),
            format!("{other}, Figure 4.5: 14 KB")
        );
        assert_eq!(cited("a figure"), "a figure");
    }

    /// The lines of the papers' scenarios, and their omitted entries.
    fn known() -> (Vec<Table>, Vec<Left>) {
        let tables = recorded().unwrap_or_else(|_| panic!("docs/coverage.json is not a record"));
        (tables, omitted(&library::all()))
    }

    #[test]
    fn each_figure_and_table_has_a_line_or_an_omitted_entry() {
        let (tables, left) = known();
        let papers = all();
        assert!(!papers.is_empty(), "papers.toml is not read");
        for paper in papers {
            let tables = || tables.iter().filter(|table| paper.is_in(&table.of));
            let missing: Vec<_> = paper
                .shows
                .iter()
                .map(|(label, _)| label)
                .filter(|label| {
                    let is_shown = tables()
                        .any(|table| table.rows.iter().any(|row| paper.shows(table, row, label)));
                    !is_shown && paper.left_out(&left, label).is_empty()
                })
                .collect();
            assert!(missing.is_empty(), "{}: no line and no omitted entry: {missing:?}", paper.id);
            let known: BTreeSet<_> = paper.shows.iter().map(|(label, _)| label.as_str()).collect();
            let of_tables = tables().flat_map(|table| {
                let quotes = table.rows.iter().filter_map(|row| row.quote.as_deref());
                let texts = quotes.chain([&*table.of]);
                texts.flat_map(|text| paper.labels(text, &table.of)).collect::<Vec<_>>()
            });
            let unknown: BTreeSet<_> =
                of_tables.filter(|label| !known.contains(label.as_str())).collect();
            assert!(unknown.is_empty(), "{}: the paper has no {unknown:?}", paper.id);
        }
    }

    #[test]
    fn each_printed_number_is_quoted_or_omitted() {
        let (tables, left) = known();
        for paper in all() {
            let quotes = tables
                .iter()
                .filter(|table| paper.is_in(&table.of))
                .flat_map(|table| table.rows.iter().filter_map(|row| row.quote.clone()));
            let omitted = left.iter().filter(|left| paper.is_in(&left.of));
            let texts: Vec<_> =
                quotes.chain(omitted.map(|left| left.omitted.what.clone())).collect();
            let missing: Vec<_> = paper
                .says
                .iter()
                .filter(|says| !texts.iter().any(|text| text.contains(*says)))
                .collect();
            assert!(missing.is_empty(), "{}: not quoted, not omitted: {missing:#?}", paper.id);
        }
    }

    #[test]
    fn each_line_of_a_paper_has_its_place() {
        let (tables, _) = known();
        let papers = all();
        let mut without = Vec::new();
        for table in tables.iter().filter(|table| papers.iter().any(|paper| paper.has(&table.of))) {
            let of_paper = table.rows.iter().filter(|row| {
                row.source == freshline_lab::scenario::Origin::Paper && is_judged(row)
            });
            let has_place = |row: &&Compared| {
                let quote = row.quote.as_deref().unwrap_or_default();
                ["Figure", "Table", "section", "abstract"].iter().any(|word| quote.contains(word))
            };
            without.extend(
                of_paper
                    .filter(|row| !has_place(row))
                    .map(|row| format!("{}: {}", table.name, row.what)),
            );
        }
        assert!(without.is_empty(), "no figure, table or section: {without:#?}");
    }
}
