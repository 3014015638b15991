//! `freshline receiver` as a user meets it, on the running kernel.

mod cgroup;
#[path = "../common/mod.rs"]
mod common;
mod device;
mod kit;
mod paths;
#[path = "../common/verdict.rs"]
mod verdict;
