//! Files of figures.

use std::fs;
use std::path::Path;

use crate::draw::svg;
use crate::error::OutputError;
use crate::figure::Figure;

/// The format of a figure's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Scalable, for web pages; text is `sans-serif`, which the viewer chooses.
    #[default]
    Svg,
    /// Pixels, two per unit of the SVG.
    Png,
    /// Scalable, for papers, with its font.
    Pdf,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Svg, Self::Png, Self::Pdf];

    /// The extension of its files.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Png => "png",
            Self::Pdf => "pdf",
        }
    }

    /// Whether this program can write it: PNG and PDF with the feature `pictures` only.
    pub const fn is_available(self) -> bool {
        matches!(self, Self::Svg) || cfg!(feature = "pictures")
    }

    /// The format of a file by its extension; `None` if it has another one.
    pub fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Self::ALL.into_iter().find(|format| format.extension() == extension)
    }
}

/// Draws a figure into a file, and makes the folder for it if it is missing.
///
/// # Errors
/// [`OutputError`].
pub fn write(figure: &Figure, path: &Path, format: Format) -> Result<(), OutputError> {
    let drawn = svg(figure)?;
    let bytes = match format {
        Format::Svg => drawn.into_bytes(),
        #[cfg(feature = "pictures")]
        Format::Png => crate::picture::png(&drawn)?,
        #[cfg(feature = "pictures")]
        Format::Pdf => crate::picture::pdf(&drawn)?,
        #[cfg(not(feature = "pictures"))]
        Format::Png | Format::Pdf => return Err(OutputError::NoPictures),
    };
    write_file(path, &bytes)
}

pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), OutputError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let made = if folder.as_os_str().is_empty() { Ok(()) } else { fs::create_dir_all(folder) };
    let failed = |error| OutputError::File { path: path.to_owned(), error };
    made.and_then(|()| fs::write(path, bytes)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Axis, Curves, Panel, Point, Series, Stroke};

    fn figure() -> Figure {
        let point = |x, y| Point { x, y, half: Some(0.001) };
        let series = |name: &str, is_expected| Series {
            name: name.to_owned(),
            stroke: Stroke::Joined,
            is_expected,
            color: 0,
            points: vec![point(1.0, 0.01), point(2.0, 0.02)],
        };
        let curves = Curves {
            title: "Age <over> load".to_owned(),
            x: Axis::new("load", "1"),
            y: Axis::new("mean age", "s"),
            series: vec![series("ours", false), series("paper & model", true)],
        };
        Figure {
            title: "A \"figure\"".to_owned(),
            panels: vec![Panel::Curves(curves)],
            note: String::new(),
        }
    }

    #[test]
    fn a_drawing_has_title_axes_with_units_legend_and_no_markup_of_its_texts() {
        let drawn = svg(&figure()).unwrap();
        for text in [
            "aria-label=\"A &quot;figure&quot;\"",
            "Age &lt;over&gt; load",
            "mean age (ms)",
            "load\n",
            "paper &amp; model",
            "<title>ours: load 1, mean age (ms) 10 ± 1</title>",
        ] {
            assert!(drawn.contains(text), "{text} in {drawn}");
        }
    }

    #[cfg(feature = "pictures")]
    #[test]
    fn every_format_is_written_with_its_signature() {
        let folder = tempfile::tempdir().unwrap();
        for (format, start) in
            [(Format::Svg, &b"<svg"[..]), (Format::Png, b"\x89PNG"), (Format::Pdf, b"%PDF")]
        {
            let path = folder.path().join("new").join("figure").with_extension(format.extension());
            write(&figure(), &path, format).unwrap();
            assert!(fs::read(&path).unwrap().starts_with(start), "{format:?}");
            assert_eq!(Format::of(&path), Some(format));
        }
        assert_eq!(Format::of(Path::new("figure.jpg")), None);
    }
}
