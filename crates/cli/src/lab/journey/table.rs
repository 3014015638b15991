//! The table of a journey on a terminal.

use std::io::{self, Write};

use freshline_core::wire::escaped;
use freshline_lab::journey::{Comparison, Cost, Heading, Journey, Outcome};
use freshline_report::scaled;

/// Prints the table of the scenario `name`, and its verdicts and costs.
pub(super) fn print(name: &str, journey: &Journey, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{name}: {}\n", escaped(&journey.title))?;
    let cells = cells(journey);
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..=journey.columns.len()).filter_map(width).collect();
    for row in &cells {
        let first = widths[0];
        write!(out, "{:<first$}", row[0])?;
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            write!(out, "  {cell:>width$}")?;
        }
        writeln!(out)?;
    }
    writeln!(out)?;
    for verdict in &journey.verdicts {
        writeln!(out, "{}", sentence(journey, verdict))?;
    }
    for cost in &journey.costs {
        writeln!(out, "{}", price(journey, cost))?;
    }
    writeln!(out)
}

/// The names of the columns with their units, and then the rows.
pub(super) fn cells(journey: &Journey) -> Vec<Vec<String>> {
    let scales: Vec<_> = (0..journey.columns.len()).map(|column| units(journey, column)).collect();
    let names = journey.columns.iter().zip(&scales).map(|(column, (_, unit))| match *unit {
        "" => escaped(&column.name),
        unit => format!("{}, {unit}", escaped(&column.name)),
    });
    let heads = [String::new()].into_iter().chain(names).collect();
    let rows = journey.rows.iter().map(|row| {
        let values = row.values.iter().zip(&scales).map(|(value, (factor, _))| {
            let half = value.ci95.map(|half| format!(" ± {}", digits(half / factor)));
            format!("{}{}", digits(value.value / factor), half.unwrap_or_default())
        });
        [escaped(&row.name)].into_iter().chain(values).collect()
    });
    [heads].into_iter().chain(rows).collect()
}

/// The divisor of the numbers of a column, and the resulting unit: one for all rows.
fn units(journey: &Journey, column: usize) -> (f64, &str) {
    let most = journey.rows.iter().map(|row| row.values[column].value).fold(0.0, f64::max);
    let Heading { unit, .. } = &journey.columns[column];
    // Ages that range over decades are easiest to read in ms.
    match *unit {
        "s" => (1e-3, "ms"),
        unit => scaled(unit, most),
    }
}

/// Three digits.
fn digits(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A verdict in a sentence.
pub(super) fn sentence(journey: &Journey, verdict: &Comparison) -> String {
    let law = |place: usize| escaped(&journey.laws[place].name);
    let column = escaped(&journey.columns[verdict.column].name);
    let percent = 100.0 * verdict.worse.abs();
    let than = if verdict.worse > 0.0 { "worse" } else { "better" };
    let holds = match verdict.outcome {
        Outcome::Holds => "holds",
        Outcome::Worse => "worse",
        Outcome::Undecided => "undecided",
    };
    let half = verdict.ci95.map(|half| format!(" ± {:.1}", 100.0 * half)).unwrap_or_default();
    let mut text = format!(
        "{holds}: {column}: all laws together are {percent:.1}{half} % {than} than {} alone",
        law(verdict.best)
    );
    if !verdict.hurt_by.is_empty() {
        let hurt_by: Vec<_> = verdict.hurt_by.iter().map(|place| law(*place)).collect();
        text += &format!("; better without {}", hurt_by.join(", or without "));
    }
    text
}

/// A cost in a sentence.
pub(super) fn price(journey: &Journey, cost: &Cost) -> String {
    let column = escaped(&journey.columns[cost.column].name);
    format!("cost: {column}: all laws together are {:.1} % worse than none", 100.0 * cost.worse)
}
