//! The scenarios embedded in the program, and those in files.

use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use include_dir::{Dir, include_dir};

use crate::scenario::Source;

static SCENARIOS: Dir = include_dir!("$CARGO_MANIFEST_DIR/scenarios");

/// Folders of related scenarios; the name of a scenario begins with that of its folder.
const GROUPS: [&str; 10] =
    ["dtpa", "fresher", "ifc", "journey", "large", "qaware", "rtac", "sorpc", "topics", "wlan"];

/// Reads a file that a scenario refers to.
type ReadFile = dyn Fn(&str) -> io::Result<String> + Send + Sync;

/// A scenario as text.
pub struct Text {
    /// Its name, such as `one-mm1-queue` or `rtac/fairness`; for a file, its path.
    pub name: String,
    /// The text, in TOML.
    pub text: String,
    read_file: Box<ReadFile>,
}

/// A scenario that is neither a readable file nor embedded in the program.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the scenario {name}; `freshline lab list` shows the bundled ones")]
pub struct NotFound {
    /// The name given.
    pub name: String,
    /// The reason why the file cannot be read.
    pub source: io::Error,
}

impl Text {
    /// A scenario from elsewhere. The files that it refers to, such as traces, are in `folder`;
    /// with `None`, in the working directory.
    pub fn of(name: impl Into<String>, text: String, folder: Option<PathBuf>) -> Self {
        let folder = folder.unwrap_or_default();
        let read_file = Box::new(move |name: &str| fs::read_to_string(folder.join(name)));
        Self { name: name.into(), text, read_file }
    }

    /// The scenario `text` instead of an embedded one: the files that it refers to are in the
    /// embedded folder of `name`.
    pub fn embedded(name: impl Into<String>, text: String) -> Self {
        let name = name.into();
        let folder = Path::new(&name).parent().unwrap_or(Path::new("")).to_owned();
        Self { name, text, read_file: Box::new(move |name| read_embedded(&folder.join(name))) }
    }

    /// The scenario, to parse.
    pub fn source(&self) -> Source<'_> {
        Source { text: &self.text, read_file: &*self.read_file }
    }
}

/// The scenarios embedded in the program, in the order of their names, unparsed.
pub fn all() -> Vec<Text> {
    let groups = GROUPS.iter().filter_map(|group| SCENARIOS.get_dir(group));
    let files = groups.chain([&SCENARIOS]).flat_map(Dir::files);
    let toml = files.filter(|file| file.path().extension().is_some_and(|e| e == "toml"));
    let mut all: Vec<_> = toml
        .filter_map(|file| {
            let name = file.path().with_extension("").to_string_lossy().into_owned();
            Some(Text::embedded(name, file.contents_utf8()?.to_owned()))
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// The scenarios with the name `name`: one as found by [`find`], `all`, or those of a folder.
///
/// # Errors
/// Errors of [`find`].
pub fn several(name: &str) -> Result<Vec<Text>, NotFound> {
    let is_meant = |text: &Text| {
        name == "all"
            || Path::new(&text.name).parent().is_some_and(|group| group == Path::new(name))
    };
    if name == "all" || GROUPS.contains(&name) {
        return Ok(all().into_iter().filter(is_meant).collect());
    }
    Ok(vec![find(name)?])
}

/// The scenario with the name `name`: a file, or else an embedded one.
///
/// # Errors
/// [`NotFound`] if it is neither, or the file cannot be read.
pub fn find(name: &str) -> Result<Text, NotFound> {
    let path = Path::new(name);
    if let Some(known) = all().into_iter().find(|text| text.name == name).filter(|_| !path.exists())
    {
        return Ok(known);
    }
    let text =
        fs::read_to_string(path).map_err(|source| NotFound { name: name.to_owned(), source })?;
    Ok(Text::of(name, text, path.parent().map(Path::to_owned)))
}

/// An embedded file, by its path from the folder of all scenarios.
fn read_embedded(path: &Path) -> io::Result<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn a_scenario_of_a_folder_is_found_with_the_files_that_it_names() {
        let with_trace = all().into_iter().find(|text| text.text.contains("trace = \"")).unwrap();
        let found = find(&with_trace.name).unwrap();
        assert_eq!(found.text, with_trace.text);
        assert!(Scenario::parse(found.source()).is_ok(), "{}", found.name);
    }

    #[test]
    fn a_changed_text_reads_the_files_of_the_scenario_that_it_replaces() {
        let with_trace = all().into_iter().find(|text| text.text.contains("trace = \"")).unwrap();
        let changed = with_trace.text.clone() + "\n# changed";
        let text = Text::embedded(&*with_trace.name, changed);
        assert!(Scenario::parse(text.source()).is_ok(), "{}", text.name);
    }

    #[test]
    fn a_file_is_found_by_its_path_and_names_files_next_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.toml");
        fs::write(&path, "title = \"own\"").unwrap();
        fs::write(folder.path().join("own.trace"), "1\n2\n").unwrap();
        let found = find(path.to_str().unwrap()).unwrap();
        assert_eq!(found.text, "title = \"own\"");
        assert_eq!((found.source().read_file)("own.trace").unwrap(), "1\n2\n");
    }

    #[test]
    fn a_name_of_nothing_is_refused_with_the_command_that_lists_names() {
        let error = find("no-such-scenario").err().expect("there is none");
        assert!(error.to_string().contains("freshline lab list"), "{error}");
        assert_eq!(error.source.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_folder_names_the_scenarios_in_it_and_all_names_all() {
        let wlan = several("wlan").unwrap();
        assert!(wlan.len() > 1 && wlan.iter().all(|text| text.name.starts_with("wlan/")));
        let [everything, one] = ["all", "one-mm1-queue"].map(|name| several(name).unwrap().len());
        assert_eq!((everything, one), (all().len(), 1));
    }
}
