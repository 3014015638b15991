//! The scenario on a command line, with its changes.

use clap::builder::{RangedU64ValueParser, TypedValueParser};
use freshline_lab::library::{NotFound, Text, find};
use freshline_lab::run::{Point, points};
use freshline_lab::scenario::{Change, SetError};
use miette::{IntoDiagnostic, miette};

use crate::failure::Failure;

impl From<NotFound> for Failure {
    fn from(error: NotFound) -> Self {
        Self::Usage(Err::<(), _>(error).into_diagnostic().expect_err("it is an error"))
    }
}

/// A scenario with changes.
#[derive(Debug, clap::Args)]
pub(super) struct Chosen {
    /// Run this scenario file (TOML), or the bundled scenario with this name: see
    /// `freshline lab list`.
    scenario: String,
    #[command(flatten)]
    changed: Changed,
}

impl Chosen {
    /// The scenario, and the points of its sweep.
    pub(super) fn points(&self) -> Result<(Text, Vec<Point>), Failure> {
        let text = find(&self.scenario)?;
        let changes = self.changed.changes()?;
        let points = points(text.source(), &changes).map_err(|error| bad(&text.name, &error))?;
        Ok((text, points))
    }
}

/// Changes of a scenario.
#[derive(Debug, clap::Args)]
pub(super) struct Changed {
    /// Change a key of the scenario, such as flow.source.count=12; repeat the flag for several
    /// changes.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Use this seed of all randomness, instead of the scenario's.
    #[arg(long, value_name = "N", value_parser = seed())]
    seed: Option<i64>,
    /// Make this number of independent runs, instead of the scenario's.
    #[arg(long, value_name = "N")]
    runs: Option<u32>,
}

/// Reads a `--seed`, in the range of TOML integers, as in a scenario's file.
fn seed() -> impl TypedValueParser<Value = i64> {
    RangedU64ValueParser::new().range(..=i64::MAX.cast_unsigned())
}

impl Changed {
    /// The changes of `--set`, and of the flags that are short forms of it.
    pub(super) fn changes(&self) -> Result<Vec<Change>, Failure> {
        let own = |key, value: Option<i64>| value.map(|value| Change::new(key, value.into()));
        let set: Result<Vec<_>, _> = self.set.iter().map(|text| Change::parse(text)).collect();
        let mut changes = set.map_err(|error| Failure::Usage(miette!("--set: {error}")))?;
        changes.extend(own("seed", self.seed));
        changes.extend(own("runs", self.runs.map(i64::from)));
        Ok(changes)
    }
}

/// The failure for a scenario that cannot be run.
pub(super) fn bad(name: &str, error: &SetError) -> Failure {
    Failure::Usage(miette!("{name}: {error}"))
}
