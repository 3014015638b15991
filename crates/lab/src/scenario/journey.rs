//! `[journey]`: laws at several stages of the path that can be switched on, and the metrics by
//! which they are judged.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{Change, ScenarioError};

/// Laws that a scenario can switch on, and the metrics by which they are judged.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JourneyConfig {
    /// The laws, in the order in which they are added.
    #[serde(rename = "law")]
    pub laws: Vec<Switch>,
    /// Today's alternatives to the laws.
    #[serde(default, rename = "today")]
    pub alternatives: Vec<Alternative>,
    /// The columns of the table.
    #[serde(rename = "column")]
    pub columns: Vec<Column>,
}

/// A law that is on or off.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// The stage of the path: `source`, `host`, `path`, `router`, `wlan`, `receiver` or `mesh`.
    pub stop: String,
    /// The columns that it is meant to improve, by name.
    pub meant_for: Vec<String>,
    /// Keys of the scenario while it is on.
    #[serde(default)]
    pub on: BTreeMap<String, toml::Value>,
    /// Keys of the scenario while it is off.
    #[serde(default)]
    pub off: BTreeMap<String, toml::Value>,
}

/// An alternative in use today, with all laws off.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// Its name.
    pub name: String,
    /// Keys of the scenario.
    pub set: BTreeMap<String, toml::Value>,
}

/// A metric in the table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The metric, as in [`Metric::name`](crate::run::Metric::name).
    pub metric: String,
    /// The flow or link that it belongs to.
    pub of: String,
    /// Which values are better.
    pub better: Better,
}

/// Which values of a metric are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Low ones, as for ages and delays.
    Lower,
    /// High ones, as for goodput and Jain's index.
    Higher,
}

impl JourneyConfig {
    /// The changes with these laws on, by index, and all others off.
    pub fn changes(&self, is_on: impl Fn(usize) -> bool) -> Vec<Change> {
        let laws = self.laws.iter().enumerate();
        laws.flat_map(|(place, law)| Change::each(if is_on(place) { &law.on } else { &law.off }))
            .collect()
    }

    /// Rejects settings that do not make a table.
    pub(super) fn check(&self) -> Result<(), ScenarioError> {
        if self.laws.is_empty() || self.columns.is_empty() {
            return Err(refused("has no law or no column; give at least one of each"));
        }
        self.check_names()?;
        self.check_keys()?;
        for law in &self.laws {
            let known = |name: &String| self.columns.iter().any(|column| column.name == *name);
            if let Some(unknown) = law.meant_for.iter().find(|name| !known(name)) {
                return Err(refused(format!(
                    "`{}` is meant for `{unknown}`, which is not the `name` of a column",
                    law.name
                )));
            }
            if !STOPS.contains(&&*law.stop) {
                return Err(refused(format!(
                    "`{}`: `{}` is not a stop; write {}",
                    law.name,
                    law.stop,
                    STOPS.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Checks that the names of rows are unique, and those of columns.
    fn check_names(&self) -> Result<(), ScenarioError> {
        let laws = self.laws.iter().map(|law| &*law.name);
        let rows =
            laws.chain(self.alternatives.iter().map(|one| &*one.name)).chain(["none", "all"]);
        let columns = self.columns.iter().map(|column| &*column.name);
        for names in [rows.collect::<Vec<_>>(), columns.collect()] {
            let mut known = BTreeSet::new();
            if let Some(name) = names.iter().find(|name| name.is_empty() || !known.insert(**name)) {
                return Err(refused(format!(
                    "the name `{name}` is empty, is given twice, or is that of a row of its own (`none`, \
                     `all`); choose another"
                )));
            }
        }
        Ok(())
    }

    /// Checks that no key belongs to two laws, that no key is part of a table that another law
    /// sets, and that no law sets a key that all rows have in common.
    fn check_keys(&self) -> Result<(), ScenarioError> {
        let keys = |law: &Switch| law.on.keys().chain(law.off.keys()).cloned().collect::<Vec<_>>();
        let within = |key: &str, table: &str| {
            key == table || key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'))
        };
        for (place, law) in self.laws.iter().enumerate() {
            for key in keys(law) {
                if COMMON.iter().any(|common| within(&key, common)) {
                    return Err(refused(format!(
                        "`{}` sets `{key}`, which all rows have in common; set it in the scenario",
                        law.name
                    )));
                }
                let shares = |other: &&Switch| {
                    keys(other).iter().any(|its| within(its, &key) || within(&key, its))
                };
                if let Some(other) = self.laws[..place].iter().find(shares) {
                    return Err(refused(format!(
                        "`{}` and `{}` both set `{key}`, or a part of it; a key belongs to one law",
                        law.name, other.name
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Keys that are the same in all rows.
const COMMON: [&str; 8] =
    ["title", "duration", "warm_up", "runs", "seed", "sweep", "reproduce", "journey"];

/// The stages of the path at which a law can be.
const STOPS: [&str; 7] = ["source", "host", "path", "router", "wlan", "receiver", "mesh"];

impl Alternative {
    /// The changes that make it.
    pub fn changes(&self) -> Vec<Change> {
        Change::each(&self.set).collect()
    }
}

fn refused(what: impl Into<String>) -> ScenarioError {
    ScenarioError::Journey(what.into())
}
