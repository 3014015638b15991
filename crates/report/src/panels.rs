//! Metrics of runs as panels: curves over a swept key, or rows.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::figure::{
    Axis, Curves, Mark, Panel, Point, Row, RowSeries, Rows, Scale, Series, Stroke,
};
use crate::saved::{SavedMetric, SavedPoint, SavedRun};
use crate::words::{
    capitalised, key_in_words, metric_in_words, number_with_unit, quantity_in_words,
};

/// Labels of an axis with more letters than this become rows.
const MAX_LETTERS: usize = 70;

/// How panels are made.
#[derive(Debug, Clone, Default)]
pub struct PanelOptions {
    /// Only this metric; all of them if it is `None`.
    pub metric: Option<String>,
    /// The axis of the swept key.
    pub x: Scale,
    /// The axis of the metric.
    pub y: Scale,
}

/// A panel per metric, in the order of the metrics. Metrics that are zero everywhere are left out,
/// unless the metric was asked for.
pub fn metric_panels(runs: &[SavedRun], options: &PanelOptions) -> Vec<Panel> {
    let mut names: Vec<&str> = Vec::new();
    for metric in runs.iter().flat_map(|run| &run.points).flat_map(|point| &point.metrics) {
        let is_chosen = options.metric.as_deref().is_none_or(|chosen| chosen == metric.name);
        if is_chosen && !names.contains(&metric.name.as_str()) {
            names.push(&metric.name);
        }
    }
    let swept = Swept::of(runs);
    let panels = names.into_iter().filter(|name| options.metric.is_some() || !is_zero(runs, name));
    panels.map(|name| panel(runs, name, swept.as_ref(), options)).collect()
}

fn of_metric<'a>(point: &'a SavedPoint, name: &'a str) -> impl Iterator<Item = &'a SavedMetric> {
    point.metrics.iter().filter(move |metric| metric.name == name)
}

fn is_zero(runs: &[SavedRun], name: &str) -> bool {
    let all = runs.iter().flat_map(|run| &run.points).flat_map(|point| of_metric(point, name));
    all.filter_map(|metric| metric.value).all(|value| value == 0.0)
}

fn panel(runs: &[SavedRun], name: &str, swept: Option<&Swept>, options: &PanelOptions) -> Panel {
    let all = || runs.iter().flat_map(|run| &run.points).flat_map(|point| of_metric(point, name));
    let unit = all().next().map_or("", |metric| metric.unit.as_str());
    let title = capitalised(&metric_in_words(name));
    let quantity = capitalised(&quantity_in_words(name));
    let axis = Axis { scale: options.y, ..Axis::new(quantity, unit) };
    match swept {
        Some(swept) if swept.fits() => {
            let x = Axis { scale: options.x, ..swept.axis.clone() };
            let series = series(runs, name, swept);
            Panel::Curves(Curves { title, x, y: axis, series })
        }
        _ => Panel::Rows(rows(runs, name, title, axis)),
    }
}

/// The key along the axis.
struct Swept {
    key: String,
    axis: Axis,
    /// Where the values are numbers.
    is_numeric: bool,
}

impl Swept {
    /// The key with the most values that are numbers of one unit, else the first key; `None`
    /// without keys.
    fn of(runs: &[SavedRun]) -> Option<Self> {
        let mut values: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for (key, value) in runs.iter().flat_map(|run| &run.points).flat_map(|point| &point.set) {
            let known = values.entry(key).or_default();
            if !known.contains(&value) {
                known.push(value);
            }
        }
        let numeric = values
            .iter()
            .filter_map(|(key, values)| Some((values.len(), *key, common_unit(values)?)));
        if let Some((_, key, unit)) = numeric.max_by_key(|(count, ..)| *count) {
            let axis = Axis::new(capitalised(&key_in_words(key)), unit);
            return Some(Self { key: key.to_owned(), axis, is_numeric: true });
        }
        let (key, values) = values.into_iter().next()?;
        let labels = values.into_iter().map(text_of).collect();
        let axis = Axis { labels, ..Axis::new(capitalised(&key_in_words(key)), "") };
        Some(Self { key: key.to_owned(), axis, is_numeric: false })
    }

    fn fits(&self) -> bool {
        self.axis.labels.iter().map(|label| label.chars().count() + 2).sum::<usize>() <= MAX_LETTERS
    }

    fn place(&self, point: &SavedPoint) -> Option<f64> {
        let value = point.set.get(&self.key)?;
        if self.is_numeric {
            return number_of(value).map(|(number, _)| number);
        }
        let text = text_of(value);
        self.axis.labels.iter().position(|label| *label == text).map(|place| place as f64)
    }
}

fn common_unit(values: &[&Value]) -> Option<&'static str> {
    let units: Option<Vec<_>> = values.iter().map(|value| Some(number_of(value)?.1)).collect();
    let units = units?;
    let first = *units.first()?;
    units.iter().all(|unit| *unit == first).then_some(first)
}

fn number_of(value: &Value) -> Option<(f64, &'static str)> {
    match value {
        Value::Number(number) => Some((number.as_f64()?, "")),
        Value::String(text) => number_with_unit(text),
        _ => None,
    }
}

/// A value as a person writes it.
pub(crate) fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The keys of a point, but for `key`, as text.
pub(crate) fn keys_in_words(point: &SavedPoint, but: Option<&str>) -> String {
    let others = point.set.iter().filter(|(key, _)| Some(key.as_str()) != but);
    let words = others.map(|(key, value)| format!("{} {}", key_in_words(key), text_of(value)));
    words.collect::<Vec<_>>().join(", ")
}

/// The parts that say something, joined.
fn joined(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(", ")
}

fn series(runs: &[SavedRun], name: &str, swept: &Swept) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for run in runs {
        let of_run = if runs.len() > 1 { run.name.as_str() } else { "" };
        for point in &run.points {
            let Some(x) = swept.place(point) else { continue };
            let others = keys_in_words(point, Some(&swept.key));
            for metric in of_metric(point, name) {
                let own = joined(&[&metric.of, &others, of_run]);
                let known = all.iter().position(|series| series.name == own);
                let place = known.unwrap_or_else(|| {
                    all.push(Series {
                        name: own,
                        stroke: Stroke::Joined,
                        is_expected: false,
                        color: all.len(),
                        points: Vec::new(),
                    });
                    all.len() - 1
                });
                let y = metric.value.unwrap_or(f64::NAN);
                all[place].points.push(Point { x, y, half: metric.ci95 });
            }
        }
    }
    all.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
    all
}

fn rows(runs: &[SavedRun], name: &str, title: String, x: Axis) -> Rows {
    let mut all: Vec<Row> = Vec::new();
    for (series, run) in runs.iter().enumerate() {
        for point in &run.points {
            let others = keys_in_words(point, None);
            for metric in of_metric(point, name) {
                let label = joined(&[&metric.of, &others]);
                let mark = Mark { series, value: metric.value, half: metric.ci95, band: None };
                match all.iter_mut().find(|row| row.label == label) {
                    Some(row) => row.marks.push(mark),
                    None => all.push(Row { label, is_broken: false, marks: vec![mark] }),
                }
            }
        }
    }
    let series = runs.iter().map(|run| RowSeries::measured(run.name.clone())).collect();
    Rows { title, x, series, rows: all }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, values: &[(&str, f64)]) -> SavedRun {
        let point = |(rate, value): &(&str, f64)| SavedPoint {
            set: BTreeMap::from([("flow.robot.updates.rate".to_owned(), Value::from(*rate))]),
            metrics: ["age_mean", "drops"]
                .map(|name| SavedMetric {
                    name: name.to_owned(),
                    of: "robot".to_owned(),
                    value: Some(if name == "drops" { 0.0 } else { *value }),
                    unit: "s".to_owned(),
                    ci95: Some(0.001),
                })
                .to_vec(),
        };
        SavedRun {
            name: name.to_owned(),
            points: values.iter().map(point).collect(),
            ..SavedRun::default()
        }
    }

    #[test]
    fn a_swept_number_is_an_axis_and_each_run_a_curve() {
        let runs =
            [run("old", &[("530/s", 0.02), ("300/s", 0.03)]), run("new", &[("300/s", 0.01)])];
        let panels = metric_panels(&runs, &PanelOptions::default());
        let [Panel::Curves(curves)] = &panels[..] else { panic!("{panels:?}") };
        assert_eq!((curves.x.name.as_str(), curves.x.unit.as_str()), ("Rate of “robot”", "1/s"));
        let names: Vec<_> = curves.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["robot, old", "robot, new"]);
        let places: Vec<_> = curves.series[0].points.iter().map(|point| point.x).collect();
        assert_eq!(places, [300.0, 530.0]);
    }

    #[test]
    fn words_are_labels_in_order_and_long_ones_are_rows() {
        let short = run("a", &[("acp+d", 0.02), ("lazy", 0.03)]);
        let panels = metric_panels(&[short], &PanelOptions::default());
        let [Panel::Curves(curves)] = &panels[..] else { panic!("{panels:?}") };
        assert_eq!(curves.x.labels, ["acp+d", "lazy"]);
        let long =
            "a table or another text that would take the whole of the axis, and more than that";
        let panels =
            metric_panels(&[run("a", &[(long, 0.1), ("b", 0.2)])], &PanelOptions::default());
        let [Panel::Rows(rows)] = &panels[..] else { panic!("{panels:?}") };
        assert_eq!(rows.rows.len(), 2);
    }
}
