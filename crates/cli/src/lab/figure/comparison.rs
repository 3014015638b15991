//! The figure of a reproduction: the expected numbers beside ours.
//!
//! ```text
//!   what a row is   ├──○─[●]──────     ○ expected, on the band of its tolerance
//!   another         ├──────○──●──      ● ours, with its 95 % interval
//!                   0           ms     a panel a unit, the trends below
//! ```

use std::ops::Range;

use freshline_lab::reproduce::{Compared, Verdict};
use miette::IntoDiagnostic;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::scale::{axis, scale};
use super::{Area, BLACK, Drawn, Figure, GREY, GRID, text};

const PAPER: RGBColor = RGBColor(214, 116, 20);
const OURS: RGBColor = RGBColor(20, 84, 150);
const MISSED: RGBColor = RGBColor(190, 30, 45);

/// Lengths in pixels.
const WIDTH: u32 = 1040;
const LABELS: u32 = 460;
const HEAD: u32 = 64;
const ROW: u32 = 24;
const AXIS: u32 = 60;
const MARGIN: u32 = 20;

/// Draws the rows of a reproduction.
pub(in crate::lab) fn comparison(title: &str, rows: &[Compared]) -> miette::Result<Figure> {
    let panels = by_unit(rows);
    let trends: Vec<_> = rows.iter().filter(|row| row.ours.is_none()).collect();
    let of_panels: u32 = panels.iter().map(|(_, rows)| height(rows)).sum();
    let whole = HEAD + of_panels + ROW * trends.len() as u32 + MARGIN;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, whole)).into_drawing_area();
        draw(&root, title, &panels, &trends).into_diagnostic()?;
    }
    Ok(Figure(svg))
}

/// A unit, and the rows that have a number of it.
type Panel<'a> = (&'a str, Vec<&'a Compared>);

/// In the order in which units appear.
fn by_unit(rows: &[Compared]) -> Vec<Panel<'_>> {
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for row in rows.iter().filter(|row| row.ours.is_some()) {
        match panels.iter_mut().find(|(unit, _)| *unit == row.unit) {
            Some((_, rows)) => rows.push(row),
            None => panels.push((&row.unit, vec![row])),
        }
    }
    panels
}

fn height(rows: &[&Compared]) -> u32 {
    ROW * rows.len() as u32 + AXIS
}

fn draw<'a>(root: &Area<'a>, title: &str, panels: &[Panel<'_>], trends: &[&Compared]) -> Drawn<'a> {
    root.fill(&WHITE)?;
    root.draw_text(title, &text(18, &BLACK), (MARGIN as i32, 12))?;
    legend(root)?;
    let mut top = HEAD;
    for (unit, rows) in panels {
        let height = height(rows);
        let area = root.clone().shrink((0, top as i32), (WIDTH, height));
        panel(root, &area, unit, rows)?;
        top += height;
    }
    for trend in trends {
        let (verdict, color) = match trend.verdict {
            Verdict::Broken => ("broken", &MISSED),
            verdict => (verdict.name(), &BLACK),
        };
        let line = format!("{verdict}: {}", trend.what);
        root.draw_text(&line, &text(13, color), (MARGIN as i32, top as i32))?;
        top += ROW;
    }
    root.present()
}

fn legend<'a>(root: &Area<'a>) -> Drawn<'a> {
    let y = 48;
    let entries = [
        (MARGIN as i32, "expected, on its tolerance", PAPER, false),
        (230, "ours, with its 95 % interval", OURS, true),
        (470, "ours, broken", MISSED, true),
    ];
    for (x, what, color, is_ours) in entries {
        if is_ours {
            root.draw(&Circle::new((x + 6, y), 5, color.filled()))?;
        } else {
            let corners = [(x - 4, y - 7), (x + 16, y + 7)];
            root.draw(&Rectangle::new(corners, PAPER.mix(0.2).filled()))?;
            root.draw(&Circle::new((x + 6, y), 5, color.stroke_width(2)))?;
        }
        let style = text(13, &BLACK).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw_text(what, &style, (x + 22, y))?;
    }
    Ok(())
}

fn panel<'a>(root: &Area<'a>, area: &Area<'a>, unit: &str, rows: &[&Compared]) -> Drawn<'a> {
    let ends = extent(rows);
    let (factor, unit) = scale(unit, ends.end.max(-ends.start));
    let rooms = rows.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin_right(MARGIN)
        .set_label_area_size(LabelAreaPosition::Left, LABELS)
        .set_label_area_size(LabelAreaPosition::Bottom, AXIS - 22)
        .build_cartesian_2d(ends.start / factor..ends.end / factor, rooms..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .x_labels(8)
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GREY)
        .label_style(text(12, &BLACK))
        .x_desc(axis("value", unit))
        .draw()?;
    for (place, row) in rows.iter().enumerate() {
        let y = place as f64 + 0.5;
        let ours = row.ours.unwrap_or_default() / factor;
        let color = if row.verdict == Verdict::Broken { MISSED } else { OURS };
        if let Some(paper) = row.expected.map(|paper| paper / factor) {
            let off = off(row) / factor;
            let band = [(paper - off, y - 0.3), (paper + off, y + 0.3)];
            let band = Rectangle::new(band, PAPER.mix(0.2).filled());
            chart.draw_series([band])?;
            chart.draw_series([Circle::new((paper, y), 5, PAPER.stroke_width(2))])?;
        }
        if let Some(half) = row.ci95.map(|half| half / factor) {
            let interval = vec![(ours - half, y), (ours + half, y)];
            chart.draw_series([PathElement::new(interval, color.stroke_width(2))])?;
        }
        chart.draw_series([Circle::new((ours, y), 4, color.filled())])?;
        let (x, y) = chart.backend_coord(&(ends.start / factor, y));
        let style = text(12, &BLACK).pos(Pos::new(HPos::Right, VPos::Center));
        root.draw_text(&row.what, &style, (x - 8, y))?;
    }
    Ok(())
}

/// From zero, or the least number, to a little beyond the largest one.
fn extent(rows: &[&Compared]) -> Range<f64> {
    let numbers = rows.iter().flat_map(|row| {
        let half = row.ci95.unwrap_or(0.0);
        let off = off(row);
        let ours = row.ours.map(|ours| [ours - half, ours + half]);
        let paper = row.expected.map(|paper| [paper - off, paper + off]);
        [ours, paper].into_iter().flatten().flatten()
    });
    let numbers = numbers.filter(|number| number.is_finite());
    let (least, most) =
        numbers.fold((0.0_f64, 0.0_f64), |(least, most), x| (least.min(x), most.max(x)));
    let room = 0.04 * (most - least);
    let start = if least < 0.0 { least - room } else { 0.0 };
    if most > least { start..most + room } else { 0.0..1.0 }
}

/// How far ours may be from what is expected, in the row's unit.
fn off(row: &Compared) -> f64 {
    let expected = row.expected.unwrap_or(row.base);
    (expected - row.base).abs() * row.tolerance.unwrap_or(0.0)
}
