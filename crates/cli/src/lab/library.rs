//! The scenarios that come with the program, and those in files.

use std::fs;
use std::path::{Path, PathBuf};

use freshline_lab::scenario::{Change, SetError, Source};
use include_dir::{Dir, include_dir};
use miette::{IntoDiagnostic, WrapErr, miette};

use crate::Failure;

static SCENARIOS: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../scenarios");

/// A scenario as text.
pub(super) struct Text {
    pub(super) name: String,
    pub(super) text: String,
    /// Where it stands, for the traces that it names.
    folder: PathBuf,
}

impl Text {
    pub(super) fn source(&self) -> Source<'_> {
        Source { text: &self.text, folder: &self.folder }
    }
}

/// The scenarios that come with the program, by name.
pub(super) fn all() -> Vec<Text> {
    let toml =
        SCENARIOS.files().filter(|file| file.path().extension().is_some_and(|e| e == "toml"));
    let mut all: Vec<_> = toml
        .filter_map(|file| {
            let name = file.path().file_stem()?.to_string_lossy().into_owned();
            let text = file.contents_utf8()?.to_owned();
            Some(Text { name, text, folder: PathBuf::new() })
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// The scenario called `name`: a file, or else one that comes with the program.
pub(super) fn find(name: &str) -> Result<Text, Failure> {
    let path = Path::new(name);
    if let Some(known) = all().into_iter().find(|text| text.name == name).filter(|_| !path.exists())
    {
        return Ok(known);
    }
    let text = fs::read_to_string(path)
        .into_diagnostic()
        .wrap_err_with(|| {
            format!(
                "cannot read the scenario {name}; `freshline lab list` shows those that come along"
            )
        })
        .map_err(Failure::Usage)?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    Ok(Text { name: name.to_owned(), text, folder })
}

/// The changes of `--set`, and of the flags that stand for some.
pub(super) fn changes(
    set: &[String],
    seed: Option<u64>,
    runs: Option<u32>,
) -> Result<Vec<Change>, Failure> {
    let own = |key, value: Option<i64>| value.map(|value| Change::new(key, value.into()));
    let set: Result<Vec<_>, _> = set.iter().map(|text| Change::parse(text)).collect();
    let mut changes = set.map_err(|error| Failure::Usage(miette!("--set: {error}")))?;
    changes.extend(own("seed", seed.map(|seed| seed.cast_signed())));
    changes.extend(own("runs", runs.map(i64::from)));
    Ok(changes)
}

/// What a scenario that cannot be run is to the user.
pub(super) fn bad(name: &str, error: &SetError) -> Failure {
    Failure::Usage(miette!("{name}: {error}"))
}
