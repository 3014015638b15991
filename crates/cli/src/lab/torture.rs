//! `freshline lab torture`: tests whole endpoints under random faults.

use std::io::{self, Write};

use clap::value_parser;
use freshline_lab::torture::{
    Breach, Counts, Failure as Failed, Plan, Replay, replay, torture_until,
};
use indicatif::{ProgressBar, ProgressStyle};
use miette::miette;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{print_json, printed, stop_on_signals};

/// Test sources and a monitor under faults in virtual time, and check invariants.
///
/// Each seed draws up to five sources with any law, their paths and clocks, and their faults: lost,
/// late, duplicated, damaged, truncated and foreign datagrams, partitions, restarts, stopped
/// processes, changed addresses, clock steps. Then all faults end, and service must resume. The
/// first failing seed is printed with its drawn values; the same seed gives the same world again in
/// the same version.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

    freshline lab torture --seeds 2000
    freshline lab torture --seed 17 --verbose

EXIT CODES

0  every property held under every seed
1  some seed failed
2  the flags cannot be understood
130  Ctrl-C ended it: the report covers the finished seeds; a second one ends it at once")]
pub(crate) struct Args {
    /// Try the seeds from 0 to N - 1.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = value_parser!(u64).range(1..))]
    seeds: u64,
    /// Try this seed alone.
    #[arg(long, value_name = "S", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Print the drawn values and the last events.
    #[arg(long, requires = "seed")]
    verbose: bool,
    /// Print one JSON document on standard output, and nothing else.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let report = match args.seed {
        Some(seed) => Report::of_one(replay(seed), args.verbose),
        None => Report::of_many(args.seeds)?,
    };
    if args.json { print_json(&report) } else { printed(report.print(&mut io::stdout().lock())) }?;
    report.verdict()?;
    if report.wanted > report.seeds { Err(Failure::Interrupted) } else { Ok(()) }
}

/// The report of all seeds.
#[derive(Serialize)]
struct Report {
    version: &'static str,
    seeds: u64,
    /// The requested number of seeds; more than `seeds` if it was interrupted.
    wanted: u64,
    simulated_s: f64,
    steps: u64,
    incidents: u64,
    updates_sent: u64,
    updates_fresh: u64,
    sessions_opened: u64,
    states_withheld: u64,
    alarms: u64,
    commands: u64,
    records: u64,
    keys: u64,
    urgent: u64,
    failures: Vec<FailedSeed>,
    /// The details of a single seed with `--verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
}

/// A failed seed.
#[derive(Serialize)]
struct FailedSeed {
    property: &'static str,
    what: String,
    at_s: f64,
    replay: String,
    plan: Plan,
}

/// The drawn values of a seed, and how its world ended.
#[derive(Serialize)]
struct Details {
    plan: Plan,
    trace: Vec<String>,
}

impl Report {
    fn of_many(seeds: u64) -> Result<Self, Failure> {
        // The bar hides itself if standard error is not a terminal.
        let progress = ProgressBar::new(seeds).with_style(style());
        let stop = stop_on_signals()?;
        let report = torture_until(0..seeds, || progress.inc(1), || stop.is_stopped());
        progress.finish_and_clear();
        let wanted = seeds;
        Ok(Self { wanted, ..Self::new(report.seeds, report.counts, report.failures) })
    }

    fn of_one(replay: Replay, verbose: bool) -> Self {
        let Replay { plan, breach, counts, trace } = replay;
        let failed = breach.map(|breach| Failed { plan: plan.clone(), breach });
        let details = verbose.then_some(Details { plan, trace });
        Self { details, ..Self::new(1, counts, failed.into_iter().collect()) }
    }

    fn new(seeds: u64, counts: Counts, failures: Vec<Failed>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            seeds,
            wanted: seeds,
            simulated_s: counts.simulated.as_secs_f64(),
            steps: counts.steps,
            incidents: counts.incidents,
            updates_sent: counts.sent,
            updates_fresh: counts.fresh,
            sessions_opened: counts.opened,
            states_withheld: counts.withheld,
            alarms: counts.stale,
            commands: counts.commands,
            records: counts.records,
            keys: counts.keys,
            urgent: counts.urgent,
            failures: failures.into_iter().map(FailedSeed::from).collect(),
            details: None,
        }
    }

    /// A failure if any seed failed.
    fn verdict(&self) -> Result<(), Failure> {
        let Some(first) = self.failures.first() else { return Ok(()) };
        Err(Failure::Runtime(miette!(
            help = format!("replay it: {}", first.replay),
            "{} of {} seeds failed, the first is {}",
            self.failures.len(),
            self.seeds,
            first.plan.seed,
        )))
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        match (&self.details, self.failures.first()) {
            (Some(Details { plan, trace }), _) => {
                writeln!(out, "freshline {}, seed {}\n{plan}", self.version, plan.seed)?;
                writeln!(out, "the last events:\n{}\n", trace.join("\n"))?;
            }
            (None, Some(failed)) => {
                let seed = failed.plan.seed;
                writeln!(out, "freshline {}, seed {seed}\n{}", self.version, failed.plan)?;
            }
            (None, None) => {}
        }
        for FailedSeed { plan, property, what, at_s, .. } in &self.failures {
            writeln!(out, "seed {}, {at_s:.3} s: violated: {property}: {what}", plan.seed)?;
        }
        if self.wanted > self.seeds {
            writeln!(out, "interrupted: {} of {} seeds were done", self.seeds, self.wanted)?;
        }
        writeln!(
            out,
            "{} seeds, {} failed: {:.2} h of faults and healing, {} incidents, {} updates sent, \
             {} fresh, {} sessions opened, {} states withheld, {} alarms, {} commands, {} records, \
             {} states of keys, {} urgent states",
            self.seeds,
            self.failures.len(),
            self.simulated_s / 3_600.0,
            self.incidents,
            self.updates_sent,
            self.updates_fresh,
            self.sessions_opened,
            self.states_withheld,
            self.alarms,
            self.commands,
            self.records,
            self.keys,
            self.urgent,
        )
    }
}

impl From<Failed> for FailedSeed {
    fn from(Failed { plan, breach: Breach { property, what, at } }: Failed) -> Self {
        let replay = format!("freshline lab torture --seed {} --verbose", plan.seed);
        Self { property, what, at_s: at.as_secs_f64(), replay, plan }
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_core::unit::Span;

    #[test]
    fn a_seed_that_fails_is_told_with_what_was_drawn_and_how_to_replay_it() {
        let what = "update 7 counts as fresh after 9".to_owned();
        let breach =
            Breach { property: "freshest never goes back", what, at: Span::from_millis(1_500) };
        let failed = Failed { plan: Plan::draw(17), breach };
        let report = Report::new(2_000, Counts::default(), vec![failed]);

        let mut out = Vec::new();
        report.print(&mut out).expect("memory takes it");
        let told = String::from_utf8(out).expect("text");
        assert!(told.contains(&Plan::draw(17).to_string()), "{told}");
        for part in [
            env!("CARGO_PKG_VERSION"),
            "seed 17, 1.500 s: violated: freshest never goes back: update 7 counts as fresh after 9",
            "2000 seeds, 1 failed",
        ] {
            assert!(told.contains(part), "{part} in {told}");
        }

        let Err(Failure::Runtime(failure)) = report.verdict() else { panic!("no failure") };
        let help = failure.help().expect("help").to_string();
        assert_eq!(help, "replay it: freshline lab torture --seed 17 --verbose");
    }
}
