//! The figure of a journey: a panel per column, a dot with its interval per row.

use freshline_core::wire::escaped;
use freshline_lab::journey::{Journey, Kind, Row};
use miette::IntoDiagnostic;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::scale::{axis, scale};
use super::{Area, BLACK, Drawn, Figure, GREY, GRID, text};

/// Of no law, of single laws, of all, and of what people use today: colours that colour-blind readers tell
/// apart (Okabe and Ito).
const NONE: RGBColor = RGBColor(90, 90, 90);
const SOME: RGBColor = RGBColor(0, 114, 178);
const ALL: RGBColor = RGBColor(213, 94, 0);
const TODAY: RGBColor = RGBColor(0, 158, 115);

/// Lengths in pixels.
const LABELS: u32 = 330;
const PANEL: u32 = 240;
const HEAD: u32 = 44;
const ROW: u32 = 24;
const AXIS: u32 = 50;
const MARGIN: u32 = 20;

/// Draws the table of a scenario.
pub(in crate::lab) fn journey(journey: &Journey) -> miette::Result<Figure> {
    let width = LABELS + PANEL * journey.columns.len() as u32 + MARGIN;
    let height = HEAD + ROW * journey.rows.len() as u32 + AXIS + MARGIN;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        draw(&root, journey, height).into_diagnostic()?;
    }
    Ok(Figure(svg))
}

fn draw<'a>(root: &Area<'a>, journey: &Journey, height: u32) -> Drawn<'a> {
    root.fill(&WHITE)?;
    root.draw_text(&escaped(&journey.title), &text(18, &BLACK), (MARGIN as i32, 12))?;
    for (place, row) in journey.rows.iter().enumerate() {
        let y = HEAD + ROW * place as u32 + ROW / 2;
        let style = text(12, &color(row)).pos(Pos::new(HPos::Right, VPos::Center));
        root.draw_text(&escaped(&row.name), &style, (LABELS as i32 - 8, y as i32))?;
    }
    for column in 0..journey.columns.len() {
        let left = LABELS + PANEL * column as u32;
        let area = root.clone().shrink((left, HEAD), (PANEL, height - HEAD));
        panel(&area, journey, column)?;
    }
    root.present()
}

fn panel<'a>(area: &Area<'a>, journey: &Journey, column: usize) -> Drawn<'a> {
    let heading = &journey.columns[column];
    let most = journey.rows.iter().map(|row| row.values[column]);
    let most = most.map(|it| it.value + it.ci95.unwrap_or(0.0)).fold(0.0, f64::max);
    let (factor, unit) = scale(heading.unit, most);
    let end = if most > 0.0 { 1.05 * most / factor } else { 1.0 };
    let rows = journey.rows.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin_right(MARGIN)
        .margin_bottom(MARGIN)
        .set_label_area_size(LabelAreaPosition::Bottom, AXIS)
        .build_cartesian_2d(0.0..end, rows..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .x_labels(4)
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GREY)
        .label_style(text(12, &BLACK))
        .x_desc(axis(&escaped(&heading.name), unit))
        .draw()?;
    for (place, row) in journey.rows.iter().enumerate() {
        let (y, color) = (place as f64 + 0.5, color(row));
        let (value, half) = (row.values[column].value / factor, row.values[column].ci95);
        if let Some(half) = half.map(|half| half / factor) {
            let interval = vec![((value - half).max(0.0), y), (value + half, y)];
            chart.draw_series([PathElement::new(interval, color.stroke_width(2))])?;
        }
        chart.draw_series([Circle::new((value, y), 4, color.filled())])?;
    }
    Ok(())
}

fn color(row: &Row) -> RGBColor {
    match row.kind {
        Kind::None => NONE,
        Kind::Alone | Kind::InTurn | Kind::AllBut => SOME,
        Kind::All => ALL,
        Kind::Today => TODAY,
    }
}
