//! `freshline lab reproduce`: figures of papers, ours beside theirs.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshline_lab::contest::{self, Contested, contest};
use freshline_lab::reproduce::{Compared, Verdict, reproduce};
use freshline_lab::scenario::Scenario;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, miette};
use serde::Serialize;

use super::board;
use super::figure;
use super::library::{self, Changed, Text};
use crate::Failure;
use crate::output::{INTERRUPTED, print_json, printed};

/// Reproduce figures of papers: each number beside the one that the paper printed.
///
/// A verdict says whether ours is within the tolerance that the scenario states. A miss is no
/// failure of the command; its reason stands in the book.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLE

    freshline lab reproduce one-mm1-queue

EXIT CODES

0  it ran, whatever the verdicts
1  a figure cannot be written
2  the flags or a scenario cannot be understood
130  Ctrl-C ended it: the rows that were done have been printed")]
pub(crate) struct Args {
    /// A scenario file, the name of one that comes along or of a folder of such, or `all` of them.
    name: String,
    #[command(flatten)]
    changed: Changed,
    /// Print JSON on standard output: an object a scenario, in an array for a folder or `all`.
    #[arg(long)]
    json: bool,
    /// Draw each figure as NAME.svg into this folder.
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
}

/// `docs/lab.md` describes each key.
#[derive(Clone, Serialize)]
struct Table {
    name: String,
    of: String,
    rows: Vec<Compared>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contest: Option<Contested>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let changes = args.changed.changes()?;
    let mut texts = library::several(&args.name)?;
    let is_alone = texts.len() == 1;
    texts.retain(|text| is_alone || reproduces(text));
    let progress = Progress::new(args.json, is_alone);
    let on_signal = progress.clone();
    ctrlc::set_handler(move || on_signal.interrupt())
        .into_diagnostic()
        .map_err(Failure::Runtime)?;
    for text in texts {
        let name = text.name.clone();
        let bad = |error: &dyn std::fmt::Display| Failure::Usage(miette!("{name}: {error}"));
        let scenario = Scenario::parse(text.source()).map_err(|error| bad(&error))?;
        let reproduction = scenario.reproduce.as_ref();
        let of = reproduction.map(|all| all.of.clone()).unwrap_or_default();
        let rows = reproduction.map_or(0, |all| all.rows.len() + all.trends.len());
        let config = reproduction.and_then(|all| all.contest.as_ref());
        let steps = rows + config.map_or(0, contest::steps);
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}");
        let bar = ProgressBar::new(steps as u64).with_message(name.clone());
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.tick();
        progress.begin(&name, &of);
        let on_row = |row: &Compared| {
            progress.row(row);
            bar.inc(1);
        };
        let rows = reproduce(text.source(), &changes, on_row).map_err(|error| bad(&error))?;
        let contest = config.map(|_| contest(text.source(), &changes, || bar.inc(1))).transpose();
        let contest = contest.map_err(|error| bad(&error))?;
        bar.finish_and_clear();
        let table = Table { name, of, rows, contest };
        if let Some(folder) = args.figures.as_ref().filter(|_| !table.rows.is_empty()) {
            table.draw(folder)?;
        }
        progress.end(table)?;
    }
    let mut known = progress.known();
    let tables = std::mem::take(&mut known.tables);
    let contests: Vec<_> = tables.iter().filter_map(|table| table.contest.as_ref()).collect();
    if !args.json && contests.len() > 1 {
        printed(board::summary(&contests, &mut io::stdout().lock()))?;
    }
    match &tables[..] {
        _ if !args.json => Ok(()),
        [table] if is_alone => print_json(table),
        tables => print_json(&tables),
    }
}

/// The rows that are finished, shared with the handler of Ctrl-C.
#[derive(Clone)]
struct Progress {
    known: Arc<Mutex<Known>>,
    json: bool,
    is_alone: bool,
}

#[derive(Default)]
struct Known {
    tables: Vec<Table>,
    /// The scenario that runs.
    current: Option<Table>,
}

impl Progress {
    fn new(json: bool, is_alone: bool) -> Self {
        Self { known: Arc::default(), json, is_alone }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, name: &str, of: &str) {
        let (name, of) = (name.to_owned(), of.to_owned());
        self.known().current = Some(Table { name, of, rows: Vec::new(), contest: None });
    }

    fn row(&self, row: &Compared) {
        if let Some(current) = &mut self.known().current {
            current.rows.push(row.clone());
        }
    }

    /// A scenario is done.
    fn end(&self, table: Table) -> Result<(), Failure> {
        let mut known = self.known();
        known.current = None;
        if !self.json {
            printed(print_one(&table, known.tables.last(), &mut io::stdout().lock()))?;
        }
        known.tables.push(table);
        Ok(())
    }

    /// Prints the finished rows and ends the process: a row may take minutes.
    fn interrupt(&self) {
        let mut known = self.known();
        let Known { tables, current } = &mut *known;
        let (done, rows) = (tables.len(), current.as_ref().map_or(0, |table| table.rows.len()));
        let partial = current.take().filter(|table| !table.rows.is_empty());
        let _ = if self.json {
            tables.extend(partial);
            match &tables[..] {
                [table] if self.is_alone => print_json(table),
                tables => print_json(&tables),
            }
        } else {
            let out = &mut io::stdout().lock();
            printed(partial.map_or(Ok(()), |table| print_one(&table, tables.last(), out)))
        };
        eprintln!("interrupted after {done} scenarios and {rows} rows of the next");
        std::process::exit(INTERRUPTED.into());
    }
}

fn print_one(table: &Table, before: Option<&Table>, out: &mut impl Write) -> io::Result<()> {
    if !table.rows.is_empty() {
        table.print(out)?;
    }
    let Some(contest) = &table.contest else { return Ok(()) };
    if before.is_none_or(|before| before.contest.is_none()) {
        board::head(out)?;
    }
    board::line(&table.name, contest, out)
}

fn reproduces(text: &Text) -> bool {
    Scenario::parse(text.source()).is_ok_and(|scenario| scenario.reproduce.is_some())
}

impl Table {
    fn draw(&self, folder: &Path) -> Result<(), Failure> {
        let name = Path::new(&self.name).file_stem().unwrap_or_default().to_string_lossy();
        let title = format!("{name}: {}", self.of);
        let figure = figure::comparison(&title, &self.rows).map_err(Failure::Runtime)?;
        figure.write(&folder.join(format!("{name}.svg"))).map_err(Failure::Runtime)
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}: {}", self.name, self.of)?;
        for row in &self.rows {
            let ratio = row.ours.zip(row.paper).map(|(ours, paper)| ours / paper);
            let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
            let verdict = match row.verdict {
                Verdict::Within => "within",
                Verdict::Outside => "outside",
                Verdict::TrendHolds => "trend holds",
                Verdict::TrendBroken => "trend broken",
                Verdict::NoValue => "no value in the paper",
            };
            let ci95 = row.ci95.map_or(String::new(), |half| format!("± {}", short(half)));
            let deviation = row.deviation.map_or(String::new(), |sd| format!("  sd {}", short(sd)));
            writeln!(
                out,
                "  {:<52} paper {:>8}  ours {:>8} {ci95:<11} {:<8} ratio {ratio:>6}  {verdict}{deviation}",
                row.what,
                said(row),
                row.ours.map_or("-".to_owned(), short),
                row.unit,
            )?;
        }
        writeln!(out)
    }
}

/// What the paper prints: a number, or bounds.
fn said(row: &Compared) -> String {
    let least = row.at_least.map(|least| format!("≥ {}", short(least)));
    let most = row.at_most.map(|most| format!("≤ {}", short(most)));
    let parts: Vec<_> = [row.paper.map(short), least, most].into_iter().flatten().collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

/// Four significant digits.
fn short(value: f64) -> String {
    let before_the_point = if value == 0.0 { 1 } else { value.abs().log10().floor() as i32 + 1 };
    format!("{value:.*}", usize::try_from(4 - before_the_point).unwrap_or(0))
}
