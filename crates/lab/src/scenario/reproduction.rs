//! What a scenario reproduces: the numbers of a figure, and orders among them.
//!
//! ```text
//!   [[reproduce.compare]] ─► a row a value of its key, a row and a trend a gain ─┐
//!   [[reproduce.row]] ───────────────────────────────────────────────────────────┴─► rows
//! ```

use std::collections::{BTreeMap, BTreeSet};

use freshline_core::unit::UpdateRate;
use serde::{Deserialize, Serialize};

use super::{Change, Half, SafetyConfig};

/// What a scenario reproduces.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "Written")]
pub struct Reproduction {
    /// Paper and figure.
    pub of: String,
    /// Numbers, in the order of the table.
    pub rows: Vec<Row>,
    /// Orders among them.
    pub trends: Vec<Trend>,
    /// What stands for each new law in a null test.
    pub null: Vec<Baseline>,
    /// What the paper shows and no row does.
    pub omitted: Vec<Omitted>,
    /// Keys that `--full` sets: the paper's number of runs and durations.
    pub full: BTreeMap<String, toml::Value>,
    /// Laws of the source beside each other.
    pub contest: Option<ContestConfig>,
    /// Contests of the scenario with other keys, in place of the scenario as it is.
    pub cases: Vec<Case>,
    /// A sweep of paths that no law may overload.
    pub safety: Option<SafetyConfig>,
}

/// The same as it stands in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    of: String,
    /// Of all rows and trends that do not say their own.
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
        // A row that needs one of a comparison, or of such a row, comes after it.
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

/// Who says what a number or an order should be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The paper prints it, in its text, a table or a figure.
    #[default]
    Paper,
    /// A closed form or arithmetic; agreement shows that the simulator computes what it says.
    Model,
    /// We expect it; no paper says it.
    Ours,
}

/// What stands for a law in a null test.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// The law's name: the text of a key, or the `law`, `discipline` or `control` of a table.
    pub from: String,
    /// What takes the place of the name, and of such a table.
    pub to: toml::Value,
    /// Only values of this key, where a table around the law's has the same key.
    pub key: Option<String>,
    /// Where such a table has this key, its value takes the table's place: the queue around which
    /// a discipline was put.
    pub part: Option<String>,
    /// The new key of that value, in place of the law's: `tcp`, a stream, instead of `updates`.
    pub under: Option<String>,
    /// Where this is said, only the name changes in such a table, and these keys, which set the law
    /// alone, are left out.
    pub without: Option<Vec<String>>,
}

/// A figure, table or number of the paper that no row shows.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Omitted {
    /// What it is, with its place.
    pub what: String,
    /// Why no row shows it.
    pub why: String,
}

/// One metric with several values of a key, beside each other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Compare {
    /// In front of the ids of its rows: `ID-VALUE`, and `ID-OF-over-OVER` of a gain.
    id: String,
    what: String,
    key: String,
    values: Vec<String>,
    /// The values that are more than their name: the table in its place.
    #[serde(default)]
    tables: BTreeMap<String, toml::Value>,
    metric: String,
    of: String,
    #[serde(default)]
    set: BTreeMap<String, toml::Value>,
    /// The metric is better where it is less.
    #[serde(default)]
    lower_is_better: bool,
    /// The same metric of more than `of`, for each value: rows `ID-VALUE-PART`.
    #[serde(default)]
    parts: Vec<String>,
    #[serde(default)]
    gains: Vec<Gain>,
    /// The values that shall be the best of all, or within 2 % of it.
    #[serde(default)]
    best: Vec<String>,
    /// The values that are ours: the paper says nothing about them. One of the paper's is compared
    /// with the paper's only, and the source of these trends is `ours`.
    #[serde(default)]
    ours: Vec<String>,
    /// A few words of the paper, and where they stand: of the gains that have none of their own,
    /// and of the trends.
    quote: Option<String>,
}

/// One value's number as a multiple of another one's.
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

    /// Ours, where one of the values is; otherwise that of the file.
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

/// The same flows under each law of the source, and under fixed rates from one to another.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContestConfig {
    /// The flows of updates that follow the law; their ages are averaged.
    pub flows: Vec<String>,
    /// The lowest of the fixed rates.
    pub from: UpdateRate,
    /// The highest.
    pub to: UpdateRate,
    /// How many of them are tried, each the same multiple of the one before; at least 2.
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
    /// Its name, behind that of the scenario.
    pub name: String,
    /// Its paths in words.
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

/// One number.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
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
    /// The ids of rows above: their numbers are added to this one, run by run.
    #[serde(default)]
    pub plus: Vec<String>,
    /// The id of a row above: this number is given as a multiple of that one's, run by run, since
    /// runs of one number meet the same randomness.
    pub over: Option<String>,
    /// Who says what it should be; that of the file unless said.
    pub source: Option<Origin>,
    /// What it should be, in the metric's unit or as a multiple; left out where nobody says.
    pub expected: Option<f64>,
    /// How far ours may be from it, as a fraction of its distance from `base`.
    pub tolerance: Option<f64>,
    /// What it would be whatever the law does, in the same unit: the age of an empty path, a gain
    /// of 1. 0 unless said.
    #[serde(default)]
    pub base: f64,
    /// Where a bound is printed in place of a number, such as "more than": the least.
    pub at_least: Option<f64>,
    /// Likewise the most, such as "up to".
    pub at_most: Option<f64>,
    /// The scenario was chosen so that this number comes out: an input, and no result.
    #[serde(default)]
    pub calibrated: bool,
    /// The number is that of a baseline, or of something else that no new law changes: the null
    /// test counts it apart.
    #[serde(default)]
    pub unaffected: bool,
    /// A few words of the paper, and where they stand.
    pub quote: Option<String>,
    /// Why ours is not as expected.
    pub why: Option<String>,
}

impl Row {
    /// The ids of the rows that its number is made of.
    pub fn needs(&self) -> impl Iterator<Item = &String> {
        self.plus.iter().chain(&self.over)
    }
}

/// Looks for the value of a key for which a metric is minimised.
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
    /// The metric that is minimised.
    pub minimise: String,
    /// Of which flow or link; of the row's unless said.
    pub of: Option<String>,
}

/// An order of rows, or rows that do not differ.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trend {
    /// What it says, in words.
    pub what: String,
    /// Who says it; that of the file unless said.
    pub source: Option<Origin>,
    /// A few words of the paper, and where they stand.
    pub quote: Option<String>,
    /// Why it does not hold.
    pub why: Option<String>,
    /// No new law changes this order: it compares baselines, or channels under one law.
    #[serde(default)]
    pub unaffected: bool,
    /// Ids of rows whose numbers rise in this order.
    #[serde(default)]
    pub rising: Vec<String>,
    /// By which fraction each of them is above the one before, at least. 0.
    #[serde(default)]
    pub margin: f64,
    /// Ids of rows whose numbers are within 5 % of the first one's.
    #[serde(default)]
    pub equal: Vec<String>,
    /// Ids of rows, of which the first one's number is the highest, or within 2 % of it.
    #[serde(default)]
    pub highest: Vec<String>,
    /// The same, the lowest.
    #[serde(default)]
    pub lowest: Vec<String>,
}

impl Trend {
    /// The rows that it names.
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
        // Less is better.
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
