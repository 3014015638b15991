//! `freshline wlan` as a user meets it.

mod backhaul;
mod command;
mod counting;
mod figures;
mod kit;
#[path = "../common/promtool.rs"]
mod promtool;
mod strangers;
#[path = "../common/verdict.rs"]
mod verdict;
