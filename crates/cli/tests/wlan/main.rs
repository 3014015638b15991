//! `freshline wlan` as a user meets it.

mod command;
mod counting;
mod figures;
mod kit;
mod strangers;
#[path = "../common/verdict.rs"]
mod verdict;
