//! Figures: SVG with units and labels, without fonts or other files of the system.

mod comparison;
mod journey;
mod scale;
mod sweep;

use std::fs;
use std::path::Path;

use miette::{IntoDiagnostic, WrapErr};
use plotters::style::{IntoFont, RGBColor, TextStyle};

pub(super) use comparison::comparison;
pub(super) use journey::journey;
pub(super) use scale::scale;
pub(super) use sweep::sweep;

const BLACK: RGBColor = RGBColor(30, 30, 30);
const GREY: RGBColor = RGBColor(120, 120, 120);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// A drawing.
pub(super) struct Figure(String);

impl Figure {
    /// Writes it, and makes the folder for it where there is none.
    pub(super) fn write(&self, path: &Path) -> miette::Result<()> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let made = if folder.as_os_str().is_empty() { Ok(()) } else { fs::create_dir_all(folder) };
        made.and_then(|()| fs::write(path, &self.0))
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot write {}", path.display()))
    }
}

/// Text of `size` pixels.
fn text(size: i32, color: &RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(color)
}
