//! Values of things that have no order: a line per thing, with the values' intervals and bands.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axis::{Fitted, ends_of};
use super::marks::{BROKEN, GREY, GRID, INK, color, mark, whisker};
use super::text::{anchored, plain, style, width, wrapped};
use super::{Area, Drawn, Entry, EntryKind, Hover, MARGIN, SvgError, TEXT, WIDTH};
use crate::figure::{Axis, Band, Mark, Row, RowSeries, Rows};
use crate::number::short;

/// Lengths in pixels.
const BOTTOM: u32 = 46;
const MAX_LABEL: f64 = 330.0;
const LABEL_LINE: u32 = 15;

/// Rows with their axis, and their labels in lines.
pub(super) struct Plot<'a> {
    rows: &'a Rows,
    x: Fitted,
    labels: Vec<Vec<String>>,
    left: u32,
    row: u32,
}

impl<'a> Plot<'a> {
    pub(super) fn new(rows: &'a Rows) -> Self {
        let marks = || rows.rows.iter().flat_map(|row| &row.marks);
        let ends = marks().flat_map(|mark| {
            let value = mark.value.map(|value| ends_of(value, mark.half.unwrap_or(0.0)));
            let band = mark.band.map(|Band { from, to }| [from, to]);
            [value, band].into_iter().flatten().flatten()
        });
        let x = Fitted::new(&rows.x, ends, true, 6);
        let labels: Vec<_> =
            rows.rows.iter().map(|row| wrapped(&plain(&row.label), TEXT, MAX_LABEL)).collect();
        let widest = labels.iter().flatten().map(|line| width(line, TEXT)).fold(40.0, f64::max);
        let lines = labels.iter().map(Vec::len).max().unwrap_or(1) as u32;
        let of_marks = 8 + 13 * rows.series.len().max(1) as u32;
        let row = (LABEL_LINE * lines + 8).max(of_marks);
        Self { rows, x, labels, left: widest as u32 + 2 * MARGIN, row }
    }

    pub(super) fn height(&self) -> u32 {
        self.row * self.rows.rows.len() as u32 + BOTTOM + 8
    }

    pub(super) fn draw(&self, root: &Area<'_>, corner: (u32, u32)) -> Drawn<Vec<Hover>, SvgError> {
        let area = root.clone().shrink(corner, (WIDTH, self.height()));
        let places = Axis {
            labels: self.rows.rows.iter().map(|row| row.label.clone()).collect(),
            ..Axis::default()
        };
        let y = Fitted::new(&places, std::iter::empty(), false, 0);
        let [from, to] = y.ends();
        let mut chart = ChartBuilder::on(&area)
            .margin_left(MARGIN / 2)
            .margin_right(MARGIN + 14)
            .margin_top(8)
            .set_label_area_size(LabelAreaPosition::Left, self.left)
            .set_label_area_size(LabelAreaPosition::Bottom, BOTTOM)
            .build_cartesian_2d(self.x.clone(), to..from)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(0)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GREY)
            .label_style(style(TEXT, INK))
            .axis_desc_style(style(TEXT, INK))
            .x_label_formatter(&|at| self.x.label(*at))
            .x_desc(&self.x.name)
            .draw()?;
        let mut hovers = Vec::new();
        for (place, row) in self.rows.rows.iter().enumerate() {
            let at = |x: f64, y: f64| {
                let x = self.x.clamped(x / self.x.factor);
                chart.backend_coord(&(x, place as f64 + y))
            };
            self.draw_row(root, (row, &self.labels[place]), at, &mut hovers)?;
        }
        Ok(hovers)
    }

    fn draw_row(
        &self,
        root: &Area<'_>,
        (row, label): (&Row, &[String]),
        at: impl Fn(f64, f64) -> (i32, i32),
        hovers: &mut Vec<Hover>,
    ) -> Drawn<(), SvgError> {
        let [start, end] = self.x.ends();
        let left = at(start * self.x.factor, 0.0);
        let middle = left.1;
        let ink = if row.is_broken { BROKEN } else { INK };
        let first = middle - (LABEL_LINE as i32) * (label.len() as i32 - 1) / 2;
        for (line, text) in (0i32..).zip(label) {
            let place = (left.0 - 10, first + LABEL_LINE as i32 * line);
            root.draw_text(text, &anchored(style(TEXT, ink), HPos::Right), place)?;
        }
        let right = at(end * self.x.factor, 0.0);
        root.draw(&PathElement::new(vec![left, right], GRID))?;
        for mark_of in &row.marks {
            let y = self.offset(mark_of);
            self.draw_mark(root, mark_of, |x| at(x, y), (row, hovers))?;
        }
        Ok(())
    }

    /// The marks of a row are one below the other, so that none hides another one.
    fn offset(&self, mark: &Mark) -> f64 {
        let count = self.rows.series.len().max(1) as f64;
        ((mark.series as f64 + 0.5) / count - 0.5) * 0.6
    }

    fn draw_mark(
        &self,
        root: &Area<'_>,
        drawn: &Mark,
        at: impl Fn(f64) -> (i32, i32),
        (row, hovers): (&Row, &mut Vec<Hover>),
    ) -> Drawn<(), SvgError> {
        let own = color(drawn.series);
        let is_expected =
            self.rows.series.get(drawn.series).is_some_and(|series| series.is_expected);
        let [start, end] = self.x.ends().map(|end| end * self.x.factor);
        if let Some(Band { from, to }) = drawn.band {
            let ends = [from.max(start), to.min(end)].map(&at);
            let corners =
                [(ends[0].0, ends[0].1 - 5), (ends[1].0.max(ends[0].0 + 1), ends[1].1 + 5)];
            root.draw(&Rectangle::new(corners, own.mix(0.25).filled()))?;
        }
        let Some(value) = drawn.value.filter(|value| value.is_finite()) else { return Ok(()) };
        if let Some(half) = drawn.half.filter(|half| *half > 0.0) {
            whisker(root, [value - half, value + half].map(&at), own)?;
        }
        mark(root, at(value), (drawn.series, own), is_expected)?;
        let name = self.rows.series.get(drawn.series).map_or("", |series| &series.name);
        let half =
            drawn.half.map_or(String::new(), |half| format!(" ± {}", short(half / self.x.factor)));
        let number = short(value / self.x.factor);
        hovers.push((at(value), format!("{}, {name}: {} {number}{half}", row.label, self.x.name)));
        Ok(())
    }
}

pub(super) fn legend(rows: &Rows) -> Vec<Entry> {
    let entry = |(place, series): (usize, &RowSeries)| Entry {
        name: series.name.clone(),
        color: place,
        shape: place,
        kind: if series.is_expected { EntryKind::Expected } else { EntryKind::Mark },
    };
    rows.series.iter().enumerate().map(entry).collect()
}
