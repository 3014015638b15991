//! `freshline lab sockets`: the laws over real sockets and the path emulator, compared with the lab.

mod arena;
mod order;
mod table;

use std::io;
use std::path::Path;
use std::thread;

use freshline_core::source::LawName;
use freshline_core::unit::Span;
use freshline_lab::library::{self, Text};
use freshline_lab::run::{Sampled, sample};
use freshline_lab::scenario::{Change, Scenario, ScenarioError, SetError};
use freshline_net::stop::Stop;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, WrapErr, miette};
use serde::Serialize;

use super::chosen::{Changed, bad};
use crate::failure::Failure;
use crate::output::{print_json, printed, stop_on_signals};
use crate::run_length::run_length;
use arena::{Measured, Window};
use order::{Compared, Pair, Verdict};

/// Compare the order of the laws' mean ages over real sockets with that in the lab.
///
/// Runs each family of paths in the lab, and again in real time: sources send through the path
/// emulator to a monitor, over UDP sockets on the loopback interface. All laws of a run send at the
/// same time, each over its own path. Run it on a machine without other load, or with a higher
/// priority: the lab does not model processor delays. A run in which an emulator sent more than one
/// in a hundred packets on by over 1 ms late is repeated (--tries), and the one with the smallest
/// lateness counts.
///
/// Two laws are a tie in the lab or over sockets if the 95 % interval of the difference of their mean
/// ages, run by run, contains 0, or if the difference is below 2 % of the lower age.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

    freshline lab sockets
    freshline lab sockets fresher/satellite fresher/families/fq-codel-24 --runs 3 --duration 30s

EXIT CODES

0  done, and no two laws have the opposite order over sockets
1  two laws have the opposite order, or cannot open a socket, or out of system resources
2  the flags or a scenario cannot be understood
130  Ctrl-C ended it: the finished families have been printed")]
pub(crate) struct Args {
    /// Compare the laws in these scenarios with one flow of updates, by file or by name, with
    /// `/CASE` for one of several cases; by default ten families of
    /// `freshline lab reproduce fresher`.
    #[arg(value_name = "FAMILY", default_values_t = FAMILIES.map(str::to_owned))]
    families: Vec<String>,
    /// Compare these laws.
    #[arg(
        long,
        value_enum,
        value_name = "LAWS",
        value_delimiter = ',',
        default_values = ["tenth", "acp+", "lazy"]
    )]
    law: Vec<LawName>,
    /// Limit a run to this length, in the lab as over sockets; the warm-up is the scenario's.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "30s",
        value_parser = run_length
    )]
    duration: Span,
    /// Repeat a run up to N times in total while an emulator is late.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    tries: u32,
    #[command(flatten)]
    changed: Changed,
    /// Print one JSON document on standard output instead of the table.
    #[arg(long)]
    json: bool,
}

/// Families of the training half of `scenarios/fresher`: different capacities, round trips, queues,
/// losses and jitter, a shared queue of 24 sources, Wi-Fi, and traces.
const FAMILIES: [&str; 10] = [
    "fresher/unequal-hops",
    "fresher/satellite",
    "fresher/jitter-05",
    "fresher/loss-01",
    "fresher/narrow-back",
    "fresher/families/short-24-25p",
    "fresher/families/codel-24-long",
    "fresher/families/fq-codel-24",
    "fresher/families/wifi-near-12",
    "fresher/cellular",
];

/// Runs of each law; --runs overrides it.
const RUNS: i64 = 5;

/// An emulator that is later than this no longer emulates the path; it is a tenth of the lowest age
/// of [`FAMILIES`].
const TIMELY_MS: f64 = 1.0;

/// `docs/lab.md` describes each key.
#[derive(Serialize)]
struct Document {
    duration_s: f64,
    families: Vec<Compared>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let families = args.families.iter().map(|name| Family::find(name, &args));
    let families = families.collect::<Result<Vec<_>, _>>()?;
    let laws: Vec<_> = args.law.iter().map(|law| law.as_str()).collect();
    // Before the first socket opens, so that the lab takes no processor time from the sources.
    let planned = families.iter().map(|family| family.plan(&laws));
    let planned = planned.collect::<Result<Vec<_>, _>>()?;
    let stop = stop_on_signals()?;
    let bar = progress(&planned);
    if !args.json {
        printed(table::head(&laws, &mut io::stdout().lock()))?;
    }
    let mut done = Vec::new();
    for plan in planned {
        bar.set_message(plan.name.clone());
        let compared = plan.compare(args.tries, &stop, &bar).map_err(Failure::Runtime)?;
        let Some(compared) = compared else { break };
        if !args.json {
            bar.suspend(|| printed(table::row(&compared, &mut io::stdout().lock())))?;
        }
        done.push(compared);
    }
    bar.finish_and_clear();
    let pairs: Vec<_> = done.iter().flat_map(|family| &family.pairs).cloned().collect();
    match args.json {
        true => print_json(&Document { duration_s: args.duration.as_secs_f64(), families: done })?,
        false => printed(table::sum(&pairs, &mut io::stdout().lock()))?,
    }
    if stop.is_stopped() {
        return Err(Failure::Interrupted);
    }
    let others = pairs.iter().filter(|pair| pair.verdict == Verdict::Differs).count();
    match others {
        0 => Ok(()),
        _ => Err(Failure::Runtime(miette!(
            "{others} of {} pairs of laws are in the other order over sockets",
            pairs.len()
        ))),
    }
}

fn progress(planned: &[Plan]) -> ProgressBar {
    let runs = planned.iter().map(|plan| u64::from(plan.laws[0].scenario.runs)).sum();
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}, {eta} left");
    let bar = ProgressBar::new(runs);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A scenario and the changes to it.
struct Family {
    name: String,
    text: Text,
    changes: Vec<Change>,
}

impl Family {
    fn find(name: &str, args: &Args) -> Result<Self, Failure> {
        let is_whole = Path::new(name).exists() || library::all().iter().any(|it| it.name == name);
        let (text, case) = match name.rsplit_once('/').filter(|_| !is_whole) {
            Some((scenario, case)) => (library::find(scenario)?, Some(case)),
            None => (library::find(name)?, None),
        };
        let mut changes = match case {
            Some(case) => changes_of(case, &text)?,
            None => Vec::new(),
        };
        changes.push(Change::new("runs", RUNS.into()));
        changes.extend(args.changed.changes()?);
        let parsed = Scenario::parse_with(text.source(), &changes);
        let parsed = parsed.map_err(|error| bad(name, &error))?;
        if parsed.duration > args.duration {
            changes.push(Change::new("duration", args.duration.to_string().into()));
        }
        Ok(Self { name: name.to_owned(), text, changes })
    }

    /// Runs the family in the lab.
    fn plan(&self, laws: &[&'static str]) -> Result<Plan, Failure> {
        let refused = |error: ScenarioError| bad(&self.name, &error.into());
        let with = |changes: &[Change]| {
            Scenario::parse_with(self.text.source(), changes)
                .map_err(|error: SetError| bad(&self.name, &error))
        };
        let scenario = with(&self.changes)?;
        let emulated = scenario.emulated(0).map_err(refused)?;
        let of_law = |law: &&'static str| {
            let key = format!("flow.{}.updates.law", emulated.flow);
            let change = Change::new(key, (*law).into());
            let scenario = with(&[self.changes.clone(), vec![change]].concat())?;
            let samples = sample(&scenario, || {}).map_err(refused)?;
            let metric = |name: &str| {
                let found = samples.iter().find(|it| it.name == name && it.of == emulated.flow);
                found.cloned().ok_or_else(|| Failure::Runtime(miette!("no {name} in the lab")))
            };
            Ok(PlannedLaw { law, age: metric("age_mean")?, sent: metric("updates")?, scenario })
        };
        Ok(Plan {
            name: self.name.clone(),
            title: scenario.title,
            sources: emulated.sources.len(),
            laws: laws.iter().map(of_law).collect::<Result<_, Failure>>()?,
        })
    }
}

/// The changes of a scenario for one of its cases.
fn changes_of(case: &str, text: &Text) -> Result<Vec<Change>, Failure> {
    let scenario =
        Scenario::parse(text.source()).map_err(|error| bad(&text.name, &error.into()))?;
    let cases = scenario.reproduce.map(|reproduction| reproduction.cases).unwrap_or_default();
    let found = cases.iter().find(|it| it.name == case).map(|it| it.changes());
    found.ok_or_else(|| {
        let known: Vec<_> = cases.iter().map(|it| it.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Failure::Usage(miette!("{} has no case `{case}`; it has: {known}", text.name))
    })
}

/// A family after its runs in the lab.
struct Plan {
    name: String,
    title: String,
    sources: usize,
    laws: Vec<PlannedLaw>,
}

struct PlannedLaw {
    law: &'static str,
    /// The mean true age in the lab, s.
    age: Sampled,
    /// Updates of each source, 1/s.
    sent: Sampled,
    scenario: Scenario,
}

impl Plan {
    /// Runs the family over sockets; `None` if it was stopped.
    fn compare(
        self,
        tries: u32,
        stop: &Stop,
        bar: &ProgressBar,
    ) -> miette::Result<Option<Compared>> {
        let mut runs = Vec::new();
        for run in 0..self.laws[0].scenario.runs {
            let measured = self.timely_run(run, tries, stop);
            let measured = measured.wrap_err_with(|| self.name.clone())?;
            let Some(measured) = measured else { return Ok(None) };
            bar.inc(1);
            runs.push(measured);
        }
        let over_sockets = |law: usize, figure: fn(&Measured) -> f64| {
            let values: Vec<_> = runs.iter().map(|run| figure(&run[law])).collect();
            Sampled::of_runs("sockets", self.laws[law].law, "", &values)
        };
        let laws = self.laws.iter().enumerate().map(|(index, it)| {
            let lab = (in_ms(&it.age), it.sent.clone());
            let sockets =
                (over_sockets(index, |it| it.age_ms), over_sockets(index, |it| it.updates_per_s));
            order::Law { law: it.law, lab, sockets }
        });
        let laws: Vec<_> = laws.collect();
        Ok(Some(Compared {
            family: self.name,
            title: self.title,
            sources: self.sources,
            runs: runs.len(),
            pairs: Pair::all(&laws),
            laws: laws.iter().map(order::Law::figures).collect(),
            late_p99_ms: runs.iter().map(|run| late_ms(run)).fold(0.0, f64::max),
        }))
    }

    /// A run in which the emulators were on time, or the one with the smallest lateness; `None` if
    /// it was stopped.
    fn timely_run(
        &self,
        run: u32,
        tries: u32,
        stop: &Stop,
    ) -> miette::Result<Option<Vec<Measured>>> {
        let mut best: Option<Vec<Measured>> = None;
        for _ in 0..tries {
            let measured = self.run(run, stop)?;
            if stop.is_stopped() {
                return Ok(None);
            }
            let late = late_ms(&measured);
            if best.as_deref().is_none_or(|best| late < late_ms(best)) {
                best = Some(measured);
            }
            if late <= TIMELY_MS {
                break;
            }
        }
        Ok(best)
    }

    /// One run of all laws at the same time.
    fn run(&self, run: u32, stop: &Stop) -> miette::Result<Vec<Measured>> {
        let runs = self.laws.iter().map(|PlannedLaw { scenario, .. }| {
            let window = Window { from: scenario.warm_up, to: scenario.duration };
            Ok((scenario.emulated(run).into_diagnostic()?, window))
        });
        let runs = runs.collect::<miette::Result<Vec<_>>>()?;
        thread::scope(|scope| {
            let run = |(emulated, window)| scope.spawn(move || arena::run(emulated, window, stop));
            let running: Vec<_> = runs.into_iter().map(run).collect();
            running.into_iter().map(arena::join).collect()
        })
    }
}

/// The lateness of the latest emulator.
fn late_ms(laws: &[Measured]) -> f64 {
    laws.iter().map(|law| law.late_ms).fold(0.0, f64::max)
}

/// Converts the lab's seconds to ms.
fn in_ms(age: &Sampled) -> Sampled {
    age.minus(-999.0, age)
}
