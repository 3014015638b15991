//! Colours and marks.

use plotters::prelude::*;

pub(super) const INK: RGBColor = RGBColor(30, 30, 30);
pub(super) const GREY: RGBColor = RGBColor(110, 110, 110);
pub(super) const GRID: RGBColor = RGBColor(224, 224, 224);
pub(super) const PAPER: RGBColor = RGBColor(255, 255, 255);
pub(super) const BROKEN: RGBColor = RGBColor(190, 30, 45);

/// Colours that colour-blind readers distinguish (Okabe and Ito), without yellow, which white paper swallows.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

pub(super) fn color(place: usize) -> RGBColor {
    COLORS[place % COLORS.len()]
}

/// The corners of a mark around its middle, in pixels: a shape per series, so that marks differ without colours.
fn corners(shape: usize, size: i32) -> Vec<(i32, i32)> {
    let s = size;
    match shape % 5 {
        1 => vec![(-s, -s), (s, -s), (s, s), (-s, s)],
        2 => vec![(0, -s - 1), (s + 1, s), (-s - 1, s)],
        3 => vec![(0, -s - 2), (s + 2, 0), (0, s + 2), (-s - 2, 0)],
        _ => vec![(-s - 1, -s), (s + 1, -s), (0, s + 1)],
    }
}

/// A mark at a place in pixels; hollow for expected values.
pub(super) fn mark<DB: DrawingBackend>(
    root: &DrawingArea<DB, plotters::coord::Shift>,
    (x, y): (i32, i32),
    (shape, color): (usize, RGBColor),
    is_expected: bool,
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    let size = if is_expected { 5 } else { 4 };
    if shape.is_multiple_of(5) {
        if is_expected {
            root.draw(&Circle::new((x, y), size, PAPER.filled()))?;
            return root.draw(&Circle::new((x, y), size, color.stroke_width(2)));
        }
        return root.draw(&Circle::new((x, y), size, color.filled()));
    }
    let corners: Vec<_> =
        corners(shape, size).into_iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
    if is_expected {
        root.draw(&Polygon::new(corners.clone(), PAPER.filled()))?;
        let outline: Vec<_> = corners.iter().chain(&corners[..2]).copied().collect();
        return root.draw(&PathElement::new(outline, color.stroke_width(2)));
    }
    root.draw(&Polygon::new(corners, color.filled()))
}

/// A line from `from` to `to` in x, with ends that are short strokes across: an interval.
pub(super) fn whisker<DB: DrawingBackend>(
    root: &DrawingArea<DB, plotters::coord::Shift>,
    [from, to]: [(i32, i32); 2],
    color: RGBColor,
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    let style = color.stroke_width(1);
    root.draw(&PathElement::new(vec![from, to], style))?;
    let (dx, dy) = if from.0 == to.0 { (3, 0) } else { (0, 3) };
    for (x, y) in [from, to] {
        root.draw(&PathElement::new(vec![(x - dx, y - dy), (x + dx, y + dy)], style))?;
    }
    Ok(())
}
