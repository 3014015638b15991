//! `freshline lab journey`: the laws of several places on one path.

mod page;
mod report;
mod table;

use std::io;
use std::path::PathBuf;

use freshline_lab::journey::{Journey, JourneyError, journey, rows};
use freshline_lab::library::{self, Text};
use freshline_lab::scenario::{Change, Scenario};
use indicatif::ProgressBar;
use miette::miette;
use serde::Serialize;

use super::chosen::{Changed, bad};
use super::figure::FigureArgs;
use crate::failure::Failure;
use crate::html::HtmlArg;
use crate::output::{print_json, printed};

/// Switch the laws of several places on one path on and off: each alone, one after the other, all,
/// all but one.
///
/// The scenario's [journey] names the laws and the columns. Below the table, all laws together are
/// compared with the best single law in each column for which a law is intended: up to 5 % worse
/// holds, beyond is worse, and if the interval covers both, it is undecided. Laws without which all
/// others are better are named.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLE

    freshline lab journey journey/home
    freshline lab journey all --figures figures

EXIT CODES

0  the scenario ran, whatever the verdicts
1  a file cannot be written
2  the flags or a scenario cannot be understood")]
pub(crate) struct Args {
    /// Run this scenario file, the bundled scenario with this name, or `all` bundled ones with a
    /// [journey].
    name: String,
    #[command(flatten)]
    changed: Changed,
    /// Print one JSON array on standard output instead of the tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    figures: FigureArgs,
    #[command(flatten)]
    html: HtmlArg,
    /// Write the tables as journeys.md into this folder, as in the book.
    #[arg(long, value_name = "DIR")]
    page: Option<PathBuf>,
}

/// `docs/json.md` describes each key.
#[derive(Serialize)]
struct Named {
    name: String,
    #[serde(flatten)]
    journey: Journey,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    args.figures.check()?;
    let changes = args.changed.changes()?;
    let texts = match &*args.name {
        "all" => library::several("all")?.into_iter().filter(has_journey).collect(),
        name => vec![library::find(name)?],
    };
    let mut all = Vec::new();
    for text in texts {
        let journey = one(&text, &changes)?;
        if !args.json {
            printed(table::print(&text.name, &journey, &mut io::stdout().lock()))?;
        }
        report::draw(&args.figures, &text.name, &journey)?;
        all.push(Named { name: text.name, journey });
    }
    report::write(&args.html, &all)?;
    if let Some(folder) = &args.page {
        page::write(folder, &all).map_err(Failure::Runtime)?;
    }
    if args.json { print_json(&all) } else { Ok(()) }
}

fn has_journey(text: &Text) -> bool {
    Scenario::parse(text.source()).is_ok_and(|scenario| scenario.journey.is_some())
}

fn one(text: &Text, changes: &[Change]) -> Result<Journey, Failure> {
    let scenario = Scenario::parse_with(text.source(), changes);
    let scenario = scenario.map_err(|error| bad(&text.name, &error))?;
    let bar = ProgressBar::new(scenario.journey.iter().map(|it| rows(it) as u64).sum());
    let journey = journey(text.source(), changes, || bar.inc(1));
    bar.finish_and_clear();
    journey.map_err(|error| match error {
        JourneyError::Row { error, .. } if changes.is_empty() => bad(&text.name, &error),
        error => Failure::Usage(miette!("{}: {error}", text.name)),
    })
}
