//! Compares the laws of the source with each other and with the best fixed rate, per family of
//! paths.
//!
//! ```text
//!   [reproduce.contest] ─► tenth, acp+d, acp+, lazy ────────────────► ages, Jain's index
//!                      └─► fixed, from ─► to ─► two more around the best ─► the minimum mean age
//!                                                      └─► … with the goodput that Lazy leaves TCP
//! ```

use serde::Serialize;
use toml::Value;

use crate::reproduce::ReproduceError;
use crate::run::{Sampled, sample};
use crate::scenario::{Case, Change, ContestConfig, Half, Reproduction, Scenario, Source};

/// A fixed rate is as polite as Lazy if it leaves TCP at least this fraction of the goodput that
/// Lazy leaves it: runs differ by as much.
const POLITE: f64 = 0.99;

/// The published laws, with which the first law of a contest is compared.
const PUBLISHED: [&str; 2] = ["acp+", "lazy"];

/// A family of paths with its numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Contested {
    /// A description of its paths.
    pub title: String,
    /// Whether a law may be developed on it.
    pub half: Half,
    /// Each law, in the order of the scenario.
    pub laws: Vec<Entry>,
    /// The fixed rate with the minimum mean age.
    pub best: Entry,
    /// The same among the rates that leave TCP the goodput that Lazy leaves it, within 1 %; `null`
    /// without TCP or Lazy, or if there is no such rate.
    pub polite: Option<Entry>,
}

/// The results of a law: means over the runs and the flows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Its name.
    pub law: String,
    /// True age at the monitor, s.
    pub age_mean: f64,
    /// Half the width of the 95 % confidence interval of the first flow's mean age, s.
    pub age_ci95: Option<f64>,
    /// The 99th percentile over time of the true age, s.
    pub age_p99: f64,
    /// The minimum of Jain's index of the mean ages of equal flows; `null` for lone flows.
    pub jain: Option<f64>,
    /// Updates sent by each source, 1/s.
    pub updates: f64,
    /// The total goodput of the TCP streams, bit/s; `null` without TCP.
    pub tcp: Option<f64>,
}

impl Contested {
    /// The ratio of the first law's mean age to that of the best fixed rate.
    pub fn over_best(&self) -> f64 {
        self.laws[0].age_mean / self.best.age_mean
    }

    /// The ratio to the best fixed rate that is as polite to TCP as Lazy, if that is another one.
    pub fn over_polite(&self) -> f64 {
        let best = self.polite.as_ref().unwrap_or(&self.best);
        self.laws[0].age_mean / best.age_mean
    }

    /// The ratio of the first law's mean age to the lower one of ACP+ and Lazy; `None` without
    /// them.
    pub fn over_published(&self) -> Option<f64> {
        let is_published = |law: &&Entry| PUBLISHED.contains(&&*law.law);
        let ages = self.laws[1..].iter().filter(is_published).map(|law| law.age_mean);
        ages.reduce(f64::min).map(|age| self.laws[0].age_mean / age)
    }

    /// The ratio of the goodputs that the first law and Lazy leave to TCP.
    pub fn tcp_over_lazy(&self) -> Option<f64> {
        Some(self.laws[0].tcp? / lazy(&self.laws)?)
    }
}

/// The goodput that Lazy leaves to TCP.
fn lazy(laws: &[Entry]) -> Option<f64> {
    laws.iter().find(|law| law.law == "lazy")?.tcp
}

/// The contests of a scenario: its cases, or itself, each with its name and its changes.
pub fn cases(name: &str, reproduction: &Reproduction) -> Vec<(String, Half, Vec<Change>)> {
    let Some(contest) = &reproduction.contest else { return Vec::new() };
    if reproduction.cases.is_empty() {
        return vec![(name.to_owned(), contest.half, Vec::new())];
    }
    let case = |case: &Case| (format!("{name}/{}", case.name), case.half, case.changes());
    reproduction.cases.iter().map(case).collect()
}

/// Runs all laws and rates of a scenario, after applying `changes`. Calls `done` after each run.
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
    let entry = |law: &str, rate: Option<f64>| {
        let entry = arena.run(law, rate);
        done();
        entry
    };
    let laws = config.laws.iter().map(|law| entry(law, None));
    let laws = laws.collect::<Result<Vec<_>, _>>()?;
    let (from, to) = (config.from.per_second(), config.to.per_second());
    let ratio = (to / from).powf(1.0 / f64::from(config.steps.max(2) - 1));
    let mut rates = Vec::new();
    let attempt = |rate: f64| Ok((rate, entry("fixed", Some(rate))?));
    for step in 0..config.steps.max(2) {
        rates.push(attempt(from * ratio.powi(step as i32))?);
    }
    let polite = |entry: &Entry| lazy(&laws).is_some_and(|lazy| entry.tcp >= Some(POLITE * lazy));
    let around = [freshest(&rates, |_| true), freshest(&rates, polite)].map(|it| it.map(|it| it.0));
    for (index, rate) in around.iter().enumerate() {
        let Some(rate) = rate.filter(|_| !around[..index].contains(rate)) else { continue };
        rates.push(attempt(rate * ratio.sqrt())?);
        rates.push(attempt(rate / ratio.sqrt())?);
    }
    let best = freshest(&rates, |_| true).ok_or(ReproduceError::NothingToReproduce)?.1.clone();
    let polite = freshest(&rates, polite).map(|(_, entry)| entry.clone());
    Ok(Contested { title, half: config.half, laws, best, polite })
}

/// The rate with the minimum mean age among those for which `holds` returns `true`.
fn freshest(rates: &[(f64, Entry)], holds: impl Fn(&Entry) -> bool) -> Option<&(f64, Entry)> {
    let all = rates.iter().filter(|(_, entry)| holds(entry));
    all.min_by(|(_, a), (_, b)| a.age_mean.total_cmp(&b.age_mean))
}

/// The number of runs of the scenario that [`contest`] makes; with TCP, two more.
pub fn steps(config: &ContestConfig) -> usize {
    config.laws.len() + config.steps.max(2) as usize + 2
}

struct Arena<'a> {
    source: Source<'a>,
    changes: &'a [Change],
    config: &'a ContestConfig,
}

impl Arena<'_> {
    fn run(&self, law: &str, rate: Option<f64>) -> Result<Entry, ReproduceError> {
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
        let tcp = self.config.tcp.iter().filter_map(|flow| number("goodput_sum", flow));
        Ok(Entry {
            law: law.to_owned(),
            age_mean: mean("age_mean")?,
            age_ci95: first.and_then(|sampled| sampled.metric().ci95),
            age_p99: mean("age_p99")?,
            jain: jain.reduce(f64::min),
            updates: mean("updates")?,
            tcp: tcp.map(value).reduce(|a, b| a + b),
        })
    }
}

fn value(sampled: &Sampled) -> f64 {
    sampled.metric().value
}
