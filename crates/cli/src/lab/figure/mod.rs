//! Figures: SVG with units and labels, without fonts or other files of the system.

mod comparison;
mod journey;
mod scale;
mod sweep;

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use miette::{IntoDiagnostic, WrapErr};
use plotters::coord::Shift;
use plotters::prelude::*;

pub(super) use comparison::comparison;
pub(super) use journey::journey;
pub(super) use scale::scale;
pub(super) use sweep::sweep;

const BLACK: RGBColor = RGBColor(30, 30, 30);
const GREY: RGBColor = RGBColor(120, 120, 120);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// A part of a drawing, and the result of drawing there.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// A drawing.
pub(super) struct Figure(String);

impl Figure {
    /// Writes it into a folder, under the [name](name_of) of its scenario.
    pub(super) fn write_in(&self, folder: &Path, scenario: &str) -> miette::Result<()> {
        self.write(&folder.join(format!("{}.svg", name_of(scenario))))
    }

    /// Writes it, and makes the folder for it where there is none.
    pub(super) fn write(&self, path: &Path) -> miette::Result<()> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let made = if folder.as_os_str().is_empty() { Ok(()) } else { fs::create_dir_all(folder) };
        made.and_then(|()| fs::write(path, &self.0))
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot write {}", path.display()))
    }
}

/// What the figure of a scenario is called: its name without the folder and the extension.
pub(super) fn name_of(scenario: &str) -> Cow<'_, str> {
    Path::new(scenario).file_stem().unwrap_or_default().to_string_lossy()
}

/// Text of `size` pixels.
fn text(size: i32, color: &RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(color)
}
