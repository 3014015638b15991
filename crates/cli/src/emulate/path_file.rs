//! Path files; errors show the place in the file.

use std::path::Path;

use freshline_core::link::ConditionsConfig;
use miette::{Diagnostic, IntoDiagnostic, NamedSource, SourceSpan, WrapErr};

/// An invalid path file, with the place of the error.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{} is not a path file", file.name())]
#[diagnostic(help("`freshline emulate run --help` shows a path file"))]
struct BadFile {
    #[source_code]
    file: NamedSource<String>,
    #[label("{reason}")]
    place: SourceSpan,
    reason: String,
}

/// Reads a path file, and the traces that it names relative to itself.
pub(super) fn read_conditions(file: &Path) -> miette::Result<ConditionsConfig> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot read the path file {name}"))?;
    let mut conditions: ConditionsConfig = toml::from_str(&text).map_err(|error| {
        let place = error.span().unwrap_or(0..0).into();
        let reason = error.message().to_string();
        BadFile { file: NamedSource::new(name.clone(), text), place, reason }
    })?;
    let folder = file.parent().unwrap_or(Path::new(""));
    for path in [&mut conditions.forward, &mut conditions.reverse] {
        path.read_traces(|trace| std::fs::read_to_string(folder.join(trace)))
            .into_diagnostic()
            .wrap_err_with(|| format!("{name} names a trace"))?;
    }
    Ok(conditions)
}
