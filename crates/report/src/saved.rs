//! Runs of the lab, as `freshline lab run --json` prints and `--json-file` saves them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// A saved run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SavedRun {
    /// Its name: that of its file without the extension.
    pub name: String,
    /// The scenario; empty in files of earlier versions.
    pub scenario: String,
    /// The title of the scenario, likewise.
    pub title: String,
    /// The version of the program, likewise.
    pub version: String,
    /// The seed.
    pub seed: u64,
    /// The independent runs.
    pub runs: u32,
    /// One per combination of swept keys; one without keys if nothing was swept.
    pub points: Vec<SavedPoint>,
}

/// The measurements at a point of a sweep.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct SavedPoint {
    /// The swept keys.
    pub set: BTreeMap<String, Value>,
    /// The metrics.
    pub metrics: Vec<SavedMetric>,
}

/// A metric.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct SavedMetric {
    /// Its name, such as `age_mean`.
    pub name: String,
    /// Of which flow or link.
    pub of: String,
    /// The mean over the runs; `None` if it was no number.
    pub value: Option<f64>,
    /// Its unit: `s`, `bit/s`, `1` and others.
    pub unit: String,
    /// Half the width of its 95 % interval; `None` with one run.
    pub ci95: Option<f64>,
}

/// A file that is not a saved run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is too large.
    #[error("{} has more than {} MiB; it is no saved run", path.display(), MAX_LENGTH >> 20)]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// A field is missing or of another type.
    #[error("{}: {field}: {message}; write it with `freshline lab run SCENARIO --json-file FILE`", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field, such as `points[2].metrics[0].value`.
        field: String,
        /// The fault.
        message: String,
    },
    /// There is no run in the folder.
    #[error("{} has no saved run; write one with `freshline lab run SCENARIO --json-file FILE.json`", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
}

/// The maximum length of a saved run, in bytes.
const MAX_LENGTH: u64 = 64 << 20;

/// The document in a file.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    scenario: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    version: String,
    seed: u64,
    runs: u32,
    metrics: Option<Vec<SavedMetric>>,
    points: Option<Vec<SavedPoint>>,
}

impl SavedRun {
    /// Reads a file.
    ///
    /// # Errors
    /// [`SavedError::Read`], [`SavedError::TooLong`], [`SavedError::Field`].
    pub fn read(path: &Path) -> Result<Self, SavedError> {
        let unread = |error| SavedError::Read { path: path.to_owned(), error };
        if fs::metadata(path).map_err(unread)?.len() > MAX_LENGTH {
            return Err(SavedError::TooLong { path: path.to_owned() });
        }
        let bytes = fs::read(path).map_err(unread)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &bytes).map_err(|(field, message)| SavedError::Field {
            path: path.to_owned(),
            field,
            message,
        })
    }

    /// Reads all files of a folder whose names end in `.json`, in the order of their names.
    ///
    /// # Errors
    /// [`SavedError`].
    pub fn read_folder(folder: &Path) -> Result<Vec<Self>, SavedError> {
        let unread = |error| SavedError::Read { path: folder.to_owned(), error };
        let entries = fs::read_dir(folder).map_err(unread)?;
        let paths = entries.map(|entry| Ok(entry.map_err(unread)?.path()));
        let mut paths = paths.collect::<Result<Vec<_>, SavedError>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        if paths.is_empty() {
            return Err(SavedError::Empty { path: folder.to_owned() });
        }
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// The run in a file's bytes, or a field and its fault.
    fn parse(name: &str, bytes: &[u8]) -> Result<Self, (String, String)> {
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        let document: Document =
            serde_path_to_error::deserialize(&mut reader).map_err(|error| {
                let field = match error.path().to_string() {
                    path if path == "." => "the document".to_owned(),
                    path => format!("`{path}`"),
                };
                (field, error.into_inner().to_string())
            })?;
        reader.end().map_err(|error| ("the document".to_owned(), error.to_string()))?;
        let points = match (document.metrics, document.points) {
            (_, Some(points)) => points,
            (Some(metrics), None) => vec![SavedPoint { set: BTreeMap::new(), metrics }],
            (None, None) => {
                let message = "neither `metrics` nor `points`: it is no run of the lab";
                return Err(("the document".to_owned(), message.to_owned()));
            }
        };
        let Document { scenario, title, version, seed, runs, .. } = document;
        Ok(Self { name: name.to_owned(), scenario, title, version, seed, runs, points })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SavedRun, (String, String)> {
        SavedRun::parse("a", text.as_bytes())
    }

    #[test]
    fn runs_with_and_without_a_sweep_are_points() {
        let metric = r#"{"name":"age_mean","of":"robot","value":0.03,"unit":"s","ci95":null}"#;
        let one = parse(&format!(r#"{{"seed":1,"runs":2,"metrics":[{metric}]}}"#)).unwrap();
        assert_eq!((one.points.len(), one.points[0].set.len(), one.runs), (1, 0, 2));
        let set = format!(r#"{{"set":{{"flow.robot.count":3}},"metrics":[{metric}]}}"#);
        let swept = parse(&format!(r#"{{"seed":1,"runs":2,"points":[{set},{set}]}}"#)).unwrap();
        assert_eq!(swept.points[1].set["flow.robot.count"], 3);
        assert_eq!(swept.points[0].metrics[0].value, Some(0.03));
    }

    #[test]
    fn mistakes_name_the_field() {
        for (text, field, message) in [
            ("", "the document", "EOF"),
            ("[]", "the document", "expected struct Document"),
            (r#"{"runs":2,"metrics":[]}"#, "the document", "missing field `seed`"),
            (r#"{"seed":1,"runs":2}"#, "the document", "neither `metrics` nor `points`"),
            (r#"{"seed":1,"runs":"x","metrics":[]}"#, "`runs`", "expected u32"),
            (r#"{"seed":1,"runs":1,"metrics":[{"name":1}]}"#, "`metrics[0].name`", "string"),
            (r#"{"seed":1,"runs":1,"points":[{"set":{}}]}"#, "`points[0]`", "`metrics`"),
            (r#"{"seed":1,"runs":1,"metrics":[]} x"#, "the document", "trailing"),
        ] {
            let (found, said) = parse(text).unwrap_err();
            assert!(found == field && said.contains(message), "{text}: {found}: {said}");
        }
    }
}
