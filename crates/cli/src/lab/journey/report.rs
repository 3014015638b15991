//! The figures and the report of journeys.

use freshline_lab::journey::{Journey, Outcome};
use freshline_report::{Cell, Column, Figure, Page, Section, Table};

use super::Named;
use super::table::{cells, price, sentence};
use crate::failure::Failure;
use crate::html::{HtmlArg, facts};
use crate::lab::figure::{FigureArgs, journey_panels};

const INTERVALS: &str = "Bars are 95 % intervals over the runs.";

/// Draws the table of a scenario, if --figures was given.
pub(super) fn draw(args: &FigureArgs, name: &str, journey: &Journey) -> Result<(), Failure> {
    let (title, panels) = (journey.title.clone(), journey_panels(journey));
    args.write(name, "", &Figure { title, panels, note: INTERVALS.to_owned() })
}

/// Writes the report, if --html was given.
pub(super) fn write(html: &HtmlArg, all: &[Named]) -> Result<(), Failure> {
    html.write(|| {
        let title = match all {
            [Named { journey, .. }] => journey.title.clone(),
            all => format!("{} scenarios: laws of several stops together", all.len()),
        };
        let verdicts = || all.iter().flat_map(|it| &it.journey.verdicts);
        let count = |outcome| verdicts().filter(|verdict| verdict.outcome == outcome).count();
        let summary = format!(
            "All laws together are compared with the best single law in {} columns: up to 5 % worse holds in {}, \
             {} are worse, and {} are undecided.",
            verdicts().count(),
            count(Outcome::Holds),
            count(Outcome::Worse),
            count(Outcome::Undecided),
        );
        Page {
            title,
            summary: vec![summary],
            facts: facts(&[]),
            sections: all.iter().map(section).collect(),
        }
    })
}

fn section(Named { name, journey }: &Named) -> Section {
    let verdicts = journey.verdicts.iter().map(|verdict| sentence(journey, verdict));
    let costs = journey.costs.iter().map(|cost| price(journey, cost));
    let mut rows = cells(journey).into_iter();
    let heads = rows.next().unwrap_or_default().into_iter().enumerate();
    let columns = heads.map(|(place, head)| {
        let name = if place == 0 { "Laws".to_owned() } else { head };
        Column { name, is_number: place > 0 }
    });
    let table = Table {
        caption: format!("Means with 95 % intervals, {name}"),
        columns: columns.collect(),
        rows: rows.map(|row| row.into_iter().map(Cell::from).collect()).collect(),
    };
    Section {
        heading: format!("{name}: {}", journey.title),
        text: verdicts.chain(costs).collect(),
        panels: journey_panels(journey),
        note: INTERVALS.to_owned(),
        tables: vec![table],
    }
}
