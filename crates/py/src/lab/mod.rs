//! The lab: scenarios in virtual time, with laws in Python where wanted.

mod batch;
mod law;
mod parallel;
mod prepared;
mod recording;
mod reproduction;
mod text;

pub(crate) use batch::run_batch;
pub(crate) use law::PyAck;
pub(crate) use parallel::while_looking;
pub(crate) use prepared::Prepared;
pub(crate) use recording::Recording;
pub(crate) use reproduction::reproduce;
pub(crate) use text::{dict_of, scenario_text, scenarios, toml_of};
