//! The figure that a scenario reproduces: its numbers, and the order among them.
//!
//! ```text
//!   [[reproduce.compare]] ─► a row per value, a row and a trend per gain        ─┐
//!   [[reproduce.row]] ───────────────────────────────────────────────────────────┴─► rows
//! ```

use std::collections::{BTreeMap, BTreeSet};

use freshline_core::unit::UpdateRate;
use serde::{Deserialize, Serialize};

use super::{Change, Half, SafetyConfig};

/// The figure that a scenario reproduces, and its comparison.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "Written")]
pub struct Reproduction {
    /// Paper and figure.
    pub of: String,
    /// Numbers, in the order of the table.
    pub rows: Vec<Row>,
    /// Expected orders among the numbers.
    pub trends: Vec<Trend>,
    /// The replacement for each new law in a null test.
    pub null: Vec<Baseline>,
    /// Figures of the paper that are not covered by a row.
    pub omitted: Vec<Omitted>,
    /// Keys that `--full` sets: the paper's number of runs and durations.
    pub full: BTreeMap<String, toml::Value>,
    /// A comparison of the laws of the source.
    pub contest: Option<ContestConfig>,
    /// Contests of the scenario with other keys, instead of the scenario as it is.
    pub cases: Vec<Case>,
    /// A sweep of paths that no law may overload.
    pub safety: Option<SafetyConfig>,
}

/// The same, as written in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    of: String,
    /// The default for all rows and trends.
    #[serde(default)]
    source: Origin,
    #[serde(default)]
    row: Vec<Row>,
    #[serde(default)]
    trend: Vec<Trend>,
    #[serde(default)]
    compare: Vec<Compare>,
    #[serde(default)]
    null: Vec<Baseline>,
    #[serde(default)]
    omitted: Vec<Omitted>,
    #[serde(default)]
    full: BTreeMap<String, toml::Value>,
    contest: Option<ContestConfig>,
    #[serde(default)]
    case: Vec<Case>,
    safety: Option<SafetyConfig>,
}

impl From<Written> for Reproduction {
    fn from(written: Written) -> Self {
        let Written { of, source, row, trend, compare, null, omitted, full, contest, case, safety } =
            written;
        // A row that depends on a comparison, or on such a row, comes after it.
        let mut ids = BTreeSet::new();
        let (mut rows, last): (Vec<_>, Vec<_>) = row.into_iter().partition(|row| {
            let is_first = row.needs().all(|id| ids.contains(id));
            ids.extend(row.id.clone().filter(|_| is_first));
            is_first
        });
        let mut trends = trend;
        for compare in compare {
            rows.extend(compare.rows());
            trends.extend(compare.trends());
        }
        rows.extend(last);
        rows.iter_mut().for_each(|row| row.source = row.source.or(Some(source)));
        trends.iter_mut().for_each(|trend| trend.source = trend.source.or(Some(source)));
        Self { of, rows, trends, null, omitted, full, contest, cases: case, safety }
    }
}

/// The source of the expected value or order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The paper prints it, in its text, a table or a figure.
    #[default]
    Paper,
    /// A closed form or arithmetic; agreement shows that the simulator implements it.
    Model,
    /// Our own expectation; no paper states it.
    Ours,
}

/// The replacement for a law in a null test.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// The law's name: the text of a key, or the `law`, `discipline` or `control` of a table.
    pub from: String,
    /// The replacement for the name, and for such a table.
    pub to: toml::Value,
    /// Replace only values of this key, if a table around the law's has the same key.
    pub key: Option<String>,
    /// If such a table has this key, its value replaces the table: the queue that a discipline
    /// wraps.
    pub part: Option<String>,
    /// The new key of that value, instead of the law's: `tcp`, a stream, instead of `updates`.
    pub under: Option<String>,
    /// If set, only the name changes in such a table, and these keys, which configure the law
    /// alone, are removed.
    pub without: Option<Vec<String>>,
}

/// A figure, table or number of the paper that no row shows.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Omitted {
    /// The figure, table or number, with its place.
    pub what: String,
    /// The reason why no row covers it.
    pub why: String,
}

/// A comparison of one metric over several values of a key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Compare {
    /// The prefix of the ids of its rows: `ID-VALUE`, and `ID-OF-over-OVER` for a gain.
    id: String,
    what: String,
    key: String,
    values: Vec<String>,
    /// For values that are more than their name, the table to use.
    #[serde(default)]
    tables: BTreeMap<String, toml::Value>,
    metric: String,
    of: String,
    #[serde(default)]
    set: BTreeMap<String, toml::Value>,
    /// The metric is better if it is lower.
    #[serde(default)]
    lower_is_better: bool,
    /// The same metric for more flows than `of`, for each value: rows `ID-VALUE-PART`.
    #[serde(default)]
    parts: Vec<String>,
    #[serde(default)]
    gains: Vec<Gain>,
    /// The values that are expected to be the best of all, or within 2 % of it.
    #[serde(default)]
    best: Vec<String>,
    /// Our own values, about which the paper says nothing. A value of the paper is compared only
    /// with others of the paper, and the source of these trends is `ours`.
    #[serde(default)]
    ours: Vec<String>,
    /// A short quotation from the paper, with its place: for the gains without their own, and for
    /// the trends.
    quote: Option<String>,
}

/// The ratio of one value's number to another one's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Gain {
    of: String,
    over: String,
    expected: Option<f64>,
    tolerance: Option<f64>,
    #[serde(default)]
    base: f64,
    at_least: Option<f64>,
    at_most: Option<f64>,
    quote: Option<String>,
    why: Option<String>,
}

impl Compare {
    fn id(&self, value: &str) -> String {
        format!("{}-{value}", self.id)
    }

    /// A row with `value`.
    fn row(&self, id: Option<String>, what: &str, value: &str, of: &str) -> Row {
        let mut set = self.set.clone();
        let named = || toml::Value::String(value.to_owned());
        set.insert(self.key.clone(), self.tables.get(value).cloned().unwrap_or_else(named));
        Row {
            id,
            what: format!("{}: {what}", self.what),
            metric: self.metric.clone(),
            of: of.to_owned(),
            set,
            source: self.source([value].into_iter()),
            ..Row::default()
        }
    }

    /// `ours` if one of the values is; otherwise that of the file.
    fn source<'a>(&self, mut values: impl Iterator<Item = &'a str>) -> Option<Origin> {
        let is_ours = values.any(|value| self.ours.iter().any(|ours| ours == value));
        is_ours.then_some(Origin::Ours)
    }

    fn quoted(&self, own: Option<&String>) -> Option<String> {
        own.or(self.quote.as_ref()).cloned()
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for value in &self.values {
            rows.push(self.row(Some(self.id(value)), value, value, &self.of));
            for of in &self.parts {
                let id = format!("{}-{of}", self.id(value));
                rows.push(self.row(Some(id), &format!("{value}, {of}"), value, of));
            }
        }
        for gain in &self.gains {
            let Gain { of, over, expected, tolerance, base, at_least, at_most, quote, why } = gain;
            let id = format!("{}-over-{over}", self.id(of));
            let row = self.row(Some(id), &format!("{of} over {over}"), of, &self.of);
            rows.push(Row {
                over: Some(self.id(over)),
                source: self.source([of, over].map(String::as_str).into_iter()),
                expected: *expected,
                tolerance: *tolerance,
                base: *base,
                at_least: *at_least,
                at_most: *at_most,
                quote: self.quoted(quote.as_ref()),
                why: why.clone(),
                ..row
            });
        }
        rows
    }

    fn trends(&self) -> impl Iterator<Item = Trend> {
        let better = self.gains.iter().map(|Gain { of, over, quote, why, .. }| {
            let mut rising = vec![self.id(over), self.id(of)];
            if self.lower_is_better {
                rising.reverse();
            }
            let what = format!("{}: {of} is better than {over}", self.what);
            let source = self.source([of, over].map(String::as_str).into_iter());
            let quote = self.quoted(quote.as_ref());
            Trend { what, rising, source, quote, why: why.clone(), ..Trend::default() }
        });
        let best = self.best.iter().map(move |best| {
            let is_ours = self.ours.contains(best);
            let rivals = move |value: &&String| is_ours || !self.ours.contains(value);
            let others = self.values.iter().filter(move |value| *value != best).filter(rivals);
            let ids: Vec<_> =
                core::iter::once(best).chain(others).map(|value| self.id(value)).collect();
            let what = format!("{}: {best} is the best, or within 2 %", self.what);
            let [highest, lowest] =
                if self.lower_is_better { [vec![], ids] } else { [ids, vec![]] };
            let source = self.source([best.as_str()].into_iter());
            Trend { what, highest, lowest, source, quote: self.quote.clone(), ..Trend::default() }
        });
        better.chain(best)
    }
}

/// The same flows under each law of the source, and under a range of fixed rates.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContestConfig {
    /// The flows of updates that follow the law; their ages are averaged.
    pub flows: Vec<String>,
    /// The lowest of the fixed rates.
    pub from: UpdateRate,
    /// The highest.
    pub to: UpdateRate,
    /// The number of fixed rates, in geometric steps; at least 2.
    pub steps: u32,
    /// The laws, in the order of the table: the first one is compared with the others.
    #[serde(default = "laws")]
    pub laws: Vec<String>,
    /// The flow of TCP streams alongside, whose goodput is compared.
    pub tcp: Option<String>,
    /// Whether a law may be developed on it.
    #[serde(default = "training")]
    pub half: Half,
}

/// A contest of the scenario with other keys.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name, appended to that of the scenario.
    pub name: String,
    /// A description of its paths.
    pub title: String,
    /// Whether a law may be developed on it.
    pub half: Half,
    /// The lowest and the highest fixed rate.
    pub rates: [UpdateRate; 2],
    /// The keys that differ from the scenario's.
    #[serde(default)]
    pub set: BTreeMap<String, toml::Value>,
}

impl Case {
    /// The changes that make the scenario this case.
    pub fn changes(&self) -> Vec<Change> {
        let text = |key: &str, value: String| Change::new(key, toml::Value::String(value));
        let [from, to] = self.rates;
        let own = [
            text("title", self.title.clone()),
            text("reproduce.contest.half", self.half.name().to_owned()),
            text("reproduce.contest.from", from.to_string()),
            text("reproduce.contest.to", to.to_string()),
        ];
        own.into_iter().chain(Change::each(&self.set)).collect()
    }
}

fn laws() -> Vec<String> {
    ["tenth", "acp+d", "acp+", "lazy"].map(str::to_owned).to_vec()
}

fn training() -> Half {
    Half::Training
}

/// A row: one number.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its id, for trends and other rows; needed only there.
    pub id: Option<String>,
    /// A description of the number.
    pub what: String,
    /// The metric, as in [`Metric::name`](crate::run::Metric::name).
    pub metric: String,
    /// The flow or link that it belongs to.
    pub of: String,
    /// Keys that are set for this row.
    #[serde(default)]
    pub set: BTreeMap<String, toml::Value>,
    /// A key that is first set to the best of several values.
    pub best: Option<Best>,
    /// The ids of rows above, whose numbers are added to this one, run by run.
    #[serde(default)]
    pub plus: Vec<String>,
    /// The id of a row above: this number is given as a multiple of that one's, run by run, since
    /// runs with one number have the same random numbers.
    pub over: Option<String>,
    /// The source of the expected value; default: that of the file.
    pub source: Option<Origin>,
    /// The expected value, in the metric's unit or as a multiple; unset if no source states it.
    pub expected: Option<f64>,
    /// The permitted deviation, as a fraction of the expected value's distance from `base`.
    pub tolerance: Option<f64>,
    /// The value that is independent of the law, in the same unit: the age of an empty path, a gain
    /// of 1. Default: 0.
    #[serde(default)]
    pub base: f64,
    /// The lower bound, if the paper prints a bound instead of a number, such as "more than".
    pub at_least: Option<f64>,
    /// The upper bound, such as "up to".
    pub at_most: Option<f64>,
    /// The scenario was chosen so that this number comes out: it is an input, not a result.
    #[serde(default)]
    pub calibrated: bool,
    /// The number is that of a baseline, or of something else that no new law changes: the null
    /// test counts it separately.
    #[serde(default)]
    pub unaffected: bool,
    /// A short quotation from the paper, with its place.
    pub quote: Option<String>,
    /// The reason why our number differs from the expected one.
    pub why: Option<String>,
}

impl Row {
    /// The ids of the rows from which its number is computed.
    pub fn needs(&self) -> impl Iterator<Item = &String> {
        self.plus.iter().chain(&self.over)
    }
}

/// A search for the value of a key that minimises a metric.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// The key; the values are numbers followed by its unit.
    pub key: String,
    /// The values to try, in ascending order.
    pub values: Vec<f64>,
    /// The unit after a value, such as `/s`.
    #[serde(default)]
    pub unit: String,
    /// The metric that is minimised.
    pub minimise: String,
    /// The flow or link of the metric; default: that of the row.
    pub of: Option<String>,
}

/// An order of rows, or rows that do not differ.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trend {
    /// A description of the order.
    pub what: String,
    /// The source of the order; default: that of the file.
    pub source: Option<Origin>,
    /// A short quotation from the paper, with its place.
    pub quote: Option<String>,
    /// The reason why it does not hold.
    pub why: Option<String>,
    /// No new law changes this order: it compares baselines, or channels under one law.
    #[serde(default)]
    pub unaffected: bool,
    /// Ids of rows whose numbers rise in this order.
    #[serde(default)]
    pub rising: Vec<String>,
    /// The minimum fraction by which each of them exceeds the previous one. Default: 0.
    #[serde(default)]
    pub margin: f64,
    /// Ids of rows whose numbers are within 5 % of the first one's.
    #[serde(default)]
    pub equal: Vec<String>,
    /// Ids of rows, the first of which has the highest number, or one within 2 % of it.
    #[serde(default)]
    pub highest: Vec<String>,
    /// Ids of rows, the first of which has the lowest number, or one within 2 % of it.
    #[serde(default)]
    pub lowest: Vec<String>,
}

impl Trend {
    /// The rows that it refers to.
    pub fn ids(&self) -> impl Iterator<Item = &String> {
        self.rising.iter().chain(&self.equal).chain(&self.highest).chain(&self.lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_is_rows_and_trends() {
        let text = r#"
            of = "a figure"
            [[compare]]
            id = "r8"
            what = "8 Mbit/s"
            set = { "flow.x.rate" = "8mbit" }
            key = "flow.x.scheduler"
            values = ["old", "new"]
            metric = "completion"
            of = "x"
            lower_is_better = true
            parts = ["x/1"]
            gains = [{ of = "new", over = "old", expected = 0.7, tolerance = 0.1 }]
            best = ["new"]
            quote = "Figure 1"
        "#;
        let Reproduction { rows, trends, .. } = toml::from_str(text).unwrap();
        let quotes = rows.iter().map(|row| &row.quote).chain(trends.iter().map(|t| &t.quote));
        assert_eq!(quotes.flatten().count(), 3, "the gain and both trends");
        let told: Vec<_> = rows.iter().map(|row| (row.what.as_str(), row.of.as_str())).collect();
        let expected = [
            ("8 Mbit/s: old", "x"),
            ("8 Mbit/s: old, x/1", "x/1"),
            ("8 Mbit/s: new", "x"),
            ("8 Mbit/s: new, x/1", "x/1"),
            ("8 Mbit/s: new over old", "x"),
        ];
        assert_eq!(told, expected);
        assert_eq!(
            (rows[0].id.as_deref(), rows[4].over.as_deref()),
            (Some("r8-old"), Some("r8-old"))
        );
        assert_eq!(rows[4].id.as_deref(), Some("r8-new-over-old"));
        assert_eq!((rows[4].expected, rows[4].tolerance), (Some(0.7), Some(0.1)));
        let set: Vec<_> = rows[4].set.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(set, ["flow.x.rate=\"8mbit\"", "flow.x.scheduler=\"new\""]);
        // Lower is better.
        assert_eq!(
            (&trends[0].rising[..], trends.len()),
            (&["r8-new", "r8-old"].map(String::from)[..], 2)
        );
        assert_eq!(trends[1].lowest, ["r8-new", "r8-old"]);
    }

    #[test]
    fn values_that_are_ours_are_no_rivals_of_the_papers_and_their_trends_say_so() {
        let text = r#"
            of = "a figure"
            [[compare]]
            id = "r8"
            what = "8 Mbit/s"
            key = "flow.x.scheduler"
            values = ["old", "new", "own"]
            metric = "goodput"
            of = "x"
            gains = [{ of = "new", over = "old" }, { of = "own", over = "old" }]
            best = ["new", "own"]
            ours = ["own"]
        "#;
        let Reproduction { trends, .. } = toml::from_str(text).unwrap();
        let told: Vec<_> = trends.iter().map(|trend| (trend.what.as_str(), trend.source)).collect();
        let expected = [
            ("8 Mbit/s: new is better than old", Some(Origin::Paper)),
            ("8 Mbit/s: own is better than old", Some(Origin::Ours)),
            ("8 Mbit/s: new is the best, or within 2 %", Some(Origin::Paper)),
            ("8 Mbit/s: own is the best, or within 2 %", Some(Origin::Ours)),
        ];
        assert_eq!(told, expected);
        assert_eq!(trends[2].highest, ["r8-new", "r8-old"]);
        assert_eq!(trends[3].highest, ["r8-own", "r8-old", "r8-new"]);
    }

    #[test]
    fn a_value_may_be_a_table_under_its_name() {
        let text = r#"
            of = "a figure"
            [[compare]]
            id = "r8"
            what = "8 Mbit/s"
            key = "k"
            values = ["old", "new"]
            tables = { old = { name = "old", floor = 1 } }
            metric = "goodput"
            of = "x"
        "#;
        let Reproduction { rows, .. } = toml::from_str(text).unwrap();
        assert_eq!(
            (rows[0].id.as_deref(), rows[0].what.as_str()),
            (Some("r8-old"), "8 Mbit/s: old")
        );
        assert_eq!(rows[0].set["k"]["floor"], toml::Value::Integer(1));
        assert_eq!(rows[1].set["k"], toml::Value::String("new".into()));
    }

    #[test]
    fn a_row_that_needs_one_of_a_comparison_comes_after_it() {
        let text = r#"
            of = "a figure"
            row = [
                { id = "all-old", what = "both rates", metric = "goodput", of = "x", plus = ["r8-old"] },
                { what = "both rates: new over old", metric = "goodput", of = "x", plus = ["r8-new"], over = "all-old" },
                { id = "alone", what = "one path", metric = "goodput", of = "x" },
            ]
            compare = [{ id = "r8", what = "8 Mbit/s", key = "k", values = ["old", "new"], metric = "goodput", of = "x" }]
        "#;
        let Reproduction { rows, .. } = toml::from_str(text).unwrap();
        let whats: Vec<_> = rows.iter().map(|row| row.what.as_str()).collect();
        let expected = [
            "one path",
            "8 Mbit/s: old",
            "8 Mbit/s: new",
            "both rates",
            "both rates: new over old",
        ];
        assert_eq!(whats, expected);
    }
}
