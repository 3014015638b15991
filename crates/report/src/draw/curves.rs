//! Curves over a number or over labels, with 95 % intervals.

use plotters::prelude::*;

use super::axis::{Fitted, ends_of};
use super::marks::{GREY, GRID, INK, color, mark, whisker};
use super::text::{style, width};
use super::{Area, Drawn, Entry, EntryKind, Hover, MARGIN, SvgError, TEXT, WIDTH};
use crate::figure::{Curves, Series, Stroke};
use crate::number::short;

/// Lengths in pixels.
const HEIGHT: u32 = 310;
const BOTTOM: u32 = 46;

/// Curves with their axes.
pub(super) struct Plot<'a> {
    curves: &'a Curves,
    x: Fitted,
    y: Fitted,
    /// The width of the labels to the left.
    left: u32,
    /// The size of the axes' names, so that the one at the left fits.
    size: f64,
}

impl<'a> Plot<'a> {
    pub(super) fn new(curves: &'a Curves) -> Self {
        let points = || curves.series.iter().flat_map(|series| &series.points);
        let ends = points().flat_map(|point| ends_of(point.y, point.half.unwrap_or(0.0)));
        let x = Fitted::new(&curves.x, points().map(|point| point.x), false, 8);
        let y = Fitted::new(&curves.y, ends, true, 6);
        let widest = y.tick_labels().map(|label| width(&label, TEXT)).fold(0.0, f64::max);
        let room = f64::from(HEIGHT - BOTTOM) / width(&y.name, 1.0);
        Self { curves, x, y, left: widest as u32 + 44, size: TEXT.min(room) }
    }

    pub(super) fn height(&self) -> u32 {
        HEIGHT
    }

    pub(super) fn draw(&self, root: &Area<'_>, corner: (u32, u32)) -> Drawn<Vec<Hover>, SvgError> {
        let area = root.clone().shrink(corner, (WIDTH, HEIGHT));
        let mut chart = ChartBuilder::on(&area)
            .margin_left(MARGIN / 2)
            .margin_right(MARGIN + 14)
            .margin_top(8)
            .set_label_area_size(LabelAreaPosition::Left, self.left)
            .set_label_area_size(LabelAreaPosition::Bottom, BOTTOM)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GREY)
            .label_style(style(TEXT, INK))
            .axis_desc_style(style(self.size, INK))
            .x_label_formatter(&|at| self.x.label(*at))
            .y_label_formatter(&|at| self.y.label(*at))
            .x_desc(&self.x.name)
            .y_desc(&self.y.name)
            .draw()?;
        let mut hovers = Vec::new();
        for series in &self.curves.series {
            let at = |x: f64, y: f64| {
                let y = self.y.clamped(y / self.y.factor);
                chart.backend_coord(&(x / self.x.factor, y))
            };
            self.draw_series(root, series, at, &mut hovers)?;
        }
        Ok(hovers)
    }

    fn draw_series(
        &self,
        root: &Area<'_>,
        series: &Series,
        at: impl Fn(f64, f64) -> (i32, i32),
        hovers: &mut Vec<Hover>,
    ) -> Drawn<(), SvgError> {
        let own = color(series.color);
        if series.stroke != Stroke::Marks {
            let thickness = if series.is_expected { 1 } else { 2 };
            let known = |line: &[crate::figure::Point]| {
                line.iter().map(|point| at(point.x, point.y)).collect::<Vec<_>>()
            };
            for part in series.points.split(|point| !point.y.is_finite()) {
                if part.len() > 1 {
                    let line = PathElement::new(known(part), own.stroke_width(thickness));
                    root.draw(&line)?;
                }
            }
        }
        for point in series.points.iter().filter(|point| point.y.is_finite()) {
            let middle = at(point.x, point.y);
            if let Some(half) = point.half.filter(|half| *half > 0.0) {
                let ends = [at(point.x, point.y - half), at(point.x, point.y + half)];
                whisker(root, ends, own)?;
            }
            if series.stroke == Stroke::Line {
                continue;
            }
            mark(root, middle, (series.color, own), series.is_expected)?;
            hovers.push((middle, self.hover(series, point)));
        }
        Ok(())
    }

    fn hover(&self, series: &Series, point: &crate::figure::Point) -> String {
        let x = self.x.label(point.x / self.x.factor);
        let y = short(point.y / self.y.factor);
        let half =
            point.half.map_or(String::new(), |half| format!(" ± {}", short(half / self.y.factor)));
        format!("{}: {} {x}, {} {y}{half}", series.name, self.x.name, self.y.name)
    }
}

pub(super) fn legend(curves: &Curves) -> Vec<Entry> {
    let entry = |series: &Series| Entry {
        name: series.name.clone(),
        color: series.color,
        shape: series.color,
        kind: match series {
            Series { stroke: Stroke::Line, .. } => EntryKind::Line,
            Series { is_expected: true, .. } => EntryKind::Expected,
            _ => EntryKind::Mark,
        },
    };
    curves.series.iter().map(entry).collect()
}
