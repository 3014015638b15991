//! `freshline lab reproduce`: figures of papers, compared with the lab's results.

mod papers;
mod record;
mod report;
mod table;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshline_lab::contest::{self, Contested, cases, contest};
use freshline_lab::library::{self, Text};
use freshline_lab::reproduce::{Compared, Draw, Options, reproduce};
use freshline_lab::safety;
use freshline_lab::scenario::{Change, ContestConfig, Half, SafetyConfig, Scenario};
use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, miette};

use self::table::{Summary, Table};
use super::chosen::Changed;
use super::figure::FigureArgs;
use super::{board, safety as sweeps};
use crate::failure::Failure;
use crate::html::HtmlArg;
use crate::output::{INTERRUPTED, print_json, printed};

/// Reproduce figures of papers: each number alongside the expected one.
///
/// Each line shows the source of the expected value: the paper, a model (a closed form), or this
/// project (ours). A verdict uses the 95 % interval over the runs: a line holds, is broken, or is
/// undecided if the interval covers both. A broken line is not a failure of the command, except
/// with --check; docs/coverage.md gives the reasons of broken lines.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLE

    freshline lab reproduce one-mm1-queue
    freshline lab reproduce ifc/one-link --html report.html --figures figures --format pdf
    freshline lab reproduce all --check
    freshline lab reproduce ifc --null
    freshline lab reproduce all --null --check

EXIT CODES

0  the scenarios ran, whatever the verdicts
1  a file cannot be written, or a verdict is not the recorded one (--check)
2  the flags or a scenario cannot be understood
130  Ctrl-C ended it: the rows that were done have been printed")]
pub(crate) struct Args {
    /// Run this scenario file, or the bundled scenario or folder of scenarios with this name, or
    /// `all` of them.
    name: String,
    #[command(flatten)]
    changed: Changed,
    /// Print JSON on standard output: an object per scenario, in an array for a folder or `all`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    figures: FigureArgs,
    #[command(flatten)]
    html: HtmlArg,
    /// Run the null test: replace each new law by its baseline, as defined in [[reproduce.null]] of
    /// the scenario. A line that still holds shows nothing about the law.
    #[arg(long)]
    null: bool,
    /// Fail if a verdict differs from the recorded one (docs/coverage.json).
    #[arg(long, conflicts_with_all = ["set", "seed", "runs"])]
    check: bool,
    /// Write the record that --check reads, and its page, into this folder. Scenarios that did not
    /// run keep their entries in the folder's record. With --null, only the verdicts without the
    /// law are written.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["check", "one_in", "set", "seed", "runs"])]
    record: Option<PathBuf>,
    /// Use the paper's number of runs and durations if the scenario has shorter ones. This can take
    /// hours.
    #[arg(long, conflicts_with_all = ["check", "record"])]
    full: bool,
    /// Run only about one in N lines, with the rows that they need.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    one_in: Option<u64>,
    /// Select other lines with another number.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "one_in")]
    draw: u64,
    /// Run one half of contests and safety sweeps: the cases on which a law may be developed, or
    /// the others.
    #[arg(long, value_enum, value_name = "HALF", conflicts_with_all = ["check", "record"])]
    half: Option<HalfName>,
    /// Run only this point of a safety sweep; repeat the flag for several points.
    #[arg(long, value_name = "N", conflicts_with_all = ["check", "record"])]
    point: Vec<u32>,
    /// Run only this case of a scenario with several contests; repeat the flag for several cases.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["check", "record"])]
    case: Vec<String>,
}

/// The values of `--half`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum HalfName {
    Training,
    HeldOut,
}

impl From<HalfName> for Half {
    fn from(name: HalfName) -> Self {
        match name {
            HalfName::Training => Self::Training,
            HalfName::HeldOut => Self::HeldOut,
        }
    }
}

impl Args {
    fn options(&self) -> Options {
        let sample = self.one_in.map(|one_in| Draw { one_in, seed: self.draw });
        Options { null: self.null, full: self.full, sample }
    }

    /// Whether the contest `name` of the scenario `of` runs.
    fn takes(&self, name: &str, half: Half, of: &str) -> bool {
        let case = name.strip_prefix(of).and_then(|case| case.strip_prefix('/'));
        let is_named = case.is_none_or(|case| self.case.iter().any(|own| own == case));
        self.half.is_none_or(|own| Half::from(own) == half) && (self.case.is_empty() || is_named)
    }

    fn of_safety(&self) -> safety::Options {
        safety::Options { half: self.half.map(Half::from), only: self.point.clone() }
    }
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    args.figures.check()?;
    let changes = args.changed.changes()?;
    let options = args.options();
    let mut texts = library::several(&args.name)?;
    let is_alone = texts.len() == 1;
    texts.retain(|text| is_alone || reproduces(text));
    let is_file = |text: &Text| library::all().iter().all(|known| known.name != text.name);
    if let Some(text) = texts.iter().find(|text| args.record.is_some() && is_file(text)) {
        return Err(Failure::Usage(miette!(
            "--record: {} is not bundled with the program; `freshline lab list` shows the scenarios that are",
            text.name
        )));
    }
    let progress = Progress::new(args.json, is_alone);
    let on_signal = progress.clone();
    ctrlc::set_handler(move || on_signal.interrupt())
        .into_diagnostic()
        .map_err(Failure::Runtime)?;
    let work = Work { args: &args, changes, options, is_alone, progress: &progress };
    texts.iter().try_for_each(|text| work.reproduce(text))?;
    let mut known = progress.known();
    let tables = std::mem::take(&mut known.tables);
    if args.json {
        match &tables[..] {
            [table] if is_alone => print_json(table)?,
            tables => print_json(&tables)?,
        }
    } else {
        print_end(&tables, args.null)?;
    }
    report::write(&args, &tables)?;
    if let Some(folder) = &args.record {
        record::write(folder, &tables, options.null)?;
    }
    if args.check {
        let differences = record::differences(&tables, &record::recorded()?, options);
        record::refuse(&differences, &tables, options.null)?;
    }
    Ok(())
}

/// Prints the contests together, and the number of lines that hold.
fn print_end(tables: &[Table], is_null: bool) -> Result<(), Failure> {
    let contests: Vec<(&str, &Contested)> = tables
        .iter()
        .filter_map(|table| Some((table.name.as_str(), table.contest.as_ref()?)))
        .collect();
    let out = &mut io::stdout().lock();
    printed(board::alongside_tcp(&contests, out))?;
    if contests.len() > 1 {
        printed(board::summary(&contests, out))?;
    }
    if tables.iter().any(|table| !table.rows.is_empty()) {
        let rows = tables.iter().flat_map(|table| &table.rows);
        printed(Summary::of(rows, is_null).print(out))?;
    }
    Ok(())
}

/// The settings that all scenarios are reproduced with.
struct Work<'a> {
    args: &'a Args,
    changes: Vec<Change>,
    options: Options,
    is_alone: bool,
    progress: &'a Progress,
}

/// The parts of a scenario to run.
struct Asked<'a> {
    of: String,
    rows: usize,
    /// A contest has no verdicts.
    contest: Option<&'a ContestConfig>,
    /// The cases, each with its name and the keys that it sets.
    cases: Vec<(String, Vec<Change>)>,
    /// Whether the contest has cases, each of which is printed separately.
    has_cases: bool,
    /// A sweep takes half an hour, so it runs only if it is named.
    sweep: Option<&'a SafetyConfig>,
}

impl<'a> Asked<'a> {
    /// `None` without any parts to run.
    fn of(name: &str, scenario: &'a Scenario, args: &Args, is_alone: bool) -> Option<Self> {
        let Some(reproduction) = &scenario.reproduce else {
            let (of, cases) = (String::new(), Vec::new());
            return Some(Self { of, rows: 0, contest: None, cases, has_cases: false, sweep: None });
        };
        let is_whole = !args.check && args.record.is_none() && args.one_in.is_none() && !args.null;
        let contest = reproduction.contest.as_ref().filter(|_| is_whole);
        let mut contests = contest.map_or(Vec::new(), |_| cases(name, reproduction));
        contests.retain(|(case, half, _)| args.takes(case, *half, name));
        let sweep = reproduction.safety.as_ref().filter(|_| is_whole && is_alone);
        let rows = reproduction.rows.len() + reproduction.trends.len();
        let is_only_a_sweep = rows == 0 && reproduction.safety.is_some();
        let is_left_out = contest.is_some() && contests.is_empty();
        if is_left_out || is_only_a_sweep && sweep.is_none() {
            return None;
        }
        Some(Self {
            of: reproduction.of.clone(),
            rows,
            contest,
            cases: contests.into_iter().map(|(case, _, changes)| (case, changes)).collect(),
            has_cases: contest.is_some() && !reproduction.cases.is_empty(),
            sweep,
        })
    }

    /// Steps of the progress bar.
    fn steps(&self, chosen: &safety::Options) -> usize {
        self.rows
            + self.contest.map_or(0, |config| self.cases.len() * contest::steps(config))
            + self.sweep.map_or(0, |config| safety::steps(config, chosen))
    }
}

impl Work<'_> {
    /// Runs and prints one scenario.
    fn reproduce(&self, text: &Text) -> Result<(), Failure> {
        let Self { args, progress, .. } = self;
        let name = text.name.clone();
        let bad = |error: &dyn std::fmt::Display| Failure::Usage(miette!("{name}: {error}"));
        let scenario = Scenario::parse(text.source()).map_err(|error| bad(&error))?;
        let Some(asked) = Asked::of(&name, &scenario, args, self.is_alone) else { return Ok(()) };
        let chosen = args.of_safety();
        let bar = bar(&name, asked.steps(&chosen));
        progress.begin(&name, &asked.of);
        let on_row = |row: &Compared| {
            progress.row(row);
            bar.inc(1);
        };
        let rows = reproduce(text.source(), &self.changes, self.options, on_row)
            .map_err(|error| bad(&error))?;
        let sweep = |_| {
            safety::sweep(text.source(), &self.changes, &chosen, || bar.inc(1))
                .map_err(|error| bad(&error))
        };
        let safety = asked.sweep.map(sweep).transpose()?;
        let mut table =
            Table { name: name.clone(), of: asked.of.clone(), rows, contest: None, safety };
        report::draw(&args.figures, text, &table)?;
        for (case, own) in asked.cases {
            let changes: Vec<_> = own.into_iter().chain(self.changes.iter().cloned()).collect();
            let contest = contest(text.source(), &changes, || bar.inc(1));
            table.contest = Some(contest.map_err(|error| bad(&error))?);
            if case != name {
                let of_case = Table { name: case, ..table.clone() };
                table.rows.clear();
                bar.suspend(|| progress.end(of_case))?;
            }
        }
        bar.finish_and_clear();
        if asked.has_cases { Ok(()) } else { progress.end(table) }
    }
}

fn bar(name: &str, steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}");
    let bar = ProgressBar::new(steps as u64).with_message(name.to_owned());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.tick();
    bar
}

/// The finished rows, shared with the handler of Ctrl-C.
#[derive(Clone)]
struct Progress {
    known: Arc<Mutex<Known>>,
    json: bool,
    is_alone: bool,
}

#[derive(Default)]
struct Known {
    tables: Vec<Table>,
    /// The scenario that is running.
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
        self.known().current =
            Some(Table { name, of, rows: Vec::new(), contest: None, safety: None });
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

    /// Prints the finished rows and ends the process, because a row may take minutes.
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
        say!("interrupted after {done} scenarios and {rows} rows of the next");
        std::process::exit(INTERRUPTED.into());
    }
}

fn print_one(table: &Table, before: Option<&Table>, out: &mut impl Write) -> io::Result<()> {
    if !table.rows.is_empty() {
        table.print(out)?;
    }
    if let Some(safety) = &table.safety {
        sweeps::violations(safety, out)?;
        sweeps::summary(safety, out)?;
    }
    let Some(contest) = &table.contest else { return Ok(()) };
    if before.is_none_or(|before| before.contest.is_none()) {
        board::head(contest, out)?;
    }
    board::line(&table.name, contest, out)
}

fn reproduces(text: &Text) -> bool {
    Scenario::parse(text.source()).is_ok_and(|scenario| scenario.reproduce.is_some())
}
