//! Shared parts of tests in virtual time.

use std::error::Error;
use std::time::Duration;

use freshline::{Source, SourceBuilder};

pub(crate) const URL: &str = "udp://127.0.0.1:3774";

pub(crate) type Outcome = Result<(), Box<dyn Error>>;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The robot of these tests, as its program sets it up: for the world and for a simulation.
pub(crate) fn robot(url: &str) -> SourceBuilder {
    Source::builder(url).name("robot-7").topic("pose")
}
