//! The recordings of one run by `freshline lab run`: captures and time series.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::PathBuf;

use freshline_core::unit::Span;
use freshline_lab::capture::{Captures, carrier_called};
use freshline_lab::scenario::{Built, Scenario};
use freshline_lab::series::{Csv, Series};
use freshline_lab::watch::watch;
use freshline_lab::world::Carrier;
use miette::{IntoDiagnostic, WrapErr, miette};

use super::chosen::bad;
use crate::epochs::EpochLog;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(super) struct Watched {
    /// Capture the packets that leave a wired hop in run 0: LINK, or LINK/reverse for the other
    /// direction; of links in series the first one. Or the packets that arrive over the air of a
    /// Wi-Fi cell: CELL. Flags with the same FILE share it.
    #[arg(long, value_name = "HOP=FILE")]
    pcap: Vec<String>,
    /// Write time series of run 0 into this folder: flow-NAME.csv, link-NAME.csv and
    /// cell-NAME.csv.
    #[arg(long, value_name = "DIR")]
    series: Option<PathBuf>,
    /// Write a record of each control epoch of ACP and ACP+ in run 0 to this file, whose name ends
    /// in .csv, .json (an array) or .jsonl (one object per line).
    #[arg(long, value_name = "FILE")]
    epochs: Option<PathBuf>,
    /// Use this interval in the time series.
    #[arg(long, value_name = "SPAN", default_value = "100ms", requires = "series")]
    every: Span,
}

type Out = BufWriter<File>;

impl Watched {
    pub(super) fn is_wanted(&self) -> bool {
        !self.pcap.is_empty() || self.series.is_some() || self.epochs.is_some()
    }

    /// Repeats run 0 of the scenario, and writes the requested recordings.
    pub(super) fn run(&self, name: &str, scenario: &Scenario) -> Result<(), Failure> {
        if !self.is_wanted() {
            return Ok(());
        }
        if self.every.is_zero() {
            return Err(Failure::Usage(miette!("--every is zero; give a span such as 100ms")));
        }
        let mut built = scenario.build(0).map_err(|error| bad(name, &error.into()))?;
        let captures = self.captures(scenario, &built)?;
        let series = self.series(scenario, &built)?;
        let log = self.epochs.as_deref().map(|path| EpochLog::create(path, true)).transpose()?;
        if log.is_some() {
            built.world.record_epochs();
        }
        let done = watch(scenario, built, captures, series);
        let (_, built) = written(done, "a capture or a time series")?;
        log.map_or(Ok(()), |log| write_epochs(log, scenario, &built))
    }

    fn captures(&self, scenario: &Scenario, built: &Built) -> Result<Captures<Out>, Failure> {
        let mut carriers_of_file = BTreeMap::<&str, Vec<Carrier>>::new();
        for text in &self.pcap {
            let (name, file) = text.split_once('=').ok_or_else(|| {
                Failure::Usage(miette!("--pcap {text}: not HOP=FILE, such as uplink=uplink.pcap"))
            })?;
            let carrier = carrier_called(name, scenario, built)
                .map_err(|error| Failure::Usage(miette!("--pcap {text}: {error}")))?;
            carriers_of_file.entry(file).or_default().push(carrier);
        }
        let mut captures = Captures::new(built);
        for (file, carriers) in carriers_of_file {
            let begun = create(file.into()).and_then(|out| captures.add(&carriers, out));
            written(begun, file)?;
        }
        Ok(captures)
    }

    fn series(
        &self,
        scenario: &Scenario,
        built: &Built,
    ) -> Result<Option<Series<Csv<Out>>>, Failure> {
        let Some(folder) = &self.series else { return Ok(None) };
        let open = |table: &str, columns: &[&'static str]| {
            let file = create(folder.join(format!("{}.csv", table.replace('/', "_"))))?;
            Csv::new(file, columns)
        };
        let begun = fs::create_dir_all(folder)
            .and_then(|()| Series::new(scenario, built, self.every, open));
        written(begun.map(Some), folder.display())
    }
}

/// Writes the control epochs of all sources, flow by flow.
fn write_epochs(mut log: EpochLog, scenario: &Scenario, built: &Built) -> Result<(), Failure> {
    for (config, range) in scenario.flows.iter().zip(&built.flows) {
        for (number, routed) in built.world.flows()[range.clone()].iter().enumerate() {
            let Some(updates) = routed.flow.updates() else { continue };
            for record in updates.epochs() {
                written(log.add(Some((&config.name, number)), record), "the log of epochs")?;
            }
        }
    }
    log.finish()
}

fn create(path: PathBuf) -> io::Result<Out> {
    File::create(path).map(BufWriter::new)
}

fn written<T>(result: io::Result<T>, what: impl Display) -> Result<T, Failure> {
    let outcome = result.into_diagnostic().wrap_err_with(|| format!("cannot write {what}"));
    outcome.map_err(Failure::Runtime)
}
