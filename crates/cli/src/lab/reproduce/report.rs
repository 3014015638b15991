//! The figures and the report of reproductions.

use std::borrow::Cow;

use freshline_lab::contest::{Contested, Entry};
use freshline_lab::library::{self, Text};
use freshline_lab::reproduce::{Compared, Kind, Verdict};
use freshline_lab::scenario::Scenario;
use freshline_report::{
    Axis, Cell, Figure, Mark, Page, Panel, Row, RowSeries, Rows, Section, Table as Written,
    interval, short,
};

use super::Args;
use super::papers::cited;
use super::table::{Table, origin};
use crate::failure::Failure;
use crate::html::facts;
use crate::lab::figure::{FigureArgs, INTERVALS, Scales, name_of, reproduction_panels};

/// Draws the rows of a scenario, if --figures was given.
pub(super) fn draw(args: &FigureArgs, text: &Text, table: &Table) -> Result<(), Failure> {
    if !args.is_wanted() || table.rows.is_empty() {
        return Ok(());
    }
    args.write(&table.name, "", &figure(text, table, args.scales))
}

/// The figure of a scenario.
pub(super) fn figure(text: &Text, table: &Table, scales: Scales) -> Figure {
    Figure {
        title: format!("{}: {}", name_of(&table.name), cited(&table.of)),
        panels: panels(text, &table.rows, scales),
        note: format!("{INTERVALS} {}", trends_in_words(&table.rows)),
    }
}

fn panels(text: &Text, rows: &[Compared], scales: Scales) -> Vec<Panel> {
    let parsed = Scenario::parse(text.source()).ok().and_then(|scenario| scenario.reproduce);
    parsed.map_or(Vec::new(), |it| reproduction_panels(&it, rows, &text.text, scales))
}

/// The number of trends with each verdict; empty without any.
fn trends_in_words(rows: &[Compared]) -> String {
    let trends = || rows.iter().filter(|row| row.kind == Kind::Trend);
    let count = |verdict| trends().filter(|row| row.verdict == verdict).count();
    if trends().next().is_none() {
        return String::new();
    }
    format!(
        "Orders among numbers: {} hold, {} broken, {} undecided.",
        count(Verdict::Holds),
        count(Verdict::Broken),
        count(Verdict::Undecided)
    )
}

/// Writes the report, if --html was given.
pub(super) fn write(args: &Args, tables: &[Table]) -> Result<(), Failure> {
    if !args.html.is_wanted() {
        return Ok(());
    }
    let mut sections = Vec::new();
    for table in tables.iter().filter(|table| !table.rows.is_empty()) {
        let text = library::find(&table.name)?;
        sections.push(section(args, &text, table));
    }
    let contests: Vec<_> =
        tables.iter().filter_map(|table| Some((&*table.name, table.contest.as_ref()?))).collect();
    sections.extend((!contests.is_empty()).then(|| of_contests(&contests)));
    let title = match tables {
        [table] => format!("{}: {}", name_of(&table.name), cited(&table.of)),
        tables => format!("{} scenarios compared with their papers", tables.len()),
    };
    let rows: Vec<_> = tables.iter().flat_map(|table| &table.rows).collect();
    args.html.write(|| Page {
        title,
        summary: vec![summary(&rows)],
        facts: facts(&[("Scenario", args.name.clone())]),
        sections,
    })
}

fn summary(rows: &[&Compared]) -> String {
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    format!(
        "{} lines: {} hold, {} broken, {} undecided, and {} without an expected value. \
         A verdict uses the 95 % interval over the runs.",
        rows.len(),
        count(Verdict::Holds),
        count(Verdict::Broken),
        count(Verdict::Undecided),
        count(Verdict::NotJudged)
    )
}

/// A bundled scenario by its name, and another one by the name of its file.
fn shown(name: &str) -> Cow<'_, str> {
    if name.ends_with(".toml") { name_of(name) } else { name.into() }
}

fn section(args: &Args, text: &Text, table: &Table) -> Section {
    let of_kind = |kind| table.rows.iter().filter(move |row| row.kind == kind);
    let mut numbers = Written::new(
        format!("Numbers, {}", shown(&table.name)),
        &["Number", "By", ">Expected", ">Lab, 95 % interval", ">Ratio", "Verdict"],
    );
    numbers.rows = of_kind(Kind::Number).map(number).collect();
    let mut trends = Written::new(
        format!("Orders among numbers, {}", shown(&table.name)),
        &["Order", "By", "Verdict"],
    );
    trends.rows = of_kind(Kind::Trend)
        .map(|row| vec![row.what.as_str().into(), origin(row.source).into(), verdict(row)])
        .collect();
    let tables = [numbers, trends].into_iter().filter(|table| !table.rows.is_empty());
    Section {
        heading: format!("{}: {}", shown(&table.name), cited(&table.of)),
        text: Vec::new(),
        panels: panels(text, &table.rows, args.figures.scales),
        note: INTERVALS.to_owned(),
        tables: tables.collect(),
    }
}

fn number(row: &Compared) -> Vec<Cell> {
    let ratio = row.ours.zip(row.expected).filter(|(_, expected)| *expected != 0.0);
    let ours = row.ours.map_or("–".to_owned(), |ours| interval(ours, row.ci95, &row.unit));
    let number = |value: f64| interval(value, None, &row.unit);
    let bounds = [
        row.expected.map(number),
        row.at_least.map(|bound| format!("≥ {}", number(bound))),
        row.at_most.map(|bound| format!("≤ {}", number(bound))),
    ];
    let bounds: Vec<_> = bounds.into_iter().flatten().collect();
    let expected = if bounds.is_empty() { "–".to_owned() } else { bounds.join(", ") };
    let ratio = ratio.map_or("–".to_owned(), |(ours, expected)| short(ours / expected));
    vec![
        row.what.as_str().into(),
        origin(row.source).into(),
        expected.into(),
        ours.into(),
        ratio.into(),
        verdict(row),
    ]
}

fn verdict(row: &Compared) -> Cell {
    Cell { text: row.verdict.name().to_owned(), is_bad: row.verdict == Verdict::Broken }
}

/// The mean ages of all contests, a row per family.
fn of_contests(contests: &[(&str, &Contested)]) -> Section {
    let (_, first) = contests[0];
    let laws = first.laws.iter().map(|entry| entry.law.clone());
    let laws: Vec<_> = laws.chain(["best fixed rate".to_owned()]).collect();
    let entries = |contest: &Contested| -> Vec<Entry> {
        contest.laws.iter().chain([&contest.best]).cloned().collect()
    };
    let row = |(name, contest): &(&str, &Contested)| {
        let marks = entries(contest).into_iter().enumerate().map(|(series, entry)| Mark {
            series,
            value: Some(entry.age_mean),
            half: entry.age_ci95,
            band: None,
        });
        let label = format!("{name} ({})", contest.half.name());
        Row { label, is_broken: false, marks: marks.collect() }
    };
    let chunks = contests.chunks(16);
    let count = chunks.len();
    let panel = |(place, chunk): (usize, &[(&str, &Contested)])| {
        let part = if count > 1 { format!(" ({} of {count})", place + 1) } else { String::new() };
        Panel::Rows(Rows {
            title: format!("Mean age by law{part}"),
            x: Axis::new("Mean age", "s"),
            series: laws.iter().map(RowSeries::measured).collect(),
            rows: chunk.iter().map(row).collect(),
        })
    };
    let names: Vec<_> = laws.iter().map(|law| format!(">{law}")).collect();
    let columns: Vec<_> = ["Family"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut table = Written::new("Mean ages with 95 % intervals", &columns);
    table.rows = contests
        .iter()
        .map(|(name, contest)| {
            let ages = entries(contest)
                .into_iter()
                .map(|it| interval(it.age_mean, it.age_ci95, "s").into());
            [Cell::from(*name)].into_iter().chain(ages).collect()
        })
        .collect();
    Section {
        heading: "Contests of laws".to_owned(),
        text: Vec::new(),
        panels: chunks.enumerate().map(panel).collect(),
        note: "Bars are 95 % intervals over the runs.".to_owned(),
        tables: vec![table],
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use freshline_report::{Format, svg, write};

    use super::*;
    use crate::lab::reproduce::record::recorded;

    /// Set FRESHLINE_FIGURES to a folder to look at all of them.
    #[test]
    fn every_recorded_reproduction_is_drawn_with_all_of_its_numbers() {
        let recorded = recorded().unwrap_or_else(|_| panic!("no record"));
        assert!(recorded.len() > 50);
        for table in recorded {
            let text = library::find(&table.name).unwrap();
            let figure = figure(&text, &table, Scales::default());
            let drawn = |panel: &Panel| match panel {
                Panel::Rows(rows) => rows.rows.len(),
                Panel::Curves(curves) => {
                    let ours = curves.series.iter().filter(|it| !it.is_expected);
                    ours.filter(|it| it.name != "equal").map(|it| it.points.len()).sum()
                }
            };
            let count = figure.panels.iter().map(drawn).sum::<usize>();
            let numbers = table.rows.iter().filter(|row| row.ours.is_some()).count();
            assert_eq!(count, numbers, "{}", table.name);
            let units = figure.panels.iter().map(|panel| match panel {
                Panel::Rows(rows) => &rows.x,
                Panel::Curves(curves) => &curves.y,
            });
            assert!(units.into_iter().all(|axis| !axis.name.is_empty() && !axis.unit.is_empty()));
            let drawing = svg(&figure).unwrap();
            assert!(drawing.starts_with("<svg") && !drawing.contains("NaN"), "{}", table.name);
            if let Some(folder) = std::env::var_os("FRESHLINE_FIGURES") {
                let name = format!("{}.png", table.name.replace('/', "-"));
                write(&figure, &Path::new(&folder).join(name), Format::Png).unwrap();
            }
        }
    }
}
