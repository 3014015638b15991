//! A metric over the swept key: a line a flow, with 95 % intervals.

use std::collections::BTreeMap;
use std::ops::Range;

use freshline_lab::run::Metric;
use miette::{IntoDiagnostic, miette};
use plotters::prelude::*;
use toml::Value;

use super::scale::{axis, scale};
use super::{Area, BLACK, Drawn, Figure, GREY, GRID, text};

/// In pixels.
const SIZE: (u32, u32) = (1040, 560);
/// The names of the lines, to the right.
const LEGEND: u32 = 170;

/// The values of one point of the sweep, and what was measured there.
type Point<'a> = (&'a BTreeMap<String, Value>, &'a [Metric]);

/// A line: of which flow or link, and for each point that knows the metric, its place and value.
struct Line<'a> {
    of: &'a str,
    points: Vec<(f64, &'a Metric)>,
}

/// Draws `metric` over the one key that was swept.
pub(in crate::lab) fn sweep<'a>(
    title: &str,
    metric: &str,
    points: impl Iterator<Item = Point<'a>>,
) -> miette::Result<Figure> {
    let points: Vec<_> = points.collect();
    let (key, _) = points
        .first()
        .and_then(|(set, _)| set.first_key_value())
        .ok_or_else(|| miette!("nothing was swept"))?;
    let swept = Swept::new(key, points.iter().map(|(set, _)| &set[key]).collect());
    let lines = lines(metric, &swept, &points)?;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&root, title, &swept, &lines).into_diagnostic()?;
    }
    Ok(Figure(svg))
}

/// The swept key as an axis.
struct Swept {
    name: String,
    unit: String,
    /// Where each value is.
    places: Vec<f64>,
    /// What stands there; empty where places are the values themselves.
    labels: Vec<String>,
}

impl Swept {
    /// By number where all values are numbers, perhaps with one unit behind them; else in order.
    fn new(key: &str, values: Vec<&Value>) -> Self {
        let texts: Vec<_> = values.into_iter().map(plain).collect();
        let numbers: Option<Vec<_>> = texts.iter().map(|text| number(text)).collect();
        let same =
            |numbers: &Vec<(f64, &str)>| numbers.iter().all(|(_, unit)| *unit == numbers[0].1);
        match numbers.filter(same) {
            Some(numbers) => Self {
                name: key.to_owned(),
                unit: numbers[0].1.to_owned(),
                places: numbers.iter().map(|(number, _)| *number).collect(),
                labels: Vec::new(),
            },
            None => Self {
                name: key.to_owned(),
                unit: String::new(),
                places: (0..texts.len()).map(|place| place as f64).collect(),
                labels: texts,
            },
        }
    }

    fn label(&self, at: f64) -> String {
        let place = at.round();
        match self.labels.get(place as usize) {
            Some(label) if (at - place).abs() < 1e-9 => label.clone(),
            None if self.labels.is_empty() => plain_number(at),
            _ => String::new(),
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A number and what stands behind it.
fn number(text: &str) -> Option<(f64, &str)> {
    let end =
        text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit))
}

/// Without the noise of binary fractions.
fn plain_number(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn lines<'a>(metric: &str, swept: &Swept, points: &[Point<'a>]) -> miette::Result<Vec<Line<'a>>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    for (place, (_, metrics)) in swept.places.iter().zip(points) {
        for found in metrics.iter().filter(|found| found.name == metric) {
            match lines.iter_mut().find(|line| line.of == found.of) {
                Some(line) => line.points.push((*place, found)),
                None => lines.push(Line { of: &found.of, points: vec![(*place, found)] }),
            }
        }
    }
    if lines.is_empty() {
        let mut known: Vec<_> =
            points.iter().flat_map(|(_, metrics)| metrics.iter().map(|known| known.name)).collect();
        known.sort_unstable();
        known.dedup();
        return Err(miette!(
            "--plot: there is no metric `{metric}`; there is: {}",
            known.join(", ")
        ));
    }
    Ok(lines)
}

fn draw<'a>(root: &Area<'a>, title: &str, swept: &Swept, lines: &[Line<'_>]) -> Drawn<'a> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let Some((_, first)) = all().next() else { return Ok(()) };
    let high = |(_, metric): &(f64, &Metric)| metric.value + metric.ci95.unwrap_or(0.0);
    let low = |(_, metric): &(f64, &Metric)| metric.value - metric.ci95.unwrap_or(0.0);
    let values = with_room(all().map(high).chain(all().map(low)).chain([0.0]));
    let (factor, unit) = scale(first.unit, values.end);
    let places = with_room(swept.places.iter().copied());

    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(root)
        .margin(18)
        .margin_right(LEGEND + 18)
        .caption(title, text(18, &BLACK))
        .set_label_area_size(LabelAreaPosition::Left, 80)
        .set_label_area_size(LabelAreaPosition::Bottom, 50)
        .build_cartesian_2d(places, values.start / factor..values.end / factor)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GREY)
        .label_style(text(12, &BLACK))
        .axis_desc_style(text(14, &BLACK))
        .x_labels(swept.labels.len().max(9))
        .x_label_formatter(&|at| swept.label(*at))
        .x_desc(axis(&swept.name, &swept.unit))
        .y_desc(axis(first.name, unit))
        .draw()?;
    for (index, Line { of, points }) in lines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let places = points.iter().map(|(x, metric)| (*x, metric.value / factor));
        chart.draw_series(LineSeries::new(places.clone(), color.stroke_width(2)))?;
        chart.draw_series(places.map(|at| Circle::new(at, 3, color.filled())))?;
        let intervals = points.iter().filter_map(|(x, metric)| {
            let half = metric.ci95?;
            let ends = [metric.value - half, metric.value + half].map(|end| (*x, end / factor));
            Some(PathElement::new(ends.to_vec(), color.stroke_width(1)))
        });
        chart.draw_series(intervals)?;
        let (x, y) = ((SIZE.0 - LEGEND) as i32, 60 + 20 * index as i32);
        root.draw(&PathElement::new([(x, y + 6), (x + 18, y + 6)], color.stroke_width(2)))?;
        root.draw_text(of, &text(13, &BLACK), (x + 24, y))?;
    }
    root.present()
}

/// All of them, and a twentieth more on either side where that is not zero.
fn with_room(values: impl Iterator<Item = f64>) -> Range<f64> {
    let finite = values.filter(|value| value.is_finite());
    let (least, most) = finite
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), x| (least.min(x), most.max(x)));
    let room = if most > least { 0.05 * (most - least) } else { 1.0 };
    let start = if least == 0.0 { 0.0 } else { least - room };
    start..most + room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_one_unit_are_places_and_others_are_labels() {
        let values = ["6mbit", "12mbit"].map(|text| Value::String(text.to_owned()));
        let swept = Swept::new("rate", values.iter().collect());
        assert_eq!((swept.places, swept.unit.as_str()), (vec![6.0, 12.0], "mbit"));
        let values = ["acp+d", "lazy"].map(|text| Value::String(text.to_owned()));
        let swept = Swept::new("law", values.iter().collect());
        assert_eq!((swept.label(1.0).as_str(), swept.label(0.5).as_str()), ("lazy", ""));
    }
}
