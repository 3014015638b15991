//! What these tests share.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::unistd::Uid;
use serde_json::Value;

pub(crate) const FRESHLINE: &str = env!("CARGO_BIN_EXE_freshline");

/// Whether the tests can run; they say so if not.
pub(crate) fn can_run() -> bool {
    let missing = if !Uid::effective().is_root() {
        "root"
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        "a kernel with BTF"
    } else if cgroups().is_none() {
        "control groups of version 2"
    } else if !Path::new("/dev/net/tun").exists() {
        "/dev/net/tun"
    } else if let Some(tool) = ["ip", "ss", "tc", "nsenter"].into_iter().find(|tool| lacks(tool)) {
        tool
    } else {
        return true;
    };
    println!("skipped: needs {missing}");
    false
}

fn lacks(tool: &str) -> bool {
    Command::new(tool).arg("-V").output().is_err()
}

/// Where the cgroups of version 2 are.
pub(crate) fn cgroups() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    mount.split(' ').nth(1).map(PathBuf::from)
}

/// Attachments and cgroups are the whole host's: one test at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The attachment of which `status --json`, asked by `command`, says this.
pub(crate) fn attachment(mut command: Command, key: &str, value: &str) -> Option<Value> {
    let printed = command.args(["receiver", "status", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let all = report["attachments"].as_array().unwrap();
    all.iter().find(|one| one[key] == value).cloned()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
pub(crate) fn assert_succeeded(done: &Output) {
    assert!(done.status.success(), "{}", text(&done.stderr));
}

/// Ends with 1, and says this. Words only: where lines break is the terminal's choice.
#[track_caller]
pub(crate) fn assert_refused(done: &Output, why: &str) {
    let said = text(&done.stderr);
    let said = said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains(why), "{said}");
}
