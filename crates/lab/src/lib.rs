//! The laboratory: the laws of `freshline-core` in virtual time, over links, Wi-Fi cells and TCP.
//!
//! Every element is a state machine with one contract: inputs have the time `now`, `poll` returns
//! the outputs that are due, and `poll_timeout` the time of the next call. Equal seeds give equal
//! bytes.

pub mod capture;
pub mod contest;
pub mod engine;
pub mod journey;
pub mod library;
pub mod locate;
pub mod mesh;
pub mod packets;
pub mod record;
pub mod reproduce;
pub mod run;
pub mod safety;
pub mod scenario;
pub mod series;
pub mod tcp;
pub mod topology;
pub mod torture;
pub mod watch;
pub mod world;
