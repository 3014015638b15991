//! Reports: one HTML page that loads nothing and has no script.

use std::path::Path;
use std::time::Duration;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::draw::{plain, svg};
use crate::error::OutputError;
use crate::figure::{Figure, Panel};
use crate::output::write_file;

/// Nothing is loaded, and no script runs; the page's own styles apply.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
const STYLE: &str = include_str!("page.css");

/// A report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// Its subject.
    pub title: String,
    /// The summary, a paragraph each.
    pub summary: Vec<String>,
    /// How it was made, such as the command and its seed.
    pub facts: Vec<Fact>,
    /// Its parts.
    pub sections: Vec<Section>,
}

/// A fact about how a report was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Its name; `Command` is written as code.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A part of a report under a heading.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// What to know before the figures and tables.
    pub text: Vec<String>,
    /// One picture per panel.
    pub panels: Vec<Panel>,
    /// A note below the pictures, such as the meaning of an interval; may be empty.
    pub note: String,
    /// Below that.
    pub tables: Vec<Table>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// Its title.
    pub caption: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// A cell per column; the first is the heading of its row.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows: a name in front of `>` is that of a column of numbers.
    pub fn new(caption: impl Into<String>, columns: &[&str]) -> Self {
        let column = |name: &&str| {
            let number = name.strip_prefix('>');
            Column { name: number.unwrap_or(name).to_owned(), is_number: number.is_some() }
        };
        let columns = columns.iter().map(column).collect();
        Self { caption: caption.into(), columns, rows: Vec::new() }
    }
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its contents.
    pub name: String,
    /// Whether it has numbers, which are aligned at the right.
    pub is_number: bool,
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// Whether it is emphasised, as values are that miss an expectation.
    pub is_bad: bool,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), is_bad: false }
    }
}

impl Page {
    /// The page.
    ///
    /// # Errors
    /// [`OutputError::Drawing`].
    pub fn html(&self) -> Result<String, OutputError> {
        let sections = self.sections.iter().map(section).collect::<Result<Vec<_>, _>>()?;
        let title = plain(&self.title);
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    title { (title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    main {
                        h1 { (title) }
                        @for text in &self.summary { p { (plain(text)) } }
                        @if !self.facts.is_empty() { (facts(&self.facts)) }
                        @for section in &sections { (section) }
                    }
                }
            }
        };
        Ok(page.into_string() + "\n")
    }

    /// Writes the page into a file, and makes the folder for it if it is missing.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn write(&self, path: &Path) -> Result<(), OutputError> {
        write_file(path, self.html()?.as_bytes())
    }
}

fn facts(facts: &[Fact]) -> Markup {
    html! {
        dl {
            @for Fact { name, value } in facts {
                dt { (plain(name)) }
                dd {
                    @if name == "Command" { code { (plain(value)) } } @else { (plain(value)) }
                }
            }
        }
    }
}

fn section(section: &Section) -> Result<Markup, OutputError> {
    let mut drawings = Vec::new();
    for panel in &section.panels {
        let (mut panel, title) = (panel.clone(), panel.title().to_owned());
        match &mut panel {
            Panel::Curves(curves) => curves.title.clear(),
            Panel::Rows(rows) => rows.title.clear(),
        }
        drawings.push(svg(&Figure { title, panels: vec![panel], note: String::new() })?);
    }
    Ok(html! {
        section {
            h2 { (plain(&section.heading)) }
            @for text in &section.text { p { (plain(text)) } }
            @for drawing in &drawings { figure { (PreEscaped(drawing)) } }
            @if !section.note.is_empty() { p { (plain(&section.note)) } }
            @for it in &section.tables { (table(it)) }
        }
    })
}

fn table(table: &Table) -> Markup {
    let class = |place: usize, cell: Option<&Cell>| {
        let is_number = table.columns.get(place).is_some_and(|column| column.is_number);
        let is_bad = cell.is_some_and(|cell| cell.is_bad);
        match (is_number, is_bad) {
            (true, true) => Some("number bad"),
            (true, false) => Some("number"),
            (false, true) => Some("bad"),
            (false, false) => None,
        }
    };
    html! {
        div .scroll tabindex="0" role="region" aria-label=(plain(&table.caption)) {
            table {
                caption { (plain(&table.caption)) }
                thead {
                    tr {
                        @for (place, column) in table.columns.iter().enumerate() {
                            th scope="col" class=[class(place, None)] { (plain(&column.name)) }
                        }
                    }
                }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (place, cell) in row.iter().enumerate() {
                                @if place == 0 {
                                    th scope="row" class=[class(place, Some(cell))] { (plain(&cell.text)) }
                                } @else {
                                    td class=[class(place, Some(cell))] { (plain(&cell.text)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A date and time as RFC 3339 writes it, from the time since 1970; empty beyond the year 9999.
pub fn utc(since_1970: Duration) -> String {
    let seconds = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
    let date = OffsetDateTime::from_unix_timestamp(seconds);
    date.ok().and_then(|date| date.format(&Rfc3339).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_headings_tables_and_policy_are_there() {
        let evil = "<script>alert(1)</script>&\"\u{7}";
        let mut table = Table::new(evil, &["of", ">age (ms)"]);
        table.rows.push(vec![evil.into(), Cell { text: "3".to_owned(), is_bad: true }]);
        let page = Page {
            title: evil.to_owned(),
            summary: vec![evil.to_owned()],
            facts: vec![Fact { name: "Command".to_owned(), value: evil.to_owned() }],
            sections: vec![Section {
                heading: evil.to_owned(),
                tables: vec![table],
                ..Section::default()
            }],
        };
        let html = page.html().unwrap();
        assert!(!html.contains("<script") && !html.contains('\u{7}'), "{html}");
        for text in [
            "<!DOCTYPE html>",
            "default-src 'none'",
            "<th scope=\"col\" class=\"number\">age (ms)</th>",
            "<td class=\"number bad\">3</td>",
            "<code>&lt;script&gt;",
        ] {
            assert!(html.contains(text), "{text} in {html}");
        }
    }

    #[test]
    fn dates_are_utc() {
        assert_eq!(utc(Duration::from_secs(1_764_448_000)), "2025-11-29T20:26:40Z");
        assert_eq!(utc(Duration::MAX), "");
    }
}
