//! Figures as SVG, by plotters: units and labels, without fonts or other files of the system.
//!
//! ```text
//!   title                          a figure
//!   ── title of a panel ──         per panel: its title,
//!   ● one  ■ another  ○ paper      its legend,
//!   │ chart                        and its chart with names and units at the axes
//!   note                           more than three panels are in two columns
//! ```

mod axis;
mod curves;
mod marks;
mod rows;
mod text;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use self::marks::{GREY, INK, PAPER, color, mark};
pub(crate) use self::text::plain;
use self::text::{anchored, bold, style, width, wrapped};
use crate::error::OutputError;
use crate::figure::{Figure, Panel};

/// Lengths in pixels.
const WIDTH: u32 = 800;
const MARGIN: u32 = 16;
const TITLE: f64 = 18.0;
const PANEL_TITLE: f64 = 14.0;
const TEXT: f64 = 12.0;
/// How much wider bold letters are.
const BOLDER: f64 = 1.12;
const LINE: u32 = 20;

/// A part of a drawing, and the result of drawing there.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T, E> = Result<T, DrawingAreaErrorKind<E>>;
type SvgError = <SVGBackend<'static> as DrawingBackend>::ErrorType;

/// The tooltip of a mark: its place, and its text.
type Hover = ((i32, i32), String);

/// An entry of a legend.
struct Entry {
    name: String,
    color: usize,
    shape: usize,
    kind: EntryKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    Mark,
    Expected,
    Line,
}

/// Number of panels from which there are two columns.
const TWO_COLUMNS: usize = 4;

/// Draws a figure, 800 pixels wide, or 1600 with more than three panels.
///
/// # Errors
/// [`OutputError::Drawing`].
pub fn svg(figure: &Figure) -> Result<String, OutputError> {
    let columns = if figure.panels.len() < TWO_COLUMNS { 1 } else { 2 };
    let whole = WIDTH * columns as u32;
    let room = f64::from(whole - 2 * MARGIN);
    let title = wrapped(&plain(&figure.title), BOLDER * TITLE, room);
    let head = if figure.title.is_empty() { MARGIN / 2 } else { MARGIN + 26 * title.len() as u32 };
    let note = wrapped(&plain(&figure.note), TEXT, room);
    let foot = if figure.note.is_empty() { 0 } else { LINE * note.len() as u32 };
    let panels: Vec<_> = figure.panels.iter().map(Laid::new).collect();
    let (corners, bottom) = placed(&panels, columns, head);
    let height = bottom + foot + MARGIN / 2;
    let mut text = String::new();
    let mut hovers = Vec::new();
    {
        let root = SVGBackend::with_string(&mut text, (whole, height)).into_drawing_area();
        let mut draw = || -> Drawn<(), SvgError> {
            root.fill(&PAPER)?;
            for (place, line) in title.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
                let at = (MARGIN as i32, (MARGIN + 26 * place as u32) as i32);
                root.draw_text(line, &bold(TITLE, INK), at)?;
            }
            for (panel, corner) in panels.iter().zip(&corners) {
                hovers.extend(panel.draw(&root, *corner)?);
            }
            for (place, line) in note.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
                let at = (MARGIN as i32, (bottom + LINE * place as u32) as i32);
                root.draw_text(line, &style(TEXT, GREY), at)?;
            }
            root.present()
        };
        draw().map_err(|error| OutputError::Drawing(error.to_string()))?;
    }
    let label = match (&figure.title, figure.panels.first()) {
        (title, Some(panel)) if title.is_empty() => panel.title(),
        (title, _) => title,
    };
    Ok(finished(&text, label, &hovers))
}

/// The upper left corners of panels, each in the column that is shortest so far, and where the
/// tallest column ends.
fn placed(panels: &[Laid<'_>], columns: usize, top: u32) -> (Vec<(u32, u32)>, u32) {
    let mut ends = vec![top; columns];
    let mut place = |panel: &Laid<'_>| {
        let shortest = (0..columns).min_by_key(|column| ends[*column]).unwrap_or(0);
        let corner = (WIDTH * shortest as u32, ends[shortest]);
        ends[shortest] += panel.height();
        corner
    };
    let corners = panels.iter().map(&mut place).collect();
    (corners, ends.into_iter().max().unwrap_or(top))
}

/// A panel whose text has been broken into lines.
struct Laid<'a> {
    panel: &'a Panel,
    title: Vec<String>,
    legend: Vec<Vec<Entry>>,
    chart: Chart<'a>,
}

enum Chart<'a> {
    Curves(curves::Plot<'a>),
    Rows(rows::Plot<'a>),
}

impl<'a> Laid<'a> {
    fn new(panel: &'a Panel) -> Self {
        let (chart, entries) = match panel {
            Panel::Curves(curves) => {
                (Chart::Curves(curves::Plot::new(curves)), curves::legend(curves))
            }
            Panel::Rows(rows) => (Chart::Rows(rows::Plot::new(rows)), rows::legend(rows)),
        };
        let title =
            wrapped(&plain(panel.title()), BOLDER * PANEL_TITLE, f64::from(WIDTH - 2 * MARGIN));
        // A legend of one series repeats the title.
        let is_needed = entries.len() > 1 || entries.iter().any(|it| it.kind != EntryKind::Mark);
        let entries = if is_needed { entries } else { Vec::new() };
        Self { panel, title, legend: in_lines(entries), chart }
    }

    fn head(&self) -> u32 {
        let title = if self.panel.title().is_empty() { 0 } else { self.title.len() as u32 };
        LINE * (title + self.legend.len() as u32) + 6
    }

    fn height(&self) -> u32 {
        let chart = match &self.chart {
            Chart::Curves(plot) => plot.height(),
            Chart::Rows(plot) => plot.height(),
        };
        self.head() + chart + 14
    }

    /// Draws the panel with its upper left corner there.
    fn draw(&self, root: &Area<'_>, (left, top): (u32, u32)) -> Drawn<Vec<Hover>, SvgError> {
        let mut y = top as i32 + 10;
        let start = (left + MARGIN) as i32;
        for line in self.title.iter().filter(|line| !line.is_empty()) {
            let style = anchored(bold(PANEL_TITLE, INK), HPos::Left);
            root.draw_text(line, &style, (start, y))?;
            y += LINE as i32;
        }
        for line in &self.legend {
            let mut x = start + 8;
            for entry in line {
                x = draw_entry(root, entry, (x, y))?;
            }
            y += LINE as i32;
        }
        let corner = (left, top + self.head());
        match &self.chart {
            Chart::Curves(plot) => plot.draw(root, corner),
            Chart::Rows(plot) => plot.draw(root, corner),
        }
    }
}

const SWATCH: f64 = 26.0;
const GAP: f64 = 22.0;

/// The entries of a legend in lines that fit.
fn in_lines(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut lines: Vec<Vec<Entry>> = Vec::new();
    let mut used = f64::INFINITY;
    for entry in entries {
        let own = SWATCH + width(&entry.name, TEXT) + GAP;
        if used + own > f64::from(WIDTH - 2 * MARGIN) || lines.is_empty() {
            lines.push(Vec::new());
            used = 0.0;
        }
        used += own;
        lines.last_mut().expect("there is a line").push(entry);
    }
    lines
}

/// Draws an entry, and returns where the next one begins.
fn draw_entry(root: &Area<'_>, entry: &Entry, (x, y): (i32, i32)) -> Drawn<i32, SvgError> {
    let own = color(entry.color);
    if entry.kind == EntryKind::Line {
        root.draw(&PathElement::new(vec![(x, y), (x + 18, y)], own.stroke_width(2)))?;
    } else {
        mark(root, (x + 9, y), (entry.shape, own), entry.kind == EntryKind::Expected)?;
    }
    let text = plain(&entry.name);
    root.draw_text(&text, &anchored(style(TEXT, INK), HPos::Left), (x + SWATCH as i32, y))?;
    Ok(x + (SWATCH + width(&text, TEXT) + GAP) as i32)
}

/// The drawing with its name for screen readers, and texts for the pointer.
fn finished(svg: &str, label: &str, hovers: &[Hover]) -> String {
    let label = escaped(&plain(label));
    let opened = svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{label}\" "), 1);
    let targets = hovers.iter().map(|((x, y), text)| {
        let text = escaped(&plain(text));
        format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"7\" fill=\"none\" pointer-events=\"all\"><title>{text}</title></circle>\n")
    });
    let targets: String = targets.collect();
    match opened.rfind("</svg>") {
        Some(end) => format!("{}{targets}</svg>\n", &opened[..end]),
        None => opened,
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}
