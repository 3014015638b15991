//! The tables of all journeys as a page of the book.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use freshline_core::wire::escaped;
use miette::{IntoDiagnostic, WrapErr};

use super::Named;
use super::table::{cells, price, sentence};

const HEAD: &str = "\
# The laws together: tables

<!-- Written by `freshline lab journey all --page docs`. -->

Each table switches the laws of one scenario on and off: none, each alone, the first two, three and so on, all, all but one, and the usual laws of today. A number is the mean over the runs with its 95 % interval. Below, each column that a law is meant for compares all laws together with the best of these laws alone: `holds` up to 5 % worse and `worse` beyond, both with the whole interval, else `undecided`. Rows are compared run by run: runs of one number have the same seed in all rows. Then each column that all laws together make worse than none (`cost`). [Which laws to use](which-laws.md) draws the conclusions.
";

/// Writes `journeys.md` into `folder`.
pub(super) fn write(folder: &Path, all: &[Named]) -> miette::Result<()> {
    let path = folder.join("journeys.md");
    fs::write(&path, page(all))
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot write {}", path.display()))
}

fn page(all: &[Named]) -> String {
    let mut page = HEAD.to_owned();
    for Named { name, journey } in all {
        // Writing to a string does not fail.
        let _ = write!(
            page,
            "\n## {}\n\n`freshline lab journey {name}`\n\n",
            markdown(&escaped(&journey.title))
        );
        let mut rows = cells(journey).into_iter();
        if let Some(heads) = rows.next() {
            page += &line(&heads);
            page +=
                &line(&heads.iter().enumerate().map(|(place, _)| rule(place)).collect::<Vec<_>>());
        }
        rows.for_each(|row| page += &line(&row));
        page += "\n";
        for verdict in &journey.verdicts {
            let _ = writeln!(page, "- {}", markdown(&sentence(journey, verdict)));
        }
        for cost in &journey.costs {
            let _ = writeln!(page, "- {}", markdown(&price(journey, cost)));
        }
    }
    page
}

fn rule(column: usize) -> String {
    if column == 0 { "---" } else { "---:" }.to_owned()
}

fn line(cells: &[String]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| markdown(cell)).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Text escaped for Markdown.
fn markdown(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('|', "\\|")
}
