//! The figures of a reproduction: expected numbers alongside the lab's, one or two panels per metric.
//!
//! ```text
//!   rows of one metric ─┬─► a swept number: curves over it, expected as hollow marks
//!   rows of one metric ─┬─► a swept number: curves over it, expected values as hollow marks
//!                       ├─► many with an expected number: lab values over paper values
//! ```

use freshline_lab::reproduce::{Compared, Kind, Verdict};
use freshline_lab::scenario::{Origin, Reproduction, Row as Asked};
use freshline_report::{
    Axis, Band, Curves, Mark, Panel, Point, Row, RowSeries, Rows, Series, Stroke, capitalised,
    key_in_words, metric_in_words, quantity_in_words,
};
use toml::Value;

use super::Scales;
use super::swept::{Candidate, Swept, keys, swept, value_in};

/// The meaning of marks and bars.
pub(in crate::lab) const INTERVALS: &str = "Filled marks are the lab's means, bars their 95 % intervals over \
the runs. Hollow marks are expected values: of the paper, of a model, or of this project. Bands are \
tolerances and bounds.";

/// Rows beyond this number are drawn as lab values over paper values, or in several panels.
const MAX_ROWS: usize = 32;

/// A row with its tolerance or bounds.
#[derive(Clone, Copy)]
struct Line<'a> {
    asked: &'a Asked,
    compared: &'a Compared,
}

/// Panels of the rows of a reproduction, metric by metric. `scenario` is its text.
pub(in crate::lab) fn reproduction_panels(
    reproduction: &Reproduction,
    rows: &[Compared],
    scenario: &str,
    scales: Scales,
) -> Vec<Panel> {
    let base = toml::from_str(scenario).unwrap_or(Value::Boolean(false));
    let of_metrics = by_metric(lines(reproduction, rows));
    of_metrics.iter().flat_map(|(title, lines)| panels(title, lines, &base, scales)).collect()
}

/// The compared numbers with their rows, which are in the same order.
fn lines<'a>(reproduction: &'a Reproduction, rows: &'a [Compared]) -> Vec<Line<'a>> {
    let mut asked = reproduction.rows.iter();
    let numbers = rows.iter().filter(|row| row.kind == Kind::Number && row.ours.is_some());
    numbers
        .filter_map(|compared| {
            let asked = asked.find(|asked| asked.what == compared.what)?;
            Some(Line { asked, compared })
        })
        .collect()
}

/// The lines by metric and by whether they are ratios, in the order of appearance.
fn by_metric(lines: Vec<Line<'_>>) -> Vec<(String, Vec<Line<'_>>)> {
    let mut all: Vec<(String, Vec<Line<'_>>)> = Vec::new();
    for line in lines {
        let words = metric_in_words(&line.asked.metric);
        let title = match line.asked.over {
            Some(_) => format!("Ratio: {words}"),
            None => capitalised(&words),
        };
        match all
            .iter_mut()
            .find(|(known, of)| *known == title && of[0].compared.unit == line.compared.unit)
        {
            Some((_, lines)) => lines.push(line),
            None => all.push((title, vec![line])),
        }
    }
    all
}

fn panels(title: &str, lines: &[Line<'_>], base: &Value, scales: Scales) -> Vec<Panel> {
    let mut panels = Vec::new();
    let mut rest: Vec<Line<'_>> = lines.to_vec();
    let candidates: Vec<_> = lines.iter().map(|line| candidate(line.asked, lines, base)).collect();
    if let Some(swept) = swept(&candidates) {
        let is_drawn = |place: usize| {
            swept.curves.iter().any(|(_, rows)| rows.iter().any(|(_, row)| *row == place))
        };
        rest =
            (0..lines.len()).filter(|place| !is_drawn(*place)).map(|place| lines[place]).collect();
        panels.push(Panel::Curves(curves(title, lines, &swept, scales)));
    }
    let expected = rest.iter().filter(|line| line.compared.expected.is_some()).count();
    if rest.len() > MAX_ROWS && 2 * expected > rest.len() {
        panels.push(Panel::Curves(agreement(title, &rest, scales)));
        rest.retain(|line| line.compared.expected.is_none());
    }
    let count = rest.len().div_ceil(MAX_ROWS);
    for (number, chunk) in rest.chunks(MAX_ROWS).enumerate() {
        let title = match count {
            1 => title.to_owned(),
            _ => format!("{title} ({} of {count})", number + 1),
        };
        panels.push(Panel::Rows(as_rows(title, chunk, scales)));
    }
    panels
}

/// A row that searches for the best value of a key has no place on its axis. Keys that only other
/// rows set have the scenario's value.
fn candidate<'a>(asked: &'a Asked, all: &[Line<'_>], base: &Value) -> Candidate<'a> {
    let mut own = keys(&asked.set);
    if asked.best.is_none() {
        for key in all.iter().flat_map(|line| keys(&line.asked.set).into_keys()) {
            let is_within = own.keys().any(|known| {
                known == &key
                    || key.starts_with(&format!("{known}."))
                    || known.starts_with(&format!("{key}."))
            });
            let value = (!is_within).then(|| value_in(base, &key)).flatten();
            own.extend(value.map(|value| (key, value)));
        }
    }
    Candidate { what: &asked.what, of: &asked.of, keys: own }
}

fn curves(title: &str, lines: &[Line<'_>], swept: &Swept, scales: Scales) -> Curves {
    let unit = lines.first().map_or("1", |line| &line.compared.unit);
    let mut series = Vec::new();
    for (color, (name, points)) in swept.curves.iter().enumerate() {
        let named = |origin: &str| {
            if name.is_empty() { origin.to_owned() } else { format!("{name} ({origin})") }
        };
        let ours = points.iter().map(|(x, place)| {
            let compared = lines[*place].compared;
            Point { x: *x, y: compared.ours.unwrap_or(f64::NAN), half: compared.ci95 }
        });
        series.push(Series {
            name: named("lab"),
            stroke: Stroke::Joined,
            is_expected: false,
            color,
            points: ours.collect(),
        });
        for origin in [Origin::Paper, Origin::Model, Origin::Ours] {
            let expected = points.iter().filter_map(|(x, place)| {
                let compared = lines[*place].compared;
                let y = compared.expected.filter(|_| compared.source == origin)?;
                Some(Point { x: *x, y, half: None })
            });
            let points: Vec<_> = expected.collect();
            if !points.is_empty() {
                let (name, stroke) = (named(origin_in_words(origin)), Stroke::Marks);
                series.push(Series { name, stroke, is_expected: true, color, points });
            }
        }
    }
    let x = capitalised(&key_in_words(&swept.key));
    Curves {
        title: title.to_owned(),
        x: Axis { scale: scales.x(), ..Axis::new(x, swept.unit) },
        y: Axis { scale: scales.y(), ..Axis::new(value_name(lines), unit) },
        series,
    }
}

const fn origin_in_words(origin: Origin) -> &'static str {
    match origin {
        Origin::Paper => "paper",
        Origin::Model => "model",
        Origin::Ours => "our expectation",
    }
}

/// The label of an axis: the title has the statistic, or the terms of a ratio.
fn value_name(lines: &[Line<'_>]) -> String {
    match lines.first() {
        Some(Line { asked: Asked { over: Some(_), .. }, .. }) => "Ratio".to_owned(),
        Some(line) => capitalised(&quantity_in_words(&line.asked.metric)),
        None => String::new(),
    }
}

/// Measured over expected values; equal ones lie on a line.
fn agreement(title: &str, lines: &[Line<'_>], scales: Scales) -> Curves {
    let unit = lines.first().map_or("1", |line| &line.compared.unit);
    let pairs = lines.iter().map(|line| line.compared);
    let pairs = pairs.filter_map(|row| Some((row.expected?, row.ours?, row)));
    let pairs: Vec<(f64, f64, &Compared)> = pairs.collect();
    let ends = pairs.iter().flat_map(|(expected, ours, _)| [*expected, *ours]);
    let (min, max) =
        ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), it| (min.min(it), max.max(it)));
    let series = |name: &str, color, is_broken: bool| Series {
        name: name.to_owned(),
        stroke: Stroke::Marks,
        is_expected: false,
        color,
        points: pairs
            .iter()
            .filter(|(.., row)| (row.verdict == Verdict::Broken) == is_broken)
            .map(|(x, y, row)| Point { x: *x, y: *y, half: row.ci95 })
            .collect(),
    };
    let line = Series {
        name: "equal".to_owned(),
        stroke: Stroke::Line,
        is_expected: false,
        color: 6,
        points: [min, max].map(|end| Point { x: end, y: end, half: None }).to_vec(),
    };
    let all = [line, series("as expected, or undecided", 0, false), series("broken", 1, true)];
    let name = value_name(lines);
    Curves {
        title: format!("{title}: the lab over the expected value"),
        x: Axis { scale: scales.y(), ..Axis::new(format!("{name}, expected"), unit) },
        y: Axis { scale: scales.y(), ..Axis::new(format!("{name}, lab"), unit) },
        series: all.into_iter().filter(|series| !series.points.is_empty()).collect(),
    }
}

fn as_rows(title: String, lines: &[Line<'_>], scales: Scales) -> Rows {
    let unit = lines.first().map_or("1", |line| &line.compared.unit);
    let row = |line: &Line<'_>| {
        let Compared { what, ours, ci95, verdict, .. } = line.compared;
        let is_broken = *verdict == Verdict::Broken;
        let label = if is_broken { format!("{what} (broken)") } else { what.clone() };
        let own = Mark { series: 0, value: *ours, half: *ci95, band: None };
        let marks = [Some(own), expected(line.compared)].into_iter().flatten().collect();
        Row { label, is_broken, marks }
    };
    let name = value_name(lines);
    let rows: Vec<_> = lines.iter().map(row).collect();
    let has_expected = rows.iter().any(|row: &Row| row.marks.len() > 1);
    let series = [RowSeries::measured("lab"), RowSeries::expected("expected")];
    Rows {
        x: Axis { scale: scales.y(), ..Axis::new(name, unit) },
        title,
        series: series.into_iter().take(if has_expected { 2 } else { 1 }).collect(),
        rows,
    }
}

/// The expected value, with its tolerance or bounds.
fn expected(row: &Compared) -> Option<Mark> {
    let off = row.expected.zip(row.tolerance).map(|(it, off)| (it - row.base).abs() * off);
    let near = row.expected.zip(off).map(|(it, off)| Band { from: it - off, to: it + off });
    let bounds = Band {
        from: row.at_least.unwrap_or(f64::NEG_INFINITY),
        to: row.at_most.unwrap_or(f64::INFINITY),
    };
    let has_bounds = row.at_least.is_some() || row.at_most.is_some();
    let band = near.or(has_bounds.then_some(bounds));
    (row.expected.is_some() || band.is_some()).then_some(Mark {
        series: 1,
        value: row.expected,
        half: None,
        band,
    })
}
