//! Changes a scenario by `key=value`.
//!
//! A key is a path: `duration`, `link.NAME.there.rate`, `flow.NAME.updates.law`. Links and flows
//! are selected by name. Changes are applied to the file's table, which is then read like any
//! other, so that a change cannot set anything that a file could not.

use toml::{Table, Value};

use super::{Scenario, ScenarioError, Source};

/// A change that cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SetError {
    /// The file itself cannot be read.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Not `key=value`.
    #[error("`{0}` is not of the form `key=value`, such as `flow.robot.updates.payload=500B`")]
    NotAPair(String),
    /// There is no table with that name.
    #[error("`{key}`: there is no {kind} called `{name}`; there is: {known}")]
    NoSuchName {
        /// The whole key.
        key: String,
        /// `link` or `flow`.
        kind: String,
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// A part of the key that is not a table.
    #[error("`{key}`: `{part}` is not a table")]
    NoTable {
        /// The whole key.
        key: String,
        /// The part.
        part: String,
    },
    /// A sweep without values.
    #[error("`sweep`: `{0}` has no values; list at least one, or leave the key out")]
    EmptySweep(String),
    /// The change makes the scenario invalid.
    #[error("after `{key}` was set: {error}")]
    Result {
        /// The last key that was set.
        key: String,
        /// The error.
        error: ScenarioError,
    },
}

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    key: String,
    value: Value,
}

impl Change {
    /// A change of `key`.
    pub fn new(key: impl Into<String>, value: Value) -> Self {
        Self { key: key.into(), value }
    }

    /// Parses a flag `key=value`. The value is TOML, or else a literal string.
    pub fn parse(text: &str) -> Result<Self, SetError> {
        let (key, value) =
            text.split_once('=').ok_or_else(|| SetError::NotAPair(text.to_owned()))?;
        let read: Result<Table, _> = format!("value = {value}").parse();
        let value = match read {
            Ok(mut table) if table.len() == 1 => table.remove("value"),
            _ => None,
        }
        .unwrap_or_else(|| Value::String(value.trim().to_owned()));
        Ok(Self::new(key.trim(), value))
    }

    /// The changes that a table of keys makes, in the order of the keys.
    pub fn each<'a>(
        set: impl IntoIterator<Item = (&'a String, &'a Value)>,
    ) -> impl Iterator<Item = Self> {
        set.into_iter().map(|(key, value)| Self::new(key.clone(), value.clone()))
    }

    /// The key that is changed.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The new value.
    pub const fn value(&self) -> &Value {
        &self.value
    }

    fn apply(&self, root: &mut Table) -> Result<(), SetError> {
        let mut table = root;
        let mut parts = self.key.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                table.insert(part.to_owned(), self.value.clone());
                return Ok(());
            }
            let inner = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
            table = match inner {
                Value::Table(inner) => inner,
                Value::Array(all) => {
                    let name = parts.next().unwrap_or_default();
                    let known: Vec<_> = all.iter().filter_map(name_of).collect();
                    let missing = SetError::NoSuchName {
                        key: self.key.clone(),
                        kind: part.to_owned(),
                        name: name.to_owned(),
                        known: known.join(", "),
                    };
                    let named = all.iter_mut().find(|one| name_of(one) == Some(name));
                    named.and_then(Value::as_table_mut).ok_or(missing)?
                }
                _ => {
                    return Err(SetError::NoTable { key: self.key.clone(), part: part.to_owned() });
                }
            };
        }
        Ok(())
    }
}

fn name_of(one: &Value) -> Option<&str> {
    one.get("name")?.as_str()
}

impl Scenario {
    /// Reads a scenario as [`Scenario::parse`] does, with changes made to it.
    pub fn parse_with<'a>(
        source: impl Into<Source<'a>>,
        changes: &[Change],
    ) -> Result<Self, SetError> {
        let source = source.into();
        if changes.is_empty() {
            return Ok(Self::parse(source)?);
        }
        Self::parse_edited(source, changes, |_| ())
    }

    /// The same, with an edit of the whole table after the changes.
    pub(crate) fn parse_edited(
        source: Source<'_>,
        changes: &[Change],
        edit: impl FnOnce(&mut Table),
    ) -> Result<Self, SetError> {
        let Source { text, read_file } = source;
        // Parse the unchanged file first, so that errors of the file point at its lines.
        Self::parse(source)?;
        let malformed = |error: toml::de::Error| ScenarioError::Malformed(error.to_string());
        let mut table: Table = text.parse().map_err(malformed)?;
        for change in changes {
            change.apply(&mut table)?;
        }
        edit(&mut table);
        let changed: Result<Self, _> = table.try_into().map_err(malformed);
        let checked =
            changed.and_then(|mut scenario| scenario.complete(read_file).map(|()| scenario));
        let key = || changes.last().map_or_else(String::new, |last| last.key.clone());
        checked.map_err(|error| SetError::Result { key: key(), error })
    }
}
