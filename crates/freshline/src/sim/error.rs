//! Why a simulation cannot be set up, or has no answer.

use std::io;
use std::path::PathBuf;

use freshline_lab::scenario::{ScenarioError, SetError};

use crate::error::Error;

/// Why a simulation cannot be set up, or has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The scenario cannot be used.
    #[error(transparent)]
    Scenario(Box<ScenarioError>),
    /// A key of the scenario cannot be set.
    #[error(transparent)]
    Set(Box<SetError>),
    /// The scenario's file cannot be read.
    #[error("cannot read {path}: {error}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The source or the monitor cannot be built.
    #[error(transparent)]
    Build(Box<Error>),
    /// Sources already have all flows of this name.
    #[error(
        "all {count} of the flow `{flow}` have a source: name another flow, or give this one a higher `count` \
         before the simulation starts"
    )]
    FlowTaken {
        /// The flow.
        flow: String,
        /// How many of it there are.
        count: usize,
    },
    /// A simulation has one monitor.
    #[error("the simulation has a monitor already, and takes one: use another simulation")]
    SecondMonitor,
    /// It is too late to change the scenario.
    #[error(
        "`{0}` changes the scenario, for which it is too late: set keys before the first source or monitor, and \
         add sources before the simulation runs"
    )]
    TooLate(String),
    /// No topic of this name.
    #[error("there is no topic {name:?} to report; there are {known:?}")]
    UnknownTopic {
        /// The name, with its source: `robot-7/pose`.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// No source, link or flow of this name.
    #[error("there is no {kind} {name:?} to report; there are {known:?}")]
    Unknown {
        /// `source`, `link` or `flow`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// Nothing was measured.
    #[error("nothing of {0:?} was measured: run the simulation for longer than the `warm_up`")]
    NotMeasured(String),
}

impl From<ScenarioError> for SimError {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(Box::new(error))
    }
}

impl From<SetError> for SimError {
    fn from(error: SetError) -> Self {
        Self::Set(Box::new(error))
    }
}

impl From<Error> for SimError {
    fn from(error: Error) -> Self {
        Self::Build(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_small_enough_to_be_returned_by_functions_of_tests() {
        assert!(size_of::<SimError>() < 128);
    }
}
