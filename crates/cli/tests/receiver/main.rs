//! `freshline receiver` as a user meets it, on the running kernel.

mod cgroup;
#[path = "../common/mod.rs"]
mod common;
mod device;
#[path = "../common/hosts.rs"]
mod hosts;
mod killed;
mod kit;
#[path = "../common/orphans.rs"]
mod orphans;
mod paths;
mod pins;
#[path = "../common/promtool.rs"]
mod promtool;
#[path = "../common/steps.rs"]
mod steps;
#[path = "../common/verdict.rs"]
mod verdict;
