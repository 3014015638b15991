//! What a scenario reproduces: the numbers of a figure, and orders among them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What a scenario reproduces.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reproduction {
    /// Paper and figure.
    pub of: String,
    /// Numbers, in the order of the table.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
    /// Orders among them.
    #[serde(default, rename = "trend")]
    pub trends: Vec<Trend>,
}

/// One number.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// For trends and other rows; needed only there.
    pub id: Option<String>,
    /// What it is, in words.
    pub what: String,
    /// The metric, as in [`Metric::name`](crate::run::Metric::name).
    pub metric: String,
    /// Of which flow or link.
    pub of: String,
    /// Keys that are set for this row.
    #[serde(default)]
    pub set: BTreeMap<String, toml::Value>,
    /// A key that takes the best of several values first.
    pub best: Option<Best>,
    /// The id of a row above: this number is given as a multiple of that one's, run by run, since
    /// runs of one number meet the same randomness.
    pub over: Option<String>,
    /// The paper's number, in the metric's unit, or of the multiple; left out where it prints none.
    pub paper: Option<f64>,
    /// How far ours may be from it, as a fraction.
    pub tolerance: Option<f64>,
    /// Where the paper prints a bound in place of a number, such as "more than": the least.
    pub at_least: Option<f64>,
    /// Likewise the most, such as "up to".
    pub at_most: Option<f64>,
}

/// Looks for the value of a key for which a metric is least.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// The key; the values are numbers with its unit behind them.
    pub key: String,
    /// The values to try, rising.
    pub values: Vec<f64>,
    /// What stands behind a value, such as `/s`.
    #[serde(default)]
    pub unit: String,
    /// The metric that shall be least.
    pub least: String,
    /// Of which flow or link; of the row's unless said.
    pub of: Option<String>,
}

/// An order of rows, or rows that do not differ.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trend {
    /// What it says, in words.
    pub what: String,
    /// Ids of rows whose numbers rise in this order.
    #[serde(default)]
    pub rising: Vec<String>,
    /// Ids of rows whose numbers are within 5 % of the first one's.
    #[serde(default)]
    pub alike: Vec<String>,
}
