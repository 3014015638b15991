//! Figures of the lab and their files.

mod journey;
mod recording;
mod reproduction;
mod series_names;
mod swept;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use freshline_report::{Figure, Format, Scale, write};
use miette::{IntoDiagnostic, miette};

pub(super) use self::journey::journey_panels;
pub(super) use self::recording::{ages_panel, recorded, series_panels};
pub(super) use self::reproduction::{INTERVALS, reproduction_panels};
use crate::failure::Failure;

/// Where figures are written, and how they are drawn.
#[derive(Debug, clap::Args)]
pub(super) struct FigureArgs {
    /// Draw the figures as NAME.svg into this folder, or as NAME.png or NAME.pdf with --format.
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Write the figures of --figures in this format.
    #[arg(long, value_enum, value_name = "FORMAT", requires = "figures")]
    format: Option<FormatName>,
    #[command(flatten)]
    pub(super) scales: Scales,
}

/// The axes of curves.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct Scales {
    /// Scale the horizontal axis of curves in figures and reports. `auto` is logarithmic for ratios
    /// of 50 or more.
    #[arg(long, value_enum, value_name = "SCALE", default_value_t)]
    x_scale: ScaleName,
    /// Scale the axis of the values, likewise.
    #[arg(long, value_enum, value_name = "SCALE", default_value_t)]
    y_scale: ScaleName,
}

impl Scales {
    pub(super) fn x(self) -> Scale {
        self.x_scale.into()
    }

    pub(super) fn y(self) -> Scale {
        self.y_scale.into()
    }
}

/// The formats of `--format`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum FormatName {
    /// Scalable, for web pages.
    Svg,
    /// Pixels.
    Png,
    /// Scalable, for papers.
    Pdf,
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Svg => Self::Svg,
            FormatName::Png => Self::Png,
            FormatName::Pdf => Self::Pdf,
        }
    }
}

/// The scales of `--x-scale` and `--y-scale`.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum ScaleName {
    #[default]
    Auto,
    Linear,
    Log,
}

impl From<ScaleName> for Scale {
    fn from(name: ScaleName) -> Self {
        match name {
            ScaleName::Auto => Self::Auto,
            ScaleName::Linear => Self::Linear,
            ScaleName::Log => Self::Log,
        }
    }
}

impl FigureArgs {
    /// Whether --figures was given.
    pub(super) fn is_wanted(&self) -> bool {
        self.figures.is_some()
    }

    fn format(&self) -> Format {
        self.format.map_or(Format::Svg, Format::from)
    }

    /// Rejects a format that this program cannot write, before anything runs.
    pub(super) fn check(&self) -> Result<(), Failure> {
        available(self.format(), "--format")
    }

    /// Draws a figure into the folder, if there is one, under the [name](name_of) of its scenario
    /// with `ending`. A figure without panels is left out.
    pub(super) fn write(
        &self,
        scenario: &str,
        ending: &str,
        figure: &Figure,
    ) -> Result<(), Failure> {
        let Some(folder) = self.figures.as_ref().filter(|_| !figure.panels.is_empty()) else {
            return Ok(());
        };
        let name = format!("{}{ending}.{}", name_of(scenario), self.format().extension());
        draw(figure, &folder.join(name), self.format())
    }
}

/// Draws a figure into a file, in the format of its extension.
pub(super) fn draw_into(figure: &Figure, path: &Path) -> Result<(), Failure> {
    draw(figure, path, format_of(path)?)
}

/// The format of a file of --figure.
pub(super) fn format_of(path: &Path) -> Result<Format, Failure> {
    let format = Format::of(path).ok_or_else(|| {
        let path = path.display();
        Failure::Usage(miette!("--figure {path}: the name must end in .svg, .png or .pdf"))
    })?;
    available(format, "--figure").map(|()| format)
}

fn available(format: Format, flag: &str) -> Result<(), Failure> {
    if format.is_available() {
        return Ok(());
    }
    let extension = format.extension();
    Err(Failure::Usage(miette!(
        "{flag}: this program was built without {extension}; use svg, or build it with the feature `pictures`"
    )))
}

fn draw(figure: &Figure, path: &Path, format: Format) -> Result<(), Failure> {
    write(figure, path, format).into_diagnostic().map_err(Failure::Runtime)
}

/// The name of a scenario's figure: its name without the folder and the extension.
pub(super) fn name_of(scenario: &str) -> Cow<'_, str> {
    Path::new(scenario).file_stem().unwrap_or_default().to_string_lossy()
}
