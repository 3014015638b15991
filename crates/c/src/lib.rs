//! The library freshline for C and C++.
//!
//! `include/freshline.h` is generated from this crate (`tests/header.rs`); its introduction has the rules that all
//! functions follow. `include/freshline.hpp` wraps it for C++. `README.md` says how to build and link.
//!
//! Unsafe: the interface of C consists of pointers.

#![allow(unsafe_code, reason = "C passes pointers, and calls functions by fixed names")]
#![allow(non_camel_case_types, reason = "the header has these names")]

mod config;
mod error;
mod monitor;
mod monitor_config;
mod raw;
mod source;
mod source_config;
mod state;
mod subscription;
mod topic;

pub use config::*;
pub use error::*;
pub use monitor::*;
pub use monitor_config::*;
pub use raw::{Buffer, Bytes, Text, User};
pub use source::*;
pub use source_config::*;
pub use state::*;
pub use subscription::*;
pub use topic::*;
