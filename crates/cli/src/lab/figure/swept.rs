//! Finds the key of a scenario over which rows of a reproduction form curves.
//!
//! ```text
//!   rows ─► keys with their values ─► for each key with numbers: which rows differ only in it?
//!                                       └─► the key that joins the most rows, and its curves
//! ```

use std::collections::{BTreeMap, BTreeSet};

use freshline_report::number_with_unit;
use toml::Value;

/// The maximum number of places of a curve: with more, the key is probably one of several that
/// change together.
const PLACES: std::ops::RangeInclusive<usize> = 3..=32;

/// The parts of a row that curves need.
pub(super) struct Candidate<'a> {
    /// Its description in words.
    pub(super) what: &'a str,
    /// The flow or link of the row.
    pub(super) of: &'a str,
    /// The keys that it sets, one per value.
    pub(super) keys: BTreeMap<String, Value>,
}

/// Curves over a key.
#[derive(Debug, PartialEq)]
pub(super) struct Swept {
    /// The key.
    pub(super) key: String,
    /// Its base unit; empty for a plain number.
    pub(super) unit: &'static str,
    /// The curves: each with its name, and the indices of its rows with the number of the key.
    pub(super) curves: Vec<(String, Vec<(f64, usize)>)>,
}

/// The keys of a row's `set`, with nested tables flattened: `link.up.queue = { limit = 3 }` is
/// `link.up.queue.limit`.
pub(super) fn keys(set: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let mut keys = BTreeMap::new();
    for (key, value) in set {
        add(key, value, &mut keys);
    }
    keys
}

fn add(key: &str, value: &Value, keys: &mut BTreeMap<String, Value>) {
    match value.as_table() {
        Some(table) if !table.is_empty() => {
            table.iter().for_each(|(name, value)| add(&format!("{key}.{name}"), value, keys));
        }
        _ => {
            keys.insert(key.to_owned(), value.clone());
        }
    }
}

/// The value of a key in a scenario: `flow.robot.count` is `count` of the `[[flow]]` with the name `robot`.
pub(super) fn value_in(scenario: &Value, key: &str) -> Option<Value> {
    let step = |value: &Value, part: &str| match value {
        Value::Table(table) => table.get(part).cloned(),
        Value::Array(tables) => {
            let is_called =
                |table: &&Value| table.get("name").and_then(Value::as_str) == Some(part);
            tables.iter().find(is_called).cloned()
        }
        _ => None,
    };
    key.split('.').try_fold(scenario.clone(), |value, part| step(&value, part))
}

/// The minimum number of places that make a curve among many other rows.
const LONG: usize = 5;

/// Keys that only adapt the length or the start of a run to other keys.
const INCIDENTAL: [&str; 7] =
    ["duration", "runs", "seed", "start", "start_spread", "stop", "warm_up"];

/// The key over which the most rows are curves; `None` if that is less than half of the rows, and
/// no curve is [`LONG`].
pub(super) fn swept(rows: &[Candidate<'_>]) -> Option<Swept> {
    let keys: BTreeSet<&String> = rows.iter().flat_map(|row| row.keys.keys()).collect();
    let curves = keys.into_iter().filter_map(|key| over(key, rows));
    let joined = |swept: &Swept| swept.curves.iter().map(|(_, rows)| rows.len()).sum::<usize>();
    let is_meant = |swept: &Swept| {
        let last = swept.key.rsplit('.').next().unwrap_or(&swept.key);
        !INCIDENTAL.contains(&last)
    };
    let rank = |swept: &Swept| (joined(swept), is_meant(swept));
    // Of two keys that change together, the first one counts.
    let best = curves.reduce(|best, other| if rank(&other) > rank(&best) { other } else { best });
    let max = |swept: &Swept| swept.curves.iter().map(|(_, rows)| rows.len()).max();
    best.filter(|best| 2 * joined(best) >= rows.len() || max(best) >= Some(LONG))
}

fn over(key: &str, rows: &[Candidate<'_>]) -> Option<Swept> {
    let numbers: Vec<_> = rows.iter().map(|row| row.keys.get(key).and_then(number)).collect();
    let (_, unit) = numbers.iter().flatten().next()?;
    if numbers.iter().flatten().any(|(_, other)| other != unit) {
        return None;
    }
    let bound = bound_to(key, rows);
    let mut groups: BTreeMap<String, Vec<(f64, usize)>> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for (place, (row, number)) in rows.iter().zip(&numbers).enumerate() {
        let Some((x, _)) = number else { continue };
        let others = row.keys.iter().filter(|(name, _)| !bound.contains(name.as_str()));
        let others: Vec<_> = others.map(|(name, value)| format!("{name}={value}")).collect();
        let group = format!("{} {}", row.of, others.join(" "));
        if !order.contains(&group) {
            order.push(group.clone());
        }
        groups.entry(group).or_default().push((*x, place));
    }
    let is_curve = |points: &[(f64, usize)]| {
        let mut places: Vec<_> = points.iter().map(|(x, _)| *x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        places.len() == points.len() && PLACES.contains(&places.len())
    };
    let curves = order.into_iter().filter_map(|group| groups.remove(&group));
    let mut curves: Vec<_> = curves.filter(|points| is_curve(points)).collect();
    curves.iter_mut().for_each(|points| points.sort_by(|(a, _), (b, _)| a.total_cmp(b)));
    if curves.is_empty() {
        return None;
    }
    let names = names(rows, &curves);
    let curves = names.into_iter().zip(curves).collect();
    Some(Swept { key: key.to_owned(), unit, curves })
}

/// The key itself, and the keys that adapt to it: the length of runs, and numbers that are monotone
/// in it. A number that is not monotone is another dimension of the figure.
fn bound_to<'a>(key: &'a str, rows: &'a [Candidate<'_>]) -> BTreeSet<&'a str> {
    let others: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.keys.keys()).map(String::as_str).collect();
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let follows = |other: &str| {
        let mut values: BTreeMap<String, Option<&Value>> = BTreeMap::new();
        rows.iter()
            .filter_map(|row| Some((row.keys.get(key)?, row.keys.get(other))))
            .all(|(own, value)| *values.entry(own.to_string()).or_insert(value) == value)
    };
    let suits = |other: &&str| {
        *other == key
            || follows(other)
                && (INCIDENTAL.contains(&&*last(other)) || is_monotone(key, other, rows))
    };
    others.into_iter().filter(suits).collect()
}

/// Whether the numbers of `other` are monotone in those of `key`.
fn is_monotone(key: &str, other: &str, rows: &[Candidate<'_>]) -> bool {
    let pair = |row: &Candidate<'_>| {
        let of = |key: &str| row.keys.get(key).and_then(number).map(|(number, _)| number);
        of(key).map(|x| Some((x, of(other)?)))
    };
    let Some(mut pairs) = rows.iter().filter_map(pair).collect::<Option<Vec<_>>>() else {
        return false;
    };
    pairs.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let rises = pairs.windows(2).all(|ends| ends[0].1 <= ends[1].1);
    rises || pairs.windows(2).all(|ends| ends[0].1 >= ends[1].1)
}

/// A name per curve: the words that all of its rows share, without words that all curves share.
fn names(rows: &[Candidate<'_>], curves: &[Vec<(f64, usize)>]) -> Vec<String> {
    let words = |place: &usize| words(rows[*place].what);
    let of_curves: Vec<Vec<&str>> = curves
        .iter()
        .map(|points| {
            let each: Vec<_> = points.iter().map(|(_, place)| words(place)).collect();
            let shared = |word: &&str| each.iter().all(|words| words.contains(word));
            each[0].iter().copied().filter(shared).collect()
        })
        .collect();
    let is_common = |word: &str| of_curves.iter().all(|words| words.contains(&word));
    let own = |words: &Vec<&str>| {
        let own = words.iter().copied().filter(|word| curves.len() == 1 || !is_common(word));
        own.collect::<Vec<_>>().join(" ")
    };
    let names: Vec<_> = of_curves.iter().map(own).collect();
    let differ: BTreeSet<_> = names.iter().collect();
    if curves.len() == 1 {
        return vec![String::new()];
    }
    if differ.len() == names.len() && names.iter().all(|name| !name.is_empty()) {
        return names;
    }
    let with_keys = curves.iter().zip(names).map(|(points, name)| {
        let keys = differing(rows, curves, points[0].1);
        [name, keys].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    });
    let mut all: Vec<String> = Vec::new();
    for (place, name) in with_keys.enumerate() {
        let name = if name.is_empty() { rows[curves[place][0].1].of.to_owned() } else { name };
        all.push(if all.contains(&name) { format!("{name} ({})", place + 1) } else { name });
    }
    all
}

/// The keys in which the first rows of the curves differ, with their values in the row `place`, and
/// its subject.
fn differing(rows: &[Candidate<'_>], curves: &[Vec<(f64, usize)>], place: usize) -> String {
    let firsts = || curves.iter().map(|points| &rows[points[0].1]);
    let differs = |key: &str| {
        let values: BTreeSet<_> =
            firsts().map(|row| row.keys.get(key).map(ToString::to_string)).collect();
        values.len() > 1
    };
    let keys = rows[place].keys.iter().filter(|(key, _)| differs(key));
    let words = keys.map(|(key, value)| {
        let last = key.rsplit('.').next().unwrap_or(key).replace('_', " ");
        format!("{last} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    });
    let ofs: BTreeSet<_> = firsts().map(|row| row.of).collect();
    let of = (ofs.len() > 1).then(|| rows[place].of.to_owned());
    // Several flows may have the same key.
    let words: BTreeSet<_> = words.collect();
    of.into_iter().chain(words.into_iter().take(2)).collect::<Vec<_>>().join(", ")
}

fn words(text: &str) -> Vec<&str> {
    let trimmed = text.split_whitespace().map(|word| word.trim_matches([',', ':', ';']));
    trimmed.filter(|word| !word.is_empty()).collect()
}

fn number(value: &Value) -> Option<(f64, &'static str)> {
    match value {
        Value::Integer(number) => Some((*number as f64, "")),
        Value::Float(number) => Some((*number, "")),
        Value::String(text) => number_with_unit(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates<'a>(rows: &'a [(&'a str, &'a str)]) -> Vec<Candidate<'a>> {
        let row = |(what, set): &(&'a str, &'a str)| {
            let set: BTreeMap<String, Value> = toml::from_str(set).unwrap();
            Candidate { what, of: "robot", keys: keys(&set) }
        };
        rows.iter().map(row).collect()
    }

    #[test]
    fn rows_that_differ_in_a_number_are_curves_named_by_their_words() {
        let rows = candidates(&[
            ("SDM, γ = 0.1: age", "queue = { share = 0.1 }"),
            ("SDM, γ = 0.2: age", "queue = { share = 0.2 }"),
            ("SDM, γ = 0.3: age", "queue = { share = 0.3 }"),
            ("TDM, γ = 0.1: age", "queue = { share = 0.1, scheduler = 'tdm', frame = '100ms' }"),
            ("TDM, γ = 0.2: age", "queue = { share = 0.2, scheduler = 'tdm', frame = '100ms' }"),
            ("TDM, γ = 0.4: age", "queue = { share = 0.4, scheduler = 'tdm', frame = '100ms' }"),
            ("FIFO: age", "queue = 'fifo'"),
        ]);
        let swept = swept(&rows).unwrap();
        assert_eq!((swept.key.as_str(), swept.unit), ("queue.share", ""));
        let curves: Vec<_> =
            swept.curves.iter().map(|(name, rows)| (name.as_str(), rows.len())).collect();
        assert_eq!(curves, [("SDM", 3), ("TDM", 3)]);
        assert_eq!(swept.curves[1].1[2], (0.4, 5));
    }

    #[test]
    fn keys_that_follow_another_one_and_units_are_no_obstacle() {
        let rows = candidates(&[
            ("1 source", "duration = '10s'\nflow.count = 1\nrate = '100mbit'"),
            ("2 sources", "duration = '20s'\nflow.count = 2\nrate = '200mbit'"),
            ("8 sources", "duration = '30s'\nflow.count = 8\nrate = '400mbit'"),
        ]);
        let swept = swept(&rows).unwrap();
        assert_eq!((swept.key.as_str(), swept.curves.len()), ("flow.count", 1));
        assert_eq!(over("rate", &rows).unwrap().unit, "bit/s");
        assert_eq!(over("rate", &rows).unwrap().curves[0].1[0].0, 1e8);
    }

    #[test]
    fn a_number_that_goes_up_and_down_is_another_curve() {
        let rows = candidates(&[
            ("one stream: 10", "rate = 10\nstreams = 1"),
            ("two streams: 20", "rate = 20\nstreams = 2"),
            ("one stream: 30", "rate = 30\nstreams = 1"),
            ("two streams: 40", "rate = 40\nstreams = 2"),
            ("one stream: 50", "rate = 50\nstreams = 1"),
            ("two streams: 60", "rate = 60\nstreams = 2"),
        ]);
        let swept = swept(&rows).unwrap();
        let names: Vec<_> =
            swept.curves.iter().map(|(name, rows)| (name.as_str(), rows.len())).collect();
        assert_eq!(names, [("one stream", 3), ("two streams", 3)]);
    }

    #[test]
    fn rows_without_a_common_number_are_no_curve() {
        let rows = candidates(&[("a", "law = 'x'"), ("b", "law = 'y'"), ("c", "count = 3")]);
        assert_eq!(swept(&rows), None);
    }

    #[test]
    fn values_of_the_scenario_are_found_by_name() {
        let scenario: Value =
            toml::from_str("[[flow]]\nname = 'a'\n[[flow]]\nname = 'b'\nupdates = { rate = 3 }")
                .unwrap();
        assert_eq!(value_in(&scenario, "flow.b.updates.rate"), Some(Value::Integer(3)));
        assert_eq!(value_in(&scenario, "flow.c.updates.rate"), None);
    }
}
