//! Laws of the source beside each other, and beside the best fixed rate: a line a family of paths.
//!
//! ```text
//!   [reproduce.contest] ─► tenth, acp+d, acp+, lazy ────────────────► ages, Jain's index
//!                      └─► fixed, from ─► to ─► two more around the best ─► the least mean age
//! ```

use serde::Serialize;
use toml::Value;

use crate::reproduce::ReproduceError;
use crate::run::{Sampled, sample};
use crate::scenario::{Change, ContestConfig, Scenario, Source};

/// The laws, in the order of the table; the first is the one that is held against the others.
pub const LAWS: [&str; 4] = ["tenth", "acp+d", "acp+", "lazy"];

/// A family of paths with its numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Contested {
    /// What is special about its paths.
    pub title: String,
    /// Each law, in the order of [`LAWS`].
    pub laws: Vec<Entry>,
    /// The fixed rate with the least mean age.
    pub best: Entry,
}

/// What a law came to: means over the runs and the flows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Its name.
    pub law: &'static str,
    /// True age at the monitor, s.
    pub age_mean: f64,
    /// Half the width of the 95 % confidence interval of the first flow's mean age, s.
    pub age_ci95: Option<f64>,
    /// What the true age does not exceed for 99 % of the time, s.
    pub age_p99: f64,
    /// Jain's index of the mean ages of flows alike, the least of them; `null` for lone flows.
    pub jain: Option<f64>,
    /// Updates sent by each source, 1/s.
    pub updates: f64,
}

impl Contested {
    /// The first law's mean age over that of the best fixed rate.
    pub fn over_best(&self) -> f64 {
        self.laws[0].age_mean / self.best.age_mean
    }

    /// The first law's mean age over that of the better one of the others.
    pub fn over_others(&self) -> f64 {
        let others = self.laws[1..].iter().map(|law| law.age_mean);
        self.laws[0].age_mean / others.fold(f64::INFINITY, f64::min)
    }
}

/// Runs all laws and rates of a scenario, with `changes` made first; `done` is called after each.
pub fn contest<'a>(
    source: impl Into<Source<'a>>,
    changes: &[Change],
    done: impl Fn(),
) -> Result<Contested, ReproduceError> {
    let source = source.into();
    let whole = Scenario::parse_with(source, changes)
        .map_err(|error| ReproduceError::Row { what: "all".to_owned(), error: error.into() })?;
    let title = whole.title;
    let config = whole.reproduce.and_then(|reproduction| reproduction.contest);
    let config = config.ok_or(ReproduceError::NothingToReproduce)?;
    let arena = Arena { source, changes, config: &config };
    let entry = |law: &'static str, rate: Option<f64>| {
        let entry = arena.run(law, rate);
        done();
        entry
    };
    let laws: Result<Vec<_>, _> = LAWS.into_iter().map(|law| entry(law, None)).collect();
    let (from, to) = (config.from.per_second(), config.to.per_second());
    let ratio = (to / from).powf(1.0 / f64::from(config.steps.max(2) - 1));
    let mut best: Option<(f64, Entry)> = None;
    let mut attempt = |rate: f64| {
        let found = entry("fixed", Some(rate))?;
        if best.as_ref().is_none_or(|(_, best)| found.age_mean < best.age_mean) {
            best = Some((rate, found));
        }
        Ok(best.as_ref().map_or(rate, |(rate, _)| *rate))
    };
    let mut found = Ok(from);
    for step in 0..config.steps.max(2) {
        found = found.and_then(|_| attempt(from * ratio.powi(step as i32)));
    }
    let around: f64 = found?;
    for factor in [ratio.sqrt(), 1.0 / ratio.sqrt()] {
        attempt(around * factor)?;
    }
    let best = best.map(|(_, entry)| entry).ok_or(ReproduceError::NothingToReproduce)?;
    Ok(Contested { title, laws: laws?, best })
}

/// How many runs of the scenario [`contest`] makes.
pub fn steps(config: &ContestConfig) -> usize {
    LAWS.len() + config.steps.max(2) as usize + 2
}

struct Arena<'a> {
    source: Source<'a>,
    changes: &'a [Change],
    config: &'a ContestConfig,
}

impl Arena<'_> {
    fn run(&self, law: &'static str, rate: Option<f64>) -> Result<Entry, ReproduceError> {
        let what = || rate.map_or(law.to_owned(), |rate| format!("{law} at {rate:.1}/s"));
        let mut changes = self.changes.to_vec();
        for flow in &self.config.flows {
            let key = |key: &str| format!("flow.{flow}.updates.{key}");
            changes.push(Change::new(key("law"), Value::String(law.to_owned())));
            changes.extend(
                rate.map(|rate| Change::new(key("rate"), Value::String(format!("{rate:.3}/s")))),
            );
        }
        let bad = |error| ReproduceError::Row { what: what(), error: Box::new(error) };
        let scenario = Scenario::parse_with(self.source, &changes).map_err(bad)?;
        let samples = sample(&scenario, || {}).map_err(|error| bad(error.into()))?;
        let number = |name: &str, of: &String| {
            samples.iter().find(|sampled| sampled.name == name && sampled.of == *of)
        };
        let mean = |name: &str| {
            let values = self.config.flows.iter().map(|flow| number(name, flow).map(value));
            let values: Option<Vec<f64>> = values.collect();
            let known = || ReproduceError::UnknownMetric {
                what: what(),
                metric: name.to_owned(),
                of: self.config.flows.join(", "),
                known: samples
                    .iter()
                    .map(|metric| metric.of.clone())
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            let values = values.filter(|values| !values.is_empty()).ok_or_else(known)?;
            Ok(values.iter().sum::<f64>() / values.len() as f64)
        };
        let first = self.config.flows.first().and_then(|flow| number("age_mean", flow));
        let jain = self.config.flows.iter().filter_map(|flow| number("age_jain", flow).map(value));
        Ok(Entry {
            law,
            age_mean: mean("age_mean")?,
            age_ci95: first.and_then(|sampled| sampled.metric().ci95),
            age_p99: mean("age_p99")?,
            jain: jain.reduce(f64::min),
            updates: mean("updates")?,
        })
    }
}

fn value(sampled: &Sampled) -> f64 {
    sampled.metric().value
}
