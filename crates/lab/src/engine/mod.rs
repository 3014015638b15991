//! Virtual time: who wakes next, and where randomness comes from.

mod agenda;
mod streams;

pub use agenda::Agenda;
pub use streams::Streams;
