//! Trace files as named in configurations. The driver reads the files; this module requests them by
//! name.

use alloc::string::String;
use alloc::sync::Arc;

use super::{Trace, TraceError};

/// A trace by the name of its file. Two are equal if their names are equal.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "String", into = "String"))]
pub struct TraceFile {
    name: String,
    trace: Option<Arc<Trace>>,
}

/// Why a trace is unavailable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceFileError<E> {
    /// The file cannot be read.
    #[error("cannot read the trace `{name}`: {reason}")]
    Unreadable {
        /// The name of the trace.
        name: String,
        /// The reader's error.
        reason: E,
    },
    /// The file is not a trace.
    #[error("the trace `{name}`, {reason}")]
    Malformed {
        /// The name of the trace.
        name: String,
        /// The line and what to do.
        reason: TraceError,
    },
}

impl TraceFile {
    /// The trace of that name, not read yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), trace: None }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The trace, once read.
    pub fn trace(&self) -> Option<Arc<Trace>> {
        self.trace.clone()
    }

    /// Reads the trace from the text that `read` returns for its name.
    pub fn read<E>(
        &mut self,
        read: impl FnOnce(&str) -> Result<String, E>,
    ) -> Result<(), TraceFileError<E>> {
        let name = || self.name.clone();
        let text = read(&self.name)
            .map_err(|reason| TraceFileError::Unreadable { name: name(), reason })?;
        let trace = Trace::parse(&text)
            .map_err(|reason| TraceFileError::Malformed { name: name(), reason })?;
        self.trace = Some(Arc::new(trace));
        Ok(())
    }
}

impl PartialEq for TraceFile {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl From<String> for TraceFile {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

impl From<TraceFile> for String {
    fn from(file: TraceFile) -> Self {
        file.name
    }
}
