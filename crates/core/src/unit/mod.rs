//! Quantities with their units as types.
//!
//! | type | holds | prints and parses as |
//! |---|---|---|
//! | [`Time`] | a moment, ns since an arbitrary start | – (moments are only compared) |
//! | [`Span`] | a length of time, ns, never negative | `20ms`, `1.5s`, `250us` |
//! | [`BitRate`] | bits per second | `6mbit`, `128kbit` |
//! | [`UpdateRate`] | updates per second | `50/s` |
//! | [`Bytes`] | a size | `1024B`, `64kB`, `1MiB` |
//! | [`Packets`] | a count of packets | `100p` |
//!
//! Operators saturate at the ends of the range instead of wrapping or panicking: a hostile number
//! never stops a law. Where an overflow must be noticed there is a `checked_*` method. Printing is
//! exact, and printed values parse back to the same value.

mod bytes;
mod parse;
mod rate;
mod time;

pub use bytes::{Bytes, Packets};
pub use parse::ParseUnitError;
pub use rate::{BitRate, UpdateRate};
pub use time::{Span, Time};
