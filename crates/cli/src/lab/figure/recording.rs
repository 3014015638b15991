//! Figures of run 0: time series, and the distributions of ages.

use std::collections::BTreeMap;

use freshline_core::age::AgeMeter;
use freshline_core::unit::{Span, Time};
use freshline_lab::record::{Ages, RecordOptions, Recording, record};
use freshline_lab::scenario::{NoLaws, Scenario, ScenarioError};
use freshline_lab::series::{Column, Columns, Named};
use freshline_report::{Axis, Curves, Panel, Point, Scale, Series, Stroke, capitalised};

use super::series_names::column_in_words;

/// Maximum number of lines in a panel.
const MAX_LINES: usize = 7;

/// Number of intervals in a time series.
const INTERVALS: u64 = 240;

/// Repeats run 0 of a scenario, and records its ages and time series.
pub(in crate::lab) fn recorded(scenario: &Scenario) -> Result<Recording, ScenarioError> {
    let every = (scenario.duration / INTERVALS).max(Span::from_millis(1));
    record(scenario, 0, &NoLaws, RecordOptions { every: Some(every), ages: true, packets: false })
}

/// A panel per column of the time series, with a line per flow, link or cell. Columns that are
/// always zero or unknown are left out.
pub(in crate::lab) fn series_panels(recording: &Recording) -> Vec<Panel> {
    let mut names: Vec<&str> = Vec::new();
    for column in recording.series.iter().flat_map(|table| &table.table.names) {
        if !["time_s", "number"].contains(column) && !names.contains(column) {
            names.push(column);
        }
    }
    names.into_iter().filter_map(|name| series_panel(&recording.series, name)).collect()
}

fn series_panel(tables: &[Named<Columns>], column: &str) -> Option<Panel> {
    let mut lines: Vec<(String, Vec<Point>)> = Vec::new();
    for Named { name, table } in tables {
        let (Some(Column::Numbers(times)), Some(Column::Numbers(values))) =
            (table.column("time_s"), table.column(column))
        else {
            continue;
        };
        let mut of_numbers: BTreeMap<u64, Vec<Point>> = BTreeMap::new();
        for (line, (x, y)) in times.iter().zip(values).enumerate() {
            let number = match table.column("number") {
                Some(Column::Numbers(numbers)) => numbers[line] as u64,
                _ => 0,
            };
            of_numbers.entry(number).or_default().push(Point { x: *x, y: *y, half: None });
        }
        // The name of a table begins with its subject.
        let own = name.split_once('-').map_or(name.as_str(), |(_, name)| name);
        let is_alone = of_numbers.len() == 1;
        lines.extend(of_numbers.into_iter().map(|(number, points)| {
            (if is_alone { own.to_owned() } else { format!("{own} {number}") }, points)
        }));
    }
    let says = |points: &[Point]| points.iter().any(|point| point.y.is_finite() && point.y != 0.0);
    lines.retain(|(_, points)| says(points));
    if lines.is_empty() {
        return None;
    }
    let (words, unit) = column_in_words(column);
    Some(Panel::Curves(Curves {
        title: titled(format!("{} over time", capitalised(&words)), lines.len()),
        x: Axis { scale: Scale::Linear, ..Axis::new("Time", "s") },
        y: Axis { scale: Scale::Linear, ..Axis::new(capitalised(&words), unit) },
        series: drawn(lines),
    }))
}

/// The distribution of each age after the warm-up; `None` if there are no ages.
pub(in crate::lab) fn ages_panel(
    recording: &Recording,
    scenario: &Scenario,
    x: Scale,
) -> Option<Panel> {
    let from = Time::ZERO + scenario.warm_up;
    let all: Vec<_> = recording
        .ages
        .iter()
        // Only the first key of a topic with keys.
        .filter(|ages| ages.key.is_none_or(|key| key == 0))
        .map(|ages| (name_of(ages, &recording.ages), distribution(ages, from)))
        .filter(|(_, points)| points.len() > 1)
        .collect();
    if all.is_empty() {
        return None;
    }
    Some(Panel::Curves(Curves {
        title: titled("Distribution of the age (CDF)".to_owned(), all.len()),
        x: Axis { scale: x, ..Axis::new("Age", "s") },
        y: Axis { scale: Scale::Linear, ..Axis::new("Fraction of the time", "1") },
        series: drawn(all),
    }))
}

/// The first [`MAX_LINES`] of these lines, each with its name.
fn drawn(lines: Vec<(String, Vec<Point>)>) -> Vec<Series> {
    let lines = lines.into_iter().take(MAX_LINES).enumerate();
    let series = lines.map(|(color, (name, points))| Series {
        name,
        stroke: Stroke::Line,
        is_expected: false,
        color,
        points,
    });
    series.collect()
}

fn titled(title: String, lines: usize) -> String {
    if lines > MAX_LINES { format!("{title}, the first {MAX_LINES} of {lines}") } else { title }
}

fn name_of(ages: &Ages, all: &[Ages]) -> String {
    let is_alone =
        all.iter().filter(|other| other.flow == ages.flow && other.number > 0).count() == 0;
    let number = if is_alone { String::new() } else { format!(" {}", ages.number) };
    let topic = if ages.topic.is_empty() { String::new() } else { format!("/{}", ages.topic) };
    let key = ages.key.map_or(String::new(), |key| format!("/{key}"));
    format!("{}{number}{topic}{key}", ages.flow)
}

/// Quantiles of an age, each with its fraction of the time.
fn distribution(ages: &Ages, from: Time) -> Vec<Point> {
    let mut meter = AgeMeter::starting_at(ages.starts_at);
    let mut is_measuring = from <= ages.starts_at;
    for delivery in &ages.deliveries {
        if !is_measuring && delivery.received_at >= from {
            meter.measure_from(from);
            is_measuring = true;
        }
        meter.on_update(delivery.received_at, delivery.generated_at);
    }
    if !is_measuring {
        meter.measure_from(from.min(ages.ends_at));
    }
    let fractions = (0..=200).map(|step| f64::from(step) / 200.0);
    let point =
        |y: f64| Some(Point { x: meter.quantile(ages.ends_at, y)?.as_secs_f64(), y, half: None });
    fractions.filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_lab::world::Delivery;

    #[test]
    fn a_distribution_has_the_quantiles_after_the_warm_up() {
        let ms = |millis| Time::ZERO + Span::from_millis(millis);
        // Every 20 ms an update that took 30 ms: ages from 30 to 50 ms.
        let delivery = |number: u64| Delivery {
            received_at: ms(20 * number + 30),
            generated_at: ms(20 * number),
        };
        let ages = Ages {
            flow: "robot".to_owned(),
            number: 0,
            topic: String::new(),
            key: None,
            starts_at: Time::ZERO,
            ends_at: ms(2030),
            deliveries: (0..=100).map(delivery).collect(),
        };
        let points = distribution(&ages, ms(1030));
        let at = |y: f64| points.iter().find(|point| (point.y - y).abs() < 1e-9).unwrap().x;
        for (fraction, age) in [(0.05, 0.031), (0.5, 0.040), (0.95, 0.049)] {
            assert!((at(fraction) / age - 1.0).abs() < 0.02, "{fraction}: {}", at(fraction));
        }
    }
}
