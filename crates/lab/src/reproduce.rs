//! Figures of papers: the scenario that shows one also says which numbers the paper printed.
//!
//! ```text
//!   [[reproduce.row]] ─► set ─► best: the value with the least … ─► run ─► over another row's
//!                                                                    ─► ours beside the paper's
//!   [[reproduce.trend]] ─► do rows rise in the paper's order, are they alike where its are?
//! ```

use std::collections::BTreeMap;

use serde::Serialize;

use crate::run::{Metric, Sampled, sample};
use crate::scenario::{Best, Change, Row, Scenario, SetError, Source, Trend};

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// What it is, in words.
    pub what: String,
    /// The unit of the numbers.
    pub unit: &'static str,
    /// The paper's number.
    pub paper: Option<f64>,
    /// Ours; `null` for a trend.
    pub ours: Option<f64>,
    /// Half the width of its 95 % confidence interval.
    pub ci95: Option<f64>,
    /// Its standard deviation over the runs, of a row that is given over another one.
    pub deviation: Option<f64>,
    /// How far ours may be from the paper's, as a fraction.
    pub tolerance: Option<f64>,
    /// The least that the paper says it is.
    pub at_least: Option<f64>,
    /// The most.
    pub at_most: Option<f64>,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// Not farther from the paper's number than the tolerance, and not beyond its bounds.
    #[serde(rename = "within")]
    Within,
    /// Farther, or beyond a bound.
    #[serde(rename = "outside")]
    Outside,
    /// The order is the paper's.
    #[serde(rename = "trend holds")]
    TrendHolds,
    /// It is not.
    #[serde(rename = "trend broken")]
    TrendBroken,
    /// The paper prints no number.
    #[serde(rename = "no value in the paper")]
    NoValue,
}

/// A reproduction that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// The scenario says of no paper.
    #[error("has no [reproduce]; `freshline lab run` runs it")]
    NothingToReproduce,
    /// A row's scenario makes no sense.
    #[error("row `{what}`: {error}")]
    Row {
        /// The row.
        what: String,
        /// What is wrong.
        error: Box<SetError>,
    },
    /// A row's metric is not there.
    #[error("row `{what}`: there is no metric `{metric}` of `{of}`; there is: {known}")]
    UnknownMetric {
        /// The row.
        what: String,
        /// The metric.
        metric: String,
        /// Of what.
        of: String,
        /// What there is.
        known: String,
    },
    /// A trend or a row names a row that is not there.
    #[error("`{what}`: no row above has the id `{id}`")]
    UnknownRow {
        /// What names it.
        what: String,
        /// The id.
        id: String,
    },
}

/// Runs all rows of a scenario, with `changes` made first. `done` is called after each
/// row.
pub fn reproduce<'a>(
    source: impl Into<Source<'a>>,
    changes: &[Change],
    done: impl Fn(&Compared),
) -> Result<Vec<Compared>, ReproduceError> {
    let source = source.into();
    let scenario = Scenario::parse_with(source, changes)
        .map_err(|error| ReproduceError::Row { what: "all".to_owned(), error: error.into() })?;
    let reproduction = scenario.reproduce.ok_or(ReproduceError::NothingToReproduce)?;
    let mut runs = Runs { source, known: BTreeMap::new() };
    let mut table = Vec::new();
    let mut by_id = BTreeMap::new();
    for row in &reproduction.rows {
        let sampled = row.sample(&mut runs, changes, &by_id)?;
        let compared = row.compare(&sampled);
        done(&compared);
        by_id.extend(row.id.clone().map(|id| (id, sampled)));
        table.push(compared);
    }
    for trend in &reproduction.trends {
        let compared = trend.compare(&by_id)?;
        done(&compared);
        table.push(compared);
    }
    Ok(table)
}

/// Runs of one scenario with changes. Several rows may ask for the same.
struct Runs<'a> {
    source: Source<'a>,
    known: BTreeMap<String, Vec<Sampled>>,
}

/// The numbers of the rows so far, by their ids.
type ById = BTreeMap<String, Sampled>;

fn row_called<'a>(rows: &'a ById, id: &str, what: &str) -> Result<&'a Sampled, ReproduceError> {
    rows.get(id)
        .ok_or_else(|| ReproduceError::UnknownRow { what: what.to_owned(), id: id.to_owned() })
}

impl Runs<'_> {
    fn samples(&mut self, changes: &[Change]) -> Result<&[Sampled], SetError> {
        let key = format!("{changes:?}");
        if !self.known.contains_key(&key) {
            let scenario = Scenario::parse_with(self.source, changes)?;
            self.known.insert(key.clone(), sample(&scenario, || {})?);
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
    ) -> Result<Sampled, ReproduceError> {
        let own = self.set.iter().map(|(key, value)| Change::new(key.clone(), value.clone()));
        let mut changes: Vec<_> = changes.iter().cloned().chain(own).collect();
        if let Some(best) = &self.best {
            changes.push(self.look_for(best, runs, &changes)?);
        }
        let sampled = self.number(runs, &changes, &self.metric, &self.of)?;
        match &self.over {
            Some(id) => Ok(sampled.over(row_called(rows, id, &self.what)?)),
            None => Ok(sampled),
        }
    }

    fn compare(&self, sampled: &Sampled) -> Compared {
        let Metric { value, unit, ci95, .. } = sampled.metric();
        let tolerance = self.paper.zip(self.tolerance);
        let is_near = tolerance.map(|(paper, tolerance)| (value / paper - 1.0).abs() <= tolerance);
        let is_above = self.at_least.map(|least| value >= least);
        let is_below = self.at_most.map(|most| value <= most);
        let said: Vec<bool> = [is_near, is_above, is_below].into_iter().flatten().collect();
        let verdict = match &said[..] {
            [] => Verdict::NoValue,
            said if said.iter().all(|holds| *holds) => Verdict::Within,
            _ => Verdict::Outside,
        };
        Compared {
            what: self.what.clone(),
            unit,
            paper: self.paper,
            ours: Some(value),
            ci95,
            deviation: self.over.as_ref().and_then(|_| sampled.deviation()),
            tolerance: self.tolerance,
            at_least: self.at_least,
            at_most: self.at_most,
            verdict,
        }
    }

    /// The change to the best value: where the parabola through the least one and its neighbours
    /// has its lowest point, since the bowl is flat and each of its values a little off.
    fn look_for(
        &self,
        best: &Best,
        runs: &mut Runs<'_>,
        changes: &[Change],
    ) -> Result<Change, ReproduceError> {
        let change = |value: f64| {
            // No unit has more than three digits behind the point.
            let value = format!("{value:.3}{}", best.unit);
            Change::new(best.key.clone(), toml::Value::String(value))
        };
        let mut tried = Vec::new();
        for &value in &best.values {
            let changes: Vec<_> = changes.iter().cloned().chain([change(value)]).collect();
            let of = best.of.as_ref().unwrap_or(&self.of);
            let least = self.number(runs, &changes, &best.least, of)?;
            tried.push((value, least.metric().value));
        }
        Ok(change(lowest(&tried)))
    }

    fn number(
        &self,
        runs: &mut Runs<'_>,
        changes: &[Change],
        name: &str,
        of: &str,
    ) -> Result<Sampled, ReproduceError> {
        let failed =
            |error: SetError| ReproduceError::Row { what: self.what.clone(), error: error.into() };
        let samples = runs.samples(changes).map_err(failed)?;
        let found = samples.iter().find(|sampled| sampled.name == name && sampled.of == of);
        found.cloned().ok_or_else(|| {
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
        let value = |id: &String| Ok(row_called(rows, id, &self.what)?.metric().value);
        let values = |ids: &[String]| ids.iter().map(value).collect::<Result<Vec<f64>, _>>();
        let most = is_most(&values(&self.most)?);
        let negative = |value: f64| -value;
        let least = is_most(&values(&self.least)?.into_iter().map(negative).collect::<Vec<_>>());
        let holds =
            rise(&values(&self.rising)?) && are_alike(&values(&self.alike)?) && most && least;
        Ok(Compared {
            what: self.what.clone(),
            unit: "1",
            paper: None,
            ours: None,
            ci95: None,
            deviation: None,
            tolerance: None,
            at_least: None,
            at_most: None,
            verdict: if holds { Verdict::TrendHolds } else { Verdict::TrendBroken },
        })
    }
}

fn rise(values: &[f64]) -> bool {
    values.is_sorted_by(|lower, higher| lower < higher)
}

/// Whether none is farther from the first than a reader of the figure would see.
fn are_alike(values: &[f64]) -> bool {
    const VISIBLE: f64 = 0.05;
    let Some(first) = values.first() else { return true };
    values.iter().all(|value| (value / first - 1.0).abs() <= VISIBLE)
}

/// Whether the first is not below any by more than one could call a draw.
fn is_most(values: &[f64]) -> bool {
    const DRAW: f64 = 0.02;
    let Some(first) = values.first() else { return true };
    values.iter().all(|value| *value - first <= DRAW * value.abs())
}

/// Where the parabola through the lowest of the points and its two neighbours on either side, by
/// least squares, is lowest; the lowest point itself where that is no bowl or lies outside.
fn lowest(points: &[(f64, f64)]) -> f64 {
    let Some(least) = (0..points.len()).min_by(|&a, &b| points[a].1.total_cmp(&points[b].1)) else {
        return f64::NAN;
    };
    let near = &points[least.saturating_sub(2)..(least + 3).min(points.len())];
    let (centre, _) = points[least];
    let [first, .., last] = near else { return centre };
    // Normal equations for y = c₀ + c₁·x + c₂·x², x from the centre, by Cramer's rule.
    let mut power = [0.0; 5];
    let mut moment = [0.0; 3];
    for (x, y) in near.iter().map(|(x, y)| (x - centre, y)) {
        for (exponent, sum) in power.iter_mut().enumerate() {
            *sum += x.powi(exponent as i32);
        }
        for (exponent, sum) in moment.iter_mut().enumerate() {
            *sum += y * x.powi(exponent as i32);
        }
    }
    let [s0, s1, s2, s3, s4] = power;
    let [m0, m1, m2] = moment;
    let linear = s0 * (m1 * s4 - m2 * s3) - m0 * (s1 * s4 - s2 * s3) + s2 * (s1 * m2 - s2 * m1);
    let square = s0 * (s2 * m2 - s3 * m1) - s1 * (s1 * m2 - s2 * m1) + m0 * (s1 * s3 - s2 * s2);
    let bottom = centre - linear / (2.0 * square);
    let is_bowl = square
        * (s0 * (s2 * s4 - s3 * s3) - s1 * (s1 * s4 - s2 * s3) + s2 * (s1 * s3 - s2 * s2))
        > 0.0;
    if is_bowl && (first.0..=last.0).contains(&bottom) { bottom } else { centre }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_rises_or_stays() {
        assert!(rise(&[1.0, 1.1, 3.0]) && !rise(&[1.0, 1.0]) && !rise(&[2.0, 1.0]));
        assert!(are_alike(&[1.0, 1.04, 0.96]) && !are_alike(&[1.0, 1.06]));
        assert!(is_most(&[0.99, 1.0, 0.2]) && !is_most(&[0.97, 1.0]));
        assert!(is_most(&[-1.01, -1.0]) && !is_most(&[-1.03, -1.0]), "the least, of negatives");
        assert!(rise(&[]) && are_alike(&[]) && is_most(&[]), "what a trend does not say holds");
    }

    #[test]
    fn the_lowest_point_of_a_bowl_is_found_between_its_values() {
        let bowl = |lowest: f64| -> Vec<(f64, f64)> {
            (0..10)
                .map(|x| f64::from(x) / 10.0)
                .map(|x| (x, 2.0 + 3.0 * (x - lowest).powi(2)))
                .collect()
        };
        for at in [0.23, 0.5, 0.61] {
            assert!((lowest(&bowl(at)) - at).abs() < 1e-9, "{at}: {}", lowest(&bowl(at)));
        }
        assert_eq!(lowest(&[(1.0, 1.0), (2.0, 2.0), (3.0, 4.0)]), 1.0, "the end of a slope");
        assert_eq!(lowest(&[(1.0, 1.0)]), 1.0);
    }
}
