//! Shared parts of these tests.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::common::can_run_with;

/// Whether the tests can run; prints the reason if not.
pub(crate) fn can_run() -> bool {
    can_run_with(&["/dev/net/tun"])
}

/// Attachments and cgroups are the whole host's: one test at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The attachment with this value in the output of `status --json` by `command`.
pub(crate) fn attachment(mut command: Command, key: &str, value: &str) -> Option<Value> {
    let printed = command.args(["receiver", "status", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let all = report["attachments"].as_array().unwrap();
    all.iter().find(|one| one[key] == value).cloned()
}
