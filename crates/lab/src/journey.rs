//! The laws of several stops on one path: each by itself, one after the other, all, and all but one.
//!
//! ```text
//!   [journey] ─► rows: none │ each law alone │ the first two, three, … │ all │ all but each │ today's
//!                  └─► a run of the scenario per row ─► the columns ─► verdicts
//! ```

use rayon::prelude::*;
use serde::Serialize;

use crate::reproduce::{Claim, Verdict};
use crate::run::{Metric, Sampled, sample};
use crate::scenario::{Better, Change, Column, JourneyConfig, Scenario, SetError, Source};

/// All laws together may be this much worse than the best single law, in a column that it is meant for.
pub const TOLERANCE: f64 = 0.05;

/// The table of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Journey {
    /// What the scenario shows.
    pub title: String,
    /// The laws, in order.
    pub laws: Vec<Law>,
    /// The columns.
    pub columns: Vec<Heading>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Of each column that laws are meant for: all laws together against the best of these alone.
    pub verdicts: Vec<Comparison>,
    /// Columns that all laws together make worse than no law by more than [`TOLERANCE`].
    pub costs: Vec<Cost>,
}

/// A law of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Law {
    /// Its name.
    pub name: String,
    /// Its stop.
    pub stop: String,
    /// The columns that it is meant for, by place.
    pub meant_for: Vec<usize>,
}

/// A column of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Heading {
    /// Its name.
    pub name: String,
    /// The metric.
    pub metric: String,
    /// Of which flow or link.
    pub of: String,
    /// Its unit.
    pub unit: &'static str,
    /// Whether low values are better.
    pub is_lower_better: bool,
}

/// Which laws are on in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// None.
    None,
    /// One.
    Alone,
    /// The first ones, in order.
    InTurn,
    /// All.
    All,
    /// All but one.
    AllBut,
    /// None, with what people use today.
    Today,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What is on, in words.
    pub name: String,
    /// Which laws are on.
    pub kind: Kind,
    /// These laws, by place.
    pub laws: Vec<usize>,
    /// A value for each column.
    pub values: Vec<Value>,
}

/// A figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Value {
    /// The mean over the runs, in the column's unit.
    pub value: f64,
    /// Half the width of its 95 % confidence interval; `None` with one run.
    pub ci95: Option<f64>,
}

/// All laws together against the best single law in a column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The column, by place.
    pub column: usize,
    /// The best single law among those that are meant for the column, by place.
    pub best: usize,
    /// How much worse all laws together are than that law, as a fraction; negative where better.
    pub worse: f64,
    /// Half the width of the 95 % interval of `worse`; `None` with one run.
    pub ci95: Option<f64>,
    /// Whether that is within [`TOLERANCE`].
    pub outcome: Outcome,
    /// The laws without which all others together are better by more than [`TOLERANCE`], with their whole
    /// intervals, by place.
    pub hurt_by: Vec<usize>,
}

/// Whether all laws together are as good as the best single law.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The whole interval is within [`TOLERANCE`].
    Holds,
    /// The whole interval is beyond it.
    Worse,
    /// The interval covers both.
    Undecided,
}

/// A column that all laws together make worse.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// The column, by place.
    pub column: usize,
    /// How much worse all laws together are than none, as a fraction.
    pub worse: f64,
}

/// A table that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum JourneyError {
    /// The scenario has no laws to switch.
    #[error("has no [journey]; `freshline lab run` runs it")]
    NoJourney,
    /// The scenario of a row makes no sense.
    #[error("row `{row}`: {error}")]
    Row {
        /// The row.
        row: String,
        /// What is wrong.
        error: Box<SetError>,
    },
    /// A figure was not measured.
    #[error("row `{row}`: there is no metric `{metric}` of `{of}`; there is: {known}")]
    UnknownMetric {
        /// The row.
        row: String,
        /// The metric.
        metric: String,
        /// Of what.
        of: String,
        /// What there is.
        known: String,
    },
}

/// A row before it has run.
struct Plan {
    name: String,
    kind: Kind,
    laws: Vec<usize>,
    changes: Vec<Change>,
}

/// Runs all rows of a scenario, with `changes` made first; `done` is called after each, from any thread.
///
/// # Errors
/// [`JourneyError`].
pub fn journey<'a>(
    source: impl Into<Source<'a>>,
    changes: &[Change],
    done: impl Fn() + Sync,
) -> Result<Journey, JourneyError> {
    let source = source.into();
    let bad = |row: &str| {
        let row = row.to_owned();
        move |error: SetError| JourneyError::Row { row, error: Box::new(error) }
    };
    let whole = Scenario::parse_with(source, changes).map_err(bad("all"))?;
    let config = whole.journey.ok_or(JourneyError::NoJourney)?;
    // First as they stand, so that a row that makes no sense is refused before any has run.
    let rows = plan(&config).into_iter().map(|plan| {
        let all: Vec<_> = changes.iter().chain(&plan.changes).cloned().collect();
        let scenario = Scenario::parse_with(source, &all).map_err(bad(&plan.name))?;
        Ok((plan, scenario))
    });
    let rows = rows.collect::<Result<Vec<_>, JourneyError>>()?;
    let measured: Result<Vec<_>, JourneyError> = rows
        .into_par_iter()
        .map(|(plan, scenario)| {
            let samples =
                sample(&scenario, || {}).map_err(|error| bad(&plan.name)(error.into()))?;
            let metrics =
                config.columns.iter().map(|column| metric_of(column, &samples, &plan.name));
            let metrics = metrics.collect::<Result<Vec<_>, _>>()?;
            done();
            Ok((plan, metrics))
        })
        .collect();
    let measured = measured?;
    let units = measured.first().map_or(&[][..], |(_, metrics)| metrics);
    let columns = config.columns.iter().zip(units).map(|(column, metric)| Heading {
        name: column.name.clone(),
        metric: column.metric.clone(),
        of: column.of.clone(),
        unit: metric.unit,
        is_lower_better: column.better == Better::Lower,
    });
    let columns: Vec<_> = columns.collect();
    let rows = measured.into_iter().map(|(plan, metrics)| Row {
        name: plan.name,
        kind: plan.kind,
        laws: plan.laws,
        values: metrics.iter().map(|it| Value { value: it.value, ci95: it.ci95 }).collect(),
    });
    let (laws, rows) = (laws_of(&config), rows.collect::<Vec<_>>());
    let verdicts = verdicts(&laws, &columns, &rows);
    let costs = costs(&columns, &rows);
    Ok(Journey { title: whole.title, laws, columns, rows, verdicts, costs })
}

/// How many rows [`journey`] runs.
pub fn rows(config: &JourneyConfig) -> usize {
    plan(config).len()
}

fn laws_of(config: &JourneyConfig) -> Vec<Law> {
    let place = |name: &String| config.columns.iter().position(|column| column.name == *name);
    let law = |law: &crate::scenario::Switch| Law {
        name: law.name.clone(),
        stop: law.stop.clone(),
        meant_for: law.meant_for.iter().filter_map(place).collect(),
    };
    config.laws.iter().map(law).collect()
}

fn plan(config: &JourneyConfig) -> Vec<Plan> {
    let count = config.laws.len();
    let name = |law: usize| &*config.laws[law].name;
    let row = |name: String, kind, laws: Vec<usize>| {
        let changes = config.changes(|law| laws.contains(&law));
        Plan { name, kind, laws, changes }
    };
    let mut rows = vec![row("none".to_owned(), Kind::None, Vec::new())];
    rows.extend((0..count).map(|law| row(name(law).to_owned(), Kind::Alone, vec![law])));
    rows.extend((2..count).map(|first| {
        let names: Vec<_> = (0..first).map(name).collect();
        row(names.join(" + "), Kind::InTurn, (0..first).collect())
    }));
    if count > 1 {
        rows.push(row("all".to_owned(), Kind::All, (0..count).collect()));
    }
    // All but one of two is the other one alone.
    if count > 2 {
        rows.extend((0..count).map(|law| {
            let laws = (0..count).filter(|other| *other != law).collect();
            row(format!("all but {}", name(law)), Kind::AllBut, laws)
        }));
    }
    rows.extend(config.alternatives.iter().map(|alternative| {
        let mut row = row(alternative.name.clone(), Kind::Today, Vec::new());
        row.changes.extend(alternative.changes());
        row
    }));
    rows
}

fn metric_of(column: &Column, samples: &[Sampled], row: &str) -> Result<Metric, JourneyError> {
    let is_it = |it: &&Sampled| it.name == column.metric && it.of == column.of;
    let found = samples.iter().find(is_it).map(Sampled::metric);
    found.ok_or_else(|| {
        let mut known: Vec<_> =
            samples.iter().filter(|it| it.of == column.of).map(|it| it.name).collect();
        if known.is_empty() {
            // Then it is the flow or the link that is unknown.
            known = samples.iter().map(|it| &*it.of).collect();
            known.dedup();
        }
        JourneyError::UnknownMetric {
            row: row.to_owned(),
            metric: column.metric.clone(),
            of: column.of.clone(),
            known: known.join(", "),
        }
    })
}

/// How much worse `value` is than `other`, as a fraction of `other` (of the larger one where `other` is 0),
/// and half the width of its interval: that of the difference of two means of independent runs.
fn worse(column: &Heading, value: Value, other: Value) -> (f64, Option<f64>) {
    let whole = if other.value == 0.0 { value.value } else { other.value };
    let part = |of: f64| if of == 0.0 { 0.0 } else { of / whole };
    let more = part(value.value - other.value);
    let half = |it: Value| Some(part(it.ci95?));
    let ci95 = half(value).zip(half(other)).map(|(a, b)| a.hypot(b));
    (if column.is_lower_better { more } else { -more }, ci95)
}

/// Whether that is within [`TOLERANCE`], as reproductions judge a number with its interval.
fn outcome((worse, ci95): (f64, Option<f64>)) -> Outcome {
    match Claim::at_most(TOLERANCE).judge(worse, ci95) {
        Verdict::Broken => Outcome::Worse,
        Verdict::Undecided => Outcome::Undecided,
        Verdict::Holds | Verdict::NotJudged => Outcome::Holds,
    }
}

fn is_beyond(of: (f64, Option<f64>)) -> bool {
    outcome(of) == Outcome::Worse
}

fn verdicts(laws: &[Law], columns: &[Heading], rows: &[Row]) -> Vec<Comparison> {
    let Some(all) = rows.iter().find(|row| row.kind == Kind::All) else { return Vec::new() };
    let verdict = |(place, column): (usize, &Heading)| {
        let is_meant =
            |row: &&Row| row.kind == Kind::Alone && laws[row.laws[0]].meant_for.contains(&place);
        let value = |row: &Row| row.values[place];
        let alone = rows.iter().filter(is_meant);
        let best = alone.min_by(|a, b| worse(column, value(a), value(b)).0.total_cmp(&0.0))?;
        let over_best = worse(column, value(all), value(best));
        let left_out = |row: &Row| (0..laws.len()).find(|law| !row.laws.contains(law));
        let without = rows.iter().filter(|row| row.kind == Kind::AllBut);
        let hurt_by = without
            .filter(|row| is_beyond(worse(column, value(all), value(row))))
            .filter_map(left_out);
        Some(Comparison {
            column: place,
            best: best.laws[0],
            worse: over_best.0,
            ci95: over_best.1,
            outcome: outcome(over_best),
            hurt_by: hurt_by.collect(),
        })
    };
    columns.iter().enumerate().filter_map(verdict).collect()
}

fn costs(columns: &[Heading], rows: &[Row]) -> Vec<Cost> {
    let of = |kind: Kind| rows.iter().find(|row| row.kind == kind);
    let (Some(none), Some(all)) = (of(Kind::None), of(Kind::All)) else { return Vec::new() };
    let cost = |(place, column): (usize, &Heading)| {
        let worse = worse(column, all.values[place], none.values[place]);
        is_beyond(worse).then_some(Cost { column: place, worse: worse.0 })
    };
    columns.iter().enumerate().filter_map(cost).collect()
}
