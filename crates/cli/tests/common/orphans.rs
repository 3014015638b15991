//! Network namespaces of tests that were killed.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Removes those whose names are this prefix, the number of a process that is gone, and more.
pub(crate) fn remove_orphans(prefix: &str) {
    let names = fs::read_dir("/var/run/netns").into_iter().flatten().flatten();
    for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
        let process = name.strip_prefix(prefix).and_then(|rest| rest.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}
