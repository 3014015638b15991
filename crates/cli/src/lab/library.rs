//! The scenarios that come with the program, and those in files.

use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use clap::builder::{RangedU64ValueParser, TypedValueParser};
use freshline_lab::run::{Point, points};
use freshline_lab::scenario::{Change, SetError, Source};
use include_dir::{Dir, include_dir};
use miette::{IntoDiagnostic, WrapErr, miette};

use crate::failure::Failure;

static SCENARIOS: Dir = include_dir!("$CARGO_MANIFEST_DIR/scenarios");

/// Folders of scenarios that belong together: their names stand in front of the scenarios'.
const GROUPS: [&str; 9] =
    ["dtpa", "fresher", "ifc", "large", "qaware", "rtac", "sorpc", "topics", "wlan"];

/// Reads what a scenario names.
type ReadFile = dyn Fn(&str) -> io::Result<String>;

/// A scenario as text.
pub(super) struct Text {
    pub(super) name: String,
    pub(super) text: String,
    read_file: Box<ReadFile>,
}

impl Text {
    pub(super) fn source(&self) -> Source<'_> {
        Source { text: &self.text, read_file: &*self.read_file }
    }
}

/// The scenarios that come with the program, by name.
pub(super) fn all() -> Vec<Text> {
    let groups = GROUPS.iter().filter_map(|group| SCENARIOS.get_dir(group));
    let files = groups.chain([&SCENARIOS]).flat_map(Dir::files);
    let toml = files.filter(|file| file.path().extension().is_some_and(|e| e == "toml"));
    let mut all: Vec<_> = toml
        .filter_map(|file| {
            let name = file.path().with_extension("").to_string_lossy().into_owned();
            let text = file.contents_utf8()?.to_owned();
            let folder = file.path().parent().unwrap_or(Path::new(""));
            Some(Text { name, text, read_file: Box::new(|name| embedded(&folder.join(name))) })
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// The scenarios called `name`: one as [`find`] knows it, `all`, or those of a folder of them.
pub(super) fn several(name: &str) -> Result<Vec<Text>, Failure> {
    let is_meant = |text: &Text| {
        name == "all"
            || Path::new(&text.name).parent().is_some_and(|group| group == Path::new(name))
    };
    if name == "all" || GROUPS.contains(&name) {
        return Ok(all().into_iter().filter(is_meant).collect());
    }
    Ok(vec![find(name)?])
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
    let read_file = Box::new(move |name: &str| fs::read_to_string(folder.join(name)));
    Ok(Text { name: name.to_owned(), text, read_file })
}

/// A file that comes with the program, with its path from the folder of all scenarios.
fn embedded(path: &Path) -> io::Result<String> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            component => plain.push(component),
        }
    }
    let file = SCENARIOS.get_file(&plain).and_then(|file| file.contents_utf8());
    file.map(str::to_owned).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// A scenario, and what is changed of it.
#[derive(Debug, clap::Args)]
pub(super) struct Chosen {
    /// A scenario file (TOML), or the name of one that comes along: see `freshline lab list`.
    scenario: String,
    #[command(flatten)]
    changed: Changed,
}

impl Chosen {
    /// The scenario, and the points of its sweep.
    pub(super) fn points(&self) -> Result<(Text, Vec<Point>), Failure> {
        let text = find(&self.scenario)?;
        let changes = self.changed.changes()?;
        let points = points(text.source(), &changes).map_err(|error| bad(&text.name, &error))?;
        Ok((text, points))
    }
}

/// What is changed of a scenario.
#[derive(Debug, clap::Args)]
pub(super) struct Changed {
    /// Change a key of the scenario, such as flow.source.count=12; give it once a change.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The seed of all randomness, instead of the scenario's.
    #[arg(long, value_name = "N", value_parser = seed())]
    seed: Option<i64>,
    /// Independent runs, instead of the scenario's.
    #[arg(long, value_name = "N")]
    runs: Option<u32>,
}

/// Reads a `--seed`: as far as the numbers of a scenario's file go, which are TOML's.
fn seed() -> impl TypedValueParser<Value = i64> {
    RangedU64ValueParser::new().range(..=i64::MAX.cast_unsigned())
}

impl Changed {
    /// Those of `--set`, and of the flags that stand for some.
    pub(super) fn changes(&self) -> Result<Vec<Change>, Failure> {
        let own = |key, value: Option<i64>| value.map(|value| Change::new(key, value.into()));
        let set: Result<Vec<_>, _> = self.set.iter().map(|text| Change::parse(text)).collect();
        let mut changes = set.map_err(|error| Failure::Usage(miette!("--set: {error}")))?;
        changes.extend(own("seed", self.seed));
        changes.extend(own("runs", self.runs.map(i64::from)));
        Ok(changes)
    }
}

/// What a scenario that cannot be run is to the user.
pub(super) fn bad(name: &str, error: &SetError) -> Failure {
    Failure::Usage(miette!("{name}: {error}"))
}
