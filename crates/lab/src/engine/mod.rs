//! Virtual time: the order of wake-ups, and the source of random numbers.

mod agenda;
mod streams;

pub use agenda::Agenda;
pub use streams::Streams;
