//! Reproduces figures of papers: the scenario of a figure also contains the expected numbers, and
//! the source of each expectation.
//!
//! ```text
//!   [[reproduce.row]] ─► set ─► best: the value with the min. … ─► run ─► plus, over other rows'
//!                                                                    ─► holds, broken, undecided
//!   [[reproduce.trend]] ─► do rows rise in this order, are they equal? ─► likewise
//!   [[reproduce.null]]  ─► the same with each new law replaced by its baseline
//! ```

mod best;
mod null;
mod verdict;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use self::best::lowest;
use self::null::Replaced;
pub(crate) use self::verdict::Claim;
pub use self::verdict::Verdict;
use crate::run::{Metric, Sampled, sample_with};
use crate::scenario::{
    Best, Change, Laws, NoLaws, Origin, Reproduction, Row, Scenario, SetError, Source, Trend,
};

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Whether it is a number, or an order among numbers.
    pub kind: Kind,
    /// A description.
    pub what: String,
    /// The source of the expected value or order.
    pub source: Origin,
    /// The unit of the numbers; `1` for a trend.
    pub unit: Cow<'static, str>,
    /// The expected value.
    pub expected: Option<f64>,
    /// Our value; `null` for a trend.
    pub ours: Option<f64>,
    /// Half the width of its 95 % confidence interval; `null` with one run.
    pub ci95: Option<f64>,
    /// Its standard deviation over the runs, for a row that is a ratio to another one.
    pub deviation: Option<f64>,
    /// The permitted deviation, as a fraction of the expected value's distance from `base`.
    pub tolerance: Option<f64>,
    /// The value that is independent of the law.
    pub base: f64,
    /// The expected minimum.
    pub at_least: Option<f64>,
    /// The expected maximum.
    pub at_most: Option<f64>,
    /// The scenario was chosen so that this number comes out.
    pub calibrated: bool,
    /// A short quotation from the paper, with its place.
    pub quote: Option<String>,
    /// The reason why our value differs from the expected one.
    pub why: Option<String>,
    /// No new law affects it.
    #[serde(default)]
    pub unaffected: bool,
    /// Whether a law was replaced by its baseline in it; only in a null test.
    pub replaced: bool,
    /// The verdict with each new law replaced by its baseline, if there is one; only in a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_law: Option<Verdict>,
    /// The verdict.
    pub verdict: Verdict,
}

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A number.
    Number,
    /// An order among numbers.
    Trend,
}

/// A reproduction that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// The scenario does not reproduce a figure.
    #[error("has no [reproduce]; `freshline lab run` runs it")]
    NothingToReproduce,
    /// The scenario of a row is invalid.
    #[error("row `{what}`: {error}")]
    Row {
        /// The row.
        what: String,
        /// The error.
        error: Box<SetError>,
    },
    /// The metric of a row does not exist.
    #[error("row `{what}`: there is no metric `{metric}` of `{of}`; there is: {known}")]
    UnknownMetric {
        /// The row.
        what: String,
        /// The metric.
        metric: String,
        /// The flow or link in question.
        of: String,
        /// The available metrics.
        known: String,
    },
    /// A trend or a row refers to an unknown row.
    #[error("`{what}`: no row above has the id `{id}`")]
    UnknownRow {
        /// The trend or row.
        what: String,
        /// The id.
        id: String,
    },
}

/// The selected part and mode of a reproduction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// With each new law replaced by its baseline.
    pub null: bool,
    /// With the paper's number of runs and durations, as the scenario's `full` has them.
    pub full: bool,
    /// Only a sample of rows and trends, with the rows that they need.
    pub sample: Option<Draw>,
}

/// Selects some of the rows and trends of all scenarios, the same ones for the same seed.
#[derive(Debug, Clone, Copy)]
pub struct Draw {
    /// The ratio of all rows and trends to selected ones; at least 1.
    pub one_in: u64,
    /// The seed of the selection.
    pub seed: u64,
}

impl Draw {
    fn takes(self, of: &str, what: &str) -> bool {
        // FNV-1a, and its upper bits, as the lower ones differ little between similar texts.
        let text = self.seed.to_le_bytes().into_iter().chain(of.bytes()).chain(what.bytes());
        let hash = text.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash >> 32) % self.one_in.max(1) == 0
    }
}

/// Runs the rows of a scenario, after applying `changes`. Calls `done` after each row.
pub fn reproduce<'a>(
    source: impl Into<Source<'a>>,
    changes: &[Change],
    options: Options,
    done: impl Fn(&Compared),
) -> Result<Vec<Compared>, ReproduceError> {
    reproduce_with(source, changes, options, &NoLaws, done)
}

/// As [`reproduce`], with laws of the caller, and a flag that ends it early ([`Laws::stop`]).
pub fn reproduce_with<'a>(
    source: impl Into<Source<'a>>,
    changes: &[Change],
    options: Options,
    laws: &dyn Laws,
    done: impl Fn(&Compared),
) -> Result<Vec<Compared>, ReproduceError> {
    let source = source.into();
    let scenario = Scenario::parse_with(source, changes)
        .map_err(|error| ReproduceError::Row { what: "all".to_owned(), error: error.into() })?;
    let reproduction = scenario.reproduce.ok_or(ReproduceError::NothingToReproduce)?;
    let chosen = options.sample.map(|draw| Chosen::draw(draw, &reproduction));
    let null = options.null.then_some(&reproduction.null[..]);
    let full = Change::each(reproduction.full.iter().filter(|_| options.full));
    let changes = &full.chain(changes.iter().cloned()).collect::<Vec<_>>()[..];
    let mut runs = Runs { source, null, laws, known: BTreeMap::new() };
    let mut table = Vec::new();
    let mut by_id = BTreeMap::new();
    for (index, row) in reproduction.rows.iter().enumerate() {
        if chosen.as_ref().is_some_and(|chosen| !chosen.needs_row(index)) {
            continue;
        }
        let sampled = row.sample(&mut runs, changes, &by_id)?;
        let compared = row.compare(&sampled);
        by_id.extend(row.id.clone().map(|id| (id, sampled)));
        if chosen.as_ref().is_none_or(|chosen| chosen.rows.contains(&index)) {
            done(&compared);
            table.push(compared);
        }
    }
    for (index, trend) in reproduction.trends.iter().enumerate() {
        if chosen.as_ref().is_none_or(|chosen| chosen.trends.contains(&index)) {
            let compared = trend.compare(&by_id)?;
            done(&compared);
            table.push(compared);
        }
    }
    Ok(table)
}

/// The selected rows and trends, by index.
struct Chosen {
    rows: BTreeSet<usize>,
    trends: BTreeSet<usize>,
    /// Rows on which those depend.
    needed: BTreeSet<usize>,
}

impl Chosen {
    fn draw(draw: Draw, reproduction: &Reproduction) -> Self {
        let Reproduction { of, rows, trends, .. } = reproduction;
        let takes = |what: &str| draw.takes(of, what);
        let rows_drawn: BTreeSet<_> =
            (0..rows.len()).filter(|&index| takes(&rows[index].what)).collect();
        let trends_drawn: BTreeSet<_> =
            (0..trends.len()).filter(|&index| takes(&trends[index].what)).collect();
        let of_trends = trends_drawn.iter().flat_map(|&index| trends[index].ids());
        let mut ids: BTreeSet<&String> = of_trends.collect();
        let mut needed = BTreeSet::new();
        // A row comes after the one to which it is a ratio.
        for (index, row) in rows.iter().enumerate().rev() {
            if rows_drawn.contains(&index) || row.id.as_ref().is_some_and(|id| ids.contains(id)) {
                needed.insert(index);
                ids.extend(row.needs());
            }
        }
        Self { rows: rows_drawn, trends: trends_drawn, needed }
    }

    fn needs_row(&self, index: usize) -> bool {
        self.needed.contains(&index)
    }
}

/// Runs of one scenario with changes. Several rows may need the same run.
struct Runs<'a> {
    source: Source<'a>,
    null: Option<&'a [crate::scenario::Baseline]>,
    laws: &'a dyn Laws,
    known: BTreeMap<String, Samples>,
}

/// All numbers of a scenario, and whether one of its laws was replaced.
type Samples = (Vec<Sampled>, Replaced);

/// The number of a row, and whether one of its laws was replaced.
#[derive(Clone)]
struct Number {
    sampled: Sampled,
    replaced: Replaced,
}

/// The numbers of the rows so far, by their ids.
type ById = BTreeMap<String, Number>;

fn row_called<'a>(rows: &'a ById, id: &str, what: &str) -> Result<&'a Number, ReproduceError> {
    rows.get(id)
        .ok_or_else(|| ReproduceError::UnknownRow { what: what.to_owned(), id: id.to_owned() })
}

impl Runs<'_> {
    fn samples(&mut self, changes: &[Change]) -> Result<&Samples, SetError> {
        let key = format!("{changes:?}");
        if !self.known.contains_key(&key) {
            let (scenario, replaced) = match self.null {
                Some(null) => null::parse(self.source, changes, null)?,
                None => (Scenario::parse_with(self.source, changes)?, Replaced(false)),
            };
            self.known.insert(key.clone(), (sample_with(&scenario, self.laws, || {})?, replaced));
        }
        Ok(&self.known[&key])
    }
}

impl Row {
    /// The row's number in all runs.
    fn sample(
        &self,
        runs: &mut Runs<'_>,
        changes: &[Change],
        rows: &ById,
    ) -> Result<Number, ReproduceError> {
        let mut changes: Vec<_> = changes.iter().cloned().chain(Change::each(&self.set)).collect();
        if let Some(best) = &self.best {
            changes.push(self.look_for(best, runs, &changes)?);
        }
        let own = self.number(runs, &changes, &self.metric, &self.of)?;
        let other = |id: &String| row_called(rows, id, &self.what);
        let with = |number: Number, id, of_both: fn(&Sampled, &Sampled) -> Sampled| {
            let Number { sampled, replaced } = other(id)?;
            let replaced = Replaced(number.replaced.0 || replaced.0);
            Ok(Number { sampled: of_both(&number.sampled, sampled), replaced })
        };
        let sum = self.plus.iter().try_fold(own, |sum, id| with(sum, id, Sampled::plus))?;
        self.over.iter().try_fold(sum, |sum, id| with(sum, id, Sampled::over))
    }

    fn compare(&self, number: &Number) -> Compared {
        let Number { sampled, replaced } = number;
        let Metric { value, unit, ci95, .. } = sampled.metric();
        let near = self.expected.zip(self.tolerance);
        let near = near.map(|(expected, off)| Claim::near(expected, off, self.base));
        let bounds = [self.at_least.map(Claim::at_least), self.at_most.map(Claim::at_most)];
        let claims = near.into_iter().chain(bounds.into_iter().flatten());
        Compared {
            kind: Kind::Number,
            what: self.what.clone(),
            source: self.source.unwrap_or_default(),
            unit: unit.into(),
            expected: self.expected,
            ours: Some(value).filter(|value| value.is_finite()),
            ci95,
            deviation: self.over.as_ref().and_then(|_| sampled.deviation()),
            tolerance: self.tolerance,
            base: self.base,
            at_least: self.at_least,
            at_most: self.at_most,
            calibrated: self.calibrated,
            quote: self.quote.clone(),
            why: self.why.clone(),
            unaffected: self.unaffected,
            replaced: replaced.0,
            without_law: None,
            verdict: Verdict::of_all(claims.map(|claim| claim.judge(value, ci95))),
        }
    }

    /// The change to the best value: the minimum of the parabola through the lowest value and its
    /// neighbours, since the curve is flat near its minimum and each value is slightly off.
    fn look_for(
        &self,
        best: &Best,
        runs: &mut Runs<'_>,
        changes: &[Change],
    ) -> Result<Change, ReproduceError> {
        let change = |value: f64| {
            // No unit has more than three decimal digits.
            let value = format!("{value:.3}{}", best.unit);
            Change::new(best.key.clone(), toml::Value::String(value))
        };
        let mut tried = Vec::new();
        for &value in &best.values {
            let changes: Vec<_> = changes.iter().cloned().chain([change(value)]).collect();
            let of = best.of.as_ref().unwrap_or(&self.of);
            let least = self.number(runs, &changes, &best.minimise, of)?;
            tried.push((value, least.sampled.metric().value));
        }
        Ok(change(lowest(&tried)))
    }

    fn number(
        &self,
        runs: &mut Runs<'_>,
        changes: &[Change],
        name: &str,
        of: &str,
    ) -> Result<Number, ReproduceError> {
        let failed =
            |error: SetError| ReproduceError::Row { what: self.what.clone(), error: error.into() };
        let (samples, replaced) = runs.samples(changes).map_err(failed)?;
        let found = samples.iter().find(|sampled| sampled.name == name && sampled.of == of);
        let number = |sampled: &Sampled| Number { sampled: sampled.clone(), replaced: *replaced };
        if let (None, Replaced(true)) = (found, *replaced) {
            // The baseline has no such number, as it does not control a level of frames.
            return Ok(number(&Sampled::of_runs("", of, "1", &[])));
        }
        found.map(number).ok_or_else(|| {
            let known = samples.iter().map(|metric| format!("{} of {}", metric.name, metric.of));
            ReproduceError::UnknownMetric {
                what: self.what.clone(),
                metric: name.to_owned(),
                of: of.to_owned(),
                known: known.collect::<Vec<_>>().join(", "),
            }
        })
    }
}

impl Trend {
    fn compare(&self, rows: &ById) -> Result<Compared, ReproduceError> {
        let row = |id: &String| row_called(rows, id, &self.what);
        let numbers = self.ids().map(row).collect::<Result<Vec<_>, _>>()?;
        let sampled = |ids: &[String]| -> Result<Vec<&Sampled>, _> {
            ids.iter().map(|id| Ok(&row(id)?.sampled)).collect()
        };
        let verdicts = [
            verdict::rising(&sampled(&self.rising)?, self.margin),
            verdict::alike(&sampled(&self.equal)?),
            verdict::most(&sampled(&self.highest)?),
            verdict::least(&sampled(&self.lowest)?),
        ];
        Ok(Compared {
            kind: Kind::Trend,
            what: self.what.clone(),
            source: self.source.unwrap_or_default(),
            unit: "1".into(),
            expected: None,
            ours: None,
            ci95: None,
            deviation: None,
            tolerance: None,
            base: 0.0,
            at_least: None,
            at_most: None,
            calibrated: false,
            quote: self.quote.clone(),
            why: self.why.clone(),
            unaffected: self.unaffected,
            replaced: numbers.iter().any(|number| number.replaced.0),
            without_law: None,
            verdict: Verdict::of_all(verdicts),
        })
    }
}
