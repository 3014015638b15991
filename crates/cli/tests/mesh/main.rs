//! `freshline mesh` as a user meets it, on the running kernel.

mod attach;
mod chain;
#[path = "../common/mod.rs"]
mod common;
mod fairness;
#[path = "../common/hosts.rs"]
mod hosts;
mod killed;
#[path = "../common/lateness.rs"]
mod lateness;
#[path = "../common/orphans.rs"]
mod orphans;
#[path = "../common/promtool.rs"]
mod promtool;
#[path = "../common/steps.rs"]
mod steps;
#[path = "../common/streams.rs"]
mod streams;
mod transfers;
#[path = "../common/verdict.rs"]
mod verdict;

use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use common::FRESHLINE;
use orphans::remove_orphans;

const NAME: &str = "freshline_dtpa";

/// The congestion control is the whole host's: one test at a time, and gone however it ends.
struct Alone {
    _lock: MutexGuard<'static, ()>,
}

impl Alone {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let lock = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // Of a test that was killed.
        mesh("detach");
        remove_orphans("fl-mesh-");
        Self { _lock: lock }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        mesh("detach");
    }
}

/// `freshline mesh` with these arguments.
fn mesh(arguments: &str) -> Output {
    Command::new(FRESHLINE).arg("mesh").args(arguments.split(' ')).output().unwrap()
}

/// The `status` by this command; `None` if nothing is attached.
fn status(mut command: Command) -> Option<Value> {
    let printed = command.args(["mesh", "status", "--json"]).output().unwrap();
    let mut report: Value = serde_json::from_slice(&printed.stdout).unwrap();
    Some(report["attachment"].take()).filter(|attachment| !attachment.is_null())
}
