//! The laws at several stages of one path: each alone, added one after the other, all, and all but
//! one.
//!
//! ```text
//!   [journey] ─► rows: none │ each law alone │ the first two, three, … │ all │ all but each │ today's
//!                  └─► a run of the scenario per row ─► the columns ─► verdicts
//! ```

use rayon::prelude::*;
use serde::Serialize;

use crate::reproduce::{Claim, Verdict};
use crate::run::{Sampled, sample};
use crate::scenario::{Better, Change, Column, JourneyConfig, Scenario, SetError, Source};

/// The tolerance of the verdict on all laws together, compared with the best single law, in a
/// column that laws are meant for.
pub const TOLERANCE: f64 = 0.05;

/// The table of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Journey {
    /// The title of the scenario.
    pub title: String,
    /// The laws, in order.
    pub laws: Vec<Law>,
    /// The columns.
    pub columns: Vec<Heading>,
    /// The rows.
    pub rows: Vec<Row>,
    /// For each column that laws are meant for: all laws together compared with the best of these
    /// laws alone.
    pub verdicts: Vec<Comparison>,
    /// Columns that all laws together make worse, compared with no law, by more than [`TOLERANCE`].
    pub costs: Vec<Cost>,
}

/// A law of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Law {
    /// Its name.
    pub name: String,
    /// Its stage of the path.
    pub stop: String,
    /// The columns that it is meant for, by index.
    pub meant_for: Vec<usize>,
}

/// A column of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Heading {
    /// Its name.
    pub name: String,
    /// The metric.
    pub metric: String,
    /// The flow or link that it belongs to.
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
    /// No law.
    None,
    /// One law.
    Alone,
    /// The first laws, in order.
    InTurn,
    /// All laws.
    All,
    /// All laws but one.
    AllBut,
    /// No law, with today's alternative.
    Today,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// A description of the active laws.
    pub name: String,
    /// Which laws are on.
    pub kind: Kind,
    /// These laws, by index.
    pub laws: Vec<usize>,
    /// A value for each column.
    pub values: Vec<Value>,
}

/// A value in the table.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Value {
    /// The mean over the runs, in the column's unit.
    pub value: f64,
    /// Half the width of its 95 % confidence interval; `None` with one run.
    pub ci95: Option<f64>,
}

/// All laws together, compared with the best single law in a column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The column, by index.
    pub column: usize,
    /// The best single law, by index, among the laws that are meant for the column.
    pub best: usize,
    /// The relative disadvantage of all laws together compared with that law; negative if they are
    /// better.
    pub worse: f64,
    /// Half the width of the 95 % interval of `worse`, from pairs of runs with the same seed;
    /// `None` with one run.
    pub ci95: Option<f64>,
    /// Whether that is within [`TOLERANCE`].
    pub outcome: Outcome,
    /// The laws without which all others together are better by more than [`TOLERANCE`], with their
    /// whole intervals, by index.
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

/// A column that becomes worse with all laws together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// The column, by index.
    pub column: usize,
    /// The relative disadvantage of all laws together compared with no law.
    pub worse: f64,
}

/// A table that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum JourneyError {
    /// The scenario has no laws to switch.
    #[error("has no [journey]; `freshline lab run` runs it")]
    NoJourney,
    /// The scenario of a row is invalid.
    #[error("row `{row}`: {error}")]
    Row {
        /// The row.
        row: String,
        /// The error.
        error: Box<SetError>,
    },
    /// A metric was not measured.
    #[error("row `{row}`: there is no metric `{metric}` of `{of}`; there is: {known}")]
    UnknownMetric {
        /// The row.
        row: String,
        /// The metric.
        metric: String,
        /// The flow or link in question.
        of: String,
        /// The available metrics.
        known: String,
    },
}

/// A row that has run, with its columns in all runs.
struct Measured {
    plan: Plan,
    samples: Vec<Sampled>,
}

/// A row before it has run.
struct Plan {
    name: String,
    kind: Kind,
    laws: Vec<usize>,
    changes: Vec<Change>,
}

/// Runs all rows of a scenario, after applying `changes`. Calls `done` after each, from any thread.
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
    // First parse all rows, so that an invalid one is rejected before any row runs.
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
            let columns =
                config.columns.iter().map(|column| samples_of(column, &samples, &plan.name));
            let samples = columns.collect::<Result<Vec<_>, _>>()?;
            done();
            Ok(Measured { plan, samples })
        })
        .collect();
    let measured = measured?;
    let units = measured.first().map_or(&[][..], |row| &row.samples);
    let columns = config.columns.iter().zip(units).map(|(column, samples)| Heading {
        name: column.name.clone(),
        metric: column.metric.clone(),
        of: column.of.clone(),
        unit: samples.unit,
        is_lower_better: column.better == Better::Lower,
    });
    let (laws, columns) = (laws_of(&config), columns.collect::<Vec<_>>());
    let verdicts = verdicts(&laws, &columns, &measured);
    let costs = costs(&columns, &measured);
    let rows = measured.into_iter().map(|Measured { plan, samples }| Row {
        name: plan.name,
        kind: plan.kind,
        laws: plan.laws,
        values: samples.iter().map(value_of).collect(),
    });
    Ok(Journey { title: whole.title, laws, columns, rows: rows.collect(), verdicts, costs })
}

/// The number of rows that [`journey`] runs.
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
    // With two laws, all but one is the other one alone.
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

fn value_of(samples: &Sampled) -> Value {
    let metric = samples.metric();
    Value { value: metric.value, ci95: metric.ci95 }
}

fn samples_of(column: &Column, samples: &[Sampled], row: &str) -> Result<Sampled, JourneyError> {
    let is_it = |it: &&Sampled| it.name == column.metric && it.of == column.of;
    let found = samples.iter().find(is_it);
    found.cloned().ok_or_else(|| {
        let mut known: Vec<_> =
            samples.iter().filter(|it| it.of == column.of).map(|it| it.name).collect();
        if known.is_empty() {
            // The flow or the link is unknown.
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

/// The relative disadvantage of `value` compared with `other`, as a fraction of the mean of `other`
/// (of `value` if that is 0), and half the width of its interval. Runs with the same number have
/// the same seed in both rows, so the interval is that of a ratio of means of pairs: of the
/// differences `value - ratio * other`, run by run.
fn worse(column: &Heading, value: &Sampled, other: &Sampled) -> (f64, Option<f64>) {
    // Only runs in which both are known.
    let (value, other) = (value.minus(0.0, other), other.minus(0.0, value));
    let (mean, base) = (value.metric().value, other.metric().value);
    let (whole, ratio) = if base == 0.0 { (mean, 1.0) } else { (base, mean / base) };
    let part = |of: f64| if of == 0.0 { 0.0 } else { of / whole };
    let more = part(mean - base);
    let ci95 = value.minus(ratio, &other).metric().ci95.map(|half| part(half).abs());
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

fn verdicts(laws: &[Law], columns: &[Heading], rows: &[Measured]) -> Vec<Comparison> {
    let of_kind = |kind: Kind| rows.iter().filter(move |row| row.plan.kind == kind);
    let Some(all) = of_kind(Kind::All).next() else { return Vec::new() };
    let verdict = |(place, column): (usize, &Heading)| {
        let over = |row: &Measured, other: &Measured| {
            worse(column, &row.samples[place], &other.samples[place])
        };
        let is_meant = |row: &&Measured| laws[row.plan.laws[0]].meant_for.contains(&place);
        let alone = of_kind(Kind::Alone).filter(is_meant);
        let best = alone.min_by(|a, b| over(a, b).0.total_cmp(&0.0))?;
        let over_best = over(all, best);
        let left_out = |row: &Measured| (0..laws.len()).find(|law| !row.plan.laws.contains(law));
        let hurt_by =
            of_kind(Kind::AllBut).filter(|row| is_beyond(over(all, row))).filter_map(left_out);
        Some(Comparison {
            column: place,
            best: best.plan.laws[0],
            worse: over_best.0,
            ci95: over_best.1,
            outcome: outcome(over_best),
            hurt_by: hurt_by.collect(),
        })
    };
    columns.iter().enumerate().filter_map(verdict).collect()
}

fn costs(columns: &[Heading], rows: &[Measured]) -> Vec<Cost> {
    let of = |kind: Kind| rows.iter().find(|row| row.plan.kind == kind);
    let (Some(none), Some(all)) = (of(Kind::None), of(Kind::All)) else { return Vec::new() };
    let cost = |(place, column): (usize, &Heading)| {
        let worse = worse(column, &all.samples[place], &none.samples[place]);
        is_beyond(worse).then_some(Cost { column: place, worse: worse.0 })
    };
    columns.iter().enumerate().filter_map(cost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(is_lower_better: bool) -> Heading {
        let [name, metric, of] = ["age", "age_mean", "robot"].map(str::to_owned);
        Heading { name, metric, of, unit: "s", is_lower_better }
    }

    fn ages(values: &[f64]) -> Sampled {
        Sampled::of_runs("age_mean", "robot", "s", values)
    }

    /// Runs differ by a factor of 4, and the rows by a tenth in each.
    #[test]
    fn rows_are_compared_run_by_run() {
        let all = [1.1, 2.2, 4.4];
        let (more, half) = worse(&column(true), &ages(&all), &ages(&[1.0, 2.0, 4.0]));
        assert!((more - 0.1).abs() < 1e-12 && half.unwrap() < 1e-12, "{more} {half:?}");
        assert_eq!(outcome((more, half)), Outcome::Worse);
        // The same numbers in other pairs are inconclusive.
        let (more, half) = worse(&column(true), &ages(&all), &ages(&[4.0, 1.0, 2.0]));
        assert!((more - 0.1).abs() < 1e-12, "{more}");
        assert_eq!(outcome((more, half)), Outcome::Undecided, "{half:?}");
    }

    #[test]
    fn less_is_worse_where_high_values_are_better() {
        let (more, half) = worse(&column(false), &ages(&[0.9, 1.8]), &ages(&[1.0, 2.0]));
        assert!((more - 0.1).abs() < 1e-12 && half.unwrap() < 1e-12, "{more} {half:?}");
    }

    /// The interval of a ratio of means, by its definition: 3 runs, t = 4.303.
    #[test]
    fn the_interval_is_that_of_a_ratio_of_means() {
        let (value, other) = ([2.0, 3.0, 4.0], [1.0, 2.0, 3.0]);
        let (more, half) = worse(&column(true), &ages(&value), &ages(&other));
        assert!((more - 0.5).abs() < 1e-12, "{more}");
        // The differences from 1.5 times the other are 0.5, 0 and -0.5: a deviation of 0.5.
        let expected = 4.303 * 0.5 / 3_f64.sqrt() / 2.0;
        assert!((half.unwrap() - expected).abs() < 1e-3, "{half:?}");
    }

    #[test]
    fn zeros_are_equal_and_anything_is_all_of_itself_above_zero() {
        let zeros = ages(&[0.0, 0.0]);
        assert_eq!(worse(&column(true), &zeros, &zeros), (0.0, Some(0.0)));
        assert_eq!(worse(&column(true), &ages(&[1.0, 1.0]), &zeros), (1.0, Some(0.0)));
    }
}
